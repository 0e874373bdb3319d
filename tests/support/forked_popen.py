"""`subprocess.Popen` of a script that starts itself in several processes, or a fork server: each is forked off it.

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

from app.engine import fork_server
from tests.support import script_entry

SERVER = fork_server.__name__


class ForkedPopen(subprocess.Popen):
    """Runs `python [-u] SCRIPT ARGUMENTS` in a copy of this process, which has torch and computes nothing.

    A fork server that is started so has loaded what it loads.
    """

    def _execute_child(self, args: list[str], *given: Any) -> None:  # type: ignore[override]
        if args[0] != sys.executable:
            return super()._execute_child(args, *given)  # type: ignore[misc]
        words, cwd, env = [*map(os.fspath, args[1:])], *given[4:6]
        p2cread, _, _, c2pwrite, _, errwrite = given[9:15]
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            for number in {p2cread, c2pwrite, errwrite} - {-1}:
                os.close(number)
            return None
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
            if SERVER in words:
                os.setsid()
                fork_server._load = lambda: None
                sys.argv = words[words.index(SERVER) :]
                fork_server.main()
            else:
                sys.argv = [
                    "python",
                    *dropwhile(lambda word: word.startswith("-"), words),
                ]
                script_entry.main()
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
