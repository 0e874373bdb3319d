"""`subprocess.Popen` of a script that starts itself in several processes: each is forked off it.

`with_forks(folder, program)` writes a script that runs `program` so, for `tests.support.forked_python`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import dropwhile
from pathlib import Path
from typing import Any

from app.engine.programs import rank


class ForkedPopen(subprocess.Popen):
    """Runs `python [-u] SCRIPT ARGUMENTS` in a copy of this process, which has torch and computes nothing."""

    def _execute_child(  # type: ignore[override]
        self, args: list[str], executable: Any, preexec_fn: Any, close_fds: bool, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: int, shell: bool, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, *_: Any,
    ) -> None:  # fmt: skip
        interpreter, *words = map(os.fspath, args)
        assert interpreter == sys.executable, args
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            for number in {p2cread, c2pwrite, errwrite} - {-1}:
                os.close(number)
            return
        try:
            for number, stream in enumerate((p2cread, c2pwrite, errwrite)):
                if stream != -1:
                    os.dup2(stream, number)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if env is not None:
                os.environ.clear()
                os.environ.update(env)
            if cwd is not None:
                os.chdir(cwd)
            sys.argv = ["python", *dropwhile(lambda word: word.startswith("-"), words)]
            rank.main()
        finally:
            os._exit(1)


def with_forks(folder: Path, program: str) -> Path:
    """Write a script that runs a program with the class above in the place of `subprocess.Popen`."""
    script = folder / "with_forks.py"
    script.write_text(
        f"import subprocess, sys\nfrom tests.support.forked_popen import ForkedPopen\n"
        f"subprocess.Popen = ForkedPopen\n{program}"
    )
    return script
