"""Install a wheel as people do, into fresh environments, and try what is in them; print a table.

python -m scripts.installs WHEEL OUT [--ways pip "uv pip" "uv tool" pipx] [--windows xcb wayland] [--scales 1 1.5]

Each environment has the torch of constraints-torch.txt. In it `tapedeck doctor` runs, the example digits is checked and
trained for an epoch, and the window is opened until it has loaded torch, on each of the platforms of Qt that are named
(xcb and wayland take a screen: scripts/under_xvfb.py, or weston); its pictures come to OUT.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parent.parent
TORCH = ROOT / "constraints-torch.txt"
EXAMPLE = "from tapedeck._program.util.resources import path; print(path('examples/digits.tape'))"
WINDOW = """
import sys
from PySide6.QtCore import QTimer
from tapedeck._program.views.app import make_application
from tapedeck._program.views.main_window import MainWindow
from tapedeck._program.views.settings import Settings
from tapedeck._program.views.ui import theme
application = make_application([])
theme.apply(application, "light")
window = MainWindow(Settings("TapedeckInstalls", "window"))
window.resize(1280, 800)
window.show()
window.files.open_example("digits.tape")
window.start()
def look():
    if window.live.up_to_date and window.furnished:
        QTimer.singleShot(1000, done)
    else:
        QTimer.singleShot(100, look)
def done():
    print(application.platformName(), window.devicePixelRatioF(), window.grab().save(sys.argv[1]))
    window.close()
    application.quit()
look()
application.exec()
"""


class Tried(Struct):
    """An environment: how it was made, how long that took, its size, and what of it works."""

    way: str
    seconds: float
    size: int
    torch: str
    works: dict[str, bool]

    @property
    def row(self) -> str:
        failed = [name for name, well in self.works.items() if not well]
        works = ", ".join(self.works) if not failed else f"not {', '.join(failed)}"
        size = f"{self.size / 1024**2:,.0f}"
        return f"| {self.way} | {self.torch} | {self.seconds:.0f} | {size} | {works} |"


def ran(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command with other variables of the environment."""
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **more},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
    )


def required(*command: str | Path, **more: str) -> None:
    """Run a command that must succeed."""
    done = ran(*command, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")


def by_pip(wheel: Path, folder: Path) -> Path:
    """Install with pip into an environment that has torch, which stays."""
    required(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    required(python, "-m", "pip", "install", "-q", "-c", TORCH, "torch")
    required(python, "-m", "pip", "install", "-q", "-c", TORCH, wheel)
    return python


def by_uv_pip(wheel: Path, folder: Path) -> Path:
    """Install with uv into an environment that has torch, which stays."""
    required("uv", "venv", "-q", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    install = ("uv", "pip", "install", "-q", "--python", python, "-c", TORCH)
    required(*install, "torch")
    required(*install, wheel)
    return python


def by_uv_tool(wheel: Path, folder: Path) -> Path:
    """Install as a tool of uv, with an environment of its own."""
    required(
        *("uv", "tool", "install", "-q", "--python", sys.executable, "-c", TORCH),
        wheel,
        UV_TOOL_DIR=str(folder),
        UV_TOOL_BIN_DIR=str(folder / "bin"),
    )
    return folder / "tapedeck-torch" / "bin" / "python"


def by_pipx(wheel: Path, folder: Path) -> Path:
    """Install with pipx, with an environment of its own."""
    required(
        *("pipx", "install", "--python", sys.executable, f"--pip-args=-c {TORCH}"),
        wheel,
        PIPX_HOME=str(folder),
        PIPX_BIN_DIR=str(folder / "bin"),
    )
    return folder / "venvs" / "tapedeck-torch" / "bin" / "python"


WAYS: dict[str, Callable[[Path, Path], Path]] = {
    "pip": by_pip,
    "uv pip": by_uv_pip,
    "uv tool": by_uv_tool,
    "pipx": by_pipx,
}


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(
        path.lstat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def tried(
    way: str, wheel: Path, out: Path, platforms: list[str], scales: list[str]
) -> Tried:
    """Make an environment, and try what is in it."""
    folder = Path(tempfile.mkdtemp(prefix="tapedeck-installs-"))
    shutil.rmtree(folder)
    begun = time.monotonic()
    python = WAYS[way](wheel, folder)
    seconds = time.monotonic() - begun
    tapedeck = python.with_name("tapedeck")
    example = ran(python, "-c", EXAMPLE).stdout.strip()
    run = tempfile.mkdtemp(prefix="tapedeck-run-")
    train = (tapedeck, "train", example, "--epochs", "1", "--out", run)
    commands = {
        "doctor": (tapedeck, "doctor"),
        "check": (tapedeck, "check", example),
        "train": train,
    }
    works = {}
    for name, command in commands.items():
        done = ran(*command)
        works[name] = done.returncode == 0
        if done.returncode:
            print(f"{way}, {name}: {done.stdout}{done.stderr}", file=sys.stderr)
    for platform in platforms:
        for scale in scales:
            picture = out / f"{way.replace(' ', '-')}-{platform}-{scale}.png"
            done = ran(
                *(python, "-c", WINDOW, picture),
                QT_QPA_PLATFORM=platform,
                QT_SCALE_FACTOR=scale,
                XDG_CONFIG_HOME=run,
            )
            print(way, done.stdout.strip(), file=sys.stderr)
            works[f"window on {platform} at {scale}"] = picture.is_file()
            if not picture.is_file():
                print(done.stderr, file=sys.stderr)
    version = ran(python, "-c", "import torch; print(torch.__version__)").stdout
    result = Tried(way, seconds, size_of(folder), version.strip(), works)
    shutil.rmtree(folder)
    shutil.rmtree(run)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--windows", nargs="*", default=["offscreen"])
    parser.add_argument("--scales", nargs="+", default=["1"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print("| installed with | torch | seconds | MiB | works |\n|-|-|-|-|-|")
    for way in options.ways:
        result = tried(
            way,
            options.wheel.absolute(),
            options.out.absolute(),
            options.windows,
            options.scales,
        )
        print(result.row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
