"""The shared libraries and tools that Qt and `dot` need: which are missing, and the system packages that have them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

# Library or tool: its package for apt-get (Debian, Ubuntu), dnf (Fedora) and pacman (Arch).
_NAMES = """
libGL.so.1               libgl1                libglvnd-glx         libglvnd
libEGL.so.1              libegl1               libglvnd-egl         libglvnd
libGLX.so.0              libglx0               libglvnd-glx         libglvnd
libfontconfig.so.1       libfontconfig1        fontconfig           fontconfig
libfreetype.so.6         libfreetype6          freetype             freetype2
libX11.so.6              libx11-6              libX11               libx11
libX11-xcb.so.1          libx11-xcb1           libX11-xcb           libx11
libglib-2.0.so.0         libglib2.0-0          glib2                glib2
libgthread-2.0.so.0      libglib2.0-0          glib2                glib2
libxkbcommon.so.0        libxkbcommon0         libxkbcommon         libxkbcommon
libxkbcommon-x11.so.0    libxkbcommon-x11-0    libxkbcommon-x11     libxkbcommon-x11
libdbus-1.so.3           libdbus-1-3           dbus-libs            dbus
libz.so.1                zlib1g                zlib                 zlib
libzstd.so.1             libzstd1              libzstd              zstd
libxcb.so.1              libxcb1               libxcb               libxcb
libxcb-randr.so.0        libxcb-randr0         libxcb               libxcb
libxcb-render.so.0       libxcb-render0        libxcb               libxcb
libxcb-shape.so.0        libxcb-shape0         libxcb               libxcb
libxcb-shm.so.0          libxcb-shm0           libxcb               libxcb
libxcb-sync.so.1         libxcb-sync1          libxcb               libxcb
libxcb-xfixes.so.0       libxcb-xfixes0        libxcb               libxcb
libxcb-xkb.so.1          libxcb-xkb1           libxcb               libxcb
libxcb-cursor.so.0       libxcb-cursor0        xcb-util-cursor      xcb-util-cursor
libxcb-icccm.so.4        libxcb-icccm4         xcb-util-wm          xcb-util-wm
libxcb-image.so.0        libxcb-image0         xcb-util-image       xcb-util-image
libxcb-keysyms.so.1      libxcb-keysyms1       xcb-util-keysyms     xcb-util-keysyms
libxcb-render-util.so.0  libxcb-render-util0   xcb-util-renderutil  xcb-util-renderutil
libxcb-util.so.1         libxcb-util1          xcb-util             xcb-util
libwayland-client.so.0   libwayland-client0    libwayland-client    wayland
libwayland-cursor.so.0   libwayland-cursor0    libwayland-cursor    wayland
libwayland-egl.so.1      libwayland-egl1       libwayland-egl       wayland
dot                      graphviz              graphviz             graphviz
fonts                    fonts-dejavu-core     dejavu-sans-fonts    ttf-dejavu
fontconfig               fontconfig            fontconfig           fontconfig
Xvfb                     xvfb                  xorg-x11-server-Xvfb xorg-server-xvfb
"""

_TABLE = {row.split()[0]: row.split()[1:] for row in _NAMES.strip().splitlines()}
_MANAGERS = (
    ("apt-get", "apt-get install"),
    ("dnf", "dnf install"),
    ("pacman", "pacman -S"),
)


def install_line(libraries: Iterable[str]) -> str:
    """Return the install command for `libraries` (sonames, or names of the table) with the available package manager.

    Without a known manager the Debian packages are named, as their names are the most descriptive. Unknown libraries
    are listed by soname.

    >>> install_line([])
    ''
    """
    libraries = list(libraries)
    packaged = [name for name in libraries if name in _TABLE]
    unknown = [name for name in libraries if name not in _TABLE]
    parts = []
    if packaged:
        column, command = next(
            (
                (i, line)
                for i, (tool, line) in enumerate(_MANAGERS)
                if shutil.which(tool)
            ),
            (0, "Debian's packages:"),
        )
        parts.append(
            f"{command} {' '.join(dict.fromkeys(_TABLE[name][column] for name in packaged))}"
        )
    if unknown:
        parts.append(f"the package that contains {', '.join(unknown)}")
    return "; and ".join(parts)


def missing_libraries(files: Iterable[Path]) -> tuple[str, ...]:
    """Return the sonames that the loader does not find for `files`, in order. Without `ldd`, the first of each file."""
    missing: dict[str, None] = {}
    ldd = shutil.which("ldd")
    for file in files:
        if ldd:
            listing = subprocess.run(
                [ldd, str(file)], capture_output=True, text=True, check=False
            ).stdout
            missing.update(
                {
                    line.split()[0]: None
                    for line in listing.splitlines()
                    if "=> not found" in line
                }
            )
        else:
            try:
                ctypes.CDLL(str(file))
            except OSError as error:
                missing[str(error).split(":")[0]] = None
    return tuple(missing)
