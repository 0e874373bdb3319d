"""Compare a gradient of a captured batch with finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.engine.requests.gradcheck import GradcheckRequest, LayerCall, NodeOperation
from app.engine.tasks.capture import batch_of

if TYPE_CHECKING:
    from app.autograd.gradcheck.report import GradcheckReport


def check(request: GradcheckRequest, tell: Callable[[str], None], cancelled: Callable[[], bool]) -> GradcheckReport:
    """Check what is asked for. Raises as `batch_of`, and CaptureError where a node is not one of this graph."""
    from app.autograd.errors import CaptureError
    from app.autograd.gradcheck.gradcheck import check_layer, check_net, check_node

    tell(f"Checking {request.title} with finite differences…")
    batch, what = batch_of(request.batch), request.what
    tape = batch.capture()  # where the forward pass fails, it says so with its place
    if isinstance(what, LayerCall):
        return check_layer(batch, what.path, call=what.call, cancelled=cancelled)
    if not isinstance(what, NodeOperation):
        return check_net(batch, cancelled=cancelled)
    if tuple(node.name for node in tape.nodes) != what.names:
        raise CaptureError(
            "This node cannot be run by itself: the graph was captured with checkpoint, compile or create_graph, or "
            "the net runs other operations on few samples. Capture without options, or check the whole net."
        )
    return check_node(batch, tape, tape.nodes[what.number], cancelled=cancelled)
