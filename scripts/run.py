"""`make run`: the window with the bundled example, or, where no window can be opened, the same job without one."""

from __future__ import annotations

import subprocess
import sys

from app.cli import display, doctor
from app.util.resources import path

OUT = "out/digits"


def why_no_window() -> str | None:
    """Why a window that is seen cannot be opened here, with what to do about it; None if it can."""
    found = display.obstacle()
    if found is not None:
        return f"{found.reason[:1].upper()}{found.reason[1:]}.\n  {found.cure}"
    return (
        None
        if display.display() is not None
        else "QT_QPA_PLATFORM asks for a window that nobody sees."
    )


def main() -> int:
    example = str(path("examples", "digits.tape"))
    tapedeck = [sys.executable, "-m", "app.main"]
    if broken := [check for check in doctor.qt_libraries() if check.state == "missing"]:
        print(
            *(
                f"Qt cannot be loaded, {check.found}.\n  {check.cure}"
                for check in broken
            ),
            sep="\n",
            file=sys.stderr,
        )
        return 1
    reason = why_no_window()
    if reason is None:
        return subprocess.call([*tapedeck, *(sys.argv[1:] or [example])])
    print(
        f"{reason}\nDoing the same job without a window: training on the digits that come with scikit-learn.\n"
    )
    done = subprocess.call([*tapedeck, "train", example, "--out", OUT, *sys.argv[1:]])
    if done == 0:
        print(
            f"\nPictures, code, weights and metrics are in {OUT}. `make doctor` tells what this machine lacks."
        )
    return done


if __name__ == "__main__":
    sys.exit(main())
