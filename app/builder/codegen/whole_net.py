"""A network that is one layer of a person's own: its class is then the base of the one that is written.

So the keys of its state_dict are those of the class, without a name before them.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.builder.catalog import custom
from app.builder.plan import Ref, Step

# What the node is called. For any other node the name is an attribute like others.
WHOLE = "self"


def whole_net(steps: Sequence[Step]) -> Step | None:
    """The one layer that a network is: what arrives goes into it in its order, what it gives comes back as it is."""
    layers = [step for step in steps if step.spec.kind not in ("input", "output")]
    one = layers[0] if len(layers) == 1 else None
    if one is None or one.node.name != WHOLE or one.spec.kind != "module" or not custom.is_custom(one.spec.key):
        return None
    if one.node.repeat != 1 or one.node.frozen or one.node.inits or one.node.tied or any(p.call for p in _given(one)):
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


def _given(step: Step) -> list:
    return [param for name in step.node.params if (param := step.spec.param(name)) is not None]
