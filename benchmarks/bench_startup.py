"""How long until the window can be used, against importing the toolkits alone (aim: at most 1.4 times as long).

"Usable" is the moment when the example stands on the canvas, painted, and the event loop has come round: from then on
a person can draw. An engine loads torch meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from _report import Figure, in_turns, publish

BARE = "import PySide6.QtWidgets, pyqtgraph, os; print('there', flush=True); os._exit(0)"

OURS = """
import os, sys
from pathlib import Path
from PySide6.QtCore import QTimer
from app.util.resources import path
from app.views.settings import Settings
from app.views.ui import theme
from app.views.main_window import MainWindow
from app.views.app import make_application

application = make_application(["tapedeck"])
settings = Settings("TapedeckBench", "TapedeckBench")
theme.apply(application, "dark")
window = MainWindow(settings)
window.show()
window.files.open(path("examples", "digits.tape"))
application.processEvents()
window.repaint()
QTimer.singleShot(0, lambda: (print("there", flush=True), os._exit(0)))
window.start()
application.exec()
"""


def seconds(code: str) -> float:
    """From starting a Python process to the line in which it says that it is there."""
    # As a person starts it: what was compiled once is kept, also where the surroundings say otherwise.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    taken = time.perf_counter() - began
    process.wait()
    if line.strip() != "there":
        raise RuntimeError(f"the process ended without a window: {line!r}")
    return taken


def main() -> None:
    seconds(BARE), seconds(OURS)  # the file cache is warm from here on
    ours, theirs = in_turns(lambda: seconds(OURS), lambda: seconds(BARE), rounds=7)
    publish("startup", [Figure("time to a usable window against a bare import", "s", ours, theirs, aim=1.4)])


if __name__ == "__main__":
    main()
