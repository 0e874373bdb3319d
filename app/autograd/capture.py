"""One forward pass, looked at. `capture` lets go of it: a `Tape` stays, and nothing of the graph is alive any more.
`hold` keeps the graph, for as long as it is played."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace as with_values

from app.autograd.forward_modes import PLAIN, SecondOrder, Special, device_of
from app.autograd.layers import OriginRecorder
from app.autograd.memory import SavedReader, StorageTable, saved_values
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import Label, Tape, TapeEdge, TapeNode
from app.autograd.walk import LEAF_SEQUENCE, execution_order, is_accumulate, short_name, walk
from app.source import layer_files
from app.source.compiled import make_module
from app.source.generated import Source
from app.util import gc_pause, rng
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import Tensor, nn


class CaptureError(RuntimeError):
    """A graph could not be captured; the text says why and what to do."""


class NoGraph(CaptureError):
    """The forward pass ran, but nothing in it requires a gradient."""


class ForwardFailed(CaptureError):
    """The net or its loss raised. `node` and `line` tell where in the drawing and in the text, if there."""

    def __init__(self, message: str, node: str | None, line: int | None, traceback_text: str) -> None:
        super().__init__(message)
        self.node = node
        self.line = line
        self.traceback_text = traceback_text


class LossChoice(Protocol):
    """A loss of `torch.nn` by name, with the parameters that differ from its defaults."""

    @property
    def name(self) -> str: ...

    @property
    def params(self) -> Mapping[str, Any]: ...


def capture(
    model: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    loss: Callable[[Any, Any], Tensor] | None = None,
    target: Tensor | None = None,
    *,
    source: Source | None = None,
    train: bool = True,
    labels: Mapping[str, Label] | None = None,
) -> Tape:
    """Run `model` once on `inputs` and describe the graph below `loss(output, target)`.

    Without `loss` the graph below all outputs is taken. A net with several outputs gives its first one to the loss.
    `source` maps lines of the text to nodes of the drawing. The model is left as it was: its modes and its buffers
    (running statistics) are put back, its parameters' `.grad` is not touched.

    Raises `NoGraph` if nothing requires a gradient; what the model or the loss raises comes through.
    """
    with hold(model, inputs, loss, target, source=source, train=train, labels=labels) as graph:
        return graph.tape


def hold(
    model: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    loss: Callable[[Any, Any], Tensor] | None = None,
    target: Tensor | None = None,
    *,
    source: Source | None = None,
    train: bool = True,
    labels: Mapping[str, Label] | None = None,
    around: AbstractContextManager[object] | None = None,
    special: Special = PLAIN,
) -> LiveGraph:
    """As `capture`, but the graph is kept: `release()` it, or use it in a `with`.

    Until then the model stays in the mode it ran in (a checkpointed part computes again while backward runs) and its
    buffers as the forward left them (BatchNorm saves its running statistics, and changing them would be an in-place
    change). `around` is entered around the forward pass and the loss; `special` says what differs from a plain one.
    """
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    with ExitStack() as undo:
        undo.enter_context(as_it_was(model, train))
        undo.enter_context(special.applied(model))
        with around if around is not None else nullcontext():
            graph = _capture(model, given, loss, target, source, train, FrozenMap(labels or {}), special)
        graph.undo = undo.pop_all()
    return graph


def hold_source(
    source: Source,
    x: Tensor | tuple[Tensor, ...],
    y: Tensor | None,
    loss: LossChoice | None,
    seed: int,
    *,
    state_dict: Mapping[str, Tensor] | None = None,
    train: bool = True,
    device: str = "cpu",
    labels: Mapping[str, Label] | None = None,
    ready: Callable[[Tensor], Tensor] | None = None,
    around: AbstractContextManager[object] | None = None,
    special: Special = PLAIN,
) -> LiveGraph:
    """Compile the text, run one batch through it, describe the graph and keep it.

    The generators are borrowed for as long as it takes, so a training that runs beside it goes on as if nothing had
    happened. `state_dict` gives the weights, else they are drawn with `seed`; the forward pass draws (dropout) from
    `seed` anew, whatever was drawn for the weights. `ready` makes of the output what the loss
    takes. `around` is entered around the forward pass and the loss; `special` says what differs from a plain one.

    Raises `NoGraph`, and `ForwardFailed` with the place in the drawing for whatever the text or the loss raises.
    """
    failure: ForwardFailed
    try:
        with rng.borrowed(seed):
            model, given, function, target = made_ready(source, x, y, loss, state_dict, device, ready)
        with rng.borrowed(seed):  # anew, as for every other run of this batch: drawing the weights does not count
            return hold(
                model, given, function, target,
                source=source, train=train, labels=labels, around=around, special=special,
            )  # fmt: skip
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:  # a layer of a person's own may call sys.exit
        failure = failure_of(error, source)
    # Raised out here so that it carries no traceback whose frames would keep the tensors alive.
    raise failure


def made_ready(
    source: Source,
    x: Tensor | tuple[Tensor, ...],
    y: Tensor | None,
    loss: LossChoice | None,
    state_dict: Mapping[str, Tensor] | None,
    device: str,
    ready: Callable[[Tensor], Tensor] | None,
) -> tuple[nn.Module, tuple[Tensor, ...], Callable[[Any, Any], Tensor] | None, Tensor | None]:
    """What the text and the choices are when run: the module, its inputs, the loss and the target on one device.

    A loss that is a module already is taken as it is; one with a true attribute `whole` gets all that the net gives,
    and its target may be a dictionary of tensors.
    """
    import torch
    from torch.utils._pytree import tree_map

    model = make_module(source).to(device)
    if state_dict is not None:
        model.load_state_dict(dict(state_dict))
    given = tuple(part.to(device) for part in (x if isinstance(x, tuple) else (x,)))
    function: Callable[[Any, Any], Tensor] | None = None
    if loss is not None:
        function = (loss if isinstance(loss, torch.nn.Module) else make_loss(loss)).to(device)
    if function is not None and ready is not None:
        function = ReadyLoss(function, ready)
    return model, given, function, tree_map(lambda part: None if part is None else part.to(device), y)


@dataclass(frozen=True)
class ReadyLoss:
    """A loss of what `ready` makes of the output."""

    loss: Callable[[Any, Any], Tensor]
    ready: Callable[[Tensor], Tensor]

    def __call__(self, output: Any, target: Any) -> Tensor:
        return self.loss(self.ready(output), target)


def make_loss(choice: LossChoice) -> nn.Module:
    """The loss module that `choice` names. Raises `CaptureError` for a name that `torch.nn` has no loss for."""
    from torch.nn.modules import loss as registry

    if choice.name not in registry.__all__:
        raise CaptureError(f"torch.nn has no loss called {choice.name}. Choose another one under Training.")
    return getattr(registry, choice.name)(**choice.params)


@contextmanager
def as_it_was(model: nn.Module, train: bool) -> Iterator[None]:
    """Train or eval mode for a while; afterwards modes and buffers are as before."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    model.train(train)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _capture(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    loss: Callable[[Any, Any], Tensor] | None,
    target: Tensor | None,
    source: Source | None,
    train: bool,
    labels: FrozenMap[str, Label],
    special: Special,
) -> LiveGraph:
    import torch

    recorder = OriginRecorder(model, source)
    started = torch._C._autograd._get_sequence_nr()
    with torch.inference_mode(False), torch.enable_grad(), special.casting(device_of(inputs)):
        with nullcontext() if special.compile else recorder:  # hooks would break a compiled graph into pieces
            output = model(*inputs)
        answered = torch._C._autograd._get_sequence_nr()
        value = None if loss is None else loss_of(loss, output, target)
    ends = special.chosen(tensors_of(output)) if value is None else [value]
    if not any(tensor.requires_grad for tensor in ends):
        raise NoGraph(_why_no_graph(model))
    second = SecondOrder(ends, model.parameters(), walk(ends)[0]) if special.second_order else None
    if second is not None:
        if second.value is None:
            raise NoGraph("The gradient of this net is the same for all weights, so it has no graph of its own.")
        ends = [second.value]
    with gc_pause.put_off():
        nodes, edges, roots = walk(ends)
        sequences = [node._sequence_nr() for node in nodes]
        order = execution_order(sequences, edges, roots)
        table = _storage_table(model, inputs, target, loss)
        reader = SavedReader(table)
        names = _parameter_names(model)
        records = [
            record_of(place, node, recorder, (started, answered), reader, names) for place, node in enumerate(nodes)
        ]
        if second is not None:
            pairs = zip(records, nodes, strict=True)
            records = [second.placed(record, node, recorder, answered) for record, node in pairs]
        tape = Tape(
            nodes=with_leaves_placed(records, edges, recorder),
            edges=tuple(edges),
            roots=roots,
            order=order,
            storages=table.storages({node: step for step, node in enumerate(order)}),
            loss=float(value.detach()) if value is not None and value.numel() == 1 else None,
            train=train,
            input_shapes=tuple(tuple(part.shape) for part in inputs),
            layers=FrozenMap({name: type(module).__name__ for name, module in model.named_modules()}),
            labels=labels,
            text=source.text if source is not None else "",
        )
    return LiveGraph(tape, nodes, ends, model, inputs, target)


def loss_of(loss: Callable[[Any, Any], Tensor], output: Any, target: Any) -> Tensor:
    """The loss of what a net answered: of its first tensor, or of all where the loss is one of the whole."""
    return loss(output if getattr(loss, "whole", False) else first_tensor(output), target)


def record_of(
    place: int,
    node: Any,
    recorder: OriginRecorder,
    span: tuple[int, int],
    reader: SavedReader,
    names: Mapping[int, tuple[str, ...]],
) -> TapeNode:
    saved, name = reader.read(node, place), short_name(node)
    if is_accumulate(node):
        return TapeNode(place, name, parameters=names.get(id(node.variable), ()), saved=saved)
    started, answered = span
    number, values = node._sequence_nr(), saved_values(node)
    if number >= answered:
        return TapeNode(place, name, in_loss=True, sequence=number - started, saved=saved, values=values)
    origin = recorder.origin(number)
    return TapeNode(
        place,
        name,
        layer=origin.layer,
        call=origin.call,
        node=origin.node,
        line=origin.line,
        sequence=number - started,
        saved=saved,
        values=values,
    )


def with_leaves_placed(
    records: list[TapeNode], edges: list[TapeEdge], recorder: OriginRecorder
) -> tuple[TapeNode, ...]:
    """Leaves have no number of their own: each goes to the first operation that used it."""
    users: dict[int, list[TapeNode]] = {}
    for edge in edges:
        if records[edge.target].is_leaf:
            users.setdefault(edge.target, []).append(records[edge.source])
    placed = list(records)
    for leaf, its_users in users.items():
        first = min(its_users, key=lambda user: LEAF_SEQUENCE if user.sequence is None else user.sequence)
        placed[leaf] = with_values(
            records[leaf],
            layer=first.layer,
            call=first.call,
            in_loss=first.in_loss,
            node=recorder.free(records[leaf].parameters) or first.node,
            line=first.line,
        )
    return tuple(placed)


def _storage_table(model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor | None, loss: Any) -> StorageTable:
    import torch

    table = StorageTable()
    table.mark(model.parameters(), "parameter")
    table.mark(model.buffers(), "buffer")
    table.mark((*inputs, *tensors_of(target)), "input")
    if isinstance(loss, torch.nn.Module):
        table.mark(loss.parameters(), "parameter")
        table.mark(loss.buffers(), "buffer")
    return table


def _parameter_names(model: nn.Module) -> dict[int, tuple[str, ...]]:
    names: dict[int, tuple[str, ...]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] = (*names.get(id(parameter), ()), name)
    return names


def tensors_of(output: Any) -> list[Tensor]:
    """Every tensor in what a net answered, in order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def first_tensor(output: Any) -> Tensor:
    """The first of them. Raises CaptureError if there is none."""
    tensors = tensors_of(output)
    if not tensors:
        raise CaptureError("The net answers with no tensor, so there is nothing to compute a loss from.")
    return tensors[0]


def _why_no_graph(model: nn.Module) -> str:
    parameters = list(model.parameters())
    if not parameters:
        reason = "it has no parameters. Add a layer that learns, such as Linear or Conv2d"
    elif not any(parameter.requires_grad for parameter in parameters):
        reason = "all its parameters have requires_grad=False. Let at least one layer learn"
    else:
        reason = "no parameter that requires a gradient reaches the output. Look for detach() or no_grad() on the way"
    return f"The forward pass of this net built no graph: {reason}."


def failure_of(error: BaseException, source: Source) -> ForwardFailed:
    """The error as text with its place in the drawing; the innermost line of the generated text counts."""
    lines = [at for frame, at in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source.filename]
    line = lines[-1] if lines else None
    node = next((found for at in reversed(lines) if (found := source.node_at(at))), None)
    own = layer_files.place(error.__traceback__)
    where = f" at line {line} of the code" if line is not None else " outside the net, in its loss or its data"
    where = f" at {own}" if own else where
    text = "".join(traceback.format_exception(error))
    return ForwardFailed(f"{type(error).__name__}{where}: {error}", node, line, text)
