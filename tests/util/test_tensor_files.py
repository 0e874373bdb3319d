"""Every place that loads tensors refuses what it cannot read in our own words: never with torch's advice to run it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from app.data.config import DataConfig
from app.data.loaders import read_spec
from app.data.own_files.survey import SURVEYS
from app.data.sources import DataError
from app.export.errors import WeightsError
from app.main import main
from app.project.weights import state_dicts
from app.training.checkpoints import checkpoint
from app.training.checkpoints.checkpoint import CheckpointError
from app.util import regular_files, tensor_files
from app.util.tensors_on_disk import TensorsOnDisk

PROJECT = "resources/examples/digits.tape"


class Asks:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def _half() -> bytes:
    import io

    kept = io.BytesIO()
    torch.save({"a": torch.ones(100)}, kept)
    return kept.getvalue()[: len(kept.getvalue()) // 2]


def write(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "module":
        torch.save(nn.Linear(2, 2), path)
    elif kind == "asks":
        torch.save({"a": Asks(path.with_name("ran"))}, path)
    else:
        path.write_bytes(
            {
                "empty": b"",
                "text": b"hello\n",
                "bytes": bytes(range(256)) * 4,
                "half": _half(),
            }[kind]
        )


PLACES: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "a state_dict": (state_dicts.read, WeightsError),
    "a checkpoint": (checkpoint.load, CheckpointError),
    "what a run hands over": (TensorsOnDisk.read, OSError),
    "data": (
        lambda path: read_spec(DataConfig("file.tensors", path=str(path))),
        DataError,
    ),
    "a look at data": (
        lambda path: SURVEYS["file.tensors"](path, {"inputs": "", "labels": ""}),
        DataError,
    ),
}
KINDS = ("empty", "text", "bytes", "half", "module", "asks", "pipe", "folder")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_cannot_be_loaded_is_refused_in_our_own_words(
    place: str, kind: str, tmp_path: Path
) -> None:
    hold_refused(*PLACES[place], tmp_path, kind)


def hold_refused(
    load: Callable[[Path], object], error: type[Exception], tmp_path: Path, kind: str
) -> None:
    """Fail unless a file of this kind is refused in our own words, and nothing of it runs."""
    write(tmp_path / "given.pt", kind)
    with pytest.raises(error) as refused:
        load(tmp_path / "given.pt")
    words = str(refused.value)
    assert "given.pt" in words and "\n" not in words
    assert not any(
        advice in words
        for advice in (
            "weights_only",
            "add_safe_globals",
            "Re-running",
            "file an issue",
        )
    )
    assert not (tmp_path / "ran").exists()


def test_the_command_line_does_not_pass_torchs_advice_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("hello notes\n")
    assert (
        main(
            [
                "train",
                PROJECT,
                "--out",
                str(tmp_path / "out"),
                "--resume",
                str(tmp_path / "notes.txt"),
            ]
        )
        == 2
    )
    told = capsys.readouterr().err
    assert (
        told.count("\n") == 1
        and "nothing was executed" in told
        and "weights_only" not in told
    )


def test_no_other_module_calls_torch_load() -> None:
    """But for texts that stand alone in what is exported, and processes that have torch alone."""
    alone = {
        "script.py",
        "checkpoints.py",
        "readers.py",
        "measure.py",
        "format_jobs.py",
        "other_python_pass.py",
    }
    callers = {
        file.name for file in Path("app").rglob("*.py") if "torch.load(" in _code(file)
    }
    assert callers - alone == {Path(tensor_files.__file__).name}


def _code(file: Path) -> str:
    """Without what is said in words of a person's own `torch.load(path, ...)`."""
    return file.read_text("utf-8").replace("torch.load(path, weights_only=True)", "")


def test_a_regular_file_has_a_size_and_nothing_else_is_waited_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert (
        regular_files.check(tmp_path / "a")
        == regular_files.check(tmp_path / "link")
        == 5
    )
    said = {
        "pipe": "a named pipe",
        ".": "a folder",
        "a\0b": "NUL",
        "absent": "No such file",
    }
    for name, words in said.items():
        with pytest.raises(OSError) as refused:
            regular_files.check(f"{tmp_path}/{name}")
        assert words in str(refused.value.strerror)
    with pytest.raises(OSError, match="a device"):
        regular_files.check("/dev/null")
