"""What Qt's binding reads of the modules that are imported after it."""

from __future__ import annotations

import subprocess
import sys

IMPORT = """
import linecache
import app.views.ui.theme, app.views.canvas.view, json
print(*(name for name in linecache.cache if "/app/" in name))
"""


def test_no_source_is_read_and_kept_for_an_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
