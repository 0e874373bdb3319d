"""A package that is imported statement by statement is as if it had been imported in one go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.views.early_imports import import_in_steps

INIT = """
from .part import one
two = one + 1


def three():
    return two + 1


from .last import four, looked
"""
LAST = (
    "import stepped\n\nlooked = hasattr(stepped, 'four')\nfour = stepped.three() + 1\n"
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "stepped"
    folder.mkdir()
    for name, text in {"__init__": INIT, "part": "one = 1\n", "last": LAST}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "stepped"]:
        del sys.modules[name]


def test_each_statement_is_a_step(package: Path) -> None:
    steps = import_in_steps("stepped")
    next(steps)
    assert "one" in vars(sys.modules["stepped"]) and "two" not in vars(
        sys.modules["stepped"]
    )
    assert len(list(steps)) == 3
    import stepped

    assert (
        stepped.one,
        stepped.two,
        stepped.three(),
        stepped.four,
        stepped.looked,
    ) == (1, 2, 3, 4, False)
    assert stepped.__file__ == str(package / "__init__.py") and not hasattr(
        stepped, "five"
    )
    assert list(import_in_steps("stepped")) == [], "it is there"


def test_who_wants_it_in_between_has_all_of_it(package: Path) -> None:
    steps = import_in_steps("stepped")
    next(steps)
    from stepped import four

    assert four == 4 and list(steps) == []


@pytest.mark.parametrize(
    "wrong", ["1 / 0", "raise ImportError('no')", "from .nothing import here"]
)
def test_one_that_cannot_be_imported_is_not_left_behind(
    package: Path, wrong: str
) -> None:
    (package / "__init__.py").write_text(f"one = 1\n{wrong}\n")
    with pytest.raises((ImportError, ZeroDivisionError)):
        list(import_in_steps("stepped"))
    assert "stepped" not in sys.modules


def test_one_that_is_not_there_says_so() -> None:
    with pytest.raises(ModuleNotFoundError, match="nobody_has_this"):
        list(import_in_steps("nobody_has_this"))
