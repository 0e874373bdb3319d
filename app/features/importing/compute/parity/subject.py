"""A module under comparison: fresh copies, the results of two calls, and draws that do not depend on their order."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy
import torch
from msgspec import Struct
from torch import nn

from app.export import measure
from app.util import module_tree
from app.util.torch_calls import KernelCalls

Call = Callable[[nn.Module, tuple[torch.Tensor, ...]], Any]
SECOND = ", second call"
MOST_HELD = 50_000_000  # parameters of which values are compared after a call


class ComparedModule:
    """A module and how it is called with a list of tensors. The module itself is never run, only copies of it."""

    def __init__(self, module: nn.Module, call: Call | None = None) -> None:
        self.module, self.call = module, call
        self._base: tuple[bool, nn.Module] | None = None

    def fresh(self, double: bool, copied: bool = True) -> nn.Module:
        """Return a copy, in float64 if `double`. Unless `copied`, it shares parameter values with earlier copies of
        that precision; a net that changes them in forward is detected. Raises what copying raises."""
        if not copied and self._base is not None and self._base[0] == double:
            base = self._base[1]
        else:
            base = module_tree.copied(self.module)
            base = base.double() if double else base
            if copied:
                return base
            self._base = double, base
        # A copy of another class than torch's may need more than its values.
        shared = {
            id(p): nn.Parameter(p.detach(), p.requires_grad)
            for p in module_tree.parameters(base)
            if type(p) is nn.Parameter
        }
        return module_tree.copied(base, shared)


class ModuleResult(Struct):
    """The results of a module. `moving` are plain attributes (counters) that the second call changed again; `drew` says
    that it drew random numbers. Large tensors are stored as sketches."""

    outputs: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor | None] = {}
    state: dict[str, torch.Tensor | None] = {}
    moving: dict[str, Any] = {}
    others: tuple[str, ...] = ()
    drew: bool = False
    refused: str = ""  # why it does not go backward
    buffers: dict[str, torch.Tensor | None] = {}  # after the first call


def run_module(
    net: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    seed: int,
    *,
    train: bool,
    backward: bool,
    twice: bool = True,
    call: Call | None = None,
) -> ModuleResult:
    """Run a net once or twice, the first time with backward if asked. Raises what its forward raises."""
    named_inputs = {f"input {number}": value for number, value in enumerate(inputs, 1)}

    def called(*tensors: torch.Tensor) -> Any:
        with torch.set_grad_enabled(recorded):
            return call(net, tensors) if call is not None else net(*tensors)

    def step() -> measure.Record:
        return measure.step_of(
            net,
            named_inputs,
            seed + later,
            train=train,
            double=False,
            backward=backward and not later,
            call=called,
        )

    later, recorded = False, True
    keys = net.state_dict().keys()
    first = step()
    drew = not torch.equal(
        torch.default_generator.get_state(),
        torch.Generator().manual_seed(seed).get_state(),
    )
    gradients, buffers = (
        {name: measure.sketch(value) for name, value in first.get(group, {}).items()}
        for group in ("gradients", "buffers")
    )
    outcome = ModuleResult(
        dict(first["outputs"]),
        gradients if backward else {},
        drew=drew,
        refused=first.get("refused", ""),
        others=tuple(first["others"]),
        buffers=buffers,
    )
    del first
    if twice:
        after = dict(_plain_attributes(net))
        # As after a step of training: of other weights, and as it is evaluated.
        later, recorded = True, False
        net.train()
        _scale(net, 0.5)
        try:
            second = step()
        except Exception:  # what registers hooks on gradients needs them
            recorded = True
            second = step()
        finally:
            _scale(net, 2.0)
        outcome.outputs |= {
            name + SECOND: value for name, value in second["outputs"].items()
        }
        outcome.moving = {
            path: value
            for path, value in _plain_attributes(net)
            if after.get(path) != value
        }
    if registered := sorted(net.state_dict().keys() - keys):
        outcome.moving["state_dict()"] = registered
    outcome.state = {name: measure.sketch(value) for name, value in _state_after(net)}
    return outcome


@torch.no_grad()
def _scale(net: nn.Module, factor: float) -> None:
    """Multiply the parameters by a power of two, which is exact in floating point."""
    for parameter in module_tree.parameters(net):
        if parameter.requires_grad:
            parameter.mul_(factor)


def _state_after(net: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield buffers, and parameters unless there are too many, after the calls."""
    for name, buffer in module_tree.named_buffers(net):
        yield name, buffer.detach().clone()
    parameters = list(module_tree.named_parameters(net))
    if sum(parameter.numel() for _, parameter in parameters) <= MOST_HELD:
        for name, parameter in parameters:
            yield (
                name,
                parameter.detach().clone()
                if parameter.numel() <= measure.WHOLE
                else parameter.detach(),
            )


def _plain_attributes(net: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield numbers, booleans and strings in attributes of modules, also in lists and dicts one level deep, the lengths
    of these, and what generators of random numbers will draw."""
    for path, module in module_tree.named_modules(net):
        dot = f"{path}." if path else ""
        for name, value in module.__dict__.items():
            if name == "training" or name.startswith("_") and name in _TORCHS:
                continue
            if isinstance(value, int | float | str):
                yield dot + name, value
            elif isinstance(value, random.Random):
                yield dot + name, value.getstate()[1]
            elif isinstance(value, numpy.random.Generator):
                yield dot + name, str(value.bit_generator.state)
            elif isinstance(value, list | tuple | dict):
                yield f"len({dot}{name})", len(value)
                items = (
                    value.items() if isinstance(value, Mapping) else enumerate(value)
                )
                yield from (
                    (f"{dot}{name}[{key}]", item)
                    for key, item in items
                    if isinstance(item, int | float | str)
                )


_TORCHS = frozenset(nn.Module().__dict__)


class SameDraws(KernelCalls):
    """Every random operation draws with a seed made from the generator's own, its name, its sizes and its numbers.

    Two nets that draw the same in another order give the same in here.
    """

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        seed_text = f"{torch.initial_seed()} {func} {_signature(args)} {_signature(sorted(kwargs.items()))}"
        generator_state, plain = torch.default_generator.get_state(), random.getstate()
        number = int.from_bytes(
            hashlib.sha256(seed_text.encode()).digest()[:7], "little"
        )
        torch.default_generator.manual_seed(number)
        try:
            return func(*args, **kwargs)
        finally:
            torch.default_generator.set_state(generator_state)
            random.setstate(plain)


def _signature(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.dtype}"
    if isinstance(value, torch.Generator):
        return "generator"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_signature, value))}]"
    return repr(value)


# --- Its memory

SHARE = 0.6  # of the free memory
UNKNOWN = 4 * 2**30  # bytes, if the free memory is unknown


def free_bytes() -> int:
    """Return the memory that a comparison may use."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(
            int(line.split()[1]) * 1024
            for line in lines
            if line.startswith("MemAvailable")
        )
        return int(SHARE * free)
    with suppress(AttributeError, ValueError, OSError):
        return int(SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2)
    return UNKNOWN


def parameter_count(model: nn.Module) -> int:
    """Count the numbers in parameters and buffers."""
    return sum(
        tensor.numel()
        for tensor in (*module_tree.parameters(model), *module_tree.buffers(model))
    )


class OutputBytes:
    """Sum of the output bytes of a net's innermost modules in one call."""

    def __init__(self) -> None:
        self.total = 0

    @contextmanager
    def watching(self, net: nn.Module) -> Iterator[None]:
        hooks = [
            module_tree.on_call(module, self._count)
            for module in module_tree.modules(net)
            if not module_tree.has_children(module)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _count(self, _module: nn.Module, _args: Any, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            self.total += result.numel() * result.element_size()
