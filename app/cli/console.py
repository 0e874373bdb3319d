"""What every command refuses, says and writes: its errors, lines for the terminal, files and pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.arguments import PICTURES
from app.util import atomic, regular_files
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


def device(name: str) -> str:
    """Validate a device name. Raises CommandError if it is not available, rather than falling back to the CPU."""
    from app.training.job import JobError
    from app.training.setup.devices import devices, resolve

    try:
        absent = resolve(name).note
    except JobError as error:
        raise CommandError(str(error)) from error
    if absent:
        raise CommandError(
            f"device {name} is not available here; available: {', '.join(each.id for each in devices())}"
        )
    return name


def read_data(project: Project) -> str:
    """Read the user's files, so that the data can be checked against the network; return why they cannot be read, ""
    if they can.
    """
    from app.data.loaders import read_spec
    from app.data.sources import DataError, check

    try:
        check(project.data)
        read_spec(project.data)
    except DataError as error:
        return str(error)
    return ""


def save(weights: Any, path: Path) -> None:
    from app.export.weights import save_pt, save_safetensors

    (save_pt if path.suffix == ".pt" else save_safetensors)(weights, path)


def picture(
    drawing: Any,
    path: Path,
    options: argparse.Namespace | None = None,
    project: bytes = b"",
) -> str:
    """Draw to a file; return the path with its size. `project` are the bytes of the project that it carries."""
    from app.graphviz_export import TEXTS

    if path.suffix.lower().removeprefix(".") in TEXTS:
        from app.graphviz_export import text_of

        with writing(path):
            atomic.write_text(
                path, text_of(drawing, path.suffix.lower().removeprefix("."))
            )
        return str(path)
    from app.views.export.headless_pictures import write_picture

    with writing(path):
        asked: dict[str, Any] = vars(options) if options is not None else {}
        carried = b"" if asked.get("no_project") else project
        note = write_picture(
            drawing,
            path,
            asked.get("purpose") or "page",
            asked.get("arranged"),
            carried,
        )
    return f"{path} ({note})" if note else str(path)


def can_be_written(path: Path, endings: tuple[str, ...], what: str) -> None:
    """Reject a file that cannot be written, before any work is done. Raises CommandError."""
    if path.suffix.lower() not in endings:
        raise CommandError(
            f"{path} ends in {path.suffix or 'nothing'}; {what} {' or '.join(endings)}"
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


def warn(words: str) -> None:
    """Print a line to stderr."""
    print(f"tapedeck: {printable(words)}", file=sys.stderr)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, and print its path. Raises CommandError."""
    from app.export import text_files

    with writing(path):
        text_files.write_text(path, text)
    print(path)


def digest(path: Path) -> str:
    """Return the digest of a file, to detect changes by others before overwriting it."""
    from app.project import file

    try:
        return file.digest(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


def note_open(path: Path) -> None:
    """Print who has a written file open, since that window will report the change."""
    from app.project import file_lock

    owner = file_lock.holder(path)
    if owner is not None:
        print(
            f"{path} is open in a window ({owner.description}), which reports the change",
            file=sys.stderr,
        )


def note_backup(path: Path, backup: Path | None) -> None:
    """Print the path of the backup, if `project_file.write` made one of an older format."""
    if backup is not None:
        print(f"{path} was of an older format; the original was saved as {backup}")


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
