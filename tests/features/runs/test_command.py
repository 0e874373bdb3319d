"""Commands that keep a run, go on with it and list what is kept; a run that is killed loses nothing that it saved."""

from __future__ import annotations

import io
import json
import math
import os
import random
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.main import main
from app.project.project import Project
from app.runs import layer_tables, store
from app.training.checkpoints import checkpoint
from app.training.events import GainFigures
from tests.slow import kill_checkpoints
from tests.support.forked_python import start_command, start_forked
from tests.support.run_commands import DIGITS, TRAIN, steps

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_a_command_goes_on_where_another_one_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    assert main([*TRAIN, "--out", str(one), "--json"]) == 0
    whole = steps(capsys.readouterr().out)
    assert (
        main(
            [*TRAIN, "--out", str(two), "--epochs", "1", "--json", "--save-every", "10"]
        )
        == 0
    )
    first = steps(text := capsys.readouterr().out)
    assert '"event": "saved"' in text
    assert main([*TRAIN, "--out", str(two), "--resume", str(two), "--json"]) == 0
    assert first + steps(capsys.readouterr().out) == whole
    columns = ("epoch", "step", "loss", "train_loss", "val_loss")
    rows = [
        [
            line.split(",")[:-1]
            for line in (out / "metrics.csv").read_text().splitlines()
        ]
        for out in (one, two)
    ]
    assert rows[0] == rows[1] and rows[0][0][1:4] == list(columns[:3]), (
        "also what the first command told is there"
    )
    # From one of its checkpoints into another folder.
    (kept,) = store.listed(two / "runs")
    file = kept.checkpoints / checkpoint.step_file(40)
    assert file.exists()
    assert main([*TRAIN, "--out", str(three), "--resume", str(file), "--json"]) == 0
    assert steps(capsys.readouterr().out) == whole[40:]
    assert (two / "weights.safetensors").read_bytes() == (
        three / "weights.safetensors"
    ).read_bytes()
    assert main(["runs", str(three), "--json"]) == 0
    (told,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["number"], told["state"], told["summary"]["steps"]) == (
        1,
        "done",
        whole[-1][0],
    )
    assert main(["runs", str(two), "--gains"]) == 0
    text = capsys.readouterr().out
    assert (
        text.startswith("relative gradient norm at step")
        and "\nfc2 " in text
        and "No layer vanishes" in text
    )
    pytest.importorskip("tensorboard")
    assert (
        main(
            ["runs", str(two), "--run", "1", "--tensorboard", str(tmp_path / "events")]
        )
        == 0
    )
    assert list(Path(capsys.readouterr().out.strip()).glob("events.out.tfevents.*"))
    assert (
        main(
            ["runs", str(two), "--run", "7", "--tensorboard", str(tmp_path / "events")]
        )
        == 2
    )
    assert "no run “7”" in capsys.readouterr().err
    assert main(["runs", str(two)]) == 0
    assert (
        "Run 1" in (text := capsys.readouterr().out)
        and "done" in text
        and "2/2" in text
    )


def test_the_layer_at_which_the_gradient_of_a_kept_run_vanishes_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = store.begin(tmp_path / "runs", Project("deep"))
    assert main(["runs", str(tmp_path), "--gains"]) == 1
    assert "no gains were measured" in capsys.readouterr().err
    for step in range(1, 21):
        left = 10.0 ** -min(step, 9)
        event = GainFigures(
            step,
            2.0,
            ("first", "second", "last"),
            (left, 1.0, 2.0),
            (math.nan, left, 1.0),
        )
        layer_tables.append(kept.folder, [event])
    assert main(["runs", str(tmp_path), "--gains"]) == 0
    head, last, second, first, told = capsys.readouterr().out.splitlines()
    assert head.split()[-6:] == ["1", "5", "9", "12", "16", "20"] and last.split() == [
        "last",
        *["0.5"] * 6,
    ]
    assert second.split()[1:3] == ["0.05", "5e-06"] and first.split() == [
        "first",
        *["-"] * 6,
    ]
    assert told.startswith(
        "Vanishes first at second: at step 20 its gradient norm is 5e−10 of that at the last layer"
    )
    assert told.endswith("found at 18 of 20 measured steps, from step 3 to 20.")
    assert main(["runs", str(tmp_path), "--gains", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lost"] == [
        {"kind": "vanishes", "layer": "second", "first": 3, "last": 20, "times": 18}
    ]
    assert found["reach"][0] == [None] * 20 and found["gain"][2] == [0.5] * 20


def test_what_cannot_be_gone_on_with_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                *TRAIN,
                "--out",
                str(tmp_path / "a"),
                "--resume",
                str(tmp_path / "nowhere"),
            ]
        )
        == 2
    )
    assert "does not exist" in capsys.readouterr().err
    assert main([*TRAIN, "--out", str(tmp_path / "a"), "--resume", str(tmp_path)]) == 2
    assert "no readable checkpoint" in capsys.readouterr().err
    (tmp_path / "last.pt").write_bytes(b"nonsense")
    assert (
        main(
            [
                *TRAIN,
                "--out",
                str(tmp_path / "a"),
                "--resume",
                str(tmp_path / "last.pt"),
            ]
        )
        == 2
    )
    assert "damaged" in capsys.readouterr().err
    assert main(["runs", str(tmp_path / "nowhere.tape")]) == 2


def test_runs_that_are_killed_while_they_save_go_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(command: list[str], **_named: object) -> object:
        (tmp_path / "child.py").write_text(command[2])
        child = start_forked(tmp_path / "child.py", *command[3:])
        stdin, stdout = io.TextIOWrapper(child.stdin), io.TextIOWrapper(child.stdout)
        return SimpleNamespace(stdin=stdin, stdout=stdout, wait=child.wait)

    monkeypatch.setattr(
        kill_checkpoints,
        "subprocess",
        SimpleNamespace(Popen=forked, PIPE=subprocess.PIPE),
    )
    outcome = kill_checkpoints.killed_and_resumed(
        tmp_path, kills=6, choose=random.Random(0)
    )
    assert outcome.equal and outcome.kills == 6 and outcome.unreadable == 0


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_command_that_is_interrupted_keeps_its_run(tmp_path: Path) -> None:
    run = [
        "train",
        str(DIGITS),
        "--device",
        "cpu",
        "--epochs",
        "100000",
        "--out",
        str(tmp_path),
    ]
    process = start_command(tmp_path, *run)
    assert process.stdout is not None
    while b"epoch 2/" not in process.stdout.readline():
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    process.stdout.read()
    assert process.wait() == 0
    (kept,) = store.listed(tmp_path / "runs")
    assert kept.state == "stopped" and kept.record.ending is not None
    assert (
        checkpoint.load(kept.checkpoints / checkpoint.LAST)["position"]["step"]
        == kept.record.ending.step
    )
