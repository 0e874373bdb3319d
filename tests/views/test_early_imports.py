"""What a worker imports for the pages: nothing of Qt, whose classes only one thread may make, and no torch."""

import subprocess
import sys

TELLING = """
import sys
from app.views import early_imports

before = set(sys.modules)
early_imports.load()
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new & {"PySide6", "shiboken6", "pyqtgraph", "torch"}), "PySide6.QtCore" in sys.modules)
print(all(name in sys.modules for name in early_imports.MODULES.split()))
"""


def test_the_worker_imports_no_qt():
    done = subprocess.run(
        [sys.executable, "-c", TELLING], capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:2] == ["[] False", "True"], (
        done.stdout + done.stderr
    )
