"""Evaluation of untraced modules: on meta tensors, or on real ones if those fail."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from app.builder.catalog.catalog import OpSpec
from app.builder.importer.lowering.binding import signature_of
from app.util import module_tree
from app.util.rng import Generators, borrowed

SEED = 20011


def alone(on_meta: nn.Module, real: nn.Module, args: Any, kwargs: Any) -> Any:
    """Run a module on meta tensors; if that fails, on real ones of the same shapes."""
    try:
        return on_meta(*args, **kwargs)
    except Exception:  # real tensors show the module's own error
        return run_alone(real, args, kwargs)


def run_alone(
    module: nn.Module, args: Any, kwargs: Any, results: dict[str, Any] | None = None
) -> Any:
    """Run a copy of a real module on random tensors of these shapes; return meta results. Raises what the module
    raises. `results` receives what each submodule returned at its first call, by path."""
    real, named = tree_map(_positive, tree_map(real_like, (args, kwargs)))
    outputs, failed = None, None
    mode = getattr(module, "training", False)  # frozen TorchScript has no mode
    # Some layers need several samples in training, and a tensor hook needs requires_grad.
    for training, recorded in ((mode, False), (mode, True), (False, False)):
        with borrowed(Generators()), torch.set_grad_enabled(recorded):
            torch.default_generator.manual_seed(SEED)
            try:
                copied = module_tree.copied(module).train(training)
                if results is not None:
                    _note_results(copied, results)
                outputs, failed = copied(*real, **named), None
                break
            except Exception as error:
                failed = failed or error
    if failed is not None:
        raise failed
    return tree_map(
        lambda leaf: (
            leaf.detach().to("meta") if isinstance(leaf, torch.Tensor) else leaf
        ),
        outputs,
    )


def _note_results(model: nn.Module, results: dict[str, Any]) -> None:
    """Register forward hooks that record the results of all submodules."""
    results.clear()

    def noting(path: str) -> Any:
        def note(_module: nn.Module, _args: Any, result: Any) -> None:
            results.setdefault(path, result)

        return note

    for path, module in module_tree.named_modules(model, remove_duplicate=False):
        module_tree.on_call(module, noting(path))


def real_like(value: Any) -> Any:
    """Return a real tensor like a meta one: standard normal, or zeros for integers."""
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return torch.zeros(value.shape, dtype=value.dtype)
    return torch.randn(value.shape, generator=torch.Generator().manual_seed(SEED)).to(
        value.dtype
    )


def _positive(value: Any) -> Any:
    """Take absolute values: loops until convergence mostly terminate from small positive inputs."""
    return (
        value.abs()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
    )


def schema_of(script: torch.jit.ScriptModule) -> list[Any]:
    """Return the arguments of the forward of TorchScript, as torch describes them."""
    forward: Any = script.forward
    return list(forward.schema.arguments)[1:]


def argument_names(module: nn.Module) -> list[str]:
    """Name the arguments of a module's forward."""
    if isinstance(module, torch.jit.ScriptModule):
        return [argument.name for argument in schema_of(module)]
    return signature_of(type(module).forward)[1:]


def port_name(spec: OpSpec, name: str) -> str:
    """Return the port for an argument of `forward`; with an underscore if the constructor has one of that name."""
    renamed = f"{name}_"
    return (
        renamed
        if renamed in spec.input_names and name not in spec.input_names
        else name
    )
