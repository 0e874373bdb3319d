"""A network that is one custom layer: the generated class derives from the layer's.

So the keys of its state_dict are those of the layer, without a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.builder.catalog import custom
from app.builder.plan import Ref, Step

# Name of such a node. With any other name it is an ordinary attribute.
WHOLE = "self"


def whole_net(steps: Sequence[Step]) -> Step | None:
    """Return the only layer of a network that passes its inputs and outputs through unchanged."""
    layers = [step for step in steps if step.spec.kind not in ("input", "output")]
    layer = layers[0] if len(layers) == 1 else None
    if (
        layer is None
        or layer.node.name != WHOLE
        or layer.spec.kind != "module"
        or not custom.is_custom(layer.spec.key)
    ):
        return None
    if (
        layer.node.repeat != 1
        or layer.node.frozen
        or layer.node.inits
        or layer.node.tied
        or any(p.call for p in _params_set(layer))
    ):
        return None
    inputs = [Ref(step.id, 0) for step in steps if step.spec.kind == "input"]
    ends = [ref for step in steps if step.spec.kind == "output" for ref in step.refs()]
    input_params = {"shape", "dtype", "low", "high", "batch"}
    plain = all(
        step.node.params.keys() <= input_params for step in steps if step is not layer
    )
    ports = [port.name for port in layer.spec.inputs]
    straight = [ref for port in ports for ref in layer.args.get(port, ())] == inputs
    leading = list(layer.args) == ports[: len(layer.args)]
    returns_all = ends == [
        Ref(layer.id, number) for number in range(len(layer.spec.outputs))
    ]
    return layer if plain and straight and leading and returns_all else None


def _params_set(step: Step) -> list:
    return [
        param
        for name in step.node.params
        if (param := step.spec.param(name)) is not None
    ]
