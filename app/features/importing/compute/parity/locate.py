"""Find the smallest module that differs after import: each is imported and compared separately."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import Catalog
from app.export import measure
from app.features.importing.compute.building import import_module
from app.features.importing.compute.lowering.ir import DraftError
from app.features.importing.compute.lowering.opaque import OwnClasses
from app.features.importing.compute.parity.check import (
    SEED,
    ParityCheck,
    ParityResult,
    precision,
)
from app.features.importing.compute.parity.initial import blank
from app.features.importing.compute.parity.inputs import GivenInputs
from app.features.importing.compute.parity.subject import ComparedModule
from app.features.importing.compute.tracing.frames import TraceError
from app.features.importing.values import CHECKING
from app.source.compiled import make_module
from app.source.generated import Source
from app.util import module_tree

SECONDS = 40.0  # after which the module that was found so far is the answer
Called = tuple[tuple[Any, ...], dict[str, Any]]


def smallest(
    model: nn.Module,
    parity: ParityResult,
    catalog: Catalog,
    classes: OwnClasses | None,
    tell: Callable[[str], None],
) -> str:
    """Return the path of the smallest module that differs from its import; "" is the whole model."""
    path, end = "", time.monotonic() + SECONDS
    while time.monotonic() < end:
        for child, called in _calls(model, path, parity).items():
            if time.monotonic() > end:
                return path
            tell(f"{CHECKING}: what differs, {child}")
            if _differs(module_tree.submodule(model, child), called, catalog, classes):
                path = child
                break
        else:
            return path
    return path


def place_of(model: nn.Module, path: str) -> str:
    """`encoder.norm (Norm, net.py line 12)`: a module, its class and where that is written."""
    module = module_tree.submodule(model, path)
    kind = type(module)
    where = ""
    try:
        file, line = (
            inspect.getsourcefile(kind),
            inspect.getsourcelines(kind.forward)[1],
        )
        where = f", {Path(file).name} line {line}" if file else ""
    except (OSError, TypeError):  # defined without a file
        pass
    return f"{path} ({kind.__name__}{where})" if path else f"{kind.__name__}{where}"


def loaded(source: Source, theirs: nn.Module) -> nn.Module:
    """Return the net of a source with the matching values of a model."""
    with blank():
        ours = make_module(source)
    state_dict = ours.state_dict()
    fitting = {
        key: value
        for key, value in theirs.state_dict().items()
        if key in state_dict and state_dict[key].shape == value.shape
    }
    ours.load_state_dict({**state_dict, **fitting})
    return ours


def _calls(model: nn.Module, path: str, parity: ParityResult) -> dict[str, Called]:
    """Return the arguments of the first call of each direct submodule of a module during a forward pass."""
    net, dtype = module_tree.copied(model), precision(model)
    inputs = (
        tensor.to(dtype) if tensor.is_floating_point() else tensor.clone()
        for tensor in parity.inputs
    )
    net.train(parity.train)
    calls: dict[str, Called] = {}
    measure.seed_everything(SEED)
    with (
        suppress(Exception),
        _watching(net, path, calls),
    ):  # calls before an exception are recorded
        net(*inputs)
    return calls


@contextmanager
def _watching(net: nn.Module, path: str, calls: dict[str, Called]) -> Iterator[None]:
    inside: list[str] = []

    def before(name: str) -> Callable[..., None]:
        def record_call(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if not inside and name not in calls:
                calls[name] = tree_map(_detached, (args, kwargs))
            inside.append(name)

        return record_call

    def after(_module: nn.Module, _args: Any, _result: Any) -> None:
        inside.pop()

    hooks = []
    outer = module_tree.submodule(net, path)
    for name, module in module_tree.named_modules(outer):
        if module is not outer:
            full_path = f"{path}.{name}" if path else name
            hooks.append(
                module_tree.before_call(module, before(full_path), with_kwargs=True)
            )
            hooks.append(module_tree.on_call(module, after, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _detached(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _differs(
    module: nn.Module, called: Called, catalog: Catalog, classes: OwnClasses | None
) -> bool:
    """Return whether a module differs from its import when compared separately, or its import cannot run; False if it
    cannot be imported separately."""
    args, kwargs = tree_map(
        lambda value: value.to("meta") if isinstance(value, torch.Tensor) else value,
        called,
    )
    leaves, structure = tree_flatten(called)
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    try:
        drawn = import_module(module, args, catalog, kwargs, own=classes)
        ops = with_blocks(
            classes.with_these(catalog) if classes else catalog, drawn.blocks
        )
        analysis = analyse(drawn.graph, ops)
        if not analysis.runnable:
            return True
        ours = loaded(analysis.source, module)
    except (TraceError, DraftError, RuntimeError):
        return False
    theirs = ComparedModule(
        module,
        lambda net, call_tensors: _call_with(net, call_tensors, leaves, structure),
    )
    return bool(
        ParityCheck(
            ComparedModule(ours), theirs, GivenInputs(tensors, precision(module))
        )
        .run()
        .differences
    )


def _call_with(
    net: nn.Module,
    replacements: tuple[torch.Tensor, ...],
    leaves: list[Any],
    structure: TreeSpec,
) -> Any:
    """Repeat a call with other tensors."""
    left = iter(replacements)
    values = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    args, kwargs = tree_unflatten(values, structure)
    return net(*args, **kwargs)
