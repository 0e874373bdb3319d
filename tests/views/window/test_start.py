"""What a person waits for at the start, and what is imported behind the window."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.needs import needs

ROOT = Path(__file__).resolve().parents[3]
# The program, Qt, and what decodes files, computes with arrays, colours code and writes pictures. The library of the
# charts, which makes every class of Qt, comes with the first chart.
AWAITED = {
    "app",
    "graphviz",
    "PySide6",
    "shiboken6",
    "shibokensupport",
    "msgspec",
    "numpy",
    "pygments",
    "rapidfuzz",
    "typing_extensions",
}


@needs("start")
def test_the_window_can_be_used_before_charts_or_torch_are_imported(
    tmp_path: Path,
) -> None:
    """The page to start from is painted and found under the pointer; the script ends with an error otherwise."""
    homes = {f"XDG_{kind}_HOME": str(tmp_path) for kind in ("CONFIG", "DATA", "STATE")}
    environment = {**os.environ, **homes, "QT_QPA_PLATFORM": "offscreen"}
    script = ROOT / "benchmarks" / "_usable.py"
    done = subprocess.run(
        [sys.executable, script, "modules"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.startswith("there "), done.stdout + done.stderr
    modules = done.stdout.split()[1:]
    packages = {name.partition(".")[0].lstrip("_") for name in modules}
    installed = {name for name in packages if _is_installed(name)}
    assert installed <= AWAITED, (
        f"imported before the window can be used: {installed - AWAITED}"
    )


def _is_installed(name: str) -> bool:
    """Whether it is a package beside Python's own."""
    return name not in sys.stdlib_module_names and any(
        (folder / name).is_dir() or (folder / f"{name}.py").is_file()
        for folder in map(Path, sys.path)
        if folder.name == "site-packages"
    )
