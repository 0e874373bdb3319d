"""argv -> the window, or a command without one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from app.util import interrupts
from app.util.user_frames import allow_deep_calls


def main(arguments: Sequence[str] | None = None) -> int:
    """`tapedeck [FILE]` opens the window on a project or the lines of a run (*.jsonl, PLACE:*.jsonl), `tapedeck COMMAND
    ...` does its job without one. Returns the exit code.
    """
    allow_deep_calls()
    with interrupts.interruptible():
        try:
            return _main(list(sys.argv[1:] if arguments is None else arguments))
        except KeyboardInterrupt:
            interrupts.write_interrupted()
            return interrupts.STATUS


def _main(arguments: list[str]) -> int:
    from app import cli
    from app.cli import startup

    first = arguments[0] if arguments else None
    if first in cli.commands() or first in ("--help", "-h", "--version"):
        return cli.run(arguments)
    if len(arguments) > 1 or (first is not None and first.startswith("-")):
        print(
            f"tapedeck: {first} is not a command; there are {', '.join(cli.commands())}",
            file=sys.stderr,
        )
        return 2
    return startup.window(first)


if __name__ == "__main__":
    sys.exit(main())
