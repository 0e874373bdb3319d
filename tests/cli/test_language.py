"""The language of the terminal: what is asked for, else that of the environment; what machines read is English."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from app import cli
from app.project import file
from app.util import language, resources


@pytest.fixture
def project(tmp_path: Path) -> str:
    """A project with a problem of its settings."""
    example = file.read(resources.path("examples", "MLP on digits.tape"))
    training = replace(example.training, patience=5)
    data = replace(example.data, validation_fraction=0.0)
    file.write(replace(example, training=training, data=data), tmp_path / "net.tape")
    return str(tmp_path / "net.tape")


def test_a_command_speaks_the_language_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], project: str
) -> None:
    monkeypatch.setenv(language.VARIABLE, "en")
    cli.run(["check", project, "--language", "de"])
    assert "beendet den Lauf nach 5 Epochen" in capsys.readouterr().out
    assert cli.run(["check", project, "--language", "xx"]) == 2
    assert "choose from" in capsys.readouterr().err


def test_what_machines_read_is_english_in_every_language(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], project: str
) -> None:
    monkeypatch.setenv(language.VARIABLE, "de")
    cli.run(["check", project, "--json"])
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "ends the run after 5 epochs" in problem["sentence"]
    assert problem["cures"][-1] == "Set patience to 0"
