"""`tapedeck lesson`: begin a lesson of one's own, and check it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli import console
from app.features.lessons.facts import FACTS
from app.features.lessons.lesson import FILE, LessonError, read
from app.project import file
from app.project.sheet_records import ProjectFileError
from app.util import atomic
from app.util.formatting import counted

DRAFT = """+++
title = "{title}"
minutes = 10
start = "empty"
+++
What the lesson is about, in a sentence or two.

## The first step
What to do.

```goals
layers nn.Linear >= 1 | A hint that helps without telling all.
ask "How many outputs has linear 10?" = 10 | The number in brackets.
```
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "lesson",
        help="begin a lesson of your own, check one, or list what goals can be about",
    )
    parser.add_argument("action", choices=("new", "check", "facts"))
    parser.add_argument("folder", metavar="FOLDER", type=Path, nargs="?")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out. Raises CommandError."""
    if options.action == "facts":
        for name, fact in FACTS.items():
            print(f"{name:15}{fact.doc}")
        return 0
    if options.folder is None:
        raise console.CommandError(
            f"lesson {options.action} needs the folder of the lesson"
        )
    return _new(options.folder) if options.action == "new" else _check(options.folder)


def _new(folder: Path) -> int:
    path = folder / FILE
    if path.exists():
        raise console.CommandError(f"{path} is there already")
    folder.mkdir(parents=True, exist_ok=True)
    title = folder.name.replace("-", " ").strip('"\\') or "A lesson"
    atomic.write_bytes(path, DRAFT.format(title=title).encode())
    print(f"{path} is written; `tapedeck lesson check {folder}` checks it.")
    return 0


def _check(folder: Path) -> int:
    try:
        lesson = read(folder)
        if lesson.start.endswith(".tape"):
            file.read(lesson.folder / lesson.start)
    except (LessonError, ProjectFileError) as error:
        raise console.CommandError(f"{folder}: {error}", 1) from error
    except OSError as error:
        raise console.CommandError(
            f"{error.filename or folder}: {error.strerror}"
        ) from error
    without = [goal.text for goal in lesson.goals if not goal.hint]
    for text in without:
        console.warn(f"A goal has no hint: {text}")
    steps, goals = (
        counted(len(lesson.steps), "step"),
        counted(len(lesson.goals), "goal"),
    )
    print(f"{lesson.title}: {steps}, {goals}")
    for step in lesson.steps:
        print(f"  {step.title}")
        for goal in step.goals:
            print(f"    {goal.text}")
    return 0
