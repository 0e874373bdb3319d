"""A model whose tensors are all positional, as an import wants them."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from app.sources.loading import Loaded
from app.sources.spec import SourceError


def positional(loaded: Loaded) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model and its positional tensors: the model itself if its arguments by name are the first that its
    forward takes, else one around it, whose `model` it is. Raises SourceError for arguments that are no tensors."""
    inputs = (*loaded.args, *loaded.kwargs.values())
    if not all(isinstance(tensor, Tensor) for tensor in inputs):
        raise SourceError("it takes inputs other than tensors, which a drawing cannot")
    names = [*inspect.signature(loaded.model.forward).parameters]
    if [*loaded.kwargs] == names[len(loaded.args) : len(inputs)]:
        return loaded.model, inputs
    by_order = sorted(
        loaded.kwargs,
        key=lambda name: names.index(name) if name in names else len(names),
    )
    if not loaded.args and by_order == names[: len(by_order)]:
        return loaded.model, tuple(loaded.kwargs[name] for name in by_order)
    return _called(loaded), inputs


def _called(loaded: Loaded) -> nn.Module:
    count, names = len(loaded.args), [*loaded.kwargs]

    def forward(self: Any, *tensors: Tensor) -> Any:
        return self.model(
            *tensors[:count], **dict(zip(names, tensors[count:], strict=True))
        )

    argument_names = [*inspect.signature(loaded.model.forward).parameters][:count]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in (
            "self",
            *argument_names,
            *(f"x{at}" for at in range(len(argument_names), count)),
            *names,
        )
    ]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    kind: Any = type(
        f"Called{type(loaded.model).__name__}", (nn.Module,), {"forward": forward}
    )
    model: nn.Module = kind()
    model.model = loaded.model
    return model
