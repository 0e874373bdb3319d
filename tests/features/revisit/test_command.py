"""`tapedeck revisit`: a step of a stored run recomputed, and what is said where it is another one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.main import main
from app.project import custom_layers, file
from app.runs import store
from app.training.recomputing import recording
from app.util.resources import path as resource_path
from app.views.pictures import headless_pictures
from tests.support import script_here
from tests.support.forked_python import start_command
from tests.support.run_commands import DIGITS, TRAIN, steps

pytestmark = pytest.mark.usefixtures("no_pictures")

NOISE = """import os

import torch
from torch import nn


class Noise(nn.Module):
    def forward(self, x):
        return x + 1e-6 * int.from_bytes(os.urandom(4), "big") / 2**32
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a command that trained the digits, each step with its hashes."""
    folder = tmp_path_factory.mktemp("trained") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "SHARE", 1e9)
        patch.setattr(headless_pictures, "run_pictures", lambda *_: None)
        assert main([*TRAIN, "--out", str(folder), "--save-every", "10"]) == 0
    return folder


@pytest.fixture
def trained(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recording, "SHARE", 1e9)
    return Path(shutil.copytree(original, tmp_path / "out"))


def revisit(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> dict[str, Any]:
    assert main(["revisit", *arguments, "--json"]) == code
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_step_is_printed_with_its_hashes_and_its_graph_is_written(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, tape = trained / "runs" / "0001", trained / "step.json"
    told = revisit(capsys, str(run), "--step", "33")
    assert list(told)[:6] == ["run", "step", "checkpoint", "loss", "layers", "parted"]
    assert (told["run"], told["step"], told["checkpoint"], told["parted"]) == (
        "Run 1",
        33,
        "step-00000030.pt",
        None,
    )
    assert [one["layer"] for one in told["layers"]] == ["conv1", "conv2", "fc1", "fc2"]
    for one in told["layers"]:
        assert one["recorded"] == one["recomputed"] == one["relived"], (
            "the second name is that of older versions"
        )
        assert re.fullmatch("[0-9a-f]{16}", one["recomputed"]) and one["norm"] > 0
    assert told["captured"] is True and told["verified"] > 0
    assert (
        told["loss"]
        == store.history_of(store.find(trained / "runs", "1")).steps["loss"][32]
    )
    assert (
        main(
            [
                "revisit",
                str(trained),
                "--run",
                "1",
                "--step",
                "3",
                "--out",
                str(tape),
                "--play",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert (
        "from the start of the run" in out and "bit for bit" in out and str(tape) in out
    )
    graph = json.loads(tape.read_text())
    assert graph["train"] is True and graph["played"]
    shutil.copy(DIGITS, trained / "digits.tape")
    (trained / "runs").rename(trained / "digits.runs")
    monkeypatch.chdir(trained)
    assert revisit(capsys, "1", "--step", "3") == revisit(
        capsys, "digits.tape", "--step", "3"
    )
    assert main(["revisit", "9", "--step", "3"]) == 2
    assert "no run, project or folder “9”" in capsys.readouterr().err
    assert main(["revisit", "1", "--step", "9999"]) == 2
    assert "has no step 9,999: it has steps 1 to 46" in capsys.readouterr().err


def test_where_the_recorded_hashes_differ_the_step_and_layer_are_named(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trained / "runs" / "0001" / "hashes.bin"
    data = bytearray(path.read_bytes())
    row = 8 * 8  # of four places and four layers
    start = data.index(b"\n") + 1
    data[start + 11 * row + 5 * 8] ^= 1  # step 12, conv2
    path.write_bytes(data)
    told = revisit(capsys, str(trained), "--step", "20", code=1)
    parted = told["parted"]
    assert (told["step"], parted["step"], parted["layer"], parted["operation"]) == (
        12,
        12,
        "conv2",
        None,
    )
    differing = [
        one["layer"] for one in told["layers"] if one["recorded"] != one["recomputed"]
    ]
    assert differing == ["conv2"] and "same gradients each time" in parted["reason"]


def test_an_operation_that_is_not_deterministic_is_named_by_step_layer_and_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(recording, "SHARE", 1e9)
    (tmp_path / "mine.py").write_text(NOISE, encoding="utf-8")
    project = file.read(resource_path("examples", "digits.tape"))
    nodes, edges = project.graph.nodes, project.graph.edges
    relu = next(node for node in nodes.values() if node.name == "relu3")
    graph = replace(
        project.graph,
        nodes=nodes.set(relu.id, replace(relu, op="custom.mine:Noise")),
        edges=type(edges)(
            replace(edge, port="x") if edge.target == relu.id else edge
            for edge in edges
        ),
    )
    path = tmp_path / "own.tape"
    file.write(
        replace(project, graph=graph, layer_files=(str(tmp_path / "mine.py"),)), path
    )
    train = [
        "train",
        str(path),
        "--epochs",
        "1",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "out"),
        "--trust",
    ]
    assert main([*train, "--json"]) == 0
    capsys.readouterr()
    parted = revisit(capsys, str(tmp_path / "out"), "--step", "9", "--trust", code=1)[
        "parted"
    ]
    assert (parted["step"], parted["layer"], parted["operation"]) == (
        1,
        "relu3",
        "aten.add",
    )
    assert (
        parted["line"].startswith("line 9 of mine.py: return x + 1e-6")
        and "os.urandom" in parted["reason"]
    )
    assert custom_layers.waiting(file.read(path)) == ()


def test_a_batch_is_left_out_of_a_fork_and_by_its_script(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fork = tmp_path / "fork"
    arguments = [
        *TRAIN,
        "--out",
        str(fork),
        "--resume",
        str(trained),
        "--leave-out",
        "33",
        "--json",
    ]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [e["step"] for e in events if e["event"] == "skipped"] == [33]
    told = steps("\n".join(lines))
    assert [step for step, _ in told] == [31, 32, *range(34, 47)], (
        "from the nearest checkpoint before it"
    )
    (kept,) = store.listed(fork / "runs")
    whole = store.history_of(store.find(trained / "runs", "1")).steps
    assert [loss for _, loss in told[:2]] == whole["loss"][30:32].tolist()
    assert told[2][1] != whole["loss"][33]
    assert store.project_of(kept).training.leave_out == (33,)
    assert script_here.run_script(fork, "--json") is None
    by_script = capsys.readouterr().out
    assert (
        steps(by_script)[30:] == told
        and '"event": "skipped", "epoch": 2, "step": 33' in by_script
    )
    again = revisit(capsys, str(fork), "--step", "40")
    assert again["parted"] is None and again["captured"] is True
    assert main(["revisit", str(fork), "--step", "33"]) == 2
    assert "step 33 was not trained on" in capsys.readouterr().err
    assert (
        main(
            [
                *TRAIN,
                "--out",
                str(tmp_path / "late"),
                "--resume",
                str(trained),
                "--leave-out",
                "999",
            ]
        )
        == 0
    )
    told = capsys.readouterr().err
    assert (
        "nothing is left to train" in told
        and "--leave-out 999: the run ended at step 46" in told
    )


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_step_of_a_run_that_was_killed_is_recomputed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [
        "train",
        str(DIGITS),
        "--device",
        "cpu",
        "--epochs",
        "100000",
        "--save-every",
        "20",
        "--out",
        str(tmp_path),
    ]
    process = start_command(tmp_path, *run, "--json")
    assert process.stdout is not None
    while b'"step": 60' not in process.stdout.readline():
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.stdout.read()
    process.wait()
    (kept,) = store.listed(tmp_path / "runs")
    assert kept.state == "interrupted"
    last = int(
        store.history_of(kept).steps["step"][-1]
    )  # of those that the recorder had written
    told = revisit(capsys, str(tmp_path), "--step", str(last))
    assert (told["step"], told["parted"], told["captured"]) == (last, None, True)


def test_a_resumed_run_keeps_its_seed_and_its_first_step_is_recomputed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "SHARE", 1e9)
    out = str(tmp_path / "out")
    assert main([*TRAIN, "--out", out, "--epochs", "1", "--seed", "5", "--json"]) == 0
    assert main([*TRAIN, "--out", out, "--resume", out, "--json"]) == 0
    assert "seed" not in capsys.readouterr().err
    (kept,) = store.listed(tmp_path / "out" / "runs")
    assert store.project_of(kept).training.seed == 5
    answer = revisit(capsys, out, "--run", "1", "--step", "1")
    assert answer["parted"] is None and answer["verified"] > 0, answer
    assert (
        main(
            [
                *TRAIN,
                "--out",
                out,
                "--resume",
                out,
                "--epochs",
                "3",
                "--seed",
                "7",
                "--json",
            ]
        )
        == 2
    )
    assert "seed is 5 in the run and not 7" in capsys.readouterr().err
    assert (
        store.project_of(store.listed(tmp_path / "out" / "runs")[0]).training.seed == 5
    )
