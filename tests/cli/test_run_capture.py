"""`tapedeck run --capture`: a step of a script is written, and the script computes what it would alone."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import run_command
from app.main import main
from tests.support.forked_python import run_replaced

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))
optimizer = torch.optim.Adam(net.parameters())
for step in range(6):
    loss = net(torch.randn(5, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    norms = {name: each.grad.norm().item() for name, each in net.named_parameters()}
    print(json.dumps([step + 1, loss.item(), norms]), flush=True)
    optimizer.step()
    if "raise" in sys.argv: raise KeyError("amid it")
print("end", torch.get_rng_state().sum().item())
"""
pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="a process is replaced by another"
)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    return script


def ran(
    script: Path, *options: str, words: tuple[str, ...] = (), **launched: str
) -> subprocess.CompletedProcess[str]:
    return run_replaced(
        script.parent, *options, str(script), *words, cwd=script.parent, **launched
    )


def ran_anew(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.main", "run", *options, str(script)]
    return subprocess.run(
        command,
        text=True,
        capture_output=True,
        check=False,
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANK": "0"},
    )


def printed_alone() -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(SCRIPT, {})
    return printed.getvalue()


@pytest.mark.parametrize(("step", "run"), [(1, ran), (4, ran_anew)], ids=["1", "4"])
def test_a_step_is_written_and_the_script_goes_on(
    train: Path, step: int, run: Callable[..., Any]
) -> None:
    alone, out = printed_alone(), train.with_name("step.json")
    watched = run(train, "--capture", str(step), "--out", str(out), "--play")
    assert (watched.returncode, watched.stdout) == (0, alone), watched.stderr
    assert str(out) in watched.stderr
    tape = json.loads(out.read_text())
    printed = [json.loads(line) for line in alone.splitlines() if line.startswith("[")]
    number, loss, norms = printed[step - 1]
    assert (number, tape["loss"]) == (step, loss)
    model = (
        "net." if step == 1 else ""
    )  # found by its call; later it is known to be the only one
    leaves = {
        (node["parameter"] or "").removeprefix(model): str(node["id"])
        for node in tape["nodes"]
    }
    leaves.pop("")
    assert leaves.keys() == norms.keys()
    for name, norm in norms.items():
        assert tape["played"]["node_norms"][leaves[name]] == pytest.approx(
            norm, rel=1e-6
        ), name
    forward = next(
        number
        for number, line in enumerate(SCRIPT.splitlines(), 1)
        if "net(torch" in line
    )
    assert {node["line"] for node in tape["nodes"] if not node["parameter"]} == {
        forward
    }
    assert {node["module"] for node in tape["nodes"]} >= {
        f"{model}0",
        f"{model}1",
        f"{model}2",
    }


def test_a_page_is_written_in_place_of_data_by_the_rank_that_is_asked_for(
    train: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (
        "--quiet",
        "--capture",
        "2",
        "--rank",
        "1",
        "--out",
        "step.html",
        "--unfolded",
    )
    with monkeypatch.context() as other:
        other.setenv("RANK", "0")
        other.setenv("WORLD_SIZE", "2")
        begun: list[list[str]] = []
        other.setattr(os, "execvp", lambda _file, words: begun.append(words))
        other.setattr(run_command, "_begin_capture", lambda *_: begun.append([]))
        main(["run", *asked, str(train)])
        (words,) = begun
        assert str(train) in words and "--captured" not in words
    done = ran(train, *asked, RANK="1", WORLD_SIZE="2")
    assert done.returncode == 0 and "step.html" in done.stderr, done.stderr
    page = train.with_name("step.html").read_text()
    assert "AddmmBackward0" in page and "train.py, step 2" in page


def test_what_cannot_be_captured_is_said_and_changes_no_exit_status(
    train: Path,
) -> None:
    failed = ran(
        train, "--quiet", "--capture", "50", "--out", "failed.json", words=("raise",)
    )
    assert failed.returncode == 1 and "KeyError: 'amid it'" in failed.stderr
    assert (
        "no step was captured: The script ended after step 1, before step 50."
        in failed.stderr
    )
    assert not list(train.parent.glob("*.json"))


@pytest.mark.parametrize(
    "wrong",
    [
        "--capture 3",
        "--out F.json",
        "--capture 0 --out F.json",
        "--capture 1 --out F.txt",
        "--capture 1 --out F.svg --play",
        "--capture 1 --out no/F.svg",
        "--capture 1 --rank 1 --out F.json",
    ],
)
def test_a_step_that_cannot_be_written_is_refused_before_the_script_runs(
    train, wrong, capsys
) -> None:
    assert main(["run", *wrong.split(), str(train)]) == 2
    said = capsys.readouterr()
    assert (
        said.err.startswith("tapedeck: ")
        and len(said.err.splitlines()) == 1
        and not said.out
    )
