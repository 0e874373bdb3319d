"""Origin of an imported net, and the files that link it to its source model."""

from __future__ import annotations

from msgspec import Struct

from app.builder.graph import Init


class KeptFile(Struct, frozen=True):
    """A `.safetensors` file that belongs to a project, and the hash that it must have."""

    path: str
    sha256: str


class ModelInit(Struct, frozen=True):
    """How a source model initialises one parameter of a node; `block` is "" on the network's own sheet."""

    block: str
    node: str
    parameter: str
    init: Init


class Origin(Struct, frozen=True):
    """The model that a net was imported from.

    `drawing` is the digest of the net as imported; an edit changes it. `checked` tells how it was compared with the
    live model, "" if it was not. `weights` is the file of the model's state_dict at import (all of it, or only its
    buffers), `buffers` the keys in it that the code does not initialise. `reference` contains inputs, outputs and
    gradients of the model. `inits` are initialisations that differ from the layers' defaults.
    """

    model: str
    drawing: str
    checked: str = ""
    weights: KeptFile | None = None
    buffers: tuple[str, ...] = ()
    reference: KeptFile | None = None
    inits: tuple[ModelInit, ...] = ()
