"""torchvision, also where its compiled operators cannot be loaded.

A torchvision wheel built for CUDA beside a CPU-only torch stops at its own import with `operator torchvision::nms does
not exist`. Data sets, transforms and models need none of those operators, so the two schemas that are looked up
while it is imported are defined, and it is imported again. The operators themselves then say that they are missing
when somebody calls them.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

_LOCK = threading.Lock()
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# The schemas live as long as the library object does.
_kept: list[Any] = []


def import_torchvision(submodule: str = "") -> ModuleType:
    """`torchvision`, or `torchvision.<submodule>`. Raises ImportError if it is not installed."""
    name = f"torchvision.{submodule}" if submodule else "torchvision"
    with _LOCK:
        try:
            return importlib.import_module(name)
        except RuntimeError as error:
            if "torchvision::nms does not exist" not in str(error) or _kept:
                raise
        _define_missing_operators()
        return importlib.import_module(name)


def _define_missing_operators() -> None:
    import torch

    for module in [m for m in sys.modules if m == "torchvision" or m.startswith("torchvision.")]:
        del sys.modules[module]
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
        library.impl(schema.partition("(")[0], _missing_operator, "CompositeExplicitAutograd")
    _kept.append(library)


def _missing_operator(*_: Any, **__: Any) -> Any:
    raise RuntimeError(
        "torchvision's compiled operators are not available here: this torchvision was built for another torch. "
        "Install a torchvision wheel that matches your torch to use them."
    )
