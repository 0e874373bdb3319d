"""Proxies for traced values, each with an example value, and a traceable `self.training`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from app.util import module_tree

if TYPE_CHECKING:
    from app.features.importing.compute.tracing.tracing import Tracer


def set_item(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """Return a copy after `tensor[index] = value`."""
    changed = tensor.clone()
    changed[index] = value
    return changed


def tuple_of(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the items, as one value of a graph."""
    return tuple(items)


class Training:
    """`self.training` while tracing: usable as a bool, and recognisable when passed on.

    `asked` is set when code branches on it, so that the other mode has to be traced too. It is no int, which Python
    would accept unnoticed as an index: `(a, b)[self.training]`.
    """

    def __init__(self, on: bool) -> None:
        self.on, self.asked = on, False

    def __bool__(self) -> bool:
        self.asked = True
        return self.on

    def __int__(self) -> int:
        return int(bool(self))

    __index__ = __int__

    def __float__(self) -> float:
        return float(bool(self))

    def __eq__(self, other: object) -> bool:
        return bool(self) == (bool(other) if type(other) is Training else other)

    def __hash__(self) -> int:
        return hash(bool(self))

    def __str__(self) -> str:
        return str(bool(self))

    def __format__(self, form: str) -> str:
        return format(bool(self), form)

    def __repr__(self) -> str:  # for debugging; does not count as a read
        return f"Training({self.on})"


def _of_the_mode(name: str) -> Callable[..., Any]:
    sign = getattr(operator, f"__{name.removeprefix('r')}__")

    def operated(self: Training, *others: Any) -> Any:
        operands = [
            bool(other) if type(other) is Training else other
            for other in (self, *others)
        ]
        return sign(*(operands[::-1] if name.startswith("r") else operands))

    return operated


for _sign in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
):
    for _name in (_sign, f"r{_sign}"):
        setattr(Training, f"__{_name}__", _of_the_mode(_name))
for _name in ("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"):
    setattr(Training, f"__{_name}__", _of_the_mode(_name))


def plain_flag(value: Any) -> Any:
    return value.on if type(value) is Training else value


_ITS_OWN = frozenset({"tracer", "node", "root", "attr", "_made"})


class ValueProxy(fx.Proxy):
    """A proxy with an example of its value, accepted as a tensor if that is one."""

    tracer: Tracer

    @property
    def known(self) -> Any:
        return self.tracer.values[self.node]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.Tensor if isinstance(self.known, torch.Tensor) else ValueProxy

    def __getattr__(self, name: str) -> Any:
        if not hasattr(type(self.known), name):
            raise AttributeError(
                f"{type(self.known).__name__!r} object has no attribute {name!r}"
            )
        if name == "ndim" and isinstance(self.known, torch.Tensor):
            return self.known.dim()
        return Attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_dynamo_"):
            return  # a hint for torch.compile
        if name not in _ITS_OWN:
            raise self.tracer.refused(f"it sets {name} of a tensor")
        object.__setattr__(self, name, value)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.tracer.number(self.node, self.known)

    def __setitem__(self, index: Any, value: Any) -> None:
        tracer, now = self.tracer, self.tracer.latest(self.node)
        if (
            now.target is set_item
            and type(value) in PROXIES
            and now.args[1:] == (tracer.create_arg(index), tracer.create_arg(value))
        ):
            return  # x[i] += y: the view was changed in place already, and x with it
        self.changed(
            tracer.create_proxy("call_function", set_item, (self, index, value), {})
        )

    def changed(self, proxy: ValueProxy) -> None:
        """Record an in-place change; this value and its aliases are re-read from now on."""
        self.tracer.changed(self, proxy)

    def _in_place(self, new_proxy: Any) -> Any:
        if isinstance(self.known, torch.Tensor):
            self.changed(new_proxy)
        return new_proxy

    def __len__(self) -> int:
        if isinstance(self.known, torch.Tensor):
            return int(self.tracer.number(self.size(0).node, len(self.known)))
        return len(self.known)

    def __index__(self) -> int:
        return operator.index(self.tracer.number(self.node, self.known))

    def __int__(self) -> int:
        return int(self.tracer.number(self.node, self.known))

    def __float__(self) -> float:
        return float(self.tracer.number(self.node, self.known))


def _changing(operate: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda self, other: self._in_place(operate(self, other))


for _sign in "add sub mul truediv floordiv mod pow and or xor".split():
    _operator = getattr(operator, f"__{_sign}__")
    setattr(ValueProxy, f"__i{_sign}__", _changing(_operator))


class Attribute(ValueProxy):
    """`x.shape`, or `x.view` before it is called."""

    def __init__(self, root: ValueProxy, name: str) -> None:
        self.root, self.attr, self.tracer = root, name, root.tracer
        self._made: fx.Node | None = None

    @property
    def node(self) -> fx.Node:  # type: ignore[override]
        if self._made is None:
            self._made = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}
            ).node
        return self._made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy(
            "call_method", self.attr, (self.root, *args), kwargs
        )


PROXIES = (ValueProxy, Attribute)


def dtype_source(value: Any) -> Any:
    """Return the tensor whose dtype a value is, None for other values. For a parameter it is an input of the same
    dtype, since parameters stay with their layer."""
    if type(value) is not Attribute or value.attr != "dtype":
        return None
    return (
        value.root
        if value.root.node.op != "get_attr"
        else value.tracer.arrived_like(value.known)
    )


def float_fact(tensor: torch.Tensor, fact: str) -> float:
    """Return an attribute of `torch.finfo` for a tensor's dtype."""
    return float(getattr(torch.finfo(tensor.dtype), fact))


# Factories of tensors, traced wherever their sizes come from.
FACTORIES = frozenset(
    {
        torch.arange,
        torch.zeros,
        torch.ones,
        torch.full,
        torch.linspace,
        torch.eye,
        torch.rand,
        torch.randn,
        torch.randint,
        torch.randperm,
        torch.empty,
    }
)


def on_meta(model: nn.Module) -> nn.Module:
    """Copy a model to meta tensors without copying data."""
    meta_copies: dict[int, Any] = {
        id(value): torch.empty_like(value, device="meta")
        for module in module_tree.modules(model)
        for value in module.__dict__.values()
        if isinstance(value, torch.Tensor) and not value.is_leaf  # a cached result
    }
    for tensor in (*module_tree.parameters(model), *module_tree.buffers(model)):
        empty = torch.empty_like(tensor, device="meta")
        meta_copies[id(tensor)] = (
            nn.Parameter(empty, tensor.requires_grad)
            if isinstance(tensor, nn.Parameter)
            else empty
        )
    return module_tree.copied(model, meta_copies)


def set_mode(model: nn.Module, training: bool) -> Training:
    """Put a copied model into a mode by its own `train()`; return the flag that modules following the mode now hold.

    Raises what `train()` raises.
    """
    modules = list(module_tree.modules(model))
    module_tree.set_mode(model, not training)
    other = [module.training for module in modules]
    module_tree.set_mode(model, training)
    flag = Training(training)
    for module, before in zip(modules, other, strict=True):
        if module.training is training and before is not training:
            module.__dict__["training"] = flag
        # An overridden `train()` may change more than `self.training`.
        flag.asked |= (
            type(module).train is not nn.Module.train or "train" in module.__dict__
        )
    return flag


def follows_mode(module: nn.Module) -> bool:
    """Return whether a layer follows the mode of the model, or has none."""
    return all(
        type(submodule.__dict__.get("training")) is Training
        for submodule in module_tree.modules(module)
        if _has_modes(submodule)
    )


def _has_modes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.running_mean is not None
    if isinstance(module, nn.RReLU):
        return True
    chance = (
        getattr(module, "dropout", None)
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase)
        else None
    )
    if (
        isinstance(module, nn.modules.dropout._DropoutNd)
        or type(module).__name__ == "StochasticDepth"
    ):
        chance = module.p
    return isinstance(chance, float | int) and chance > 0
