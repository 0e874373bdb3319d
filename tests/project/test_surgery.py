"""Edited projects as surgeries of a run: which layers stay, and what the net computes then."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import pytest
import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.edits import edits
from app.builder.edits.expand_block import expand
from app.builder.edits.make_block import make_block
from app.builder.graph import Edge, Graph, Node
from app.builder.results import Analysis
from app.project import file
from app.project.custom_layers import ops_of
from app.project.project import Project
from app.project.surgery import surgery_between
from app.source.compiled import make_module
from app.source.generated import Source
from app.training.surgery.transfer import transfer
from app.training.surgery.values import SurgeryError
from app.util import resources
from app.util.frozen import FrozenMap

DIGITS, UNET, RESIDUAL, ENCODER = (
    "MNIST net",
    "U-Net",
    "Residual net on digits",
    "Transformer on digits",
)
Edit = Callable[[Project], Project]


@cache
def example(name: str) -> Project:
    return file.read(resources.path("examples", f"{name}.tape"))


@cache
def analysis_of(project: Project) -> Analysis:
    return analyse(project.graph, ops_of(project))


def node(project: Project, name: str) -> str:
    return next(key for key, one in project.graph.nodes.items() if one.name == name)


def with_param(name: str, param: str, value: object) -> Edit:
    return lambda project: replace(
        project, graph=project.graph.with_param(node(project, name), param, value)
    )


def inserted(op: str, behind: str, **params: object) -> Edit:
    def edit(project: Project) -> Project:
        wire = project.graph.out_of(node(project, behind))[0]
        project, new = edits.insert(project, ops_of(project), op, wire, (0.0, 0.0))
        graph = project.graph
        for name, value in params.items():
            graph = graph.with_param(new, name, value)
        return replace(project, graph=graph)

    return edit


def repeated(name: str, count: int) -> Edit:
    def edit(project: Project) -> Project:
        one = project.graph.nodes[node(project, name)]
        return replace(
            project, graph=project.graph.with_node(replace(one, repeat=count))
        )

    return edit


def in_block(block: str, name: str, param: str, value: object) -> Edit:
    def edit(project: Project) -> Project:
        inner = project.blocks[block]
        key = next(key for key, one in inner.graph.nodes.items() if one.name == name)
        graph = inner.graph.with_param(key, param, value)
        return replace(
            project, blocks=project.blocks.set(block, replace(inner, graph=graph))
        )

    return edit


def wrapped(*names: str) -> Edit:
    return lambda project: make_block(
        project, "", ops_of(project), [node(project, name) for name in names], "Part"
    )[0]


def expanded(name: str) -> Edit:
    return lambda project: expand(project, "", ops_of(project), node(project, name))[0]


def renamed(name: str, new: str) -> Edit:
    return lambda project: replace(
        project, graph=project.graph.with_name(node(project, name), new)
    )


def then(*several: Edit) -> Edit:
    def edit(project: Project) -> Project:
        for one in several:
            project = one(project)
        return project

    return edit


CASES: dict[str, tuple[str, Edit, dict[str, str]]] = {
    "channels widened": (
        DIGITS,
        with_param("conv1", "out_channels", 14),
        {"conv1": "widened", "conv2": "widened"},
    ),
    "two parts of two concatenations": (
        UNET,
        then(
            with_param("conv1", "out_channels", 19),
            with_param("up3", "out_channels", 18),
        ),
        {
            "conv1": "widened",
            "conv2": "widened",
            "up3": "widened",
            "conv7": "widened",
            "conv6": "kept",
        },
    ),
    "convolution inserted": (
        UNET,
        inserted("nn.Conv2d", "conv2", out_channels=32, kernel_size=3, padding=1),
        {"conv8": "identity", "conv2": "kept"},
    ),
    "wrapped into a block": (
        DIGITS,
        wrapped("conv1", "pool1", "relu1"),
        {"part1.conv1": "kept", "conv2": "kept"},
    ),
    "wrapped and widened": (
        DIGITS,
        then(
            wrapped("conv1", "pool1", "relu1"),
            in_block("Part", "conv1", "out_channels", 12),
        ),
        {"part1.conv1": "widened", "conv2": "widened"},
    ),
    "block expanded": (
        RESIDUAL,
        expanded("down"),
        {"shortcut": "kept", "stage1.0.conv1": "kept"},
    ),
    "renamed": (DIGITS, renamed("fc1", "hidden"), {"hidden": "kept", "fc2": "kept"}),
    "a further repetition of a block": (
        RESIDUAL,
        repeated("stage2", 3),
        {"stage2.1.conv1": "kept", "stage2.2.bn2": "zero"},
    ),
    "widened inside a block that is repeated": (
        ENCODER,
        in_block("EncoderLayer", "fc1", "out_features", 150),
        {"encoder.1.fc1": "widened", "encoder.1.fc2": "widened"},
    ),
    "residual block inserted": (
        RESIDUAL,
        inserted("block.Residual", "stage2", channels=64),
        {"residual1.bn2": "zero", "residual1.conv1": "initialised"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_edit_keeps_layers_and_function(name: str) -> None:
    example_name, edit, fates = CASES[name]
    rows, difference = operated(example(example_name), edit(example(example_name)))
    found = {new: what for _, new, what, _ in rows}
    assert found | fates == found
    assert difference <= 1e-6


def chain(*rows: tuple[str, dict[str, object]]) -> Project:
    """A net of ops one behind the other, named by their places, from an input of (8, 8) unless the first is one."""
    nodes = {
        str(at): Node(str(at), op, f"layer{at}", FrozenMap(params))
        for at, (op, params) in enumerate(rows)
    }
    edges = [Edge(str(at), 0, str(at + 1), "input") for at in range(len(rows) - 1)]
    return Project("chain", Graph(FrozenMap(nodes), tuple(edges)))


INPUT, END = (
    ("input", {"shape": (8, 8)}),
    (("nn.Flatten", {}), ("nn.Linear", {"out_features": 5}), ("output", {})),
)
CHAINS: dict[str, Callable[[int], Project]] = {
    "features are the last axis": lambda width: chain(
        INPUT, ("nn.Linear", {"out_features": width}), *END
    ),
    "two directions": lambda width: chain(
        INPUT,
        (
            "nn.LSTM",
            {
                "hidden_size": width,
                "bidirectional": True,
                "batch_first": True,
                "num_layers": 2,
            },
        ),
        *END,
    ),
    "depthwise convolution and norm between": lambda width: chain(
        ("input", {"shape": (3, 8, 8)}),
        ("nn.Conv2d", {"out_channels": width, "kernel_size": 3}),
        ("nn.Conv2d", {"out_channels": width, "kernel_size": 3, "groups": width}),
        ("nn.BatchNorm2d", {}),
        *END,
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_widened_layer_before_a_flatten_keeps_the_function(name: str) -> None:
    rows, difference = operated(CHAINS[name](6), CHAINS[name](9))
    assert {what for *_, what, _ in rows} == {"widened"} and difference <= 1e-6


def test_undone_edit_and_unchanged_project_keep_everything() -> None:
    project = example(RESIDUAL)
    surgery = surgery_between(
        project, project, analysis_of(project), analysis_of(project)
    )
    assert (
        all(old == new for old, new in surgery.layers)
        and not surgery.starts
        and not surgery.segments
    )


def test_layer_of_another_kind_takes_the_place_of_one_and_begins_as_torch_does() -> (
    None
):
    project = example(UNET)
    other = edits.replace_op(
        project, ops_of(project), node(project, "conv2"), "nn.ConvTranspose2d"
    )
    rows, _ = operated(project, other)
    (new,) = [row for row in rows if row[0] == ""]
    assert new[2] == "initialised" and "place of conv2" in new[3]
    assert ("conv2", "", "removed", "") in rows


def test_layer_behind_a_removed_convolution_is_initialised_as_its_input_is_another() -> (
    None
):
    project = example(UNET)
    rows, _ = operated(
        project,
        edits.delete_and_reconnect(project, ops_of(project), [node(project, "conv4")]),
    )
    told = {new: (what, why) for _, new, what, why in rows}
    assert told["up1"][0] == "initialised" and "other layers" in told["up1"][1]


def test_surgery_says_what_was_edited() -> None:
    project = example(DIGITS)
    after = inserted("nn.Dropout", "fc1")(project)
    after = with_param("fc1", "out_features", 64)(after)
    frozen = edits.flagged(after, [node(project, "conv1")], "frozen", True)
    surgery = surgery_between(
        project, frozen, analysis_of(project), analysis_of(frozen)
    )
    assert surgery.description == "drop1 inserted, conv1 frozen, fc1 widened 50 → 64"


def test_net_with_errors_and_net_of_nothing_known_are_refused() -> None:
    project, other = example(DIGITS), example(ENCODER)
    broken = edits.delete(project, [node(project, "input")])
    with pytest.raises(SurgeryError, match="The edited net has errors"):
        surgery_between(project, broken, analysis_of(project), analysis_of(broken))
    with pytest.raises(SurgeryError, match="No layer of the run"):
        surgery_between(project, other, analysis_of(project), analysis_of(other))


def operated(
    before: Project, after: Project
) -> tuple[list[tuple[str, str, str, str]], float]:
    """Perform the surgery on nets with random weights; return its rows and the relative difference of the outputs."""
    run, edited = analysis_of(before), analysis_of(after)
    surgery = surgery_between(before, after, run, edited)
    torch.manual_seed(0)
    nets = [made(analysis.source) for analysis in (run, edited)]
    for module in nets[0].modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    inputs = [torch.randn(spec.sizes(3)) for spec in run.source.inputs]
    with torch.no_grad():
        told = nets[0].eval()(*inputs)
        rows, _ = transfer(*nets, surgery.layers, surgery.starts, surgery.segments)
        answer = nets[1].eval()(*inputs)
    return rows, float(
        (answer - told).abs().max() / told.abs().max()
    ) if answer.shape == told.shape else 1.0


def made(source: Source) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_module(source)
