"""docs/howto/concepts.md: 36 rows, whose settings are those of a project and whose tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "concepts.md").read_text("utf-8")
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
