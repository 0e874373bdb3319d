"""Run one forward pass and describe its autograd graph as plain data (`Tape`), with the live graph for playback."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from msgspec import Struct
from msgspec.structs import replace as with_values
from torch.utils._pytree import tree_leaves

from app.autograd.errors import CaptureError, ForwardError
from app.autograd.layers import OriginRecorder
from app.autograd.memory import SavedReader, StorageTable, saved_values
from app.autograd.tape import ACCUMULATE, TapeEdge, TapeNode
from app.autograd.walk import LEAF_SEQUENCE, short_name
from app.source import layer_files
from app.util import module_tree, user_frames

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.source.generated import Source

T = TypeVar("T")


def failing_forward(
    source: Source | None, run: Callable[[], T], own_lines: bool = False
) -> T:
    """Call `run`; raise ForwardError with the position in `source` if the net or the loss raises, or in the files that
    it is made of if `own_lines`.

    CaptureError passes through; without either every error does.
    """
    try:
        return run()
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:  # a custom layer may call sys.exit
        if source is None and not own_lines:
            raise
        failure = (
            failure_of(error, source)
            if source is not None
            else _failure_in_files(error)
        )
    # Raised out here so that it carries no traceback whose frames would keep the tensors alive.
    raise failure


class ReadyLoss(Struct, frozen=True):
    """A loss of what `ready` makes of output and target."""

    loss: Callable[[Any, Any], Tensor]
    ready: Callable[[Any, Any], tuple[Any, Any]]

    def __call__(self, output: Any, target: Any) -> Tensor:
        return self.loss(*self.ready(output, target))


def loss_of(loss: Callable[[Any, Any], Any], output: Any, target: Any) -> Any:
    """Compute the loss of a net's output: of its first tensor, or of all if the loss has `whole`. None where the loss
    is the model's own (`OwnLoss`), and it has none."""
    return loss(
        output if getattr(loss, "whole", False) else first_tensor(output), target
    )


class OwnLoss:
    """The loss that a model computes itself: its output if that is a scalar, the output's `loss`, or the only scalar
    in it that requires a gradient. None where there is no such thing.

    The first output decides which of its tensors that is: where inputs require gradients later, more of them do.
    """

    whole = True

    def __init__(self) -> None:
        self.place: int | None = (
            None  # among the output's tensors, -1 for none; None before the first output
        )

    def __call__(self, output: Any, target: Any = None) -> Tensor | None:
        tensors = tensors_of(output)
        if self.place is None:
            self.place = self._place(output, tensors)
        return tensors[self.place] if 0 <= self.place < len(tensors) else None

    def _place(self, output: Any, tensors: list[Tensor]) -> int:
        named = (
            output.get("loss")
            if isinstance(output, Mapping)
            else getattr(output, "loss", None)
        )
        ends = [
            index
            for index, tensor in enumerate(tensors)
            if tensor.requires_grad and not tensor.is_complex()
        ]
        loss_index = next(
            (index for index in ends if tensors[index] is named and named.numel() == 1),
            None,
        )
        if loss_index is not None:
            return loss_index
        scalars = [index for index in ends if tensors[index].ndim == 0]
        return scalars[0] if len(scalars) == 1 else -1


def record_of(
    index: int,
    node: Any,
    recorder: OriginRecorder,
    span: tuple[int, int],
    reader: SavedReader,
    names: Mapping[int, tuple[str, ...]],
) -> TapeNode:
    saved, name = reader.read(node, index), short_name(node)
    if name == ACCUMULATE:
        return TapeNode(
            index, name, parameters=names.get(id(node.variable), ()), saved=saved
        )
    started, answered = span
    number, values = node._sequence_nr(), saved_values(node)
    origin = recorder.origin(number)
    if number >= answered:
        return TapeNode(
            index,
            name,
            in_loss=True,
            line=origin.line,
            file=origin.file,
            sequence=number - started,
            saved=saved,
            values=values,
        )
    return TapeNode(
        index,
        name,
        layer=origin.layer,
        call=origin.call,
        node=origin.node,
        line=origin.line,
        sequence=number - started,
        saved=saved,
        values=values,
        file=origin.file,
    )


def with_leaves_placed(
    records: list[TapeNode], edges: list[TapeEdge], recorder: OriginRecorder
) -> tuple[TapeNode, ...]:
    """Give leaves, which have no sequence number, the position of the first operation that used them."""
    users: dict[int, list[TapeNode]] = {}
    for edge in edges:
        if records[edge.target].is_leaf:
            users.setdefault(edge.target, []).append(records[edge.source])
    placed = list(records)
    for leaf, its_users in users.items():
        first = min(
            its_users,
            key=lambda user: LEAF_SEQUENCE if user.sequence is None else user.sequence,
        )
        placed[leaf] = with_values(
            records[leaf],
            layer=first.layer,
            call=first.call,
            in_loss=first.in_loss,
            node=recorder.free(records[leaf].parameters) or first.node,
            line=first.line,
            file=first.file,
        )
    return tuple(placed)


def storage_table(
    model: nn.Module, inputs: Iterable[Tensor], loss: Any
) -> StorageTable:
    table = StorageTable()
    table.mark(module_tree.parameters(model), "parameter")
    table.mark(module_tree.buffers(model), "buffer")
    table.mark(inputs, "input")
    if isinstance(loss, torch.nn.Module):
        table.mark(module_tree.parameters(loss), "parameter")
        table.mark(module_tree.buffers(loss), "buffer")
    return table


def parameter_names(model: nn.Module) -> dict[int, tuple[str, ...]]:
    names: dict[int, tuple[str, ...]] = {}
    for name, parameter in module_tree.named_parameters(model, remove_duplicate=False):
        names[id(parameter)] = (*names.get(id(parameter), ()), name)
    return names


def tensors_of(output: Any) -> list[Tensor]:
    """List every tensor in a net's output or arguments, in order: of containers, mappings and dataclasses."""
    tensors: list[Tensor] = []
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            tensors.append(leaf)
        elif isinstance(
            leaf, Mapping
        ):  # a Mapping that is not registered as a pytree node
            tensors += tensors_of(dict(leaf))
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            tensors += tensors_of(
                [getattr(leaf, field.name, None) for field in fields(leaf)]
            )
    return tensors


def first_tensor(output: Any) -> Tensor:
    """Return the first tensor in a net's output. Raises CaptureError if there is none."""
    tensors = tensors_of(output)
    if not tensors:
        raise CaptureError(
            "The model returns no tensor, so there is no loss to compute."
        )
    return tensors[0]


def why_no_graph(model: nn.Module) -> str:
    parameters = list(module_tree.parameters(model))
    if not parameters:
        reason = (
            "it has no parameters. Add a layer that learns, such as Linear or Conv2d"
        )
    elif not any(parameter.requires_grad for parameter in parameters):
        reason = "all its parameters have requires_grad=False. Set it to True for at least one layer"
    else:
        reason = "no parameter that requires a gradient reaches the output. Look for detach() or no_grad() on the way"
    return f"The forward pass of this network built no graph: {reason}."


def _failure_in_files(error: BaseException) -> ForwardError:
    """Describe an error with the innermost line of the files that a model is made of."""
    file, line = user_frames.location_of_error(error.__traceback__)
    where = f" at line {line} of {PurePath(file).name}" if line else ""
    text = "".join(traceback.format_exception(error))
    return ForwardError(
        f"{type(error).__name__}{where}: {error}", None, line or None, text
    )


def failure_of(error: BaseException, source: Source) -> ForwardError:
    """Describe an error with its position in the drawing: the innermost line of the generated text."""
    lines = [
        at
        for frame, at in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == source.filename
    ]
    line = lines[-1] if lines else None
    node = next(
        (drawn_node for at in reversed(lines) if (drawn_node := source.node_at(at))),
        None,
    )
    error_location = layer_files.error_location(error.__traceback__)
    where = (
        f" at line {line} of the code"
        if line is not None
        else " outside the network, in its loss or data"
    )
    where = f" at {error_location}" if error_location else where
    text = "".join(traceback.format_exception(error))
    return ForwardError(f"{type(error).__name__}{where}: {error}", node, line, text)
