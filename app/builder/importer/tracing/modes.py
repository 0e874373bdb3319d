"""Modes of a traced model: which of its modules follow it, and which have one of their own."""

from __future__ import annotations

from torch import nn

from app.builder.importer.tracing.proxies import Training
from app.util import module_tree


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
        # A `train()` of its own may change more than the flag.
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
