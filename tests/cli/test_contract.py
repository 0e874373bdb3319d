"""What every command says where a model raises or a file cannot be read: one sentence, one exit code, no traceback.

`python -m tests.slow.cli_contract` asks every command about everything that fails; each is asked about some of it here.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from tests.slow.cli_contract import (
    NO_SOURCES,
    ON_MODELS,
    ON_PROJECTS,
    UNREADABLE,
    WITH_WEIGHTS,
    absent,
    fault,
    in_backward,
    in_forward,
    prepare,
    raising,
    unread,
    unread_weights,
)

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with models that raise, and with files that cannot be read."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_in_these_tables() -> None:
    missing = NO_SOURCES - {
        "run",
        "runs",
        "doctor",
        "grade",
        "lesson",
        "memory",
        "places",
        "plugin",
        "desktop",
    }
    assert not missing, (
        f"{missing}: add what each needs beside its source to ON_PROJECTS of tests/slow/cli_contract.py if it takes a "
        ".tape file, and to ON_MODELS if it takes a model"
    )


@pytest.mark.parametrize("command", ON_MODELS)
def test_a_model_that_raises_is_one_sentence_with_its_line(
    command: str, folder: Path
) -> None:
    if command == "attribute":
        pytest.importorskip("captum", reason="attributions are an extra")
    assert not fault(in_forward(command))


@pytest.mark.parametrize("command", ["autograd", "train"])
def test_a_model_that_ends_python_is_one_sentence(command: str, folder: Path) -> None:
    assert not fault(raising(command, "Exits", "SystemExit"))


@pytest.mark.parametrize("command", ["autograd", "train"])
def test_a_model_that_raises_in_backward_is_one_sentence_with_its_line(
    command: str, folder: Path
) -> None:
    assert not fault(in_backward(command))


@pytest.mark.parametrize("command", ON_MODELS)
def test_a_model_that_is_not_there_is_what_was_asked_wrongly(
    command: str, folder: Path
) -> None:
    assert not fault(absent(command))


@pytest.mark.parametrize("command", ON_PROJECTS)
def test_a_project_that_is_not_there_is_exit_2(command: str, folder: Path) -> None:
    assert not fault(unread(command, "missing"))


@pytest.mark.parametrize(
    ("command", "name"), [*zip(cycle(ON_PROJECTS), UNREADABLE, strict=False)]
)
def test_a_project_that_cannot_be_read_is_exit_2(
    command: str, name: str, folder: Path
) -> None:
    assert not fault(unread(command, name))


@pytest.mark.parametrize(
    ("command", "name"), [*zip(cycle(WITH_WEIGHTS), UNREADABLE, strict=False)]
)
def test_weights_that_cannot_be_read_are_exit_2(
    command: str, name: str, folder: Path
) -> None:
    assert not fault(unread_weights(command, name))
