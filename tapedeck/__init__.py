"""Watch a PyTorch script while it trains: `tapedeck run train.py`, or one line, `tapedeck.watch(model)`.

This package imports the standard library and torch alone, and torch only once the script itself has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapedeck.callbacks import lightning_callback, transformers_callback
    from tapedeck.watching import Watch, watch

__all__ = ["Watch", "lightning_callback", "transformers_callback", "watch"]
_HOMES = {
    "lightning_callback": "callbacks",
    "transformers_callback": "callbacks",
    "Watch": "watching",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'watching')}"), name)
