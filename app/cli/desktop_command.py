"""`tapedeck desktop`: an entry among the programs, and `.tape` files that open in it, for desktops of freedesktop.org.

`PREFIX/share/…` of a package is read by no desktop if it is in an environment, so a command writes these files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from app.cli import console
from app.util import atomic, resources

MIME = "application/x-tapedeck"
ENTRY = """[Desktop Entry]
Type=Application
Name=Tapedeck
GenericName=Editor of neural networks
Comment=Assemble a PyTorch network, train it, look inside its autograd graph
Exec={command} %f
Icon=tapedeck
Terminal=false
Categories=Education;Science;Development;
MimeType={mime};
StartupWMClass=tapedeck
"""
KIND = """<?xml version="1.0" encoding="UTF-8"?>
<mime-info xmlns="http://www.freedesktop.org/standards/shared-mime-info">
  <mime-type type="{mime}">
    <comment>Tapedeck project</comment>
    <comment xml:lang="de">Tapedeck-Projekt</comment>
    <sub-class-of type="application/json"/>
    <glob pattern="*.tape"/>
  </mime-type>
</mime-info>
"""
# What reads the files again, where it is installed: the name of the program, the folder that it is called with.
REFRESHED = (
    ("update-mime-database", "mime"),
    ("update-desktop-database", "applications"),
)


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "desktop",
        help="put Tapedeck among the programs of a Linux desktop and have it open .tape files, or remove it",
    )
    parser.add_argument("action", choices=("install", "remove"))
    parser.set_defaults(command=run, anywhere=True)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out. Raises CommandError."""
    if sys.platform in ("win32", "darwin"):
        raise console.CommandError(
            "there is nothing to write on this system: open a .tape file with Tapedeck once, and choose it for all"
        )
    share = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    for name, content in files().items():
        path = share / name
        if options.action == "install":
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(path, content)
            print(path)
        elif path.exists():
            path.unlink()
            print(f"{path} is removed")
    for program, folder in REFRESHED:
        if shutil.which(program) and (share / folder).is_dir():
            subprocess.run([program, str(share / folder)], check=False)
    return 0


def files() -> dict[str, bytes]:
    """Return the files by their path below the folder of a person's data."""
    icon = resources.path("icons", "app.svg").read_bytes()
    return {
        "applications/tapedeck.desktop": ENTRY.format(
            command=f"{quoted(sys.executable)} -P -m tapedeck", mime=MIME
        ).encode(),
        "mime/packages/tapedeck.xml": KIND.format(mime=MIME).encode(),
        "icons/hicolor/scalable/apps/tapedeck.svg": icon,
        f"icons/hicolor/scalable/mimetypes/{MIME.replace('/', '-')}.svg": icon,
    }


def quoted(text: str) -> str:
    r"""Return an argument of an Exec line.

    >>> print(quoted('/home/a $b "c" 100%/python'))
    "/home/a \\$b \\"c\\" 100%%/python"
    """
    for character in '\\"`$':
        text = text.replace(character, f"\\{character}")
    # The value of a key is unescaped once before its quotes are read.
    return f'"{text}"'.replace("\\", "\\\\").replace("%", "%%")
