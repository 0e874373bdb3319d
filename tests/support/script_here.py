"""An exported train.py run without a process of its own, which would load torch once more for seconds."""

from __future__ import annotations

import runpy
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from app.source import own_imports


def finders_of_python() -> list[object]:
    """Return the finders of modules without the one that restricts what the user's code imports."""
    return [
        PathFinder if isinstance(one, own_imports.OwnFinder) else one
        for one in sys.meta_path
    ]


def run_script(folder: Path, *arguments: str) -> SystemExit | None:
    """Run the script of a folder as Python would there; returns how it ended itself, if it did."""
    numbers = (signal.SIGTERM, signal.SIGUSR1)
    handlers = {number: signal.getsignal(number) for number in numbers}
    beside = [path.stem for path in folder.glob("*.py")]
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        here.syspath_prepend(str(folder))
        here.setattr(sys, "meta_path", finders_of_python())
        here.setattr(sys, "argv", ["train.py", *arguments])
        for name in beside:
            here.delitem(sys.modules, name, raising=False)
        try:
            runpy.run_path("train.py", run_name="__main__")
        except SystemExit as ended:
            return ended
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for name in beside:
                sys.modules.pop(name, None)
    return None
