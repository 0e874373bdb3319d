"""Compare an imported net with its live model, and choose the part to keep as one node where they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import nn

from app.builder.catalog.catalog import catalog
from app.builder.results import Analysis
from app.export.against_source import Probe, change
from app.features.importing.compute.lowering.opaque import OwnClasses
from app.features.importing.compute.parity.check import ParityCheck, ParityResult
from app.features.importing.compute.parity.differences import CALL, Difference
from app.features.importing.compute.parity.initial import fill_value
from app.features.importing.compute.parity.inputs import Inputs
from app.features.importing.compute.parity.locate import loaded, place_of, smallest
from app.features.importing.compute.parity.subject import ComparedModule
from app.features.importing.values import ModelImportError
from app.sources.spec import InputSpec
from app.util import module_tree
from app.util.module_tree import inside, parent

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
