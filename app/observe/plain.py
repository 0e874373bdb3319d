"""An observation as JSON-ready data: nodes that a picture can show, and the edges between them."""

from __future__ import annotations

from typing import Any

from app.observe.folding import hides_inside
from app.observe.observation import Observation


def to_plain(observation: Observation) -> dict[str, Any]:
    """Return `{"nodes", "edges", "failed"}`: every call but those inside torch's own layers, which take their edges.

    A node has "id", "path", "name", "op", "inputs" and "outputs" as shapes, "line" of the file that called it, and
    "error", the text of the exception at the call that raised it, else null. An edge is [from, to]; "failed" is the id
    of the node that raised, or null.
    """
    shown = shown_calls(observation)
    failed = shown[observation.failed] if observation.failed is not None else None
    nodes = [
        {
            "id": call.id,
            "path": call.path,
            "name": call.name,
            "op": call.op,
            "inputs": [list(tensor.shape) for tensor in call.inputs],
            "outputs": [list(tensor.shape) for tensor in call.outputs],
            "line": call.line or None,
            "error": observation.error if call.id == failed else None,
        }
        for call in observation.calls
        if shown[call.id] == call.id
    ]
    edges = dict.fromkeys(
        (shown[flow.source], shown[flow.target]) for flow in observation.flows
    )
    return {
        "nodes": nodes,
        "edges": [[source, other] for source, other in edges if source != other],
        "failed": failed,
    }


def shown_calls(observation: Observation) -> list[int]:
    """Return for each call the one that stands for it: itself, or the outermost layer of torch's that hides it."""
    calls, children = observation.calls, observation.children
    hiding = {
        call.id
        for call in calls
        if call.is_layer
        and hides_inside(call, (calls[child] for child in children.get(call.id, ())))
    }
    shown: list[int] = []
    for call in calls:
        if call.parent is not None and shown[call.parent] != call.parent:
            shown.append(shown[call.parent])
        elif call.parent in hiding:
            shown.append(call.parent)
        else:
            shown.append(call.id)
    return shown
