"""Explain backward nodes that are no plain operation: checkpoints, casts, compiled pieces, custom Functions."""

from __future__ import annotations

import re

from app.autograd.tape import Tape, TapeNode
from app.util.language import marked, tr

_OWN = re.compile(r"^(?P<name>\w+?)Backward$")  # torch's own names end in a number

_BY_NAME = {
    "CompiledFunctionBackward": marked(
        "torch.compile creates one node for everything between two graph breaks. The layers and lines of its "
        "operations are not visible, and the compiler chose the tensors it saves. Capture without compile to "
        "look inside."
    ),
    "CheckpointFunctionBackward": marked(
        "A reentrant checkpoint: one opaque node. Backward recomputes this part's forward pass, builds its "
        "graph then and runs it. The parameters inside get their gradients, though no edge leads to them "
        "here. use_reentrant=False shows its nodes."
    ),
    "ToCopyBackward0": marked(
        "A cast to another dtype or device, as autocast and .to() make them. Backward casts the gradient back "
        "to the dtype that came in."
    ),
    "CopySlices": marked(
        "An in-place write into a view: torch rewrote the graph of its base tensor and hides the operation "
        "that wrote."
    ),
    "NotImplemented": marked(
        "This operation has no derivative. Backward raises an error here."
    ),
    "Error": marked("Backward raises an error here."),
    "UndefinedGradBackward": marked(
        "This output was not differentiable, or nothing flows back to it."
    ),
}


SECOND_ORDER = marked(
    "Second order: backward starts at the square of the norm of the loss's gradient by all parameters, so "
    "the gradient of a parameter is that of the square, not of the norm."
)


def notes_of(tape: Tape, node: TapeNode) -> tuple[str, ...]:
    """Explain a node of the tape; empty for an ordinary operation."""
    return tuple(_notes(tape, node))


def _notes(tape: Tape, node: TapeNode) -> list[str]:
    notes = []
    if node.order > 1:
        label = tape.labels.get(node.node) if node.node is not None else None
        maker = label.title if label else node.layer
        whose = tr("{maker} ran backward", maker=maker) if maker else tr("backward ran")
        notes.append(
            tr(
                "A graph of second order: made while {whose} with create_graph=True. Its gradient is one of a "
                "gradient.",
                whose=whose,
            )
        )
    match = _OWN.match(node.name)
    if explanation := next(
        (text for name, text in _BY_NAME.items() if node.name == name), ""
    ):
        notes.append(tr(explanation))
    elif match:
        notes.append(
            tr(
                "A custom Function, {name}: its backward is user-written Python code. Check it with gradcheck.",
                name=match["name"],
            )
        )
    if any(saved.name.startswith("checkpoint input") for saved in node.saved):
        notes.append(
            tr(
                "Checkpointed (use_reentrant=False): of this part only the inputs are kept. Backward recomputes its "
                "forward pass when the first of its nodes unpacks a saved tensor."
            )
        )
    return notes


def notes_of_tape(tape: Tape) -> tuple[str, ...]:
    """Explain what is special about the graph as a whole."""
    notes = []
    compiled = sum(node.name == "CompiledFunctionBackward" for node in tape.nodes)
    if compiled:
        pieces = (
            tr("one node")
            if compiled == 1
            else tr(
                "{compiled} nodes, one for each piece between breaks of the graph",
                compiled=compiled,
            )
        )
        notes.append(tr("torch.compile: the network is {pieces}.", pieces=pieces))
    if any(node.order > 1 for node in tape.nodes):
        notes.append(tr(SECOND_ORDER))
    if tape.loss is None and len(tape.roots) > 1:
        notes.append(
            tr(
                "{count} outputs: backward takes a vector for each, and adds up where they meet.",
                count=len(tape.roots),
            )
        )
    return tuple(notes)
