"""Turn an exception of a run into a message: what happened, at which node, and how to fix it."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType

import torch

from app.data.sources import DataError
from app.source import layer_files, raised, switches
from app.source.generated import Source
from app.training.choices import ChoiceError
from app.training.events import Failed
from app.training.job import JobError
from app.training.surgery.values import SurgeryError
from app.training.task import GRADIENTS_OFF, OutputError


class NotFinite(ArithmeticError):
    """Raised if the loss is NaN or infinite. `node` is the node whose output was so first, if that could be found."""

    def __init__(self, message: str, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


_SHAPE_WORDS = re.compile(
    r"shape|size mismatch|must match|dimension|channels|in_features|mat1 and mat2|expected .*D|input size|target size",
    re.IGNORECASE,
)
# Batch norm cannot take the spread of one number.
_LONELY = "more than 1 value per channel"
_LONELY_CURE = "A batch has a single sample, which can happen at the end of an epoch: change batch_size by one."
_OPENED_CURE = "Choose data of the shapes that the model takes (Training, Data), or open it with other arguments."
_OPENED_LATER_CURE = (
    "The steps before it ran: its forward depends on the step, or on the number of samples, of which a last batch may "
    "have fewer (drop_last leaves it out)."
)
_SWITCHED_CURE = "Remove that line, or undo it further below in the file."
_OVERFLOW = "without overflow"
_OVERFLOW_CURE = (
    "A number of the step is too large for float32. Reduce the learning rate; the weights of the last completed step "
    "are kept."
)
# Optimizers that torch says to support one kind of gradient alone.
_SPARSE, _DENSE = (
    "does not support sparse gradients",
    "does not support dense gradients",
)
_SPARSE_CURE = (
    "An Embedding with sparse=True has sparse gradients. Choose SGD or Adagrad under Training, SparseAdam where every "
    "parameter has them, or set sparse=False."
)
_DENSE_CURE = "It is for nets whose every parameter has sparse gradients. Choose SGD or Adagrad under Training."
# As MPS, XPU and others say it.
_NO_DOUBLE = re.compile(r"(float64|fp64).*n[o']t support", re.IGNORECASE | re.DOTALL)
_NO_DOUBLE_CURE = (
    "The device does not compute in float64, which amp float16 (by torch's GradScaler) and code of the net may ask "
    "for. Choose bfloat16 for amp, keep the net and its data in float32, or train on cpu."
)
_ANOTHER = "another label"  # the message itself says what to do
_LOST_CURE = (
    "Restore the data; Runs can resume from the newest checkpoint, if there is one."
)
_MEMORY_WORDS = re.compile(
    r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE
)
_RECOMPUTE = "Blocks that are listed in recompute need less, and more time."


def failure(
    error: BaseException,
    source: Source,
    batch_size: int,
    epoch: int,
    step: int,
    *,
    kept: bool = True,
) -> Failed:
    """Build the event for `error`, raised after `step` whole steps; their weights are `kept`, or this was a trial."""
    kind = _kind(error)
    node = (
        error.node
        if isinstance(error, NotFinite)
        else node_of(error.__traceback__, source)
    )
    if isinstance(error, OutputError):
        node = _output_node(source)
    text = "".join(traceback.format_exception(error))
    if (switched := _switched(error)) and source.opened:
        cure = f"{switched} {_SWITCHED_CURE}"
    elif _LONELY in str(error):
        cure = _LONELY_CURE
    elif _SPARSE in str(error) or _DENSE in str(error):
        cure = _SPARSE_CURE if _SPARSE in str(error) else _DENSE_CURE
    elif _OVERFLOW in str(error):
        cure = _OVERFLOW_CURE
    elif _NO_DOUBLE.search(str(error)):
        cure = _NO_DOUBLE_CURE
    elif _is_lost(error):
        cure = "" if _ANOTHER in str(error) else _LOST_CURE
    elif source.opened and kind == "shape" and not isinstance(error, OutputError):
        cure = _OPENED_LATER_CURE if step > 0 else _OPENED_CURE
    else:
        cure = _cure(kind, batch_size, node, kept and step > 0)
    return Failed(
        kind, _message(error, kind, step, source), cure, text, node, epoch, step
    )


def node_of(trace: TracebackType | None, source: Source) -> str | None:
    """Return the node of the innermost traceback line in the generated source; None if there is none."""
    node = None
    for frame, line in traceback.walk_tb(trace):
        if frame.f_code.co_filename == source.filename:
            node = source.node_at(line) or node
    return node


def _output_node(source: Source) -> str | None:
    """Return the node that `forward` returns."""
    lines = source.text.splitlines()
    returns = (
        number
        for number in range(len(lines), 0, -1)
        if lines[number - 1].strip().startswith("return")
    )
    return next((node for node in map(source.node_at, returns) if node), None)


def _kind(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, NotFinite):
        return "not finite"
    if isinstance(error, DataError) or _is_lost(error):
        return "data"
    if isinstance(error, JobError | ChoiceError | SurgeryError):
        return "job"
    if isinstance(error, OutputError):
        return "shape"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "memory"
    if isinstance(error, RuntimeError) and _MEMORY_WORDS.search(text):
        return "memory"
    if isinstance(
        error, RuntimeError | ValueError | IndexError
    ) and _SHAPE_WORDS.search(text):
        return "shape"
    return "error"


def _is_lost(error: BaseException) -> bool:
    """Return whether a sample existed before the run and is gone now."""
    return type(error).__name__ == "SampleLostError"  # its module imports torch


def _switched(error: BaseException) -> str:
    """Return what the model's own file has switched, where an error can come from that; "" if nothing."""
    text = str(error)
    return (
        switches.noted()
        if text == GRADIENTS_OFF or "dtype" in text or "scalar type" in text
        else ""
    )


def _message(error: BaseException, kind: str, step: int, source: Source) -> str:
    text = str(error).strip() or type(error).__name__
    if kind in {"data", "job", "not finite"} or isinstance(error, OutputError):
        return text
    where = f"Step {step + 1}" if step else "The first step"
    if kind == "memory":
        return f"{where} {raised.shortage(text)}."
    location = layer_files.error_location(error.__traceback__) or _own_place(
        error.__traceback__, source
    )
    return f"{where} failed with {type(error).__name__}: {text}" + (
        f" ({location})" if location else ""
    )


def _own_place(trace: TracebackType | None, source: Source) -> str:
    """Return the innermost line in the code of an opened model, such as "line 24 of net.py"; "" if there is none."""
    if source.own is None or not source.own.folder:
        return ""
    location = ""
    for frame, line in traceback.walk_tb(trace):
        file = Path(frame.f_code.co_filename)
        if (
            Path(source.own.folder) in file.parents
            and "site-packages" not in file.parts
        ):
            location = f"line {line} of {file.name}"
    return location


def _cure(kind: str, batch_size: int, node: str | None, keeps_weights: bool) -> str:
    if kind == "memory":
        if batch_size > 1:
            return (
                f"Reduce batch_size: it is {batch_size}, try {batch_size // 2}; twice the accumulate keeps the steps "
                f"as they are. {_RECOMPUTE}"
            )
        return f"batch_size is already 1: make the network smaller, or choose another device. {_RECOMPUTE}"
    if kind == "shape" and node:
        return "Check the shapes on the wires of the marked node, and change its parameters or the nodes before it."
    return {
        "shape": "Compare the shape of the network's output with the shape that the loss expects.",
        "not finite": "Reduce the learning rate, or look for a division, log or exp that overflows.",
        "data": "",
        "job": "",
        "error": "The weights of the last completed step are kept."
        if keeps_weights
        else "",
    }[kind]
