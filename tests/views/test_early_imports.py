"""What a worker imports for the pages: nothing of Qt, whose classes only one thread may make, and no torch."""

import subprocess
import sys

TELLING = """
import sys
from app.views import early_imports

early_imports.load()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"PySide6", "shiboken6", "pyqtgraph", "torch"}))
print(all(name in sys.modules for name in early_imports.MODULES.split()))
"""


def test_the_worker_imports_no_qt():
    done = subprocess.run([sys.executable, "-c", TELLING], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"], done.stdout + done.stderr
