"""The watch as a callback of trainers; their packages are imported when a callback is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tapedeck.watching import Watch, watch


def lightning_callback(*, folder: str | None = None, quiet: bool = False) -> Any:
    """Return a callback for a Lightning `Trainer` that watches `fit`.

    Raises:
        ImportError: neither `lightning` nor `pytorch_lightning` is installed.
    """
    try:
        base: Any = import_module("lightning.pytorch").Callback
    except ImportError:
        base = import_module("pytorch_lightning").Callback

    class TapedeckCallback(base):
        _watch: Watch | None = None

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            self._watch = watch(pl_module, folder=folder, quiet=quiet)

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            if self._watch is not None:
                self._watch.stop()

        def on_exception(
            self, trainer: Any, pl_module: Any, exception: BaseException
        ) -> None:
            if self._watch is not None:
                self._watch.failed(exception)

    return TapedeckCallback()


def transformers_callback(*, folder: str | None = None, quiet: bool = False) -> Any:
    """Return a callback for `transformers.Trainer` that watches `train`.

    Raises:
        ImportError: `transformers` is not installed.
    """
    base: Any = import_module("transformers").TrainerCallback

    class TapedeckCallback(base):
        _watch: Watch | None = None

        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **_others: Any
        ) -> None:
            self._watch = watch(model, folder=folder, quiet=quiet)

        def on_train_end(
            self, args: Any, state: Any, control: Any, **_others: Any
        ) -> None:
            if self._watch is not None:
                self._watch.stop()

    return TapedeckCallback()
