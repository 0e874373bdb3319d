"""Show that a feature can be taken away: a copy of the program without its folder opens its window and passes the rest.

    python -m scripts.remove_one                    each feature, the whole suite
    python -m scripts.remove_one interpret sweep    these
    python -m scripts.remove_one --quick            the window, the architecture, and all tests read but not run
    python -m scripts.remove_one --together         one copy without all of them
    python -m scripts.remove_one --alone            each feature with no other beside it, and its own tests

Prints a table, and to the error stream what went wrong. Ends with 1 if a copy did not open or a test failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEATURES = ROOT / "app" / "features"
# Opens the window with all of its pages, and closes it.
WINDOW = """
import sys
from PySide6.QtWidgets import QApplication
from app.views.main_window import MainWindow
from app.views.ui import theme
application = QApplication([])
theme.apply(application, "dark")
window = MainWindow()
window.show()
window.furnish()
keys = [page.key for feature in window.features for page in feature.pages()]
for key in keys:
    window.pages.show(key)
    application.processEvents()
window.close()
assert "torch" not in sys.modules
print(f"opened, {len(keys)} pages")
"""
QUICK = {
    "window": ["-c", WINDOW],
    "architecture": ["-m", "pytest", "-q", "-n", "0", "tests/test_architecture.py"],
    "collected": ["-m", "pytest", "-q", "-n", "0", "--collect-only", "tests"],
}


def features() -> list[str]:
    """Return the names of all features on the shelf."""
    return sorted(file.parent.name for file in FEATURES.glob("*/__init__.py"))


def copy_without(gone: Collection[str], folder: Path) -> None:
    """Copy the tracked files of the working tree, but those of some features and their tests."""
    listing = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    left_out = tuple(
        f"{top}/features/{feature}/" for top in ("app", "tests") for feature in gone
    )
    for name in filter(None, listing.split("\0")):
        if not name.startswith(left_out) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def check(folder: Path, arguments: list[str]) -> tuple[bool, str]:
    """Run Python in a copy, without a display and with a home of its own; return whether it went well, and its text."""
    environment = os.environ | {
        "QT_QPA_PLATFORM": "offscreen",
        "HOME": str(folder / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    (folder / "home").mkdir(exist_ok=True)
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode == 0, ended.stdout + ended.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="*", metavar="FEATURE")
    parser.add_argument("--quick", action="store_true", help="run no other tests")
    parser.add_argument("--together", action="store_true", help="make one copy")
    parser.add_argument(
        "--alone", action="store_true", help="take away all the others instead"
    )
    parser.add_argument(
        "--tests", nargs="+", default=["tests"], help="run these in place of the suite"
    )
    options = parser.parse_args()
    steps = list(QUICK) if options.quick else [*QUICK, "suite"]
    if options.alone or options.together:
        steps.remove("architecture")  # its guards say that they saw the whole house
    if options.alone:
        steps.remove("collected")  # the rest imports no feature, as --together shows
    faults = 0
    kind = "alone" if options.alone else "without"
    print(f"| {kind} |", " | ".join(steps), "|\n| --- |", "--- | " * len(steps))
    names = options.features or features()
    if unknown := set(names) - set(features()):
        parser.error(f"there is no {unknown.pop()}; there are {', '.join(features())}")
    for chosen in [names] if options.together else [[name] for name in names]:
        title, cells = " ".join(chosen), []
        gone, tests = chosen, options.tests
        if options.alone:
            gone = set(features()) - set(chosen)
            tests = [f"tests/features/{name}" for name in chosen]
        with tempfile.TemporaryDirectory() as folder:
            copy_without(gone, Path(folder))
            for step in steps:
                suite = ["-m", "pytest", "-q", *tests]
                fine, text = check(Path(folder), QUICK.get(step, suite))
                cells.append((text.strip().splitlines() or ["ended"])[-1][:60])
                if not fine:
                    faults += 1
                    cells[-1] = f"FAILS: {cells[-1]}"
                    report = f"{kind} {title}, {step}:\n{text[-3000:]}\n"
                    print(report, file=sys.stderr, flush=True)
        print(f"| {title} |", " | ".join(cells), "|", flush=True)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
