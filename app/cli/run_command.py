"""`tapedeck run`: run a training script unchanged in this terminal, with monitoring."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import tapedeck
from app.cli import arguments, console, startup
from app.util import shelf
from app.util.resources import PROGRAM, python_path
from tapedeck import frames

WORDS = """
Everything after SCRIPT is passed to it. It runs as `python train.py` does: in this terminal and folder, with the same
output, exit status, signals and random numbers. Its losses, learning rates, gradient norms and memory go to a file,
which the window shows (--window, or `tapedeck FILE` later). There it can be paused and its learning rate set. The
window may be closed at any time. On several ranks: torchrun --no-python --nproc-per-node 2 tapedeck run train.py.
With --capture 3 --out F.json the graph of step 3 is written as the first backward of that step finds it: the script
waits until the file is written, then continues unchanged. Of several ranks, rank 0 is captured, or --rank.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run a training script of your own, and watch it",
        description=WORDS,
        usage="tapedeck run [--on PLACE[:FOLDER]] [--window] [--quiet] [--capture STEP --out FILE "
        "[--play] [--rank R]] [--python FILE] [-m] SCRIPT [ARGUMENTS ...]",
    )
    parser.add_argument(
        "--on",
        metavar="PLACE[:FOLDER]",
        help="run it at a place of `tapedeck places`, in a folder there; it goes on when this terminal is closed",
    )
    parser.add_argument(
        "--window", action="store_true", help="open the window on it at once"
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="do not print the folder that it is watched in",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="the interpreter that runs it",
    )
    graph = parser.add_argument_group("a captured step")
    graph.add_argument(
        "--capture",
        type=arguments.positive,
        metavar="STEP",
        help="write the graph of this step, from 1",
    )
    graph.add_argument(
        "--rank",
        type=int,
        default=0,
        metavar="R",
        help="of several ranks, the one to capture (0)",
    )
    arguments.add_graph_output(graph)
    parser.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="SCRIPT is a module, as of `python -m`",
    )
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")
    parser.set_defaults(command=run, anywhere=True)
    return parser


def run(options: argparse.Namespace) -> int:
    """Become the script's process; where a process cannot be replaced, start it and return its exit status."""
    name = options.script
    if (options.capture is None) != (options.out is None):
        raise console.CommandError("--capture STEP and --out FILE require each other")
    world_size = os.environ.get("WORLD_SIZE", "")
    world = int(world_size) if world_size.isdecimal() else 1
    if not 0 <= options.rank < world:
        ranks = (
            f"the ranks are 0 to {world - 1}"
            if world > 1
            else "this is the only process; torchrun starts several"
        )
        raise console.CommandError(f"--rank {options.rank}: {ranks}")
    console.check_graph_output(options)
    if options.on is None and not options.module and not Path(name).is_file():
        kind = "is a folder" if Path(name).is_dir() else "does not exist"
        raise console.CommandError(
            f"{name} {kind}; pass a Python file, or -m and the name of a module"
        )
    if options.window and (why := startup.hindrance(window=True)):
        raise console.CommandError(f"{why}; or leave out --window", 1)
    if options.on is not None:
        for module in shelf.modules("cli.elsewhere"):
            status: int = import_module(module).run(options)
            return status
        raise console.CommandError("--on needs the feature places, which is not there")
    try:
        folder = frames.new_folder(Path(name).stem if not options.module else name)
    except OSError as error:
        raise console.CommandError(
            f"no folder for the frames can be made: {error.strerror or error}"
        ) from error
    rank = os.environ.get("RANK", "0")
    first = rank == "0"
    if not options.quiet and first:
        print(f"tapedeck: watched in {folder / frames.FRAMES}", file=sys.stderr)
    if options.window:
        open_window(folder / frames.FRAMES)
    captures = options.capture is not None and rank == str(options.rank)
    if captures:
        _begin_capture(options, folder / frames.FRAMES)
    launcher = str(Path(tapedeck.__file__).with_name("script.py"))
    before = [options.python, launcher, str(folder), *["--captured"] * captures]
    command = [*before, *["-m"] * options.module, name, *options.arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "posix":
        return subprocess.call(command)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise console.CommandError(
            f"{command[0]} cannot be run: {error.strerror or error}"
        ) from error


def _begin_capture(options: argparse.Namespace, frames: Path) -> None:
    """Start a process that writes the captured step beside the script; its output goes to stderr."""
    command = [
        sys.executable,
        "-m",
        f"{PROGRAM}.cli.script_capture",
        str(frames),
        str(options.capture),
        str(options.out.resolve()),
        options.group,
        *["--play"] * options.play,
        *["--unfolded"] * options.unfolded,
    ]
    _start_detached(
        command,
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=sys.stderr,
        stderr=None,
    )


def open_window(path: Path | str) -> None:
    """Open the window on the frames of a script, here or PLACE:path."""
    _start_detached([sys.executable, "-m", f"{PROGRAM}.main", str(path)])


def _start_detached(command: list[str], **process: Any) -> None:
    """Start a process that is no child of the script's, and that Ctrl+C in its terminal does not reach."""
    silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    streams: dict[str, Any] = {**silent, **process}
    if os.name != "posix":
        subprocess.Popen(command, **streams)
        return
    between = os.fork()
    if not between:
        try:
            subprocess.Popen(command, start_new_session=True, **streams)
        finally:
            os._exit(0)
    os.waitpid(between, 0)
