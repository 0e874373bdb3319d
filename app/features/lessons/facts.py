"""What goals can be about: values of the net, the settings, the run, the tape and what was done. A closed list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from app.builder.graph import Graph
from app.project.project import Project
from app.util.language import marked, tr

Value = float | str


class RunFigures(Struct, frozen=True):
    """The newest run: how it ended, and its figures after its last epoch.

    `first_loss` is that of the first step, `best_epoch` the one of the lowest validation loss.
    """

    ended: str = ""
    epochs: int = 0
    steps: int = 0
    train_loss: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    processes: int = 1
    first_loss: float | None = None
    best_epoch: int | None = None


class TapeFigures(Struct, frozen=True):
    """The captured graph: its nodes, how many of each name, what they hold for backward (tensors, bytes), whether it is
    of "train" or "eval" mode, how much of it was played (0 to 1), and norms that arrived at parameters."""

    nodes: int = 0
    leaves: int = 0
    saved: int = 0
    held: int = 0
    mode: str = ""
    names: Mapping[str, int] = {}
    played: float = 0.0
    grads: Mapping[str, float] = {}


class SnippetFigures(Struct, frozen=True):
    """The newest snippet that ran: its name, the tensors by name, the kind of its error."""

    name: str = ""
    error: str = ""
    values: Mapping[str, Mapping[str, Value]] = {}


class Situation(Struct, frozen=True):
    """What is known of a student's work. None is what is not known, which meets no goal.

    `measured` are the values that a feature measured, by its name.
    """

    project: Project | None = None
    errors: int | None = None
    parameters: int | None = None
    trainable: int | None = None
    shapes: Mapping[str, str] = {}
    run: RunFigures | None = None
    runs: int = 0
    tape: TapeFigures | None = None
    snippet: SnippetFigures | None = None
    findings: Mapping[str, int] | None = None
    measured: Mapping[str, Mapping[str, Value]] = {}
    pages: frozenset[str] = frozenset()


class Fact(Struct, frozen=True):
    """One fact. `goal` is the sentence of a goal about it; `takes` whether it has an argument, None for either; `shown`
    how the argument is called in the sentence."""

    read: Callable[[Situation, str], Value | None]
    goal: str
    doc: str
    takes: bool | None = False
    shown: Callable[[str], str] = str


def value_of(fact: str, argument: str, situation: Situation) -> Value | None:
    """Return the value of a fact, None if it is not known."""
    return FACTS[fact].read(situation, argument)


def _graph(situation: Situation) -> Graph | None:
    return situation.project.graph if situation.project is not None else None


def _layers(situation: Situation, op: str) -> Value | None:
    graph = _graph(situation)
    if graph is None:
        return None
    ops = [node.op for node in graph.nodes.values() if not node.muted]
    return float(
        sum(each == op for each in ops)
        if op
        else sum(each.startswith("nn.") for each in ops)
    )


def _chain(situation: Situation, ops: str) -> Value | None:
    """Return 1 where nodes of these ops feed one another in this order, else 0."""
    graph = _graph(situation)
    if graph is None:
        return None
    names = ops.split()
    ends = {key for key, node in graph.nodes.items() if node.op == names[0]}
    for name in names[1:]:
        ends = {
            edge.target
            for key in ends
            for edge in graph.out_of(key)
            if graph.nodes[edge.target].op == name
        }
    return float(bool(ends))


def _param(situation: Situation, path: str) -> Value | None:
    """Return a parameter of a node: `conv1.kernel_size`."""
    graph = _graph(situation)
    name, _, param = path.rpartition(".")
    if graph is None:
        return None
    node = next((each for each in graph.nodes.values() if each.name == name), None)
    return _as_value(node.params.get(param)) if node is not None else None


def _frozen(situation: Situation, _argument: str) -> Value | None:
    graph = _graph(situation)
    return (
        None
        if graph is None
        else float(sum(node.frozen for node in graph.nodes.values()))
    )


def _setting(situation: Situation, name: str) -> Value | None:
    """Return a setting of the run; `lr` and others that the optimizer has are looked up there."""
    if situation.project is None:
        return None
    training = situation.project.training
    if name in ("optimizer", "loss"):
        return str(getattr(training, name).name)
    if name == "schedule":
        return (
            training.schedule.choice.name if training.schedule is not None else "none"
        )
    if hasattr(training, name):
        return _as_value(getattr(training, name))
    return _as_value(training.optimizer.params.get(name))


def _as_value(value: Any) -> Value | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return float(value) if isinstance(value, bool | int | float) else str(value)


def _of_run(name: str) -> Callable[[Situation, str], Value | None]:
    def read(situation: Situation, _argument: str) -> Value | None:
        return (
            None if situation.run is None else _as_value(getattr(situation.run, name))
        )

    return read


def _of_tape(name: str) -> Callable[[Situation, str], Value | None]:
    def read(situation: Situation, _argument: str) -> Value | None:
        return (
            None if situation.tape is None else _as_value(getattr(situation.tape, name))
        )

    return read


def _tensor(situation: Situation, path: str) -> Value | None:
    """Return what a snippet's tensor is: `w.grad`, `y.is_leaf`, `x.version`."""
    if situation.snippet is None:
        return None
    name, _, what = path.rpartition(".")
    return situation.snippet.values.get(name, {}).get(what)


def _finding(situation: Situation, kind: str) -> Value | None:
    return (
        None if situation.findings is None else float(situation.findings.get(kind, 0))
    )


def _measured(name: str) -> Callable[[Situation, str], Value | None]:
    return lambda situation, value: situation.measured.get(name, {}).get(value or name)


def _known(name: str) -> Callable[[Situation, str], Value | None]:
    return lambda situation, _argument: _as_value(getattr(situation, name))


FINDINGS = {
    "none": marked(".grad that stays None"),
    "zero": marked("gradient that is exactly zero"),
    "non-finite": marked("NaN or Inf"),
    "vanishes": marked("vanishing gradient"),
    "explodes": marked("exploding gradient"),
    "dead": marked("dead units"),
    "in place": marked("in-place change that breaks backward"),
}

FACTS: dict[str, Fact] = {
    "layers": Fact(
        _layers,
        "The net has {wanted} {argument}",
        "layers nn.ReLU >= 2: the nodes of an op",
        None,
    ),
    "chain": Fact(
        _chain, "{argument} follow one another", "chain nn.Conv2d nn.ReLU = yes", True
    ),
    "param": Fact(
        _param, "{argument} is {wanted}", "param conv1.kernel_size = 5", True
    ),
    "frozen": Fact(
        _frozen, "Frozen nodes: {wanted}", "frozen >= 1: nodes without gradients"
    ),
    "errors": Fact(
        _known("errors"),
        "The net has {wanted} errors",
        "errors = 0: problems that prevent a run",
    ),
    "parameters": Fact(
        _known("parameters"), "The net has {wanted} parameters", "parameters <= 50000"
    ),
    "trainable": Fact(
        _known("trainable"), "Trained parameters: {wanted}", "trainable <= 5000"
    ),
    "shape": Fact(
        lambda situation, name: situation.shapes.get(name),
        "{argument} returns {wanted} a sample",
        "shape conv1 = 10 x 24 x 24: the output of a node, without the batch",
        True,
    ),
    "setting": Fact(
        _setting,
        "{argument} is {wanted}",
        "setting lr <= 0.01, setting optimizer = SGD",
        True,
    ),
    "data": Fact(
        lambda situation, _argument: (
            situation.project.data.source if situation.project is not None else None
        ),
        "The data are {wanted}",
        "data = sklearn.digits",
    ),
    "runs": Fact(
        _known("runs"),
        "Runs that have ended: {wanted}",
        "runs >= 2: since the lesson began",
    ),
    "epochs": Fact(
        _of_run("epochs"),
        "A run has trained for {wanted} epochs",
        "epochs >= 3: of the newest run",
    ),
    "ended": Fact(
        _of_run("ended"),
        "The newest run has ended: {wanted}",
        "ended = failed; done, stopped",
    ),
    "processes": Fact(
        _of_run("processes"),
        "A run was split between {wanted} processes",
        "processes >= 2: of the newest run",
    ),
    "first_loss": Fact(
        _of_run("first_loss"),
        "The loss of the first step is {wanted}",
        "first_loss <= 3: before anything was learned",
    ),
    "best_epoch": Fact(
        _of_run("best_epoch"),
        "The validation loss is lowest after epoch {wanted}",
        "best_epoch <= 10: the epoch of the lowest validation loss",
    ),
    "train_loss": Fact(
        _of_run("train_loss"), "The training loss is {wanted}", "train_loss <= 0.5"
    ),
    "val_loss": Fact(
        _of_run("val_loss"), "The validation loss is {wanted}", "val_loss <= 0.5"
    ),
    "val_accuracy": Fact(
        _of_run("val_accuracy"),
        "The validation accuracy is {wanted}",
        "val_accuracy >= 90 %",
    ),
    "captured": Fact(
        lambda situation, _argument: float(situation.tape is not None),
        "One batch is captured",
        "captured = yes: there is a tape",
    ),
    "tape_nodes": Fact(
        _of_tape("nodes"), "The tape has {wanted} nodes", "tape_nodes >= 5"
    ),
    "tape_leaves": Fact(
        _of_tape("leaves"),
        "The tape has {wanted} leaves",
        "tape_leaves = 4: AccumulateGrad nodes",
    ),
    "tape_mode": Fact(
        _of_tape("mode"),
        "A batch is captured in {wanted} mode",
        "tape_mode = eval; train",
    ),
    "on_tape": Fact(
        lambda situation, name: (
            None if situation.tape is None else float(situation.tape.names.get(name, 0))
        ),
        "The tape has {wanted} {argument}",
        "on_tape AddmmBackward0 = 3: nodes of this name",
        True,
    ),
    "held": Fact(
        _of_tape("held"),
        "The tape keeps {wanted} bytes of activations",
        "held <= 100000: bytes that only backward needs",
    ),
    "played": Fact(
        _of_tape("played"),
        "The tape is played through",
        "played = 1: the share of backward that ran",
    ),
    "grad_norm": Fact(
        lambda situation, name: (
            None if situation.tape is None else situation.tape.grads.get(name)
        ),
        "The gradient of {argument} has the norm {wanted}",
        "grad_norm fc1.weight > 0: after playing",
        True,
    ),
    "snippet": Fact(
        lambda situation, _argument: (
            situation.snippet.name if situation.snippet is not None else None
        ),
        "The snippet {wanted} has run",
        "snippet = 10-spreading.py",
    ),
    "snippet_error": Fact(
        lambda situation, _argument: (
            situation.snippet.error if situation.snippet is not None else None
        ),
        "The snippet raises {wanted}",
        'snippet_error = RuntimeError; none is ""',
    ),
    "tensor": Fact(
        _tensor,
        "{argument} is {wanted}",
        "tensor w.grad = 6; is_leaf, grad_fn, version",
        True,
    ),
    "finding": Fact(
        _finding,
        "Findings: {wanted} × {argument}",
        "finding vanishes = 0: after Findings ran",
        True,
        lambda kind: tr(FINDINGS.get(kind, kind)),
    ),
    "gradcheck": Fact(
        _measured("gradcheck"),
        "gradcheck has passed",
        "gradcheck = yes: of what was checked last, on the page Findings",
    ),
    "memory": Fact(
        _measured("memory"),
        "The memory of a step for {argument} is {wanted} bytes",
        "memory activations >= 1000: parameters, gradients, optimizer, activations, total",
        True,
    ),
    "page": Fact(
        lambda situation, key: float(key in situation.pages),
        "The page {argument} is open",
        "page code = yes: it was in front",
        True,
        str.capitalize,
    ),
}

# Facts that are measured when a hand-in is graded: on a run that is trained, on a tape that is captured, on a step that
# is estimated. Of what else only the window sees there is the record alone; that of `ON_TAPE` can be true only of a net
# that has a tape.
OF_RUN = frozenset(
    {
        "epochs",
        "ended",
        "first_loss",
        "best_epoch",
        "train_loss",
        "val_loss",
        "val_accuracy",
    }
)
OF_TAPE = frozenset(
    {"tape_nodes", "tape_leaves", "on_tape", "held", "grad_norm", "finding"}
)
MEASURED_AGAIN = OF_TAPE | {"ended", "memory"}
ON_TAPE = frozenset({"captured", "tape_mode", "played", "gradcheck"})
OF_WINDOW = (
    MEASURED_AGAIN
    | ON_TAPE
    | {"processes", "snippet", "snippet_error", "tensor", "page", "runs"}
)
