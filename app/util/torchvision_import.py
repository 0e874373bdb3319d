"""Import torchvision even if its compiled operators cannot be loaded.

A torchvision wheel built for CUDA with a CPU-only torch fails at import with `operator torchvision::nms does not
exist`. Data sets, transforms and most models need none of those operators, so their schemas are defined, two of which
the import looks up, and it is imported again. The operators raise when called.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

_NAME = "torchvision"
_LOCK = threading.Lock()
_POOLED = "Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_pool({_POOLED}) -> (Tensor, Tensor)",
    f"ps_roi_pool({_POOLED}) -> (Tensor, Tensor)",
    f"ps_roi_align({_POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, int stride_w, "
    "int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, bool use_mask) -> Tensor",
)
# The schemas live as long as the library object does.
_kept: list[Any] = []


def import_torchvision(submodule: str = "") -> ModuleType:
    """Import `torchvision`, or `torchvision.<submodule>`. Raises ImportError if it is not installed."""
    mend_torchvision()
    return importlib.import_module(f"{_NAME}.{submodule}" if submodule else _NAME)


def mend_torchvision() -> None:
    """Install an import hook that defines the missing operators for every later `import torchvision`.

    Call it before user code or code of a package runs. Costs nothing if torchvision is never imported.
    """
    with _LOCK:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds torchvision as Python does, with a loader that tries again."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != _NAME:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if (
            module.__spec__ is not None
        ):  # its resources are read through the usual loader
            module.__loader__ = module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
            return
        except RuntimeError as error:
            if f"{_NAME}::nms does not exist" not in str(error) or _kept:
                raise
        for name in [name for name in sys.modules if name.startswith(f"{_NAME}.")]:
            del sys.modules[name]
        _define_missing_operators()
        self._loader.exec_module(module)
        _let_operators_raise()


def _let_operators_raise() -> None:
    """Have functions of `torchvision.ops` call their operators, which say what to do, and are seen as calls: the check
    before each raises at a place of no call, with a longer text."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(f"{_NAME}.") and "_assert_has_ops" in vars(module):
            vars(module)["_assert_has_ops"] = lambda: None


def _define_missing_operators() -> None:
    library = torch.library.Library(_NAME, "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
        library.impl(
            schema.partition("(")[0], _missing_operator, "CompositeExplicitAutograd"
        )
    _kept.append(library)


def _missing_operator(*_: Any, **__: Any) -> Any:
    raise RuntimeError(
        "torchvision's compiled operators are not available here: this torchvision was built for another torch. "
        "Install a torchvision wheel that matches your torch to use them."
    )
