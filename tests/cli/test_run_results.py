"""The end of `tapedeck train`: what was learnt is written first, and a fault ends in one line that says where it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image
from safetensors.numpy import load_file

from app.cli.train import run_results
from app.data.config import DataConfig
from app.main import main
from app.project import file
from app.runs.recorder import Recorder
from app.training.events import Event, StepDone
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.full_disk import files_of_at_most
from tests.support.needs import needs

DIGITS = resource_path("examples", "digits.tape")
TRAIN = ["--epochs", "1", "--device", "cpu"]


def at_step(
    monkeypatch: pytest.MonkeyPatch, step: int, what: Callable[[], Any]
) -> None:
    """Have something happen in the middle of a run."""
    take = Recorder.take

    def taken(recorder: Recorder, event: Event) -> Any:
        if isinstance(event, StepDone) and event.step == step:
            what()
        return take(recorder, event)

    monkeypatch.setattr(Recorder, "take", taken)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that was refused said, which is a line; that the machine is busy does not count."""
    lines = capsys.readouterr().err.splitlines(keepends=True)
    told = "".join(
        line for line in lines if "Other programs slow this run down" not in line
    )
    assert told.startswith("tapedeck: ") and told.count("\n") == 1, told
    return told


def test_data_that_vanish_in_a_run_leave_weights_metrics_code_and_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    for name in "abcdefghij":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 255, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    options: Any = FrozenMap(size=(8, 8), colour=False, keep="disk")
    project = file.read(DIGITS)
    training = replace(project.training, batch_size=4, epochs=50)
    data = DataConfig("file.pictures", path=str(tmp_path / "pictures"), options=options)
    file.write(replace(project, data=data, training=training), tmp_path / "net.tape")
    at_step(
        monkeypatch,
        8,
        lambda: shutil.move(tmp_path / "pictures", tmp_path / "elsewhere"),
    )
    out = tmp_path / "out"
    assert (
        main(
            ["train", str(tmp_path / "net.tape"), "--out", str(out), "--device", "cpu"]
        )
        == 2
    )
    told = one_line(capsys)
    assert (
        "can no longer be read" in told
        and "train.py" in told
        and "could not be written: " in told
    )
    weights = "FAILED.txt, weights.safetensors, weights.pt, weights-best.safetensors, weights-best.pt"
    assert (
        f"In {out}: {weights}, metrics.csv, model.py, network.png and curves.png."
        in told
    )
    assert (
        load_file(out / "weights.safetensors")["fc1.weight"].any()
        and (out / "metrics.csv").stat().st_size > 200
    )


def test_a_disk_that_takes_no_more_at_the_end_names_the_checkpoint(
    no_pictures: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave, full = run_results.leave, ExitStack()

    def tight(*given: Any) -> run_results.Results:
        full.enter_context(files_of_at_most(30_000))
        return leave(*given)

    monkeypatch.setattr(run_results, "leave", tight)
    with full:
        assert main(["train", str(DIGITS), "--out", str(tmp_path), *TRAIN]) == 2
    told = one_line(capsys)
    assert (
        "weights.safetensors and weights.pt could not be written: File too large."
        in told
    )
    last = tmp_path / "runs" / "0001" / "checkpoints" / "last.pt"
    assert (
        f"In {tmp_path}: metrics.csv, model.py and train.py. The newest checkpoint is {last}."
        in told
    )


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--weights", "w.safetensors"),
        ("--weights", "w.pt"),
        ("--drawing", "net.svg"),
        ("--code", "net.py"),
    ],
)
@needs("export")
def test_an_export_that_a_disk_does_not_take_leaves_the_old_file(
    option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text("old")
    with files_of_at_most(500):
        assert main(["export", str(DIGITS), option, str(path)]) == 2
    assert f"{path} cannot be written: File too large" in one_line(capsys)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_what_was_learnt_is_kept_elsewhere_where_its_folder_takes_nothing(
    no_pictures: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, spare, leave = tmp_path / "out", tmp_path / "spare", run_results.leave
    spare.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spare))

    def blocked(*given: Any) -> run_results.Results:
        out.rename(tmp_path / "moved")
        out.write_text("a file where the folder was")
        return leave(*given)

    monkeypatch.setattr(run_results, "leave", blocked)
    assert main(["train", str(DIGITS), "--out", str(out), *TRAIN]) == 2
    told = one_line(capsys)
    assert (
        "weights.safetensors, weights.pt, metrics.csv, model.py and train.py" in told
        and "Not a directory" in told
    )
    (rescued,) = spare.glob("*.safetensors")
    assert (
        f"The trained weights are in {rescued}." in told
        and load_file(rescued)["fc1.weight"].any()
    )


def test_weights_are_written_before_anything_else(
    no_pictures: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.export.layers.write_model", killed)
    assert main(["train", str(DIGITS), "--out", str(tmp_path), *TRAIN]) == 130
    assert {path.name for path in tmp_path.iterdir()} == {
        "runs",
        "weights.safetensors",
        "weights.pt",
        "metrics.csv",
    }
