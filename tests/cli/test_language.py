"""The language of the terminal: what is asked for, else that of the environment; what machines read is English."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from app import cli
from app.project import file
from app.util import language, resources

LESSON = "01-what-a-tape-is"


def test_a_command_speaks_the_language_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(language.VARIABLE, "en")
    lesson = str(resources.path("lessons", LESSON))
    assert cli.run(["lesson", "check", lesson, "--language", "de"]) == 0
    assert "Ein Batch ist aufgenommen" in capsys.readouterr().out
    assert cli.run(["lesson", "check", lesson, "--language", "xx"]) == 2
    assert "choose from" in capsys.readouterr().err


def test_what_machines_read_is_english_in_every_language(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    project = file.read(resources.path("examples", "MLP on digits.tape"))
    training = replace(project.training, patience=5)
    data = replace(project.data, validation_fraction=0.0)
    path = tmp_path / "net.tape"
    file.write(replace(project, training=training, data=data), path)
    monkeypatch.setenv(language.VARIABLE, "de")
    cli.run(["check", str(path)])
    assert "beendet den Lauf nach 5 Epochen" in capsys.readouterr().out
    cli.run(["check", str(path), "--json"])
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "ends the run after 5 epochs" in problem["sentence"]
    assert problem["cures"][-1] == "Set patience to 0"
