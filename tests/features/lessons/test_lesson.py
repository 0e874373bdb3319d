"""Lessons as text: what is read, what is refused with its line, and goals over a closed list of facts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.data.config import DataConfig
from app.data.loaders import load
from app.features.lessons.facts import FACTS, RunFigures, Situation, value_of
from app.features.lessons.lesson import (
    Lesson,
    LessonError,
    bundled,
    concealed,
    goal_of,
    is_passed,
    is_reached,
    parsed,
    read,
    recorded,
    seeded,
    typed_value,
    written,
)
from app.features.lessons.situation import suggested
from app.project import file
from app.project.limits import LARGEST_LESSON
from app.project.project import LessonWork, Project
from app.training.config import Choice
from app.util import resources
from app.util.frozen import FrozenMap

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
    lesson.write_bytes(b"a" * (LARGEST_LESSON + 1))
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


STATES = """+++
title = "One after the other"
+++
Two settings.

## Small
```goals
once setting lr <= 0.001 | Make it small.
layers nn.Linear >= 1
```

## Large
```goals
setting lr >= 1 | Make it large.
captured = yes
captured = yes
```
"""


def with_rate(lr: float) -> Situation:
    project = file.read(resources.path("examples", "MLP on digits.tape"))
    optimizer = Choice("SGD", FrozenMap(lr=lr))
    training = replace(project.training, optimizer=optimizer)
    return Situation(project=replace(project, training=training))


def test_a_step_that_was_done_stays_done_in_its_goals_that_need_hold_once() -> None:
    lesson = parsed(STATES, "states")
    small, layers, large, captured, again = lesson.goals
    assert (small.stays, layers.stays, captured.stays) == (True, False, True)
    assert captured.key != again.key
    first, second = lesson.steps
    at_first = recorded(first, {}, with_rate(0.001), {})
    assert set(at_first) == {small.key, layers.key}
    later = recorded(first, at_first, with_rate(2.0), {})
    later = recorded(second, later, with_rate(2.0), {})
    assert set(later) == {small.key, layers.key, large.key}
    assert later[small.key] == "0.001"
    passed = [is_passed(goal, with_rate(2.0), {}, later) for goal in lesson.goals]
    assert passed == [True, True, True, False, False]
    bare = Situation(project=Project(training=with_rate(2.0).project.training))
    assert is_passed(small, bare, {}, later) and not is_passed(layers, bare, {}, later)


def test_goals_that_held_at_different_moments_do_not_end_a_step() -> None:
    lesson = parsed(
        STATES.replace("layers nn.Linear >= 1", "once frozen >= 1"), "states"
    )
    small, frozen, *_ = lesson.goals
    step = lesson.steps[0]
    first = recorded(step, {}, with_rate(0.001), {})
    assert small.key in first and frozen.key not in first
    assert small.key not in recorded(step, first, with_rate(2.0), {})


@pytest.mark.parametrize("lesson", bundled(), ids=lambda lesson: lesson.name)
def test_a_lesson_that_is_written_is_read_as_it_was(lesson: Lesson) -> None:
    again = parsed(written(lesson), lesson.name)
    assert again.steps == lesson.steps
    assert (again.title, again.summary, again.start, again.order) == (
        lesson.title,
        lesson.summary,
        lesson.start,
        lesson.order,
    )


def test_what_can_be_chosen_for_a_goal_are_goals_that_hold_now() -> None:
    situation = with_rate(0.5)
    rows = suggested(situation)
    assert "setting lr = 0.5" in rows and "layers nn.Linear >= 3" in rows
    goals = [goal_of(row) for row in rows]
    assert {goal.fact for goal in goals} == set(FACTS)
    assert is_reached(goal_of("setting lr = 0.5"), situation, {})


@pytest.mark.parametrize("typed", ["1438", "1,438", "1 438", "1\N{NO-BREAK SPACE}438"])
def test_an_answer_may_group_thousands_as_any_language_does(typed: str) -> None:
    question = goal_of('ask "How many samples?" = 1438')
    assert is_reached(question, Situation(), {question.question: typed})
    shape = goal_of('ask "What shape is it?" = 1 438')
    assert is_reached(shape, Situation(), {shape.question: "1 438"})


def test_a_student_has_the_same_seeds_everywhere_and_others_than_another() -> None:
    project = Project(data=DataConfig("made.moons"))
    ada = seeded(project, "Ada Lovelace")
    assert ada == seeded(project, "  ada   LOVELACE ")
    assert ada.training.seed == 394233311  # on every machine
    assert ada.data.split_seed == ada.data.options["seed"] == ada.training.seed
    alan = seeded(project, "Alan Turing")
    first, second = load(ada.data), load(alan.data)
    assert not np.array_equal(first.train.inputs, second.train.inputs)
    assert np.array_equal(first.train.inputs, load(ada.data).train.inputs)


def test_a_gradient_that_is_asked_for_is_concealed_until_something_is_typed() -> None:
    text = STATES.replace(
        "layers nn.Linear >= 1",
        'ask "Norm?" grad_norm fc1.weight = same +- 1\nask "And b?" tensor b.grad = same',
    )
    step = parsed(text, "hidden").steps[0]
    assert concealed(step, {}) == ({"fc1.weight"}, {"b"})
    assert concealed(step, {"Norm?": "3"}) == (set(), {"b"})
    assert concealed(step, {"Norm?": "3", "And b?": "1"}) == (set(), set())


def test_a_hand_in_of_an_earlier_version_is_read() -> None:
    work = LessonWork("x", FrozenMap(), FrozenMap({"errors = 0": ""}))
    data = file.dumps(Project(lesson=work))
    as_list = data.replace(b'{\n   "errors = 0": ""\n  }', b'["errors = 0"]')
    assert as_list != data
    assert file.loads(as_list).lesson == work
