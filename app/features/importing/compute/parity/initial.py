"""Record how a model's parameters are initialised while it is constructed.

Calls of `torch.nn.init` are recorded with their arguments, and so are random and filling methods and factories. Other
computations are unknown, not guessed; only constants are read off the values.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import nn

from app.builder.catalog.inits import FUNCTIONS
from app.builder.graph import Init
from app.features.importing.compute.tracing.dispatch_patches import plain_number
from app.util import module_tree
from app.util.frozen import FrozenMap
from app.util.torch_calls import FunctionCalls

MANY = 100_000  # values that are checked, spread over the whole tensor
ENOUGH = 64  # values needed to check a recorded distribution by its spread
OTHER = None  # not expressible by torch.nn.init


class InitRecorder(FunctionCalls):
    """Records the latest initialisation of each piece of memory while this mode is active."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[int, Init | None] = {}
        self._held: list[
            Any
        ] = []  # memory is not given to another tensor while it is noted

    def inits_of(self, model: nn.Module) -> dict[str, Init | None]:
        """Return the initialisation of each parameter by name; None if unknown."""
        inits: dict[str, Init | None] = {}
        for name, parameter in module_tree.named_parameters(
            model, remove_duplicate=False
        ):
            values = parameter.detach()
            init = constant(values)
            noted = (
                self._last.get(_memory(values)) if _covers_storage(values) else OTHER
            )
            inits[name] = (
                init
                if init is not None
                else noted
                if noted and _possible(noted, values)
                else OTHER
            )
        return inits

    def note(self, tensor: Any, init: Init | None) -> None:
        """Record how a tensor was filled; filling a part of one makes the whole unknown."""
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.device.type == "cpu"
            and tensor.layout == torch.strided
        ):
            memory = _memory(tensor)
            if memory not in self._last:
                self._held.append(tensor.detach().untyped_storage())
            self._last[memory] = init if _covers_storage(tensor) else OTHER

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _MADE and isinstance(result, torch.Tensor):
            self.note(result, _MADE[name](args, kwargs))
        elif name in _WRITTEN and args:
            self.note(args[0], _WRITTEN[name](args[1:], kwargs))
        elif name in (
            "mul",
            "mul_",
            "__mul__",
            "__rmul__",
            "__imul__",
            "div",
            "div_",
            "__truediv__",
            "__itruediv__",
        ):
            self._scaled(name, args, result)
        elif (
            name in ("clone", "float", "double", "to", "contiguous")
            and args
            and isinstance(args[0], torch.Tensor)
        ):
            if isinstance(result, torch.Tensor) and _memory(result) != _memory(args[0]):
                self.note(result, self._init_of(args[0]))
        elif name == "copy_" and len(args) > 1 and isinstance(args[1], torch.Tensor):
            self.note(args[0], self._init_of(args[1]))
        elif (
            name.endswith("_")
            and not name.endswith("__")
            and name not in _HARMLESS
            or name == "__setitem__"
        ):
            self.note(args[0] if args else None, OTHER)
        return result

    def _init_of(self, tensor: torch.Tensor) -> Init | None:
        return self._last.get(_memory(tensor)) if _covers_storage(tensor) else OTHER

    def _scaled(self, name: str, args: Any, result: Any) -> None:
        """Record the changed spread of a drawn tensor that is multiplied by a number."""
        numbers = [arg for arg in args[:2] if type(arg) in (int, float)]
        tensors = [arg for arg in args[:2] if isinstance(arg, torch.Tensor)]
        recorded = (
            self._init_of(tensors[0])
            if len(numbers) == 1 and len(tensors) == 1
            else OTHER
        )
        factor = (
            (1 / numbers[0] if "div" in name else float(numbers[0]))
            if numbers and numbers[0]
            else 0.0
        )
        init = OTHER
        if recorded is not None and factor and recorded.name == "normal_":
            params = recorded.params
            init = _normal(
                factor * params.get("mean", 0.0), abs(factor) * params.get("std", 1.0)
            )
        elif recorded is not None and factor and recorded.name == "uniform_":
            ends = sorted(
                (
                    factor * recorded.params.get("a", 0.0),
                    factor * recorded.params.get("b", 1.0),
                )
            )
            init = Init("uniform_", FrozenMap(a=ends[0], b=ends[1]))
        self.note(result, init)


@contextmanager
def recording_inits() -> Iterator[InitRecorder]:
    """Record initialisations of tensors in this thread."""
    notes, changed = InitRecorder(), list[tuple[Any, str, Any]]()
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(("torch.nn.", "torchvision."))
    ]
    functions = {name: getattr(nn.init, name) for name in FUNCTIONS}
    noted = {name: _noted(plain, name, notes) for name, plain in functions.items()}
    for module in modules:  # also where it was imported by name
        for name in functions.keys() & vars(module).keys():
            if vars(module)[name] is (plain := functions[name]):
                changed.append((module, name, plain))
                setattr(module, name, noted[name])
    try:
        with notes:
            yield notes
    finally:
        for module, name, plain in changed:
            setattr(module, name, plain)


def _noted(
    plain: Callable[..., Any], name: str, notes: InitRecorder
) -> Callable[..., Any]:
    signature, defaults = (
        inspect.signature(plain),
        {param.name: param.default for param in FUNCTIONS[name]},
    )

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        tensor = arguments.get("tensor")
        params = {
            key: plain_number(value)
            for key, value in arguments.items()
            if key in defaults and value != defaults[key]
        }
        plainly = all(isinstance(value, int | float | str) for value in params.values())
        notes.note(tensor, _tidy(Init(name, FrozenMap(params))) if plainly else OTHER)
        return result

    return call


def constant(values: torch.Tensor) -> Init | None:
    """Return the fill function of a constant tensor, else None."""
    if not values.numel() or values.is_complex() or values.device.type == "meta":
        return None
    first = fill_value(values)
    return _filled(first) if first is not None and math.isfinite(first) else None


def fill_value(values: torch.Tensor) -> float | None:
    """Return the value of a constant tensor, else None. Checks a few elements first."""
    flat = values.flatten()
    if (
        not flat.numel()
        or bool((flat[:ENOUGH] != flat[0]).any())
        or not bool((flat == flat[0]).all())
    ):
        return None
    return float(flat[0])


def _filled(value: float) -> Init:
    if value in (0, 1):
        return Init("ones_" if value else "zeros_")
    return Init("constant_", FrozenMap(val=float(f"{value:.7g}")))


def _tidy(init: Init) -> Init:
    """Return the canonical form of an initialisation."""
    return _filled(init.params["val"]) if init.name == "constant_" else init


def _normal(mean: float = 0.0, std: float = 1.0) -> Init:
    params = {
        name: float(value)
        for name, value, plain in (("mean", mean, 0.0), ("std", std, 1.0))
        if value != plain
    }
    return Init("normal_", FrozenMap(params))


def _uniform(low: float = 0.0, high: float = 1.0) -> Init:
    params = {
        name: float(value)
        for name, value, plain in (("a", low, 0.0), ("b", high, 1.0))
        if value != plain
    }
    return Init("uniform_", FrozenMap(params))


def _from(
    make: Callable[..., Init], first: str, second: str
) -> Callable[[Any, Mapping[str, Any]], Init | None]:
    """Make a reader of two arguments of a call, by position or name; 0 and 1 by default."""

    def read(args: Any, kwargs: Mapping[str, Any]) -> Init | None:
        plain = ((first, 0.0), (second, 1.0))
        values = [
            args[i] if i < len(args) else kwargs.get(name, value)
            for i, (name, value) in enumerate(plain)
        ]
        return (
            make(*values)
            if all(type(value) in (int, float) for value in values)
            else OTHER
        )

    return read


def _fill(args: Any, kwargs: Mapping[str, Any]) -> Init | None:
    value = args[0] if args else kwargs.get("value", kwargs.get("fill_value"))
    return (
        _filled(value)
        if type(value) in (int, float) and math.isfinite(value)
        else OTHER
    )


_MADE: dict[str, Callable[[Any, Mapping[str, Any]], Init | None]] = {
    "randn": lambda _args, _kwargs: _normal(),
    "randn_like": lambda _args, _kwargs: _normal(),
    "rand": lambda _args, _kwargs: _uniform(),
    "rand_like": lambda _args, _kwargs: _uniform(),
    "empty": lambda _args, _kwargs: OTHER,
    "empty_like": lambda _args, _kwargs: OTHER,
}
_WRITTEN: dict[str, Callable[[Any, Mapping[str, Any]], Init | None]] = {
    "normal_": _from(_normal, "mean", "std"),
    "uniform_": _from(_uniform, "from", "to"),
    "fill_": _fill,
    "zero_": lambda _args, _kwargs: Init("zeros_"),
}
_HARMLESS = {"requires_grad_", "detach_", "share_memory_", "retain_grad", *FUNCTIONS}


def _memory(tensor: torch.Tensor) -> int:
    return tensor.detach().untyped_storage().data_ptr()


def _covers_storage(tensor: torch.Tensor) -> bool:
    """Return whether a tensor covers its whole storage."""
    storage = tensor.detach().untyped_storage()
    return (
        tensor.numel() * tensor.element_size() == storage.nbytes()
        and tensor.numel() > 0
    )


def _possible(init: Init, values: torch.Tensor) -> bool:
    """Return whether values can be drawn from a recorded distribution: a plausibility check."""
    if not values.is_floating_point() or values.numel() < ENOUGH:
        return True
    some = values.flatten()
    some = some[:: max(1, some.numel() // MANY)]
    spread, params = float(some.double().std()), init.params
    if init.name == "normal_":
        return abs(spread - params.get("std", 1.0)) <= 0.5 * params.get("std", 1.0)
    if init.name == "uniform_":
        low, high = params.get("a", 0.0), params.get("b", 1.0)
        return bool(values.min() >= low - 1e-6 and values.max() <= high + 1e-6)
    return spread > 0


@contextmanager
def blank() -> Iterator[None]:
    """Skip random initialisation in this thread: new tensors stay zero, without touching their pages."""
    init = torch.nn.init
    drawing = {
        torch.Tensor.uniform_,
        torch.Tensor.normal_,
        torch.Tensor.erfinv_,
        init.uniform_,
        init.normal_,
        init.kaiming_uniform_,
        init.kaiming_normal_,
    }

    def called(func: Any, args: Any, kwargs: Any, _frame: FrameType) -> Any:
        if func in drawing:
            return args[0] if args else kwargs["tensor"]
        is_plain = func is torch.empty and "memory_format" not in kwargs
        return (torch.zeros if is_plain else func)(*args, **kwargs)

    with FunctionCalls(called):
        yield
