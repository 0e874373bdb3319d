"""Folders of the user for files that can be recreated."""

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
