"""Torch calls without traced arguments: on tensors of the model, or on none at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from app.builder.importer.tracing.proxies import FACTORIES, PROXIES

if TYPE_CHECKING:
    from app.builder.importer.tracing.tracing import Tracer

# Reads of a parameter that involve no traced value.
_FACTS = frozenset(
    """
    dim ndimension size numel nelement stride storage_offset element_size data_ptr get_device is_contiguous
    is_floating_point is_complex is_signed is_set_to untyped_storage __len__ __hash__ __repr__ __format__ __deepcopy__
    __reduce_ex__
    """.split()
)
_VALUES = frozenset({"data", "T", "mT", "H", "mH", "real", "imag"})


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        elif type(value) is dict:
            yield from _leaves(value.values())
        else:
            yield value


class Outside(TorchFunctionMode):
    """Sees every call of torch while a model is followed."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if not self._tracer.following:
            return func(*args, **given)
        if func in FACTORIES or func is torch.normal:
            return self._tracer.create_proxy("call_function", func, args, given)
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            return self._attribute(func, name, args)
        leaves = [*_leaves(args), *_leaves(tuple(given.values()))]
        if name not in _FACTS and any(map(self._is_held, leaves)):
            found, structure = tree_flatten((args, given))
            found = [
                self._tracer.held_tensor(leaf) if self._is_held(leaf) else leaf
                for leaf in found
            ]
            args, given = tree_unflatten(found, structure)
            return fx.Proxy.__torch_function__(func, (), args, given)
        known = any(type(leaf) in PROXIES for leaf in leaves)
        return func(*args, **given) if known else self._called(func, name, args, given)

    def _is_held(self, leaf: Any) -> bool:
        return self._tracer.is_held(leaf)

    def _attribute(self, func: Any, name: str, args: Any) -> Any:
        """Handle `parameter.data` and assignments to it."""
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if name == "__set__" and attribute != "grad":
            raise self._tracer.refused(f"it sets {attribute} of a tensor")
        if attribute in _VALUES and self._is_held(args[0]):
            return getattr(self._tracer.held_tensor(args[0]), attribute)
        return func(*args)

    def _called(self, func: Any, name: str, args: Any, given: Any) -> Any:
        """Run a call without traced arguments: a constant, unless it draws random numbers."""
        before = torch.get_rng_state()
        found = func(*args, **given)
        if given.get("generator") is not None:
            raise self._tracer.refused(
                "it draws random numbers from its own torch.Generator"
            )
        if not torch.equal(before, torch.get_rng_state()):
            raise self._tracer.refused(
                f"it draws random numbers with {name} outside the graph", True
            )
        return found
