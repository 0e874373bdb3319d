"""Whether Qt can open a window here. Found without Qt, which ends the program where it cannot."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from app.cli.system_packages import install_line, missing_libraries

INVISIBLE = frozenset(
    {"offscreen", "minimal"}
)  # platforms of Qt that show nothing, and need nothing


class Obstacle(NamedTuple):
    """Why a window cannot be opened, and what to do about it."""

    reason: str
    cure: str

    def __str__(self) -> str:
        return f"no window can be opened: {self.reason}; {self.cure}"


def qt_folder() -> Path | None:
    """Return the folder of PySide6, None if it is not installed."""
    spec = find_spec("PySide6")
    folders = spec.submodule_search_locations if spec else None
    return Path(folders[0]) if folders else None


def display() -> str | None:
    """Return the display for a window, or None: Linux without X and Wayland, or an invisible platform of Qt."""
    if INVISIBLE.intersection(_chosen()):
        return None
    if not sys.platform.startswith("linux"):
        return platform.system()
    for variable in ("WAYLAND_DISPLAY", "DISPLAY"):
        if os.environ.get(variable):
            return f"{variable}={os.environ[variable]}"
    return None


def obstacle() -> Obstacle | None:
    """Return what prevents a window, None if nothing does. A platform that shows nothing is nobody's mistake."""
    folder = qt_folder()
    if folder is None or not sys.platform.startswith("linux"):
        return None
    plugins = folder / "Qt" / "plugins" / "platforms"
    offered = sorted(
        file.stem.removeprefix("libq") for file in plugins.glob("libq*.so")
    )
    chosen = _chosen()
    if chosen and not _are_offered(chosen, offered):
        name = os.environ["QT_QPA_PLATFORM"]
        return Obstacle(
            f"Qt has no platform {name}, which QT_QPA_PLATFORM names",
            f"unset it, or set {_or(offered)}",
        )
    obstacles: list[Obstacle] = []
    for name in chosen or _usual():
        hindrance = _of_platform(name, plugins)
        if hindrance is None:
            return None
        obstacles.append(hindrance)
    if not obstacles:
        return Obstacle(
            "there is no display, neither DISPLAY nor WAYLAND_DISPLAY is set",
            "start it in a desktop session; the commands need none: tapedeck --help",
        )
    return obstacles[0]


def _chosen() -> list[str]:
    """Return the names of the platforms that the environment demands, in order."""
    names = [
        entry.partition(":")[0].strip()
        for entry in os.environ.get("QT_QPA_PLATFORM", "").split(";")
    ]
    return [name for name in names if name]


def _usual() -> list[str]:
    """Return the platforms that Qt tries by itself."""
    variables = {"wayland": "WAYLAND_DISPLAY", "xcb": "DISPLAY"}
    return [name for name, variable in variables.items() if os.environ.get(variable)]


def _are_offered(chosen: Iterable[str], offered: Iterable[str]) -> bool:
    return any(name.startswith(plugin) for name in chosen for plugin in offered)


def _or(names: Iterable[str]) -> str:
    shown = [name for name in names if name in ("xcb", "wayland", "offscreen")]
    return " or ".join(shown)


def _of_platform(name: str, plugins: Path) -> Obstacle | None:
    """Return what prevents a window on one of Qt's platforms."""
    kinds = {
        "xcb": ("DISPLAY", _x_answers),
        "wayland": ("WAYLAND_DISPLAY", _wayland_answers),
    }
    kind = next((kind for kind in kinds if name.startswith(kind)), None)
    if kind is None:  # such as offscreen, linuxfb, vnc
        return None
    variable, answers = kinds[kind]
    where = (
        f"{variable}={os.environ[variable]}"
        if os.environ.get(variable)
        else f"{variable}, which is not set"
    )
    plugin = plugins / f"libq{kind}.so"
    if not _loads(plugin):
        missing = missing_libraries([plugin])
        if missing:
            return Obstacle(
                f"Qt lacks {', '.join(missing)} for a window on {where}",
                install_line(missing),
            )
    if answers():
        return None
    server = "X server" if kind == "xcb" else "Wayland compositor"
    return Obstacle(
        f"no {server} answers at {where}",
        f"set {variable} to one that runs, or start it in a desktop session; the commands need none: tapedeck --help",
    )


def _loads(plugin: Path) -> bool:
    try:
        ctypes.CDLL(str(plugin))
    except OSError:
        return False
    return True


def _x_answers() -> bool:
    """Connect to the X server of the environment; True where that cannot be tried."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return True
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connection_has_error.argtypes = xcb.xcb_disconnect.argtypes = [
        ctypes.c_void_p
    ]
    connection = xcb.xcb_connect(None, None)
    answered = not xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    return answered


def _wayland_answers() -> bool:
    """Connect to the Wayland compositor of the environment; True where that cannot be tried."""
    folder = os.environ.get(
        "XDG_RUNTIME_DIR", ""
    )  # of its socket; without it the library writes to stderr
    if not os.path.isabs(os.path.join(folder, os.environ.get("WAYLAND_DISPLAY", ""))):
        return False
    try:
        wayland = ctypes.CDLL("libwayland-client.so.0")
    except OSError:
        return True
    wayland.wl_display_connect.restype = ctypes.c_void_p
    wayland.wl_display_disconnect.argtypes = [ctypes.c_void_p]
    connection = wayland.wl_display_connect(None)
    if connection:
        wayland.wl_display_disconnect(connection)
    return bool(connection)
