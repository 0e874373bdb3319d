"""Entry points of child processes, each run by `python -P -m app.engine.entries MODULE` or after a fork."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import traceback
from importlib import import_module
from typing import NoReturn

from app.engine.child_process import die_with_parent, leave_signals_to_parent
from app.util import user_frames

# Protocol of the fork server: ready, length of a request, pid of the forked process, exit status.
READY = b"R"
LENGTH, PID, STATUS = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<i")

ENTRIES = {"engine": "app.engine.server"}


def begin(module: str) -> NoReturn:
    """Call `main()` of an entry's module and end this process: threads and destructors of user code are not awaited."""
    status = 0
    user_frames.allow_deep_calls()
    leave_signals_to_parent()
    try:
        with user_frames.at_users_lines():
            import_module(module).main()
    except SystemExit as ending:
        status = (
            ending.code
            if isinstance(ending.code, int)
            else int(ending.code is not None)
        )
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException:
        status = 1
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            AttributeError, OSError, ValueError
        ):  # it may have been put away or closed
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    die_with_parent()
    begin(sys.argv.pop(1))
