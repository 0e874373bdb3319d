"""Windows, pages and widgets, in Qt."""

from __future__ import annotations

import sys

import PySide6  # noqa: F401  before all that is imported below


def _spare_sources() -> None:
    """Keep PySide from reading the source of every module imported after it.

    It searches the source for `from __feature__ import snake_case`, which this program does not use, and `linecache`
    keeps what was read: 25 MB, and a part of every start.
    """
    feature = sys.modules.get("shibokensupport.feature")
    if hasattr(feature, "_mod_uses_pyside"):
        setattr(feature, "_mod_uses_pyside", lambda _module: False)  # noqa: B010  it has no types


_spare_sources()
