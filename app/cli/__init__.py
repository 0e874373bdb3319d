"""The command line: a module for each of `COMMANDS`, and the steps that they share.

Exit codes: 0 done, 1 the net or the run has a problem, 2 wrong arguments or a file that cannot be read or written, 130
interrupted, 141 stdout was closed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from app import __version__
from app.cli import failures, streams
from app.util import atomic, processors, regular_files, user_frames
from app.util.errors import CodedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.builder.diagnostics.problems import Problem
    from app.builder.diagram import Unfolded
    from app.builder.results import Analysis
    from app.diagram.diagram import Drawing
    from app.project.project import Project

# Commands in the order of their help, each with its module below `app.cli`.
COMMANDS = {
    "check": "check",
    "train": "train",
    "sweep": "sweep.command",
    "data": "data",
    "try": "trials",
    "evaluate": "evaluate",
    "export": "export",
    "attention": "interpret.attention",
    "attribute": "interpret.attribute",
    "patch": "interpret.patch",
    "revisit": "revisit.command",
    "autograd": "autograd",
    "import": "import_model",
    "draw": "draw",
    "diff": "diff",
    "open": "open_model",
    "run": "scripts.run_script",
    "runs": "runs",
    "doctor": "doctor",
}
LONGEST = 2000  # letters of a refusal
PICTURES = (".svg", ".pdf", ".png", ".tex", ".dot", ".json")


class CommandError(CodedError):
    """Raised if a command cannot be executed; the text is the line for stderr."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message}; try {self.prog} --help")


class _CommandParser(_Parser):
    """The parser of one command; every command has --traceback."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.add_argument(
            "--traceback",
            action="store_true",
            help="if a step fails, show the full traceback instead of only the lines in your files",
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what it does not know itself, since the message then names this command and its options."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._refusal(unknown[0]))
        return known, unknown

    def _refusal(self, text: str) -> str:
        if not text.startswith("-"):
            taken = ", ".join(str(one.metavar or one.dest) for one in self._get_positional_actions()) or "none"
            return f"{text} is one argument too many: it takes {taken}"
        name = text.partition("=")[0]
        near = get_close_matches(name, self._option_string_actions, 1, 0.7)
        return f"there is no option {name}" + (f", the nearest is {near[0]}" if near else "")


def run(arguments: Sequence[str]) -> int:
    """Execute a command and return its exit code."""
    streams.prepare()
    try:
        try:
            return _carried_out(arguments)
        finally:
            streams.finish()
    except OSError as error:
        if streams.is_broken(error):
            return streams.give_up(error)
        return _refused(error, whole=False)


def _carried_out(arguments: Sequence[str]) -> int:
    try:
        _reject_empty(arguments if arguments[:1] != ["run"] else arguments[:2])  # the rest is for a script
        options = _parser().parse_args(arguments)
    except CommandError as error:
        return _refused(error, whole=False)
    if arguments[0] != "run":  # which runs a script of the user as it is
        processors.limit_this_process()
    try:
        with user_frames.at_users_lines():
            return int(options.command(options) or 0)
    except (Exception, SystemExit) as error:  # code of the user may end Python
        if isinstance(error, OSError) and streams.is_broken(error):
            raise
        return _refused(error, options.traceback)


def _refused(error: BaseException, whole: bool) -> int:
    """Print why a command failed; return its exit code."""
    words, exit_code = failures.explained(error, whole)
    print(f"tapedeck: {shortened(printable(words))}", file=sys.stderr)
    return exit_code


def _reject_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument, as a variable leaves that is not set, and a NUL. Raises CommandError."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        if not argument:
            raise CommandError(f"the text after {before or 'tapedeck'} is empty; give it a value or leave it out")
        if "\0" in argument:
            raise CommandError(f"{argument} contains a NUL character, which is not allowed in names")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tapedeck", description="Tapedeck on the command line, without its window.")
    parser.add_argument("--version", action="version", version=f"tapedeck {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_CommandParser)
    for module in COMMANDS.values():
        import_module(f"{__name__}.{module}").add(commands)
    return parser


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


# -- shared steps -----------------------------------------------------------------------------------------------------


def read(options: argparse.Namespace) -> Project:
    """Read the project that a command names, or open a model where it takes one. Raises CommandError."""
    from app.cli import opened
    from app.project import custom_layers
    from app.project.file import read

    path: Path = options.project
    if path.suffix in (".pt2", ".onnx"):
        raise CommandError(
            f"{path} is a graph in one mode, which cannot be trained. Name the Python class that it was exported from: "
            "file.py:Class"
        )
    takes_settings = hasattr(options, "loss")
    takes_models = takes_settings and hasattr(options, "args")
    if takes_models and not path.exists() and path.suffix != ".tape" and ":" in str(path):
        project = opened.project_of(options)
    elif takes_models and (options.args != "{}" or options.input):
        raise CommandError("--args and --input are for a model, and this is a project")
    else:
        try:
            project = read(path)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error
        project = opened.with_settings(project, options) if takes_settings else project
    custom_layers.admit(project, options.trust)
    return opened.with_loss(project, options) if takes_settings else project


def analysed(project: Project, alone: bool = False) -> tuple[Analysis, tuple[Problem, ...]]:
    from app.builder.analysis import analyse
    from app.preflight import opened, preflight
    from app.preflight.net_cost import with_cost
    from app.project import custom_layers
    from app.project.weights import start_weights

    if not alone:
        read_data(project)
    if project.opened is not None:
        analysis = opened.analysis_of(project)
    else:
        ops = custom_layers.ops_of(project)
        analysis = with_cost(analyse(project.graph, ops), ops)
    found = analysis.problems
    if not analysis.runnable:
        return analysis, found
    started = start_weights.problems(project.training.start, analysis.source)
    return analysis, (*found, *(started if alone else preflight.problems(project, analysis, started)))


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


def sound(project: Project, alone: bool = False) -> Analysis:
    """Return the analysis of a project without errors; otherwise print the errors and exit with 1.

    With `alone` only the net and its start weights are checked, not its data and its loss.
    """
    from app.project import custom_layers

    if files := custom_layers.waiting(project):
        names = ", ".join(map(str, files))
        raise CommandError(f"{names} is not trusted yet and none of its code was run; review it, then pass --trust", 1)
    if not alone and (wrong := read_data(project)):
        raise CommandError(f"{project.name} cannot run. {wrong}")
    analysis, problems = analysed(project, alone)
    errors = [problem for problem in problems if problem.severity == "error"]
    if len(errors) == 1:
        raise CommandError(f"{project.name} cannot run. {sentence(errors[0], project)}", 1)
    for problem in errors:
        warn(sentence(problem, project))
    if errors:
        raise CommandError(f"{project.name} cannot run: it has the {len(errors)} problems above", 1)
    return analysis


def save(weights: Any, path: Path) -> None:
    from app.export.weights import save_pt, save_safetensors

    (save_pt if path.suffix == ".pt" else save_safetensors)(weights, path)


def drawing(project: Project, unfolded: Unfolded) -> Drawing:
    """Return the diagram of the network with known shapes."""
    from app.builder.analysis import analyse
    from app.builder.diagram import to_drawing
    from app.project import custom_layers

    ops = custom_layers.ops_of(project)
    return to_drawing(project, ops, analyse(project.graph, ops), unfolded, project.name)


def add_paper(parser: Any, *, arranged: bool = False, carries: bool = False) -> None:
    """Add the options of a picture: what it is for, how its boxes are placed, and whether it carries the project."""
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=("column", "page", "slide"),
        default="page",
        help="size of a picture: a column (8.5 cm wide), a page (17 cm) or a slide (16:9); default page",
    )
    canvas = "as on the canvas (the default if its text is readable then), " if arranged else ""
    parser.add_argument(
        "--arranged",
        choices=(*(("canvas",) if arranged else ()), "rows", "dot"),
        help=f"place the nodes {canvas}in rows that fit the size, or by Graphviz's dot, which sets the size itself",
    )
    if carries:
        parser.add_argument(
            "--no-project", action="store_true", help="do not put the project into a picture that ends in .svg or .png"
        )


def picture(drawing: Any, path: Path, options: argparse.Namespace | None = None, project: bytes = b"") -> str:
    """Draw to a file; return the path with its size. `project` are the bytes of the project that it carries."""
    from app.graphviz_export import TEXTS

    if path.suffix.lower().removeprefix(".") in TEXTS:
        from app.graphviz_export import text_of

        with writing(path):
            atomic.write_text(path, text_of(drawing, path.suffix.lower().removeprefix(".")))
        return str(path)
    from app.views.export.headless_pictures import write_picture

    with writing(path):
        asked: dict[str, Any] = vars(options) if options is not None else {}
        carried = b"" if asked.get("no_project") else project
        note = write_picture(drawing, path, asked.get("purpose") or "page", asked.get("arranged"), carried)
    return f"{path} ({note})" if note else str(path)


def can_be_written(path: Path, endings: tuple[str, ...], what: str) -> None:
    """Reject a file that cannot be written, before any work is done. Raises CommandError."""
    if path.suffix.lower() not in endings:
        raise CommandError(f"{path} ends in {path.suffix or 'nothing'}; {what} {' or '.join(endings)}")
    has_place(path)


def has_place(path: Path) -> None:
    """Refuse a file that cannot be put where it is to be, or would take the place of a pipe. Raises CommandError."""
    if path.is_dir():
        raise CommandError(f"{path} is a folder; pass a file name")
    if not path.parent.is_dir():
        raise CommandError(f"{path} cannot be written: there is no folder {path.parent}")
    if path.exists():
        try:
            regular_files.check(path)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"{error.filename or path} cannot be written: {error.strerror or error}") from error


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
        print(f"{path} is open in a window ({owner.description}), which reports the change", file=sys.stderr)


def note_backup(path: Path, backup: Path | None) -> None:
    """Print the path of the backup, if `project_file.write` made one of an older format."""
    if backup is not None:
        print(f"{path} was of an older format; the original was saved as {backup}")


def name_of(problem: Problem, project: Project) -> str:
    node = project.graph.nodes.get(problem.node) if problem.node else None
    return node.name if node else project.name


def sentence(problem: Problem, project: Project) -> str:
    name = name_of(problem, project)
    message = problem.message if problem.message.startswith(name) else f"{name}: {problem.message}"
    return printable(f"{message}. {problem.reason}".replace("..", ".").strip())


def printable(text: str) -> str:
    """Replace control characters and line breaks, since terminals interpret them."""
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def shortened(text: str) -> str:
    """Truncate very long names in the middle of a sentence."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
