"""The windows that look at the project. Qt is at home here."""

from __future__ import annotations

import sys

import PySide6  # noqa: F401  before all that is imported below


def _spare_sources() -> None:
    """Keep Qt's binding from reading the source of every module that is imported after it.

    It looks in there for its own name, in case somebody writes `from __feature__ import snake_case`, which nobody here
    does. What it reads `linecache` keeps: 25 MB, and a part of every start.
    """
    feature = sys.modules.get("shibokensupport.feature")
    if hasattr(feature, "_mod_uses_pyside"):
        setattr(feature, "_mod_uses_pyside", lambda _module: False)  # noqa: B010  it has no types


_spare_sources()
