"""Compare a gradient of a captured batch with finite differences."""

from __future__ import annotations

from functools import partial

from app.autograd.errors import CaptureError
from app.engine.server import Context, handles
from app.engine.tasks.capture import batch_of
from app.engine.tasks.findings import stopped
from app.features.gradcheck.compute.gradcheck import check_layer, check_net, check_node
from app.features.gradcheck.values import (
    GradcheckReport,
    GradcheckRequest,
    LayerCall,
    NodeOperation,
)


@handles(GradcheckRequest)
def check(request: GradcheckRequest, context: Context) -> GradcheckReport:
    """Run the requested check. Raises as `batch_of`, and CaptureError if a node is not in this graph."""
    context.progress(f"Checking {request.title} with finite differences…")
    batch, target, cancelled = (
        batch_of(request.batch),
        request.what,
        partial(stopped, context),
    )
    tape = batch.capture()  # raises with the source location if the forward pass fails
    if isinstance(target, LayerCall):
        return check_layer(batch, target.path, call=target.call, cancelled=cancelled)
    if not isinstance(target, NodeOperation):
        return check_net(batch, cancelled=cancelled)
    if tuple(node.name for node in tape.nodes) != target.names:
        raise CaptureError(
            "This node cannot be run separately: the graph was captured with checkpoint, compile or create_graph, or "
            "the net runs other operations on few samples. Capture without options, or check the whole net."
        )
    return check_node(batch, tape, tape.nodes[target.number], cancelled=cancelled)
