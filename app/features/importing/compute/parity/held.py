"""Compare an imported net with its live model, and choose the part to keep as one node where they differ."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.results import Analysis
from app.export import measure
from app.export.against_source import Probe, change
from app.features.importing.compute.building import import_module
from app.features.importing.compute.lowering.ir import DraftError
from app.features.importing.compute.lowering.opaque import OwnClasses
from app.features.importing.compute.parity.check import (
    SEED,
    ParityCheck,
    ParityResult,
    precision,
)
from app.features.importing.compute.parity.differences import CALL, Difference
from app.features.importing.compute.parity.initial import blank, fill_value
from app.features.importing.compute.parity.inputs import GivenInputs, Inputs
from app.features.importing.compute.parity.subject import ComparedModule
from app.features.importing.compute.tracing.frames import TraceError
from app.features.importing.values import CHECKING, ModelImportError
from app.source.compiled import make_module
from app.source.generated import Source
from app.sources.spec import InputSpec
from app.util import module_tree
from app.util.module_tree import inside, parent

# --- Find the smallest module that differs after import: each is imported and compared separately

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


MOST_PARTS = 8  # limit of parts kept as single nodes before the import fails
Tell = Callable[[str], None]


def against(
    model: nn.Module,
    analysis: Analysis,
    inputs: tuple[InputSpec, ...],
    probe: Probe,
    tell: Tell,
) -> ParityResult:
    """Compare a drawn net with the live model, both with the model's values but for those that `probe` changes in both.
    A drawing that cannot run differs."""
    source = analysis.source
    examples = Inputs(
        source.inputs, tuple(model_input.shape for model_input in inputs), model
    )
    if not analysis.runnable:
        first = analysis.errors[0]
        difference = Difference(
            CALL,
            "the drawing",
            f"cannot run: {first.message}. {first.reason}".rstrip("."),
        )
        return ParityResult(
            (difference,),
            inputs=examples.tensors(examples.shapes(examples.batch), "first", False),
        )
    try:
        theirs = module_tree.copied(model)
    except Exception as error:  # a lock, a generator, an open file in an attribute
        return ParityResult(
            notes=(
                f"It was not checked against the model, which cannot be copied: {error}.",
            )
        )
    change(theirs, probe)
    return ParityCheck(
        ComparedModule(loaded(source, theirs)), ComparedModule(theirs), examples, tell
    ).run()


def probe_of(model: nn.Module, keep_weights: bool) -> Probe:
    """Return the values to replace in both nets for a comparison, by their keys in the state_dict.

    Constant parameters and running statistics (zeros of a head, ones of a norm) are randomised: a net that starts with
    zeros returns zeros whatever it computes. If weights are not kept, all parameters are redrawn, so that the same ones
    can be reproduced.
    """
    replacements: dict[str, tuple[float, float]] = {}
    tensors: dict[str, torch.Tensor] = dict(module_tree.named_parameters(model))
    for path, module in module_tree.named_modules(model):
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            dot = f"{path}." if path else ""
            tensors |= {
                dot + name: buffer
                for name, buffer in module_tree.named_buffers(module, recurse=False)
            }
    for key, tensor in tensors.items():
        values = tensor.detach()
        if not tensor.is_floating_point():
            continue
        value = fill_value(values)
        if value is not None and math.isfinite(value):
            replacements[key] = (value, 0.5 * abs(value) or 0.1)
        elif (
            value is None
            and not keep_weights
            and isinstance(tensor, nn.Parameter)
            and values.isfinite().all()
        ):
            replacements[key] = (float(values.mean()), 1.5 * float(values.std()))
    return replacements


def part_to_keep(
    model: nn.Module,
    parity: ParityResult,
    apart: Mapping[str, str],
    classes: OwnClasses | None,
    tell: Tell,
) -> tuple[str, str]:
    """Return the path of the part to keep as one node, and why. Raises ModelImportError if that does not help."""
    path = smallest(model, parity, catalog(), classes, tell)
    covering = next((node_path for node_path in apart if inside(path, node_path)), None)
    if covering is not None:  # already one node, and still different
        path = parent(covering)
    if classes is None:
        reason = "only a class of your own file, or of an installed package that such a file uses, can be one node"
        raise refusal(model, path, parity, reason)
    if covering == "" or len(apart) >= MOST_PARTS:
        raise refusal(model, path, parity, "as one node it differs too")
    return (
        path,
        f"drawn call by call it would be a different net ({parity.differences[0]})",
    )


def refusal(
    model: nn.Module, path: str, parity: ParityResult, why: str
) -> ModelImportError:
    """Return the error for a part that differs and cannot be one node either."""
    location = place_of(model, path)
    return ModelImportError(
        f"The drawing would be a different net: {parity.differences[0]}. The difference is in {location}; {why}",
        "another_net",
    )
