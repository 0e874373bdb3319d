"""An observation as JSON-ready data: nodes that a picture can show, and the edges between them."""

from __future__ import annotations

from typing import Any

from app.observe.folding import above, hides_inside
from app.observe.observation import Observation


def to_plain(observation: Observation) -> dict[str, Any]:
    """Return `{"nodes", "edges", "failed"}`: every call but those inside torch's own layers, which take their edges.

    A node has "id", "path", "name", "op", "kind", "parent", "inputs" and "outputs" as shapes, "file", "line", and
    "error", the text of the exception at the call that raised it, else null. An edge is [from, to].
    """
    shown = shown_calls(observation)
    calls = observation.calls
    failed = shown[observation.failed] if observation.failed is not None else None
    nodes = [
        {
            "id": call.id, "path": call.path, "name": call.name, "op": call.op, "kind": call.kind,
            "parent": call.parent, "call": call.call or None,
            "inputs": [list(one.shape) for one in call.inputs], "outputs": [list(one.shape) for one in call.outputs],
            "dtypes": [one.dtype for one in call.outputs], "settings": list(call.settings),
            "parameters": list(call.parameters), "value": call.value or None,
            "file": call.file or None, "line": call.line or None, "in_place": call.written, "view": call.view,
            "error": observation.error if call.id == failed else None,
        }
        for call in calls if shown[call.id] == call.id
    ]  # fmt: skip
    edges = dict.fromkeys((shown[flow.source], shown[flow.target]) for flow in observation.flows)
    return {
        "name": observation.name,
        "nodes": nodes,
        "edges": [[source, target] for source, target in edges if source != target],
        "failed": failed,
        "error": observation.error or None,
        "remarks": list(observation.remarks),
    }


def shown_calls(observation: Observation) -> list[int]:
    """Return for each call the one that stands for it: itself, or the outermost layer of torch's that hides it."""
    calls, children = observation.calls, observation.children
    hiding = {
        call.id for call in calls
        if call.is_layer and hides_inside(call, (calls[one] for one in children.get(call.id, ())))
    }  # fmt: skip
    found: list[int] = []
    for call in calls:
        if call.parent is not None and found[call.parent] != call.parent:
            found.append(found[call.parent])
        elif call.parent in hiding:
            found.append(call.parent)
        else:
            found.append(call.id)
    return found


def path_to(observation: Observation, id: int) -> tuple[int, ...]:
    """Return the calls that a call ran in, outermost first, itself at the end."""
    return tuple(reversed([*above(observation, id)]))
