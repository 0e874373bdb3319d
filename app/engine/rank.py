"""One of the processes of a run on several: `python -m app.engine.rank SCRIPT ARGUMENTS`, with RANK in its environment.

It ends with the program that started it. What ends the script goes to stderr behind `[rank0]: `, as torch marks it.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

from app.engine.child_process import die_with_parent


def main() -> None:
    """Run the script as `__main__`, and leave without the interpreter's shutdown, which threads of gloo may abort."""
    die_with_parent()
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


if __name__ == "__main__":
    main()
