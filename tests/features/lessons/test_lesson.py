"""Lessons as text: what is read, what is refused with its line, and goals over a closed list of facts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.lessons.facts import FACTS, RunFigures, Situation, value_of
from app.features.lessons.lesson import (
    LARGEST,
    LessonError,
    bundled,
    parsed,
    read,
    typed_value,
)
from app.project import file
from app.util import resources

TEXT = """+++
title = "A net"
minutes = 5
start = "empty"
+++
About nets.

## Layers
Add one.

```goals
layers nn.Linear >= 2 | Tab, linear 10.
chain nn.Linear nn.ReLU = yes
ask "How many parameters?" parameters = 650 | 64 x 10 + 10.
ask "What is 1/3?" = 0.3333 +- 0.001
val_accuracy >= 90 %
```

## The end
Done.
"""


def test_a_lesson_is_read() -> None:
    lesson = parsed(TEXT, "a-net")
    assert (lesson.title, lesson.minutes, lesson.summary) == ("A net", 5, "About nets.")
    first, last = lesson.steps
    assert (first.title, first.text) == ("Layers", "Add one.")
    assert (last.text, last.goals) == ("Done.", ())
    layers, chain, parameters, third, accuracy = first.goals
    assert (layers.fact, layers.argument, layers.wanted) == ("layers", "nn.Linear", 2.0)
    assert layers.hint == "Tab, linear 10."
    assert layers.text == "The net has at least 2 nn.Linear"
    assert (chain.argument, chain.wanted) == ("nn.Linear nn.ReLU", 1.0)
    assert parameters.question == parameters.text == "How many parameters?"
    assert third.is_met(typed_value("1/3")) and not third.is_met(typed_value("0.3"))
    assert accuracy.wanted == 0.9


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("+++\ntitle", "title", "begins with a line"),
        ('start = "empty"\n+++', 'start = "empty"', "no end"),
        ('title = "A net"', 'titel = "A net"', "has no title"),
        ("minutes = 5", 'minutes = "5"', "expected int"),
        ("minutes = 5", "seconds = 5", "it may have"),
        ('"empty"', '"../../etc/passwd.tape"', "the name of a .tape beside it"),
        ('"empty"', '"run me"', 'expected "empty"'),
        ("layers nn.Linear >= 2", "layers nn.Linear", "Line 12"),
        ("layers nn.Linear >= 2", "files nn.Linear >= 2", "there is no fact 'files'"),
        ("val_accuracy >=", "val_accuracy x >=", "takes no argument"),
        ("chain nn.Linear nn.ReLU", "chain", "needs an argument"),
        ("val_accuracy >= 90 %\n```", "val_accuracy >= 90 %", "has no end"),
        ("What is 1/3?", "How many parameters?", "asked twice"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, words: str) -> None:
    assert old in TEXT
    with pytest.raises(LessonError, match=words.replace(".", r"\.")):
        parsed(TEXT.replace(old, new), "broken")


@given(st.text(max_size=300))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for whole in (text, f'+++\ntitle = "T"\n+++\n## S\n```goals\n{text}\n```\n'):
        try:
            parsed(whole, "any")
        except LessonError:
            continue


def test_a_file_that_is_no_lesson_is_refused(tmp_path: Path) -> None:
    lesson = tmp_path / "lesson.md"
    lesson.write_bytes(b"\xff\xfe")
    with pytest.raises(LessonError, match="UTF-8"):
        read(tmp_path)
    lesson.write_bytes(b"a" * (LARGEST + 1))
    with pytest.raises(LessonError, match="256 KiB"):
        read(tmp_path)


def test_facts_read_the_project() -> None:
    example = file.read(resources.path("examples", "MLP on digits.tape"))
    run = RunFigures("done", 3, 69, 0.5, 0.6, 0.91)
    situation = Situation(project=example, run=run, pages=frozenset({"code"}))
    expected = {
        ("layers", "nn.Linear"): 3.0,
        ("chain", "nn.Linear nn.ReLU nn.Dropout"): 1.0,
        ("chain", "nn.Dropout nn.Dropout"): 0.0,
        ("setting", "epochs"): float(example.training.epochs),
        ("setting", "optimizer"): example.training.optimizer.name,
        ("setting", "loss"): example.training.loss.name,
        ("data", ""): example.data.source,
        ("val_accuracy", ""): 0.91,
        ("epochs", ""): 3.0,
        ("page", "code"): 1.0,
        ("page", "runs"): 0.0,
        ("frozen", ""): 0.0,
        ("errors", ""): None,
        ("tensor", "w.grad"): None,
    }
    for (fact, argument), value in expected.items():
        assert value_of(fact, argument, situation) == value, (fact, argument)


def test_nothing_is_known_of_nothing() -> None:
    for name, fact in FACTS.items():
        value = value_of(name, "x.y" if fact.takes else "", Situation())
        assert value in (None, 0.0), name


def test_the_lessons_of_the_program_are_read() -> None:
    lessons = bundled()
    assert len(lessons) >= 4
    assert len({lesson.name for lesson in lessons}) == len(lessons)
    for lesson in lessons:
        assert lesson.goals and lesson.summary, lesson.name
        assert all(goal.hint for goal in lesson.goals), lesson.name
        kind, _, name = lesson.start.partition(" ")
        if kind == "example":
            assert resources.path("examples", f"{name}.tape").is_file(), lesson.name
        elif lesson.start.endswith(".tape"):
            file.read(lesson.folder / lesson.start)
