"""Explain a detached path in PyTorch's words, and suggest a fix."""

from __future__ import annotations

from app.autograd.diagnostics.results import Cut, PathStep

_WHAT = {
    "detach": "detach() returns a tensor that is not part of the graph",
    "data": ".data returns the bare values, outside the graph, and autograd does not notice",
    "item": "{op} turns the tensor into a Python number, which has no graph",
    "numpy": "{op}() turns the tensor into a NumPy array, which has no graph",
    "no_grad": "{op} runs under torch.no_grad(), so its result does not require a gradient",
    "inference_mode": "{op} runs under torch.inference_mode(), so its result can never require a gradient",
    "argmax": "{op} returns integers ({dtype}): a selection, which has no derivative",
    "comparison": "{op} returns booleans ({dtype}), which have no derivative",
    "dtype": "{op} converts it to {dtype}; only floating point and complex tensors can require a gradient",
    "custom": "the custom Function {function} computes with it but does not take it as an argument, so its backward "
    "gives it no gradient",
    "checkpoint": "a reentrant checkpoint computes this part and builds its graph only in backward",
    "no derivative": "{op} has no derivative",
}
_CURES = {
    "detach": "Remove detach() if this part is to be trained.",
    "data": "Use the tensor itself, or detach() where detaching is intended.",
    "item": "Keep the tensor: compute with it, and call {op} only to print it.",
    "numpy": "Use torch functions for this step.",
    "no_grad": "Move the line out of torch.no_grad() if this part is to be trained.",
    "inference_mode": "Run it outside torch.inference_mode() if this part is to be trained.",
    "argmax": "Use softmax, or F.gumbel_softmax where a hard choice is needed; argmax belongs after the loss.",
    "comparison": "Use a smooth step such as sigmoid, or multiply by the mask where the mask needs no gradient.",
    "dtype": "Stay in floating point until after the loss.",
    "custom": "Pass it to {function}.apply() as an argument and return its gradient in backward.",
    "checkpoint": "Use use_reentrant=False, which keeps the path and needs no input that requires a gradient.",
    "no derivative": "Replace it with an operation that has a derivative, or write a custom Function with a backward.",
}
_IN_PLACE = "{op} writes into a tensor under torch.no_grad(), so the written values have no gradient path"


def sentence_of(cut: Cut, parameter: str) -> str:
    """Say why the path of a parameter ends in this cut."""
    what = _IN_PLACE if cut.in_place and cut.kind == "no_grad" else _WHAT[cut.kind]
    return f"The gradient path of {parameter} is cut {cut.place.where}: {_filled(what, cut)}."


def cure_of(cut: Cut) -> str:
    """Say how to keep the path attached."""
    return _filled(_CURES[cut.kind], cut)


def _filled(text: str, cut: Cut) -> str:
    return text.format(op=cut.place.op, dtype=f"torch.{cut.dtype}", function=cut.function)


def end_of_way(parameter: str, last: PathStep, output: int | None) -> tuple[str, str]:
    """Say why a parameter with an unused result gets no gradient, and how to fix it."""
    if output is not None:
        said = f"The network returns it as output {output + 1}, and the loss is computed from another one."
        return f"{parameter} is not part of the loss. {said}", "Add a term for this output to the loss."
    made = f"the last that was computed from it is {last.node} {last.place.where}, and nothing uses that result"
    return f"{parameter} is not part of the loss: {made}.", "Use the result, or remove the line."
