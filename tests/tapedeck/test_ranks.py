"""Steps of a script on two ranks: one is captured while the other waits, and both compute what they would alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from app.autograd.gradient_norms import measure
from app.engine.requests.playback import RecordRequest
from app.engine.watched.follow import follow
from app.engine.watched.frame_types import ranks_of, script_of
from app.training.events import Noticed
from tests.tapedeck.test_capture import Window, opened  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import copy, os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
torch.manual_seed(9)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(100 + rank)
if "watched" in sys.argv:
    while not os.path.exists("begin"):
        time.sleep(0.01)
for step in range(1, 8):
    if "watched" in sys.argv and step == 7:
        import tapedeck.ranks
        tapedeck.ranks.SHARE = 0.0  # whoever holds this rank from here on is not waited for
    x, alone = torch.randn(6, 4), copy.deepcopy(model.module)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    for own in alone.parameters():
        own.grad = None
    alone(x).square().mean().backward()
    own = {name: each.grad for name, each in alone.named_parameters()}
    torch.save({"own": own, "mean": {name: each.grad for name, each in model.module.named_parameters()}},
               f"{rank}-{step}.pt")
    print(step, loss.item().hex(), flush=True)
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the ranks meet at a port that is free: another worker of the suite runs ranks as well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))


def started(folder: Path, rank: int, *command: str) -> subprocess.Popen[str]:
    launched = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **launched, "PYTHONPATH": str(ROOT)},
    )


def printed(processes: list[subprocess.Popen[str]]) -> list[str]:
    outputs = [process.communicate()[0] for process in processes]
    assert not any(process.returncode for process in processes), outputs
    return outputs


@pytest.mark.skipif(
    not torch.distributed.is_gloo_available(), reason="this torch has no gloo"
)
def test_a_rank_is_captured_while_the_other_waits(
    tmp_path, opened: Callable[[Path], Window]
):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    apart, watched = tmp_path / "apart", tmp_path / "watched"
    folders = [watched / f"rank {rank}" for rank in range(2)]
    for folder in (apart, *folders):
        folder.mkdir(parents=True, mode=0o700)
    alone = printed([started(apart, rank, str(script)) for rank in range(2)])

    launcher = str(ROOT / "tapedeck" / "script.py")
    ranks = [
        started(watched, rank, launcher, str(folders[rank]), str(script), "watched")
        for rank in range(2)
    ]
    frames = [folder / "frames.jsonl" for folder in folders]
    while not all(path.exists() and path.read_text().endswith("\n") for path in frames):
        assert all(rank.poll() is None for rank in ranks)
        time.sleep(0.01)  # the ranks have all processors to load torch
    for path in frames:
        script_frame = script_of(path)
        assert script_frame is not None and ranks_of(path, script_frame) == dict(
            enumerate(frames)
        )
    windows = [opened(path.parent) for path in frames]
    waiting = [
        window.link.send("capture", step=step)
        for window, step in zip(windows, (2, 3), strict=True)
    ]
    (watched / "begin").touch()

    played: dict[tuple[int, int], dict[str, Any]] = {}
    for rank, following in ((0, 5), (1, 7), (0, 0)):
        engine, held, step = windows[rank].hold(waiting[rank])
        assert any(
            f"those of rank {rank} only: `.grad` will hold their mean over the 2 ranks"
            in note
            for note in step.notes
        )
        assert any(
            "continues by itself after 15 min" in note and "is 30 min" in note
            for note in step.notes
        )
        records = engine.ask(RecordRequest(held)).result(60).steps.records
        arrived = {
            name: record.arriving
            for record in records
            for name in step.tape.nodes[record.node].parameters
        }
        played[rank, held.step] = arrived
        assert not (
            watched / f"{1 - rank}-{held.step}.pt"
        ).exists()  # the other rank waits
        if following:
            waiting[rank] = windows[rank].link.send(
                "capture", step=following
            )  # by which it goes on
        else:
            windows[rank].link.send("release").result(60)
        engine.close()
    assert waiting[1].result(60)["step"] == 7  # and nobody lets it go on
    assert printed(ranks) == alone
    assert played.keys() == {(0, 2), (1, 3), (0, 5)}
    for (rank, number), arrived in played.items():
        kept = [
            torch.load(watched / f"{each}-{number}.pt", weights_only=True)
            for each in range(2)
        ]
        assert arrived.keys() == kept[rank]["own"].keys() and len(arrived) == 4
        for name, gradient in kept[rank]["own"].items():
            mean = (kept[0]["own"][name] + kept[1]["own"][name]) / 2
            assert torch.allclose(kept[rank]["mean"][name], mean, rtol=1e-5, atol=1e-8)
            assert (
                arrived[name] == tuple(measure([gradient])) != tuple(measure([mean]))
            ), (number, name)
    noticed = [
        event.message
        for event in follow(frames[1], every=0.01)
        if isinstance(event, Noticed)
    ]
    assert any(
        "continued by itself after" in words and "fail after 30 min" in words
        for words in noticed
    ), noticed
