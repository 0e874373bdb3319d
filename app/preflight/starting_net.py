"""A first net for chosen data: an Input of their shape, a small net of their kind, and the loss and metrics for it."""

from __future__ import annotations

import math

from msgspec.structs import replace

from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.builder.graph import Graph, Node
from app.builder.literals import DType
from app.data.sample_counts import training_count
from app.data.spec import CLASSES, TOKENS, VALUES, FieldInfo, SourceSpec, TargetInfo
from app.preflight.opened import known_source
from app.preflight.setting_checks import target_scale
from app.project.project import Project
from app.project.sketch import Sketch
from app.training import metrics
from app.training.config import Choice, OutputLoss, TrainingConfig
from app.training.setup.losses_in_words import usual_loss
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.util.language import marked, tr, trn

WIDTH = 64  # of hidden layers and embeddings
# Steps that a first run on few samples has at least: those on a table are short.
LEAST_STEPS, TABLE_STEPS, MOST_EPOCHS = 200, 500, 200
TABLE_RATE = 0.01  # Adam's, for standardised columns
MOST_STAGES = 4  # of a convolution and a pooling


def fields_of(source: SourceSpec) -> tuple[FieldInfo, ...]:
    """Return the inputs of a sample; an only one has no name."""
    return source.inputs or (FieldInfo("", source.shape, source.dtype),)


def is_bare(graph: Graph) -> bool:
    """Return whether nothing is built yet: no nodes but Inputs, and no wires."""
    return not graph.edges and all(node.op == "input" for node in graph.nodes.values())


def fitted(node: Node, field: FieldInfo) -> Node:
    """Return an Input that takes a field of the data."""
    takes = {"shape": field.shape, "dtype": DType(field.dtype)}
    return replace(node, params=node.params.update(takes))


def with_new_input(project: Project, node: str) -> Project:
    """Return the project whose new Input takes the first field of the data that no other Input is called; one whose
    shape was typed keeps it."""
    source = known_source(project.data)
    new = project.graph.nodes[node]
    if (
        source is None
        or new.op != "input"
        or new.params != catalog()["input"].starting_params()
    ):
        return project
    names = {other.name for other in project.graph.nodes.values()}
    free = [field for field in fields_of(source) if field.name not in names]
    field = (free or list(fields_of(source)))[0]
    new = fitted(new, field)
    if field.name.isidentifier() and field in free:
        new = replace(new, name=field.name)
    return edits.changed(project, project.graph.with_node(new))


def with_fitting_input(project: Project) -> Project:
    """Return the project whose only node, an Input, takes the data; unchanged if anything else is built."""
    source = known_source(project.data)
    if source is None or not is_bare(project.graph) or len(project.graph.nodes) != 1:
        return project
    (node,) = project.graph.nodes.values()
    new = fitted(node, fields_of(source)[0])
    if new == node:
        return project
    return edits.changed(project, project.graph.with_node(new))


PERCEPTRON = marked("A multilayer perceptron fits.")
CNN, CNN_1D = marked("A small CNN fits."), marked("A 1-D CNN fits.")
CNN_OF_ITS_SIZE = marked("A small CNN that keeps the size fits.")
EMBEDDING = marked("An embedding and a transformer layer fit.")


def kind_of(source: SourceSpec) -> str:
    """Return the sentence that names a first net for these data, "" if there is none.

    >>> from app.data.sources import SOURCES
    >>> kind_of(SOURCES["made.moons"]), kind_of(SOURCES["sklearn.digits"])
    ('A multilayer perceptron fits.', 'A small CNN fits.')
    """
    fields, target = fields_of(source), source.known_targets[0]
    if not all(field.shape for field in fields):
        return ""
    if target.task == TOKENS:
        text = len(fields) == 1 and fields[0].shape == target.label_shape
        ids = text and len(fields[0].shape) == 1 and fields[0].dtype == "int64"
        return EMBEDDING if ids else ""
    if not all(map(_can_be_embedded, fields)):
        return ""
    if len(fields) > 1 or not fields[0].dtype.startswith("float"):
        return PERCEPTRON
    shape = fields[0].shape
    if len(target.label_shape) > 1:
        picture = len(shape) == 3 and shape[1:] == target.label_shape[1:]
        return CNN_OF_ITS_SIZE if picture else ""
    return {3: CNN, 2: CNN_1D}.get(len(shape), PERCEPTRON)


def _can_be_embedded(field: FieldInfo) -> bool:
    return field.dtype.startswith("float") or bool(field.symbols)


def offer(project: Project) -> str:
    """Return what is offered for the data of a project where nothing is built yet, "" where nothing is."""
    source = known_source(project.data)
    if source is None or project.opened is not None or not is_bare(project.graph):
        return ""
    if not (kind := kind_of(source)):
        return ""
    shapes = ", ".join(
        f"{field.name} {_size_of(field.shape)}".strip() for field in fields_of(source)
    )
    target = source.known_targets[0]
    count = sum(max(each.labels_per_sample, 1) for each in source.known_targets)
    wanted = (
        trn("{count} class", "{count} classes", len(target.classes))
        if target.task == CLASSES
        else tr("the next character at each place")
        if target.task == TOKENS
        else trn("{count} value to predict", "{count} values to predict", count)
    )
    samples = tr(
        "{data}: samples of {sizes}, {wanted}.",
        data=source.label,
        sizes=shapes,
        wanted=wanted,
    )
    return f"{samples} {tr(kind)}"


def _size_of(shape: tuple[int, ...]) -> str:
    """
    >>> _size_of((7,)), _size_of((3, 32, 32))
    ('7 values', '3×32×32')
    """
    if len(shape) != 1:
        return shape_text(shape)
    return trn("{count} value", "{count} values", shape[0])


def start(project: Project) -> Project:
    """Return the project with a net, a loss and metrics for its data, if `offer` offers one.

    Nodes have no positions. Targets far from 1 are standardised, and a first run on a small table gets enough steps.
    """
    source = known_source(project.data)
    if source is None or not offer(project):
        return project
    net = Sketch(replace(project, graph=Graph(), positions=FrozenMap()))
    drawn = [node.name for node in project.graph.nodes.values()]
    fields = fields_of(source)
    names = [field.name or "input" for field in fields]
    inputs = [
        net.add(
            "input",
            name,
            shape=field.shape,
            dtype=DType(field.dtype),
        )
        for name, field in zip(
            drawn if len(drawn) == len(fields) == 1 else names, fields, strict=True
        )
    ]
    _draw(net, inputs, source)
    trained = net.project
    for problem in target_scale(trained, source):
        for cure in problem.cures:
            trained = replace(trained, data=replace(trained.data, **cure.data))
    return replace(trained, training=_training(trained, source))


def _draw(net: Sketch, inputs: list[str], source: SourceSpec) -> None:
    fields, targets = fields_of(source), source.known_targets
    if targets[0].task == TOKENS:
        _transformer(net, inputs[0], source)
        return
    if len(targets[0].label_shape) > 1:
        _same_size(net, targets[0].label_shape[0])
        net.then("output", "output")
        return
    if len(fields) > 1 or fields[0].symbols:
        branches = [
            _branch(net, node, field)
            for node, field in zip(inputs, fields, strict=True)
        ]
        if len(branches) > 1:
            net.add("torch.cat", "cat", *branches, dim=1)
        _hidden(net, 1)
    elif len(fields[0].shape) in (2, 3):
        _convolutions(net, fields[0].shape)
    else:
        if len(fields[0].shape) != 1:
            net.then("nn.Flatten", "flatten")
        _hidden(net, 2)
    trunk = net.last
    for target in targets:
        name = target.name if len(targets) > 1 else ""
        count = (
            len(target.classes) if target.task == CLASSES else target.labels_per_sample
        )
        net.add(
            "nn.Linear", f"head_{name}" if name else "head", trunk, out_features=count
        )
        net.then("output", name if name.isidentifier() else "output")


def _hidden(net: Sketch, layers: int) -> None:
    for number in range(1, layers + 1):
        net.then("nn.Linear", f"fc{number}", out_features=WIDTH)
        net.then("nn.ReLU", f"relu{number}")


def _branch(net: Sketch, node: str, field: FieldInfo) -> str:
    """Draw what turns one of several inputs into a row of features; return its last node."""
    net.last, name = node, field.name or "input"
    if field.symbols:
        rows = len(field.symbols)
        net.then(
            "nn.Embedding",
            f"embed_{name}",
            num_embeddings=rows,
            embedding_dim=min(WIDTH, rows),
        )
    if len(field.shape) + bool(field.symbols) > 1:
        net.then("nn.Flatten", f"flatten_{name}")
    net.then("nn.Linear", f"fc_{name}", out_features=WIDTH // 2)
    return net.then("nn.ReLU", f"relu_{name}")


def _convolutions(net: Sketch, shape: tuple[int, ...]) -> None:
    """Draw stages of a convolution and a pooling, as many as the size has room for, and a row of features."""
    rank, side, number = len(shape) - 1, min(shape[1:]), 0
    while number < MOST_STAGES and (side >= 4 or not number):
        number += 1
        channels = min(16 * 2 ** (number - 1), WIDTH)
        net.then(
            f"nn.Conv{rank}d",
            f"conv{number}",
            out_channels=channels,
            kernel_size=3,
            padding=1,
        )
        net.then("nn.ReLU", f"relu{number}")
        if side >= 2:
            net.then(f"nn.MaxPool{rank}d", f"pool{number}", kernel_size=2)
            side //= 2
    if side > 4:
        net.then(f"nn.AdaptiveAvgPool{rank}d", "avgpool", output_size=4)
    net.then("nn.Flatten", "flatten")


def _same_size(net: Sketch, channels: int) -> None:
    for number in (1, 2):
        net.then(
            "nn.Conv2d", f"conv{number}", out_channels=16, kernel_size=3, padding=1
        )
        net.then("nn.ReLU", f"relu{number}")
    net.then("nn.Conv2d", "head", out_channels=channels, kernel_size=1)


def _transformer(net: Sketch, ids: str, source: SourceSpec) -> None:
    """Draw an encoder layer that sees at each place the places before it alone: the next character is not known."""
    length = source.shape[0]
    embedded = net.add(
        "nn.Embedding",
        "embed",
        ids,
        num_embeddings=len(source.classes),
        embedding_dim=WIDTH,
    )
    places = net.add(
        "parameter", "places", shape=(length, WIDTH), fill="normal", std=0.02
    )
    placed = net.add("operator.add", "placed", embedded, places)
    net.add("buffer", "ones", shape=(length, length), fill="ones")
    net.then("torch.triu", "above", diagonal=1)
    mask = net.then("Tensor.to", "mask", dtype=DType("bool"))
    encoder = net.add(
        "nn.TransformerEncoderLayer",
        "encoder",
        placed,
        nhead=4,
        dim_feedforward=2 * WIDTH,
        dropout=0.1,
    )
    net.feed(mask, encoder, "src_mask")
    net.last = encoder
    net.then("nn.Linear", "head", out_features=len(source.classes))
    net.then("output", "output")


def _training(project: Project, source: SourceSpec) -> TrainingConfig:
    """Return the settings with loss and metrics for the data; rate and epochs only where they are the usual ones."""
    training, usual, targets = project.training, TrainingConfig(), source.known_targets
    changed = {
        "loss": usual_loss(targets[0]),
        "losses": _losses(targets),
        "metrics": _metrics(targets[0]),
        "inputs": FrozenMap(),
    }
    rows = all(len(field.shape) == 1 for field in fields_of(source))
    table = rows and source.task != TOKENS
    count = training_count(project.data, source)
    if count and training.epochs == usual.epochs:
        least = TABLE_STEPS if table else LEAST_STEPS
        epochs = math.ceil(least / math.ceil(count / training.batch_size))
        changed["epochs"] = min(max(epochs, usual.epochs), MOST_EPOCHS)
    if table and training.optimizer == usual.optimizer:
        changed["optimizer"] = Choice("Adam", FrozenMap(lr=TABLE_RATE))
    return training.changed(**changed)


def _losses(targets: tuple[TargetInfo, ...]) -> tuple[OutputLoss, ...]:
    """Return a loss for each of several targets; of one target it is the loss of the run."""
    if len(targets) == 1:
        return ()
    return tuple(
        OutputLoss(target.name, usual_loss(target), 1.0, target.name)
        for target in targets
    )


def _metrics(target: TargetInfo) -> tuple[str, ...]:
    chosen = {VALUES: ("mae", "r2"), TOKENS: ("perplexity",)}.get(target.task, ())
    plain = target.task != VALUES or not target.form
    return tuple(
        name
        for name in chosen
        if plain and not metrics.refusal(name, target.task, len(target.classes))
    )
