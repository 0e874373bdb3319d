"""The examples in the docstrings of all of `app` say what the code does."""

from __future__ import annotations

import doctest
import linecache
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "app").rglob("*.py"))
    if EXAMPLE.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_hold(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `doctest.testmod`; but each docstring, also one without examples, has it look for every file that was quoted
    # in a traceback of this process.
    monkeypatch.setattr(linecache, "cache", {})
    runner = doctest.DocTestRunner()
    for docstring in doctest.DocTestFinder().find(import_module(name)):
        if docstring.examples:
            runner.run(docstring)
    assert runner.tries, f"{name} has a >>> that no docstring holds"
    assert not runner.failures, capsys.readouterr().out
