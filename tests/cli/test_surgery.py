"""`tapedeck train --surgery`: a run whose net is edited on the way, stored, repeated, resumed and recomputed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.main import main
from app.project import file
from app.runs import store
from app.training.recomputing import recording
from tests.support import script_here
from tests.support.edited_nets import changed, example, frozen, inserted
from tests.support.needs import needs
from tests.support.run_commands import steps

pytestmark = pytest.mark.usefixtures("no_pictures")


def nets(folder: Path) -> list[str]:
    """Write a project and two edited copies, and return the options of a run through all of them."""
    project = example("digits", epochs=2, batch_size=256)
    project = changed(
        changed(project, "conv1", out_channels=4), "conv2", out_channels=4
    )
    deeper = inserted(
        project, "nn.Conv2d", "conv2", out_channels=4, kernel_size=3, padding=1
    )
    last = frozen(changed(deeper, "drop1", p=0.5), "conv1")
    for name, one in (("net", project), ("deeper", deeper), ("last", last)):
        file.write(one, folder / f"{name}.tape")
    surgeries = (
        "--surgery",
        f"4:{folder / 'deeper.tape'}",
        "--surgery",
        f"8:{folder / 'last.tape'}",
    )
    return [str(folder / "net.tape"), *surgeries, "--json"]


@pytest.fixture
def trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[Path, list[tuple[int, float]]]:
    """A run with two surgeries, one within an epoch and one before another, every step with its hashes."""
    monkeypatch.setattr(recording, "SHARE", 1e9)
    assert main(["train", *nets(tmp_path), "--out", str(tmp_path / "out")]) == 0
    return tmp_path, steps(capsys.readouterr().out)


@needs("runs", "revisit")
def test_a_run_with_surgeries_is_kept_repeated_resumed_and_recomputed(
    trained: tuple[Path, list[tuple[int, float]]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, losses = trained
    (kept,) = store.listed(folder / "out" / "runs")
    assert [(one.step, one.stage) for one in kept.record.cuts] == [
        (4, 2),
        (8, 3),
    ] and len(losses) == 12
    history = store.history_of(kept)
    assert len(history.cuts) == 2 and len(history.steps) == 12
    assert main(["runs", str(folder / "out")]) == 0
    assert "after step 4: " in capsys.readouterr().out
    # The script of the whole run.
    assert {"model_1.py", "model_2.py", "model.py"} <= {
        one.name for one in (folder / "out").iterdir()
    }
    ended = script_here.run_script(
        folder / "out", "--json", "--out", str(folder / "again")
    )
    assert ended is None and steps(capsys.readouterr().out) == losses
    # Steps on both sides of a surgery, from the nearest checkpoint and from the start.
    for step, layers in ((4, 4), (5, 5), (9, 4), (12, 4)):
        assert main(["revisit", str(kept.folder), "--step", str(step), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (
            found["loss"] == losses[step - 1][1] and len(found["layers"]) == layers
        ), step
    # A fork from the start has the surgeries too.
    arguments = [
        str(folder / "net.tape"),
        "--out",
        str(folder / "fork"),
        "--resume",
        str(folder / "out"),
        "--json",
    ]
    assert main(["train", *arguments, "--leave-out", "2"]) == 0
    forked = capsys.readouterr().out
    assert forked.count('"surgery"') == 2 and [step for step, _ in steps(forked)] == [
        1,
        *range(3, 13),
    ]
    shutil.copytree(kept.folder, folder / "whole")
    for path in kept.checkpoints.glob("*.pt"):
        path.unlink()
    assert main(["revisit", str(kept.folder), "--step", "12", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verified"], found["parted"]) == (12, None)
    # Resumed in each stage, as a run that was killed there.
    for name, step in (
        ("stage-01-end", 4),
        ("stage-02-start", 4),
        ("stage-02-end", 8),
        ("stage-03-start", 8),
    ):
        shutil.rmtree(kept.folder)
        shutil.copytree(folder / "whole", kept.folder)
        checkpoint = str(kept.checkpoints / f"{name}.pt")
        net = str(folder / "net.tape")
        assert (
            main(
                [
                    "train",
                    net,
                    "--out",
                    str(folder / "out"),
                    "--resume",
                    checkpoint,
                    "--json",
                ]
            )
            == 0
        )
        assert steps(capsys.readouterr().out) == losses[step:], name
        (again,) = store.listed(kept.folder.parent)
        assert [cut.step for cut in again.record.cuts] == [4, 8] and len(
            store.history_of(again).steps
        ) == 12
        assert main(["revisit", str(again.folder), "--step", "10", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["loss"] == losses[9][1], name


def test_a_surgery_that_fails_ends_the_command_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nets(tmp_path)
    project = file.read(tmp_path / "net.tape")
    wrong: dict[str, Any] = {"6": changed(project, "fc2", out_features=3), "x": project}
    file.write(wrong["6"], tmp_path / "wrong.tape")
    arguments = [
        "train",
        str(tmp_path / "net.tape"),
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    assert main([*arguments, "--surgery", f"6:{tmp_path / 'wrong.tape'}"]) == 1
    assert "classes" in capsys.readouterr().err and not (tmp_path / "out").exists()
    for asked in ("x:net.tape", "6", "-1:net.tape"):
        assert (
            main([*arguments, f"--surgery={asked}"]) == 2
            and "STEP:EDITED" in capsys.readouterr().err
        )
    assert main([*arguments, "--surgery", f"0:{tmp_path / 'net.tape'}"]) == 2
    assert "equals that of the run" in capsys.readouterr().err
    lbfgs = replace(
        project,
        training=replace(
            project.training,
            optimizer=replace(project.training.optimizer, name="LBFGS"),
            batch_size=512,
            epochs=1,
        ),
    )
    file.write(lbfgs, tmp_path / "lbfgs.tape")
    arguments[1] = str(tmp_path / "lbfgs.tape")
    assert main([*arguments, "--surgery", f"1:{tmp_path / 'deeper.tape'}"]) == 1
    assert "LBFGS keeps one history" in capsys.readouterr().err


def test_a_surgery_is_said_when_it_is_made_and_when_it_is_never_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    net, *_ = nets(tmp_path)
    options = [
        "--surgery",
        f"3:{tmp_path / 'deeper.tape'}",
        "--surgery",
        f"600:{tmp_path / 'last.tape'}",
    ]
    assert (
        main(["train", net, "--epochs", "1", "--out", str(tmp_path / "out"), *options])
        == 0
    )
    out, err = capsys.readouterr()
    (line,) = (line for line in out.splitlines() if line.startswith("after step 3: "))
    assert line.endswith("The output is the same.") and "    conv3 identity" in out
    assert "--surgery 600: the run has steps up to 6" in err and "ended at 6" in err
    assert (tmp_path / "out" / "model_1.py").exists() and not (
        tmp_path / "out" / "model_2.py"
    ).exists()
