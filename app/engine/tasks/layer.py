"""Handlers of `app.engine.requests.layer`."""

from __future__ import annotations

from app.builder.catalog.init_checks import parameter_shapes, refusal
from app.builder.diagnostics.torch_errors import torch_message
from app.builder.shapes.input_sizes import Tried
from app.builder.shapes.try_sizes import tried
from app.engine.requests.layer import (
    ConstructorError,
    Initialisable,
    Initialisations,
    TrySizes,
)
from app.engine.server import Context, handles
from app.util.frozen import FrozenMap


@handles(Initialisations)
def initialisations(request: Initialisations, _context: Context) -> Initialisable:
    shapes = parameter_shapes(request.spec, request.resolved)
    refusals = {
        name: refusal(request.spec, request.resolved, name, init)
        for name, init in request.wanted.items()
    }
    return Initialisable(
        FrozenMap(shapes),
        FrozenMap({name: words for name, words in refusals.items() if words}),
    )


@handles(ConstructorError)
def constructor_error(request: ConstructorError, _context: Context) -> str:
    return torch_message(request.spec, request.params, request.name, request.text)


@handles(TrySizes)
def try_sizes(request: TrySizes, _context: Context) -> tuple[Tried, ...]:
    return tried(request.graph, request.catalog, request.node, request.shapes)
