"""One of the processes of a run on several: an entry with SCRIPT ARGUMENTS, and RANK in its environment.

What ends the script goes to stderr behind `[rank0]: `, as torch marks it.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from app.engine.child_process import OWN_MODEL
from app.source import layer_files, own_files
from app.source.compiled import check_own
from app.source.generated import OwnModel


def main() -> None:
    """Run the script as `__main__`, and leave without the interpreter's shutdown, which threads of gloo may abort."""
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    status, message = 0, ""
    try:
        if OWN_MODEL in os.environ:
            _permit(json.loads(os.environ.pop(OWN_MODEL)))
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ending:
        status = (
            ending.code
            if isinstance(ending.code, int)
            else int(ending.code is not None)
        )
        message = ending.code if isinstance(ending.code, str) else ""
    except BaseException:
        status, message = 1, traceback.format_exc()
    sys.stderr.writelines(
        f"[rank{os.environ['RANK']}]: {line}\n" for line in message.splitlines()
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _permit(model_fields: dict[str, str]) -> None:
    """Let the files of the model be imported, which the starter of the run found trusted."""
    model = OwnModel(**model_fields)
    files = own_files.read(Path(model.path), model.module, model.found_from)
    if files is not None and files.is_version(model.sha256):
        layer_files.allow(files.key)
    check_own(model)
