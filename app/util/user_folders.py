"""Folders of the user: of files that can be recreated, and those that are typed."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache() -> Path:
    """Return the folder for files that may be deleted at any time; it need not exist."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "Tapedeck"


def config() -> Path:
    """Return the folder of settings and of what is trusted; it need not exist."""
    if sys.platform == "win32":
        home = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    else:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "Tapedeck"


def default_root() -> Path:
    """Return the default folder for downloads."""
    return Path.home() / ".cache" / "tapedeck" / "data"


def typed_path(text: str) -> Path:
    """Return the path that a user typed; a ~ stands for the home folder, and stays where there is no such user.

    >>> typed_path(" ~nobody_of_that_name/net.py ").name
    'net.py'
    """
    return Path(os.path.expanduser(text.strip()))
