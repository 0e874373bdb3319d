"""Write a step of a script under `tapedeck run --capture STEP --out FILE`: run beside the script, as a module."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app.cli import console
from app.cli.autograd import graph_output
from app.engine.protocol import EngineDiedError
from app.engine.remote_control import RemoteRunError
from app.engine.watched.script_capture import held_step

NO_STEP = "no step was captured"


def main() -> int:
    """Wait for the step, and write it while the script is paused."""
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
    with held_step(frames, number, graph_output.plays(options)) as step:
        for note in step.captured.notes:
            console.warn(f"step {step.step}: {note}")
        options.project = Path(f"{step.script}, step {step.step}")
        graph_output.write(step.captured.tape, options, None, step.played, step.stopped)


if __name__ == "__main__":
    sys.exit(main())
