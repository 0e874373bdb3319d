"""docs/concepts.md: 36 rows, whose commands are taken by the program and whose tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.cli import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts.md").read_text("utf-8")
ROWS = [
    line.strip("|").split(" | ")
    for line in PAGE.splitlines()
    if re.match(r"\| \d", line)
]


def test_each_of_the_36_concepts_has_a_row_with_a_test_that_exists() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 37)) and {
        len(row) for row in ROWS
    } == {5}
    for row in ROWS:
        for group in row[-1].split("; "):
            file, _, names = group.strip().partition(": ")
            text = (ROOT / file).read_text("utf-8")
            assert all(f"def {name}(" in text for name in names.split(", ") if name), (
                row
            )


def test_every_option_that_the_page_names_is_one_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [
        (call.split()[0], option)
        for call in re.findall(r"`tapedeck ([^`]+)`", PAGE)
        for option in re.findall(r"(?<= )--?[a-z-]+", call)
    ]
    assert len(asked) > 60
    helped = {}
    for command in {command for command, _ in asked}:
        with pytest.raises(SystemExit):
            run([command, "--help"])
        helped[command] = capsys.readouterr().out
    assert not [
        each for each in asked if not re.search(rf"{each[1]}\b", helped[each[0]])
    ]


def test_every_setting_that_the_page_names_is_one_of_a_project() -> None:
    from argparse import Namespace

    from app.cli.settings import with_settings
    from app.project.project import Project

    settings = re.findall(r"--set '?([a-z_.]+=[^ `']+)", PAGE)
    assert len(settings) > 15
    for one in settings:
        assert (
            with_settings(
                Project(), Namespace(on=None, set=[one], loss=None, against=None)
            )
            is not None
        ), one
