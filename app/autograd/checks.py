"""Checks of a captured batch that features add to the findings: each is the `check.py` of a folder of `app.features`.

It is named like its folder; its `values.CHECK` is the help of its option. `of_batch(batch, layer)` checks a layer, or
the whole net for "", and `of_function(function, inputs, name)` a function of tensors. Both return lines of text and how
many things are wrong, and raise CaptureError.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from app.util import shelf


def names() -> list[str]:
    """Return the names of all checks."""
    return [module.split(".")[-2] for module in shelf.modules("check")]


def explanation(name: str) -> str:
    """Return what a check does, as the help of its option."""
    text: str = import_module(f"{shelf.PACKAGE}.{name}.values").CHECK
    return text


def check(name: str) -> Any:
    """Import the module of a check, which imports torch."""
    return import_module(f"{shelf.PACKAGE}.{name}.check")
