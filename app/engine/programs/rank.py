"""One of the processes of a run on several: an entry with SCRIPT ARGUMENTS, and RANK in its environment.

What ends the script goes to stderr behind `[rank0]: `, as torch marks it.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path


def main() -> None:
    """Run the script as `__main__`, and leave without the interpreter's shutdown, which threads of gloo may abort."""
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    status, told = 0, ""
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        told = ending.code if isinstance(ending.code, str) else ""
    except BaseException:
        status, told = 1, traceback.format_exc()
    sys.stderr.writelines(f"[rank{os.environ['RANK']}]: {line}\n" for line in told.splitlines())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)
