"""The accelerator in other processes: engines, the terminal, the exported script, a script that is watched."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

import tapedeck
from app.engine import pool, run_process
from app.engine.client import Engine
from app.engine.remote_control import RemoteControl
from app.engine.requests.shapes import LoadTorch
from app.main import main
from app.project import file
from app.training.events import Failed, Started, to_json
from app.training.loop import train
from app.training.run_requests import LookInside, TellMemory
from app.util.resources import path as resource_path
from tapedeck import watcher
from tests.export.test_script import write
from tests.support.forked_python import run_forked
from tests.support.needs import needs
from tests.support.training_jobs import SMALL_NET, job, losses

DIGITS = resource_path("examples", "digits.tape")


def test_the_window_s_engine_lists_it(device: str) -> None:
    engine = Engine()
    try:
        loaded = engine.ask(LoadTorch()).result(120)
    finally:
        engine.close()
    assert [each.id for each in loaded.devices] == [device, "cpu"]


@pytest.mark.parametrize("forked", [True, False])
def test_a_run_in_a_process_of_its_own(forked: bool, device: str, monkeypatch) -> None:
    if not forked:
        monkeypatch.setattr(pool, "_server", lambda *_: None)
    control, events, answers = RemoteControl(), [], []
    a_job = job(SMALL_NET, max_steps=8, device=device)
    for event in run_process.train(a_job, control):
        events.append(event)
        if isinstance(event, Started):
            answers = [
                control.call(order)
                for order in (LookInside("linear1", 0), TellMemory())
            ]
    assert not isinstance(events[-1], Failed), events[-1]
    assert events[0].device == device
    assert losses(events) == losses(list(train(a_job)))
    assert {value.device.type for value in control.result.state_dict.values()} == {
        "cpu"
    }
    assert answers[1].result(60).allocator.allocated > 0


@needs("evaluation", "trials")
def test_the_terminal_trains_evaluates_and_tries_on_it(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    options = ["--device", device, "--epochs", "1", "--out", out]
    assert main(["train", str(DIGITS), *options]) == 0
    assert f"training on {device}" in capsys.readouterr().out
    assert main(["evaluate", str(DIGITS), "--device", device]) == 0
    assert main(["try", str(DIGITS), "--device", device]) == 0
    text = capsys.readouterr().out
    assert f"device: {device}" in text and "peak memory on the device" in text
    assert main(["train", str(DIGITS), "--device", "npu:0", "--out", out]) != 0
    assert f"npu:0 is not available here; available: {device}, cpu" in (
        capsys.readouterr().err
    )


def test_a_project_of_another_machine_is_trained_here_and_memory_that_ends_is_a_sentence(
    device: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = file.read(DIGITS)
    there = replace(project, training=replace(project.training, device="npu:3"))
    path = tmp_path / "there.tape"
    file.write(there, path)
    options = ["--epochs", "1", "--set", "max_steps=2", "--out", str(tmp_path / "out")]
    assert main(["train", str(path), *options]) == 0
    text = capsys.readouterr().out
    assert "npu:3 is not available here, so the run uses the CPU" in text
    if not device.startswith("sim"):
        return
    monkeypatch.setenv("SIM_MEMORY", str(2**17))
    assert main(["evaluate", str(DIGITS), "--device", device]) != 0
    text = capsys.readouterr().err
    assert "the computation ran out of memory" in text and "your own" not in text
    assert text.count("\n") == 1 and "a smaller batch_size needs less" in text


def test_the_exported_script_runs_on_it(device: str, tmp_path: Path) -> None:
    a_job = job(SMALL_NET, epochs=1, device=device, save_every=10)
    write(tmp_path, a_job)
    done = subprocess.run(
        [sys.executable, "train.py", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [json.loads(line) for event in train(a_job) if (line := to_json(event))]
    assert [line for line in lines if line["event"] != "saved"] == ours
    assert lines[0]["device"] == device
    for name in ("checkpoints/last.pt", "trained/weights.pt"):
        state = torch.load(tmp_path / name, weights_only=True)
        model = state.get("model", state)
        assert {value.device.type for value in model.values()} == {"cpu"}
    resumed = ("--device", "cpu", "--resume", "checkpoints/step-00000020.pt")
    again, auto = (
        run_forked(Path("train.py"), "--json", *options, cwd=tmp_path)
        for options in (resumed, ("--device", "auto"))
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(auto.stdout.splitlines()[0])["device"] == device


def test_a_script_on_it_is_watched(device: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(watcher, "NORMS", (0.0, math.inf))
    monkeypatch.setattr(watcher, "MEMORY_EVERY", 0.0)

    def loop() -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 1)).to(
            device
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x, found = torch.ones(4, 6).to(device), []
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    alone = loop()
    with tapedeck.watch(folder=tmp_path, quiet=True) as watch:
        assert loop() == alone
    lines = [json.loads(line) for line in watch.frames.read_text().splitlines()]
    (started,) = (line for line in lines if line["event"] == "started")
    assert started["device"] == device
    memory = [line for line in lines if line["event"] == "memory"]
    assert memory and memory[-1]["scope"] == "device" and memory[-1]["allocated"] > 0
    norms = [line for line in lines if line["event"] == "norms"]
    assert norms and all(math.isfinite(norm) for norm in norms[-1]["norms"])
