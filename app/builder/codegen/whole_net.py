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
    one = layers[0] if len(layers) == 1 else None
    if (
        one is None
        or one.node.name != WHOLE
        or one.spec.kind != "module"
        or not custom.is_custom(one.spec.key)
    ):
        return None
    if (
        one.node.repeat != 1
        or one.node.frozen
        or one.node.inits
        or one.node.tied
        or any(p.call for p in _params_set(one))
    ):
        return None
    inputs = [Ref(step.id, 0) for step in steps if step.spec.kind == "input"]
    ends = [ref for step in steps if step.spec.kind == "output" for ref in step.refs()]
    told = {"shape", "dtype", "low", "high", "batch"}
    plain = all(step.node.params.keys() <= told for step in steps if step is not one)
    ports = [port.name for port in one.spec.inputs]
    straight = [ref for port in ports for ref in one.args.get(port, ())] == inputs
    leading = list(one.args) == ports[: len(one.args)]
    whole = ends == [Ref(one.id, number) for number in range(len(one.spec.outputs))]
    return one if plain and straight and leading and whole else None


def _params_set(step: Step) -> list:
    return [
        param
        for name in step.node.params
        if (param := step.spec.param(name)) is not None
    ]
