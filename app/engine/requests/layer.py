"""Requests about one layer, for its form."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.graph import Graph, Init
from app.builder.shapes.input_sizes import Shape, Tried
from app.engine.protocol import Request
from app.util.frozen import FrozenMap


class Initialisable(Struct, frozen=True):
    """The parameters of a layer with their shapes, and why an initialisation of one cannot be, in torch's words."""

    shapes: FrozenMap[str, tuple[int, ...]]
    refusals: FrozenMap[str, str]


class Initialisations(Request[Initialisable], frozen=True):
    """List the parameters of a layer that can be initialised, and which of `wanted` torch rejects."""

    lane: ClassVar[str] = "layer"
    spec: OpSpec
    resolved: FrozenMap[str, Any]
    wanted: FrozenMap[str, Init]


class ConstructorError(Request[str], frozen=True):
    """Return the error that torch raises for a layer whose argument `name` is `text`, "" if it accepts it."""

    lane: ClassVar[str] = "layer"
    spec: OpSpec
    params: FrozenMap[str, Any]
    name: str
    text: str


class TrySizes(Request[tuple[Tried, ...]], frozen=True):
    """Try each of these shapes for the input `node` of a graph."""

    lane: ClassVar[str] = "layer"
    graph: Graph
    catalog: Catalog
    node: str
    shapes: tuple[Shape, ...]
