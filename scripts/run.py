"""`make run`: the window with the bundled example, or, where no window can be opened, the same job without one."""

from __future__ import annotations

import subprocess
import sys

from app.cli import doctor
from app.cli.system_packages import install_line
from app.util.resources import path

OUT = "out/digits"
_PROBE = "from PySide6.QtGui import QGuiApplication; QGuiApplication([])"


def why_no_window() -> str | None:
    """Why a window cannot be opened here, with what to do about it; None if it can, which is tried."""
    missing = doctor.window_libraries()
    shown = doctor.display()
    if shown is None:
        # Named all the same: it is what a display would want next.
        return "There is no display here." + (f" A window would also need: {install_line(missing)}" if missing else "")
    if missing:
        return f"Qt lacks {', '.join(missing)} for a window on {shown}.\n  {install_line(missing)}"
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False)
    if probe.returncode == 0:
        return None
    said = (probe.stderr or probe.stdout).strip().splitlines() or [f"exit status {probe.returncode}"]
    return f"Qt cannot open a window on {shown}:\n  {said[0]}"


def main() -> int:
    example = str(path("examples", "digits.tape"))
    tapedeck = [sys.executable, "-m", "app.main"]
    if broken := [check for check in doctor.qt_libraries() if check.state == "missing"]:
        print(*(f"Qt cannot be loaded, {check.found}.\n  {check.cure}" for check in broken), sep="\n", file=sys.stderr)
        return 1
    reason = why_no_window()
    if reason is None:
        return subprocess.call([*tapedeck, *(sys.argv[1:] or [example])])
    print(f"{reason}\nDoing the same job without a window: training on the digits that come with scikit-learn.\n")
    done = subprocess.call([*tapedeck, "train", example, "--out", OUT, *sys.argv[1:]])
    if done == 0:
        print(f"\nPictures, code, weights and metrics are in {OUT}. `make doctor` tells what this machine lacks.")
    return done


if __name__ == "__main__":
    sys.exit(main())
