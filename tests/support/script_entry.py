"""A script as an entry point of a process: for tests that start one off the fork server, see `forked_python`."""

from __future__ import annotations

import faulthandler
import os
import runpy
import sys
import traceback
from pathlib import Path


def main() -> None:
    """Run the script as `__main__`, and leave without the interpreter's shutdown, which threads of gloo may abort."""
    faulthandler.enable()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    status = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
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
        stream.flush()
    os._exit(status)
