"""Finds hand-ins, has each graded in a process of its own, and prints the verdicts."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from app.cli import console
from app.engine import pool
from app.engine.own_engine import LimitedQuestion, OwnEngine, RequestStoppedError
from app.engine.protocol import EngineDiedError, EngineError
from app.features.lessons.lesson import FILE, Lesson, LessonError, bundled, read
from app.features.lessons.values import FROM_RECORD, GoalVerdict, Grade, Graded
from app.project import file, limits, picture_file
from app.project.project import Project
from app.project.sheet_records import ProjectFileError
from app.util import regular_files, resources
from app.util.language import marked, tr, trn

MIB = 2**20
MOST_IN_ZIP = 1000  # files that are looked at
SUFFIXES = (".tape", ".png", ".svg")
NO_ANSWER = marked("It was not graded: its process ended.")


class HandIn(NamedTuple):
    """A file that was handed in: its place in the folder, and its bytes, or why it cannot be read."""

    name: str
    data: bytes = b""
    error: str = ""


class Submission(NamedTuple):
    """A hand-in and its verdicts. `unread` is whether it could not be read."""

    file: str
    graded: Graded
    unread: bool

    @property
    def score(self) -> float:
        """The share of goals that are reached, 0 to 1."""
        goals = self.graded.goals
        return sum(goal.passed for goal in goals) / len(goals) if goals else 0.0

    @property
    def recorded(self) -> int:
        """How many of the goals that are reached are so by the record of the hand-in alone, which was not measured."""
        return sum(map(_is_recorded, self.graded.goals))


def run(options: argparse.Namespace) -> int:
    """Grade the folder; return 2 if something could not be read, else 0. Raises CommandError."""
    lesson, text = lesson_named(options.lesson)
    if not options.folder.is_dir():
        raise console.CommandError(f"{options.folder} is no folder.")
    start_of(lesson)  # so that one that cannot be read is said before
    submissions = []
    pool.prepare(later=True)  # so that torch is loaded once for all of them
    for hand_in in hand_ins(options.folder):
        submission = graded(hand_in, lesson, text, options.seconds, options.memory)
        submissions.append(submission)
        if not (options.json or options.csv or options.gradescope):
            _print(submission)
    if options.json:
        print(json.dumps(as_json(lesson, submissions), indent=1))
    elif options.csv:
        print(as_csv(lesson, submissions), end="")
    elif options.gradescope:
        print(json.dumps(as_gradescope(submissions), indent=1))
    if not submissions:
        console.warn(f"There is no .tape, .png, .svg or .zip in {options.folder}.")
    return 2 if any(submission.unread for submission in submissions) else 0


def lesson_named(name: str) -> tuple[Lesson, str]:
    folder = Path(name)
    if not folder.exists():
        names = {lesson.name: lesson for lesson in bundled()}
        if name not in names:
            raise console.CommandError(
                f"There is no lesson {name!r}; there are {', '.join(names)}, or name the folder of one."
            )
        folder = names[name].folder
    try:
        lesson = read(folder)
    except (LessonError, OSError) as error:
        raise console.CommandError(f"{folder}: {error}") from error
    path = folder / FILE if folder.is_dir() else folder
    return lesson, path.read_text("utf-8")


def start_of(lesson: Lesson) -> Project | None:
    """Return the project that a lesson begins with, None for none. Raises CommandError."""
    kind, _, name = lesson.start.partition(" ")
    path = lesson.folder / lesson.start
    if kind == "example":
        path = resources.path("examples", f"{name}.tape")
    elif path.suffix != ".tape":
        return None
    try:
        return file.read(path)
    except (ProjectFileError, OSError) as error:
        raise console.CommandError(f"{path}: {error}") from error


def hand_ins(folder: Path) -> Iterator[HandIn]:
    """Yield what was handed in, by name; what is in a zip follows the name of the zip."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        suffix = path.suffix.lower()
        if suffix not in (*SUFFIXES, ".zip") or path.is_dir() or "__MACOSX" in name:
            continue
        try:
            regular_files.check(path)
            if suffix == ".zip":
                yield from _in_zip(path, name)
            else:
                with path.open("rb") as stream:
                    yield _bounded(name, stream.read(_most(name) + 1))
        except (
            OSError,
            zipfile.BadZipFile,
            RuntimeError,
            NotImplementedError,
        ) as error:
            yield HandIn(name, error=tr("It cannot be read: {error}.", error=error))


def _in_zip(path: Path, name: str) -> Iterator[HandIn]:
    with zipfile.ZipFile(path) as archive:
        entries = [
            entry
            for entry in archive.infolist()[:MOST_IN_ZIP]
            if entry.filename.lower().endswith(SUFFIXES)
            and "__MACOSX" not in entry.filename
        ]
        if not entries:
            yield HandIn(name, error=tr("There is no .tape in it."))
        for entry in entries:
            inner = f"{name}/{entry.filename}"
            with archive.open(entry) as stream:
                yield _bounded(inner, stream.read(_most(inner) + 1))


def _most(name: str) -> int:
    picture = not name.lower().endswith(".tape")
    return picture_file.LARGEST_PICTURE if picture else limits.LARGEST_FILE


def _bounded(name: str, data: bytes) -> HandIn:
    if len(data) > _most(name):
        return HandIn(name, error=tr("It is larger than a project can be."))
    return HandIn(name, data)


def graded(
    hand_in: HandIn, lesson: Lesson, text: str, seconds: float, memory: int
) -> Submission:
    if hand_in.error:
        return Submission(hand_in.name, Graded(error=hand_in.error), True)
    try:
        project = _project(hand_in)
    except (ProjectFileError, UnicodeDecodeError) as error:
        return Submission(hand_in.name, Graded(error=f"{error}"), True)
    request = Grade(text, lesson.name, project, start_of(lesson))
    return Submission(hand_in.name, _verdicts(request, seconds, memory), False)


def _project(hand_in: HandIn) -> Project:
    suffix = Path(hand_in.name).suffix.lower()
    data = hand_in.data
    if suffix != ".tape":
        data = picture_file.project_in(data, suffix)
    return file.loads(data)


def _verdicts(request: Grade, seconds: float, memory: int) -> Graded:
    engine = OwnEngine(partial(pool.start, "engine"))
    try:
        question = LimitedQuestion(engine, request)
        question.limit(seconds, memory * MIB)
        return question.answer()
    except RequestStoppedError as stopped:
        text = tr("It used more than {memory} MiB, and was stopped.", memory=memory)
        if stopped.reason == "time":
            text = tr(
                "It took longer than {seconds:g} seconds, and was stopped.",
                seconds=seconds,
            )
        return Graded(error=text)
    except (EngineDiedError, EngineError) as error:
        return Graded(error=f"{tr(NO_ANSWER)} {error}")
    except Exception as error:  # of the hand-in's own net
        return Graded(error=f"{type(error).__name__}: {error}")
    finally:
        engine.close()


def as_json(lesson: Lesson, submissions: list[Submission]) -> dict[str, object]:
    """Return the verdicts as plain data."""
    return {
        "lesson": lesson.name,
        "submissions": [
            {
                "file": each.file,
                "goals": [
                    {
                        "goal": goal.goal,
                        "passed": goal.passed,
                        "seen": goal.seen,
                        "wanted": goal.wanted,
                        "evidence": goal.evidence,
                    }
                    for goal in each.graded.goals
                ],
                "score": each.score,
                "error": each.graded.error,
                "student": each.graded.student,
                "seed": each.graded.seed,
            }
            for each in submissions
        ],
    }


def as_csv(lesson: Lesson, submissions: list[Submission]) -> str:
    """Return a row a hand-in: its file, score, error, how many goals are reached as it records them alone, and 1 or 0
    for each goal."""
    out = io.StringIO()
    writer = csv.writer(out)
    goals = (goal.text for goal in lesson.goals)
    writer.writerow(["file", "score", "error", FROM_RECORD, *goals])
    for each in submissions:
        marks = [int(goal.passed) for goal in each.graded.goals]
        score = f"{each.score:.4f}"
        writer.writerow([each.file, score, each.graded.error, each.recorded, *marks])
    return out.getvalue()


def as_gradescope(submissions: list[Submission]) -> dict[str, object]:
    """Return the results of the first hand-in as Gradescope's results.json has them."""
    if not submissions:
        return {"score": 0.0, "output": tr("There is no hand-in.")}
    first = submissions[0]
    return {
        "score": 100.0 * first.score,
        "output": first.graded.error,
        "tests": [
            {
                "name": goal.goal,
                "score": float(goal.passed),
                "max_score": 1.0,
                "output": f"seen: {goal.seen}; wanted: {goal.wanted}{_source(goal)}",
            }
            for goal in first.graded.goals
        ],
    }


def _is_recorded(goal: GoalVerdict) -> bool:
    return goal.passed and goal.evidence == FROM_RECORD


def _source(goal: GoalVerdict) -> str:
    return f"; {FROM_RECORD}" if _is_recorded(goal) else ""


def _print(submission: Submission) -> None:
    graded = submission.graded
    goals = graded.goals
    record = ""
    if submission.recorded:
        record = tr(", {number} as it records them", number=submission.recorded)
    student = ""
    if graded.seed is not None:
        student = tr(
            " ({student}, seed {seed})", student=graded.student, seed=graded.seed
        )
    text = trn(
        "{file}: {passed} of {count} goal",
        "{file}: {passed} of {count} goals",
        len(goals),
        file=f"{submission.file}{student}",
        passed=sum(goal.passed for goal in goals),
    )
    print(f"{text}{record}")
    for goal in goals:
        if not goal.passed:
            seen = goal.seen or tr("nothing")
            text = tr("not reached: {goal}; seen {seen}", goal=goal.goal, seen=seen)
            print(f"  {text}")
    if submission.graded.error:
        print(f"  {submission.graded.error}")
    sys.stdout.flush()
