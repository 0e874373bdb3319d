"""Run a Python script on a screen of its own: a real X window of a known size, whatever display is here.

python scripts/under_xvfb.py SCRIPT [ARGUMENTS]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from app.cli.system_packages import install_line

SCREEN = "-screen 0 1920x1080x24 -dpi 96"


def main(command: list[str]) -> int:
    if not command:
        print("usage: under_xvfb.py SCRIPT [ARGUMENTS]", file=sys.stderr)
        return 2
    runner = shutil.which("xvfb-run")
    if runner is None:
        print(
            f"xvfb-run is not here, and pictures are taken on a screen of its own.\n  {install_line(['Xvfb'])}",
            file=sys.stderr,
        )
        return 1
    environment = {**os.environ, "QT_QPA_PLATFORM": "xcb", "QT_SCALE_FACTOR": "1"}
    environment.pop("WAYLAND_DISPLAY", None)
    return subprocess.call(
        [runner, "-a", "-s", SCREEN, sys.executable, *command], env=environment
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
