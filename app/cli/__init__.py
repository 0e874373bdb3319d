"""The command line. A command is a small module that declares it, `NAME_command.py` or the `command.py` of its folder.

Such a module imports neither torch nor what does: `--help` imports all of them, a command its own alone. What a command
does stands in a module that is imported when it is carried out, and what commands share in `arguments`, `console`,
`nets` and `settings`.

Exit codes: 0 done, 1 the net or the run has a problem, 2 wrong arguments or a file that cannot be read or written, 130
interrupted, 141 stdout was closed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from app import __version__
from app.cli import failures, startup, streams
from app.cli.console import CommandError, printable, shortened
from app.util import language, processors, shelf, user_frames

PROGRAM = Path(__file__).parents[1]
FOR_MACHINES = ("json", "csv", "gradescope")  # outputs that are English


def commands() -> dict[str, str]:
    """Return each command with its module, which is not imported.

    They are found in `app/cli` and `app/features`: `command.py` is named like its folder, `NAME_command.py` by itself.
    """
    files = [
        *PROGRAM.glob("cli/**/*command.py"),
        *PROGRAM.glob("features/**/*command.py"),
    ]
    package = __name__.rpartition(".")[0]
    modules_by_name = {
        f"{plugin_file.stem.removesuffix('_command')}": f"{plugin}.{plugin_file.stem}"
        for plugin, folder in shelf.plugins().items()
        for plugin_file in folder.glob("*_command.py")
    }
    modules_by_name |= {
        (file.stem.removesuffix("command").rstrip("_") or file.parent.name): ".".join(
            (package, *file.relative_to(PROGRAM).with_suffix("").parts)
        )
        for file in files
    }
    return dict(sorted(modules_by_name.items()))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message}; try {self.prog} --help")


class _Speak(argparse.Action):
    def __call__(self, _parser: Any, _space: Any, code: Any, _option: Any = "") -> None:
        language.choose(code)


class _CommandParser(_Parser):
    """The parser of one command; every command has --traceback."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.add_argument(
            "--traceback",
            action="store_true",
            help="if a step fails, show the full traceback instead of only the lines in your files",
        )
        self.add_argument(
            "--language",
            choices=language.names(),
            action=_Speak,
            help="of lessons, findings and hints; JSON is English (that of LANGUAGE or the locale)",
        )
        # Commands that tell what is missing, or run with what another interpreter has, need no packages.
        self.set_defaults(anywhere=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what it does not know itself, since the message then names this command and its options."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._refusal(unknown[0]))
        return parsed, unknown

    def _refusal(self, text: str) -> str:
        if not text.startswith("-"):
            arguments = (
                ", ".join(
                    str(action.metavar or action.dest)
                    for action in self._get_positional_actions()
                )
                or "none"
            )
            return f"{text} is one argument too many: it takes {arguments}"
        name = text.partition("=")[0]
        near = get_close_matches(name, self._option_string_actions, 1, 0.7)
        return f"there is no option {name}" + (
            f", the nearest is {near[0]}" if near else ""
        )


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
        _reject_empty(
            arguments if arguments[:1] != ["run"] else arguments[:2]
        )  # the rest is for a script
        options = _parser(arguments[0]).parse_args(arguments)
    except (CommandError, ImportError) as error:  # of a package that the commands need
        return _refused(error, whole=False)
    if any(getattr(options, name, False) for name in FOR_MACHINES):
        language.choose(language.ENGLISH)
    if place := getattr(options, "elsewhere", None):
        options.anywhere, options.command = True, partial(_elsewhere, place, arguments)
    if not options.anywhere and (obstacle := startup.hindrance(window=False)):
        return startup.refuse(obstacle)
    if arguments[0] != "run":  # which runs a script of the user as it is
        processors.limit_this_process()
    try:
        with user_frames.at_users_lines():
            return int(options.command(options) or 0)
    except (Exception, SystemExit) as error:  # code of the user may end Python
        if isinstance(error, OSError) and streams.is_broken(error):
            raise
        return _refused(error, options.traceback)


def _elsewhere(place: str, arguments: Sequence[str], _options: Any) -> int:
    """Carry a command out at a place. Raises CommandError."""
    for module in shelf.modules("cli.command_elsewhere"):
        status: int = import_module(module).run(place, arguments)
        return status
    raise CommandError("--at needs the feature places, which is not there")


def _refused(error: BaseException, whole: bool) -> int:
    """Print why a command failed; return its exit code."""
    message, exit_code = failures.explained(error, whole)
    print(f"tapedeck: {shortened(printable(message))}", file=sys.stderr)
    return exit_code


def _reject_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument, as a variable leaves that is not set, and a NUL. Raises CommandError."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        if not argument:
            raise CommandError(
                f"the text after {before or 'tapedeck'} is empty; give it a value or leave it out"
            )
        if "\0" in argument:
            raise CommandError(
                f"{argument} contains a NUL character, which is not allowed in names"
            )


def _parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of one command, else of all: a package that others need may be broken."""
    parser = _Parser(
        prog="tapedeck", description="Tapedeck on the command line, without its window."
    )
    parser.add_argument(
        "--version", action="version", version=f"tapedeck {__version__}"
    )
    subparsers = parser.add_subparsers(
        required=True, metavar="COMMAND", parser_class=_CommandParser
    )
    modules = commands()
    for name in [command] if command in modules else modules:
        plugin = shelf.plugin_of(modules[name])
        with shelf.noting(plugin) if plugin and name != command else nullcontext():
            import_module(modules[name]).add(subparsers)
    return parser
