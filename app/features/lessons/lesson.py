"""A lesson as it is written: Markdown with a head in TOML, steps under `##`, goals in blocks.

    +++
    title = "A first net"
    minutes = 10
    start = "empty"
    +++
    What it is about.

    ## Add a layer
    Press Tab and type *linear 10*.

    ```goals
    layers nn.Linear >= 1 | Tab opens the search; Enter adds what is chosen.
    ask "How many parameters has it?" parameters = 650 | 64 times 10 weights, and 10 biases.
    ```

A line of a block is a goal: a fact of `facts.FACTS` with its argument, a comparison, what is wanted, and after `|` a
hint. With `ask` and a question the student types the value, and what is wanted is compared with that. With `once` in
front it is enough that the goal held when its step was done; without, it must hold in what is handed in. Of what the
window sees (`facts.OF_WINDOW`) that is enough in the window; when it is graded, what can be measured of it
(`facts.MEASURED_AGAIN`) must be true of the net that is handed in, or of the one that the lesson starts with, unless
`once` stands in front. With seed = "student" in the head each student has data and weights of their own.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from app.data.sources import spec_of
from app.features.lessons.facts import (
    FACTS,
    OF_WINDOW,
    Situation,
    Value,
    value_of,
)
from app.project.limits import LARGEST_LESSON, MOST_GOALS
from app.project.project import LessonWork, Project
from app.util import regular_files, resources, shelf
from app.util.errors import CodedError
from app.util.language import marked, tr

FILE = "lesson.md"
MOST_STEPS = 40
TOLERANCE = 1e-3  # of an answer that is typed, relative, unless the goal says another
EMPTY = "empty"
SAME = "same"  # wanted of a question: what is measured
HEAD = {"title", "minutes", "start", "order", "seed"}
STUDENT = "student"  # seed: of the name that a student types
GRADIENTS = ("grad", "grad_norm")  # of a tensor of a snippet
COMPARISONS = (">=", "<=", "!=", "=", ">", "<")
_GOAL = re.compile(
    r"""(?:(?P<once>once)\s+)?(?:ask\s+"(?P<question>[^"]+)"\s*)?
    (?P<fact>[a-z_]*)(?:\s+(?P<argument>[^\s=<>!][^=<>!]*?))??
    \s*(?P<comparison>>=|<=|!=|=|>|<)\s*(?P<wanted>[^|]+?)
    (?:\s*\+-\s*(?P<tolerance>[-+.\deE]+))?\s*(?:\|\s*(?P<hint>.*))?""",
    re.VERBOSE,
)


class LessonError(CodedError, ValueError):
    """A lesson that cannot be read; the message says in which line, what was expected, and what stands there."""


class Goal(Struct, frozen=True):
    """A goal of a step: a fact, or the typed answer to a `question`, compared with the expected value `wanted`.

    It holds in what is handed in, or where `once`, when its step was done. `occurrence` counts equal goals of a lesson.
    """

    fact: str
    argument: str
    comparison: str
    wanted: Value
    tolerance: float = 0.0
    hint: str = ""
    question: str = ""
    once: bool = False
    occurrence: int = 1

    @property
    def stays(self) -> bool:
        """Whether it is enough in the window that the goal held when its step was done."""
        return self.once or self.fact in OF_WINDOW

    @property
    def key(self) -> str:
        """What the goal and its answer are stored under."""
        wanted = f"{self.comparison} {format_value(self.wanted)}"
        number = f"({self.occurrence})" if self.occurrence > 1 else ""
        return self.question or " ".join(
            filter(None, (self.fact, self.argument, wanted, number))
        )

    @property
    def text(self) -> str:
        """The goal as it is shown."""
        if self.question:
            return tr(self.question)
        fact = FACTS[self.fact]
        wanted = format_value(self.wanted) or tr("nothing")
        if self.comparison == "=" and self.tolerance:
            wanted = f"{wanted} ± {format_value(self.tolerance)}"
        compared = {
            ">=": tr("at least {value}", value=wanted),
            "<=": tr("at most {value}", value=wanted),
            ">": tr("more than {value}", value=wanted),
            "<": tr("less than {value}", value=wanted),
            "!=": tr("other than {value}", value=wanted),
            "=": wanted,
        }
        return tr(
            fact.goal,
            argument=fact.shown(self.argument),
            wanted=compared[self.comparison],
        )

    def in_english(self, typed: str) -> str:
        """Return an answer that was typed in the language of this process as it is stored and graded: in English."""
        answers = (marked("yes"), marked("no"), *filter(None, [self.answer_word]))
        same = (word for word in answers if tr(word).casefold() == typed.casefold())
        return next(same, typed)

    @property
    def answer_word(self) -> str:
        """The correct answer to the question if it is a word, "" for a number or a measured value."""
        is_word = self.question and isinstance(self.wanted, str) and self.wanted != SAME
        return str(self.wanted) if is_word else ""

    def is_met(self, value: Value | None) -> bool:
        """Return whether a value is as wanted; no value never is."""
        if value is None:
            return False
        wanted = self.wanted
        if isinstance(wanted, str) or isinstance(value, str):
            same = _plain(value) == _plain(wanted)
            return (
                same if self.comparison == "=" else self.comparison == "!=" and not same
            )
        if math.isnan(value):
            return False
        near = math.isclose(value, wanted, rel_tol=1e-9, abs_tol=self.tolerance)
        match self.comparison:
            case "=":
                return near
            case "!=":
                return not near
            case ">=":
                return value > wanted or near
            case "<=":
                return value < wanted or near
            case ">":
                return value > wanted and not near
        return value < wanted and not near


class LessonStep(Struct, frozen=True):
    """A part of a lesson: Markdown, and the goals that end it."""

    title: str
    text: str
    goals: tuple[Goal, ...] = ()


class Lesson(Struct, frozen=True):
    """A lesson. `start` is "empty", "example NAME", "snippet NAME", or a project in its folder; `order` sorts. With the
    `seed` "student" every student has data and weights of their own. `source` is its text.
    """

    name: str
    title: str
    summary: str
    steps: tuple[LessonStep, ...]
    minutes: int = 10
    start: str = EMPTY
    order: int = 100
    folder: Path = Path()
    seed: str = ""
    source: str = ""

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with the program."""
        return self.folder.parent == resources.path("lessons")

    @property
    def goals(self) -> tuple[Goal, ...]:
        return tuple(goal for step in self.steps for goal in step.goals)


def sentences(lesson: Lesson) -> Iterator[str]:
    """Yield the texts of a lesson that a catalogue translates, paragraph by paragraph."""
    yield lesson.title
    yield from _paragraphs(lesson.summary)
    for step in lesson.steps:
        yield step.title
        yield from _paragraphs(step.text)
        for goal in step.goals:
            yield from filter(None, (goal.question, goal.answer_word, goal.hint))


def translated(text: str) -> str:
    """Return Markdown in the language of this process; a paragraph without a translation is as it was written."""
    blocks = re.split(r"\n\s*\n", text)
    for number, block in enumerate(blocks):
        sentence = " ".join(block.split())
        if (translation := tr(sentence)) != sentence:
            blocks[number] = translation
    return "\n\n".join(blocks)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of Markdown, each as one line; code is left out."""
    for block in re.split(r"\n\s*\n", text):
        if not block.startswith("    ") and block.strip():
            yield " ".join(block.split())


def is_reached(goal: Goal, situation: Situation, answers: Mapping[str, str]) -> bool:
    """Return whether a goal is reached; of a question by the typed answer."""
    measured = value_of(goal.fact, goal.argument, situation) if goal.fact else None
    if not goal.question:
        return goal.is_met(measured)
    wanted = measured if goal.wanted == SAME else goal.wanted
    if wanted is None:
        return False
    typed = answers.get(goal.question, "")
    if not isinstance(wanted, str):
        typed = "".join(typed.split())  # thousands may be grouped by spaces
    return replace(goal, wanted=wanted).is_met(typed_value(typed))


def is_recorded(
    goal: Goal, reached: Mapping[str, str], answers: Mapping[str, str]
) -> bool:
    """Return whether a record has a goal, of a question with the answer that is there now."""
    seen = reached.get(goal.key)
    return seen is not None and (
        not goal.question or seen in ("", answers.get(goal.question, ""))
    )


def recorded(
    step: LessonStep,
    before: Mapping[str, str],
    situation: Situation,
    answers: Mapping[str, str],
) -> dict[str, str]:
    """Return the updated record of a lesson: the value of each goal that passed, by the key of the goal.

    `before` is the record so far, `step` the step that is shown. Goals of a step stay recorded once all of them passed
    at the same time; until then a goal is recorded while it passes, or while its fact has no value.
    """
    is_done = all(goal.key in before for goal in step.goals)
    record = dict(before)
    for goal in step.goals:
        seen = record.pop(goal.key, None)
        if is_reached(goal, situation, answers):
            if seen is None or goal.question:
                seen = seen_of(goal, situation, answers)
        elif not is_done and not _is_unknown(goal, before, situation, answers):
            continue
        record[goal.key] = seen or ""
    return record


def is_passed(
    goal: Goal,
    situation: Situation,
    answers: Mapping[str, str],
    reached: Mapping[str, str],
) -> bool:
    """Return whether a goal passes: by the record if it `stays`, else by the present value of its fact."""
    if goal.stays:
        return is_recorded(goal, reached, answers)
    return is_reached(goal, situation, answers) or _is_unknown(
        goal, reached, situation, answers
    )


def _is_unknown(
    goal: Goal,
    reached: Mapping[str, str],
    situation: Situation,
    answers: Mapping[str, str],
) -> bool:
    """Return whether a goal is recorded and nothing is known now of its fact, as after the project was opened again."""
    value = value_of(goal.fact, goal.argument, situation) if goal.fact else ""
    return value is None and is_recorded(goal, reached, answers)


def seen_of(goal: Goal, situation: Situation, answers: Mapping[str, str]) -> str:
    """Return the present value of a goal as text: the typed answer, or the value of its fact."""
    if goal.question:
        return answers.get(goal.question, "")
    value = value_of(goal.fact, goal.argument, situation)
    return "" if value is None else format_value(value)


def bundled() -> list[Lesson]:
    """Return the lessons that come with the program and with other packages, in their order."""
    own = [read(path) for path in resources.path("lessons").glob(f"*/{FILE}")]
    return sorted(
        (*own, *_of_plugins()), key=lambda lesson: (lesson.order, lesson.name)
    )


def _of_plugins() -> Iterator[Lesson]:
    """Yield the lessons of other packages; one that cannot be read is noted."""
    for package, folder in shelf.plugins().items():
        for path in folder.glob(f"lessons/*/{FILE}"):
            with shelf.noting(package):
                yield read(path)


def read(path: Path) -> Lesson:
    """Read a lesson from its file or folder. Raises LessonError, or OSError."""
    file = path / FILE if path.is_dir() else path
    regular_files.check(file)
    with file.open("rb") as stream:
        data = stream.read(LARGEST_LESSON + 1)
    if len(data) > LARGEST_LESSON:
        raise LessonError(
            f"{file.name} has more than {LARGEST_LESSON // 1024} KiB, the most that a lesson may have."
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LessonError(f"{file.name} is not UTF-8: byte {error.start}.") from None
    return parsed(text, file.parent.name, file.parent)


def parsed(text: str, name: str, folder: Path = Path()) -> Lesson:
    """Return the lesson of a text. Raises LessonError."""
    lines = text.splitlines()
    head, first = _head(lines)
    summary, *sections = _sections(lines, first)
    steps = [
        LessonStep(title, "\n".join(body).strip(), tuple(goals))
        for title, body, goals in sections
    ]
    steps = _counted(steps)
    _check(steps)
    return Lesson(
        name,
        _of_kind(head, "title", str, ""),
        "\n".join(summary.body).strip(),
        tuple(steps),
        _of_kind(head, "minutes", int, 10),
        _start(_of_kind(head, "start", str, EMPTY)),
        _of_kind(head, "order", int, 100),
        folder,
        _seed(_of_kind(head, "seed", str, "")),
        text,
    )


def _counted(steps: list[LessonStep]) -> list[LessonStep]:
    """Return the steps with equal goals told apart."""
    counts: Counter[str] = Counter()

    def counted(goal: Goal) -> Goal:
        counts[goal.key] += 1
        return replace(goal, occurrence=counts[goal.key])

    return [replace(step, goals=tuple(map(counted, step.goals))) for step in steps]


def of_work(work: LessonWork) -> Lesson | None:
    """Return the lesson that work was done of, None if the program has none of this name. Raises LessonError."""
    if work.text:
        return parsed(work.text, work.name)
    return next((lesson for lesson in bundled() if lesson.name == work.name), None)


class _Section(NamedTuple):
    """The text below a heading, and its goals."""

    title: str
    body: list[str]
    goals: list[Goal]


def _sections(lines: list[str], first: int) -> list[_Section]:
    """Return what is before the first heading, and the sections of the steps."""
    sections = [_Section("", [], [])]
    block = 0  # the line in which a block of goals began
    for number, line in enumerate(lines[first:], first + 1):
        if block and line.strip() == "```":
            block = 0
        elif block and line.startswith("## "):
            break
        elif block and line.strip():
            sections[-1].goals.append(goal_of(line.strip(), number))
        elif line.strip() == "```goals":
            block = number
        elif line.startswith("## "):
            sections.append(_Section(line.removeprefix("## ").strip(), [], []))
        else:
            sections[-1].body.append(line)
    if block:
        raise LessonError(
            f"Line {block}: the block of goals has no end: a line ``` is missing."
        )
    return sections


def _head(lines: list[str]) -> tuple[Mapping[str, Any], int]:
    if not lines or lines[0].strip() != "+++":
        raise LessonError(
            "Line 1: a lesson begins with a line +++, its head in TOML, and another line +++."
        )
    end = next(
        (number for number, line in enumerate(lines[1:], 1) if line.strip() == "+++"), 0
    )
    if not end:
        raise LessonError("Line 1: the head has no end: a second line +++ is missing.")
    try:
        head = tomllib.loads("\n".join(lines[1:end]))
    except tomllib.TOMLDecodeError as error:
        raise LessonError(f"The head is not TOML: {error}.") from None
    if not head.get("title"):
        raise LessonError('Line 1: the head has no title: add title = "...".')
    if unknown := set(head) - HEAD:
        raise LessonError(
            f"The head has {min(unknown)!r}; it may have {', '.join(sorted(HEAD))}."
        )
    return head, end + 1


def _of_kind(head: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = head.get(name, default)
    if type(value) is not kind:
        raise LessonError(
            f"The {name} in the head is {value!r}; expected {kind.__name__}."
        )
    return value


def _start(text: str) -> str:
    """Return what a lesson begins with, which is of the program or a file beside the lesson."""
    kind, _, name = text.partition(" ")
    fine = (
        text == EMPTY
        or (kind in ("example", "snippet") and name)
        or (text.endswith(".tape") and not set(text) & set("/\\:"))
    )
    if not fine:
        raise LessonError(
            f'start is {text!r}; expected "empty", "example NAME", "snippet NAME" or the name of a .tape beside it.'
        )
    return text


def _seed(text: str) -> str:
    if text not in ("", STUDENT):
        raise LessonError(f'seed is {text!r}; expected "{STUDENT}", or none.')
    return text


def seeded(project: Project, student: str) -> Project:
    """Return a project with the seeds of a student: of the weights and batches, of the split, and of data that are
    made. A name gives the same on every machine, however its letters are written."""
    letters = unicodedata.normalize("NFKC", student).casefold()
    digest = hashlib.sha256(" ".join(letters.split()).encode()).digest()
    seed = int.from_bytes(digest[:4], "big")
    data = replace(project.data, split_seed=seed)
    if any(option.name == "seed" for option in spec_of(data).options):
        data = replace(data, options=data.options.set("seed", seed))
    return replace(project, data=data, training=replace(project.training, seed=seed))


def concealed(
    step: LessonStep, answers: Mapping[str, str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of parameters, and of tensors of a snippet, whose gradients are to be predicted first."""
    open_goals = [
        goal
        for goal in step.goals
        if goal.question and not answers.get(goal.question, "").strip()
    ]
    tensors = [
        goal.argument.rpartition(".") for goal in open_goals if goal.fact == "tensor"
    ]
    return (
        frozenset(goal.argument for goal in open_goals if goal.fact == "grad_norm"),
        frozenset(name for name, _, what in tensors if what in GRADIENTS),
    )


def goal_of(row: str, number: int = 1) -> Goal:
    """Return the goal of a line. Raises LessonError with the number of the line."""
    match = _GOAL.fullmatch(row)
    if match is None:
        raise LessonError(
            f"Line {number}: {row!r} is no goal; expected a fact, one of {' '.join(COMPARISONS)}, and a value, as in "
            "layers nn.Linear >= 2 | hint"
        )
    fact, question = match["fact"] or "", match["question"] or ""
    if (fact or not question) and fact not in FACTS:
        raise LessonError(
            f"Line {number}: there is no fact {fact!r}; there are {', '.join(sorted(FACTS))}."
        )
    argument = (match["argument"] or "").strip()
    if fact and FACTS[fact].takes != bool(argument) and FACTS[fact].takes is not None:
        needs = "needs an argument" if FACTS[fact].takes else "takes no argument"
        raise LessonError(f"Line {number}: {fact} {needs}: {FACTS[fact].doc}")
    wanted = _value(match["wanted"].strip())
    tolerance = float(match["tolerance"] or 0.0) or _tolerance(bool(question), wanted)
    hint = (match["hint"] or "").strip()
    once = bool(match["once"])
    return Goal(
        fact, argument, match["comparison"], wanted, tolerance, hint, question, once
    )


def _tolerance(asks: bool, wanted: Value) -> float:
    """Return the tolerance of a goal that says none."""
    return TOLERANCE * abs(wanted) if asks and isinstance(wanted, float) else 0.0


def row_of(goal: Goal) -> str:
    """Return the line of a goal, without its hint.

    >>> row_of(goal_of('once ask "How many?" layers nn.Linear = same'))
    'once ask "How many?" layers nn.Linear = same'
    """
    wanted = goal.wanted
    is_usual = goal.tolerance == _tolerance(bool(goal.question), wanted)
    if isinstance(wanted, str):
        shown = wanted if re.fullmatch(r"[\w. ]+", wanted) else f'"{wanted}"'
    else:
        shown = f"{wanted:.12g}"
    parts = (
        "once" if goal.once else "",
        f'ask "{goal.question}"' if goal.question else "",
        goal.fact,
        goal.argument,
        goal.comparison,
        shown,
        "" if is_usual else f"+- {goal.tolerance!r}",
    )
    return " ".join(filter(None, parts))


def written(lesson: Lesson) -> str:
    """Return a lesson as it is written. Raises LessonError where its texts would be read as something else."""
    head = [f"title = {json.dumps(lesson.title, ensure_ascii=False)}"]
    head += [f"minutes = {lesson.minutes}", f"start = {json.dumps(lesson.start)}"]
    head += [f"order = {lesson.order}"] if lesson.order != Lesson.order else []
    head += [f"seed = {json.dumps(lesson.seed)}"] if lesson.seed else []
    lines = ["+++", *head, "+++", lesson.summary]
    for step in lesson.steps:
        lines += ["", f"## {step.title}", step.text]
        goals = [
            f"{row_of(goal)} | {goal.hint}" if goal.hint else row_of(goal)
            for goal in step.goals
        ]
        lines += ["", "```goals", *goals, "```"] if goals else []
    text = "\n".join(lines) + "\n"
    if [step.title for step in parsed(text, lesson.name).steps] != [
        step.title for step in lesson.steps
    ]:
        raise LessonError(
            "A line of a text begins with ##, as the title of a step does. Use ### in a text."
        )
    return text


def _value(text: str) -> Value:
    """Return a number, or a text; yes and no are 1 and 0.

    A comma before three digits groups thousands, another one is a decimal comma.

    >>> _value("0.5"), _value("12 %"), _value("yes"), _value("Adam"), _value("1e3")
    (0.5, 0.12, 1.0, 'Adam', 1000.0)
    >>> _value("1,25"), _value("0,125"), _value("1,438"), _value("51,300.5")
    (1.25, 0.125, 1438.0, 51300.5)
    """
    if text.lower() in ("yes", "no"):
        return float(text.lower() == "yes")
    try:
        number = text.removesuffix("%").strip()
        grouped = re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", number)
        value = float(number.replace(",", "" if grouped else "."))
    except ValueError:
        return text.strip('"')
    return value / 100 if text.endswith("%") else value


def typed_value(text: str) -> Value | None:
    """Return the answer that was typed, None for no text; a fraction is its value.

    >>> typed_value(" 3/4 "), typed_value("Yes"), typed_value(""), typed_value("w")
    (0.75, 1.0, None, 'w')
    """
    text = text.strip()
    if not text:
        return None
    over, slash, under = text.partition("/")
    if slash:
        try:
            return float(over) / float(under)
        except (ValueError, ZeroDivisionError):
            return text
    return _value(text)


def format_value(value: Value) -> str:
    """Format a value for a sentence.

    >>> format_value(2.0), format_value(0.95), format_value("Adam")
    ('2', '0.95', 'Adam')
    """
    return value if isinstance(value, str) else f"{value:g}"


def _plain(value: Value) -> str:
    return re.sub(r"[\s×x,()]+", " ", format_value(value).casefold()).strip()


def _check(steps: list[LessonStep]) -> None:
    if not steps:
        raise LessonError(
            'The lesson has no step: add a line such as "## Add a layer".'
        )
    if len(steps) > MOST_STEPS or sum(len(step.goals) for step in steps) > MOST_GOALS:
        raise LessonError(
            f"The lesson has more than {MOST_STEPS} steps or {MOST_GOALS} goals."
        )
    questions = [
        goal.question for step in steps for goal in step.goals if goal.question
    ]
    if doubled := next((text for text in questions if questions.count(text) > 1), ""):
        raise LessonError(
            f"The question {doubled!r} is asked twice; answers are stored by question."
        )
