"""Write a step of a script under `tapedeck run --capture STEP --out FILE`: run beside the script, as a module."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from app.cli import console
from app.cli.autograd import graph_output
from app.util.resources import PROGRAM, python_path

NO_STEP = "no step was captured"


def begin(options: argparse.Namespace, frames: Path) -> None:
    """Start a detached process that writes the captured step; its output goes to stderr."""
    words = [
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
    environment = {**os.environ, "PYTHONPATH": python_path()}
    if os.name != "posix":
        subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        return
    between = os.fork()
    if not between:
        try:
            # Detached from the terminal: its Ctrl+C is meant for the script.
            subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                start_new_session=True,
            )
        finally:
            os._exit(0)
    os.waitpid(between, 0)


def main() -> int:
    """Wait for the step, and write it while the script is paused."""
    from app.engine.protocol import EngineDiedError
    from app.engine.remote_control import RemoteRunError

    frames, step, out, group, *flags = sys.argv[1:]
    options = argparse.Namespace(
        out=Path(out),
        group=group,
        play="--play" in flags,
        unfolded="--unfolded" in flags,
    )
    try:
        _write(options, Path(frames), int(step))
    except (RemoteRunError, EngineDiedError, OSError) as error:
        console.warn(f"{NO_STEP}: {error}")
        return 1
    except console.CommandError as error:
        console.warn(str(error))
        return error.exit_code
    return 0


def _write(options: argparse.Namespace, frames: Path, number: int) -> None:
    from app.engine.watched.script_capture import held_step

    with held_step(frames, number, graph_output.plays(options)) as step:
        for note in step.captured.notes:
            console.warn(f"step {step.step}: {note}")
        options.project = Path(f"{step.script}, step {step.step}")
        graph_output.write(step.captured.tape, options, None, step.played, step.stopped)


if __name__ == "__main__":
    sys.exit(main())
