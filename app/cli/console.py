"""What every command refuses, says and writes: its errors, lines for the terminal, files and pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import PICTURES
from app.util import regular_files
from app.util.errors import CodedError

if TYPE_CHECKING:
    from app.builder.diagnostics.problems import Problem
    from app.project.project import Project

LONGEST = 2000  # letters of a refusal


class CommandError(CodedError):
    """Raised if a command cannot be executed; the text is the line for stderr."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def can_be_written(path: Path, endings: tuple[str, ...], requirement: str) -> None:
    """Reject a file that cannot be written, before any work is done. Raises CommandError."""
    if path.suffix.lower() not in endings:
        raise CommandError(
            f"{path} ends in {path.suffix or 'nothing'}; {requirement} {' or '.join(endings)}"
        )
    has_place(path)


def has_place(path: Path) -> None:
    """Refuse a file that cannot be put where it is to be, or would take the place of a pipe. Raises CommandError."""
    if path.is_dir():
        raise CommandError(f"{path} is a folder; pass a file name")
    if not path.parent.is_dir():
        raise CommandError(
            f"{path} cannot be written: there is no folder {path.parent}"
        )
    if path.exists():
        try:
            regular_files.check(path)
        except OSError as error:
            raise CommandError(
                f"{path} cannot be written: {error.strerror or error}"
            ) from error


def check_graph_output(options: argparse.Namespace) -> None:
    """Refuse a file that cannot be written. Raises CommandError."""

    path: Path | None = options.out
    if path is not None and path.suffix not in (*PICTURES, ".html"):
        raise CommandError(
            f"{path} ends in {path.suffix or 'nothing'}; it can be {', '.join(PICTURES)} or .html"
        )
    if path is not None:
        has_place(path)
    if options.play and (path is None or path.suffix not in (".json", ".html")):
        raise CommandError(
            "--play writes the playback into a JSON or HTML file: pass --out F.json"
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"{error.filename or path} cannot be written: {error.strerror or error}"
        ) from error


def warn(message: str) -> None:
    """Print a line to stderr."""
    print(f"tapedeck: {printable(message)}", file=sys.stderr)


def name_of(problem: Problem, project: Project) -> str:
    node = project.graph.nodes.get(problem.node) if problem.node else None
    return node.name if node else project.name


def sentence(problem: Problem, project: Project) -> str:
    name = name_of(problem, project)
    message = (
        problem.message
        if problem.message.startswith(name)
        else f"{name}: {problem.message}"
    )
    return printable(f"{message}. {problem.reason}".replace("..", ".").strip())


def printable(text: str) -> str:
    """Replace control characters and line breaks, since terminals interpret them."""
    return "".join(
        letter
        if letter.isprintable()
        else " "
        if letter.isspace()
        else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def shortened(text: str) -> str:
    """Truncate very long names in the middle of a sentence."""
    return (
        text
        if len(text) <= LONGEST
        else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    )
