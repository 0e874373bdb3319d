"""Blocks are made, taken apart, named and put back, and the network computes what it did before."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.blocks import Block, BlockError, with_blocks
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.codegen.codegen import generate
from app.builder.edits import block_params, blocks, edits, expand_block, make_block
from app.builder.expressions import Expr
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import AUTO
from app.builder.params import check_node
from app.builder.plan import plan
from app.builder.shapes.shapes import infer
from app.builder.sheet import Comment
from app.project.file import dumps, loads
from app.project.project import Project
from app.source.compiled import load_class
from app.source.generated import Source
from app.util.frozen import FrozenMap
from tests.support.builder_nets import net, run

BASE = catalog()


def ops(project: Project) -> Catalog:
    return with_blocks(BASE, project.blocks)


def source(project: Project) -> Source:
    walk = plan(project.graph, ops(project))
    return generate(walk, infer(walk), project.graph)


def computed(project: Project) -> list[torch.Tensor]:
    """What the network gives for inputs and weights that do not depend on names or on order."""
    text = source(project)
    module = load_class(text)().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(
                torch.linspace(-0.9, 1.1, parameter.numel()).reshape(parameter.shape)
            )
        answer = module(
            *(
                torch.linspace(-2, 2, 2 * torch.Size(s.shape).numel()).reshape(
                    2, *s.shape
                )
                for s in text.inputs
            )
        )
    return list(answer if isinstance(answer, tuple) else (answer,))


def same(a: Project, b: Project) -> bool:
    first, second = computed(a), computed(b)
    return len(first) == len(second) and all(
        torch.equal(x, y) for x, y in zip(first, second, strict=True)
    )


def residual() -> Project:
    """A convolution, then two convolutions with a way round them, then an output."""
    graph = net(
        [
            ("input", "x", {"shape": (3, 8, 8)}),
            (
                "nn.Conv2d",
                "stem",
                {"out_channels": 6, "kernel_size": (3, 3), "padding": 1},
            ),
            (
                "nn.Conv2d",
                "conv1",
                {"out_channels": 6, "kernel_size": (3, 3), "padding": 1},
            ),
            ("nn.ReLU", "relu", {}),
            (
                "nn.Conv2d",
                "conv2",
                {"out_channels": 6, "kernel_size": (3, 3), "padding": 1},
            ),
            ("operator.add", "sum", {}),
            ("output", "y", {}),
        ],
        [
            ("x", "stem"),
            ("stem", "conv1"),
            ("conv1", "relu"),
            ("relu", "conv2"),
            ("conv2", "sum"),
            ("stem", "sum", "other"),
            ("sum", "y"),
        ],
    )
    places = FrozenMap({node: (200.0 * i, 40.0) for i, node in enumerate(graph.nodes)})
    return Project(graph=graph, positions=places)


UNIT = ("conv1", "relu", "conv2", "sum")


def made(
    project: Project | None = None, nodes: tuple[str, ...] = UNIT, name: str = "Unit"
) -> tuple[Project, str]:
    project = project or residual()
    return make_block.make_block(project, "", ops(project), nodes, name)


def inner(project: Project, name: str, block: str = "Unit") -> str:
    return next(
        node.id
        for node in project.blocks[block].graph.nodes.values()
        if node.name == name
    )


# -- making -----------------------------------------------------------------------------------------------------------


def test_a_selection_becomes_a_block_and_the_network_stays() -> None:
    project, new = made()
    block = project.blocks["Unit"]
    assert [node.name for node in block.inputs] == ["input"], (
        "what feeds two nodes inside is one input"
    )
    assert [node.name for node in block.outputs] == ["output"]
    assert set(project.graph.nodes) == {"x", "stem", new, "y"}
    assert {(e.source, e.target, e.port) for e in project.graph.edges} == {
        ("x", "stem", "input"),
        ("stem", new, "input"),
        (new, "y", "input"),
    }
    assert same(project, residual())
    assert loads(dumps(project)) == project


def test_several_ends_are_called_after_their_nodes() -> None:
    project, new = made(nodes=("conv2", "sum"))
    block = project.blocks["Unit"]
    assert [node.name for node in block.inputs] == ["relu", "stem"]
    wires = {(edge.source, edge.port) for edge in project.graph.into(new)}
    assert wires == {("relu", "relu"), ("stem", "stem")}
    assert same(project, residual())


def test_an_output_that_is_used_twice_is_one_output() -> None:
    project, new = made(nodes=("stem",))
    assert len(project.blocks["Unit"].outputs) == 1
    assert len(project.graph.out_of(new)) == 2
    assert same(project, residual())


def test_places_comments_and_bends_go_along() -> None:
    project = residual()
    wire, outside = Edge("conv1", 0, "relu", "input"), Edge("x", 0, "stem", "input")
    project = replace(
        project,
        comments=FrozenMap(
            inside=Comment("way", 420.0, 60.0, 80.0, 30.0),
            far=Comment("far", -900.0, 0.0, 80.0, 30.0),
        ),
        bends=FrozenMap({wire: ((500.0, 10.0),), outside: ((50.0, 0.0),)}),
    )
    project, new = made(project)
    block = project.blocks["Unit"]
    assert set(block.comments) == {"inside"} and set(project.comments) == {"far"}
    assert set(block.bends) == {wire} and set(project.bends) == {outside}
    assert block.positions["relu"][0] - block.positions["conv1"][0] == 200.0
    assert (
        block.positions["conv1"][0]
        <= project.positions[new][0]
        <= block.positions["sum"][0]
    )
    assert block.positions[block.inputs[0].id][0] < block.positions["conv1"][0]
    assert block.positions[block.outputs[0].id][0] > block.positions["sum"][0]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((), "Select the nodes"),
        (("x", "stem"), "x stays outside"),
        (("conv1", "conv2"), "relu comes after"),
        (("stem", "sum"), "after some of the nodes and before others"),
    ],
)
def test_what_cannot_be_a_block_is_refused(nodes: tuple[str, ...], words: str) -> None:
    with pytest.raises(BlockError, match=words):
        made(nodes=nodes)


@pytest.mark.parametrize(
    "name", ["", "3d", "class", "Net", "self", "a b", "__x", "x" * 99]
)
def test_a_block_is_called_what_a_class_can_be_called(name: str) -> None:
    with pytest.raises(BlockError):
        made(name=name)


def test_calls_of_one_module_stay_together() -> None:
    project = residual()
    shared = replace(project.graph.nodes["conv2"], shares="conv1", params=FrozenMap())
    project = replace(project, graph=project.graph.with_node(shared))
    with pytest.raises(BlockError, match="both must be in the block"):
        made(project, ("conv2", "sum"))
    after, _ = made(project)
    assert after.blocks["Unit"].graph.nodes["conv2"].shares == "conv1"


def test_nodes_that_nothing_feeds_yet_get_inputs() -> None:
    project = Project(graph=net([("nn.Conv2d", "conv", {}), ("nn.ReLU", "relu", {})]))
    after, new = made(project, ("conv", "relu"))
    assert [node.name for node in after.blocks["Unit"].inputs] == ["input"]
    assert [node.name for node in after.blocks["Unit"].outputs] == ["output"]
    assert not after.graph.into(new)


def test_a_block_inside_a_block_computes_with_the_same_parameters() -> None:
    project, _ = made()
    project = block_params.expose_param(
        project, "Unit", ops(project), inner(project, "conv1"), "out_channels", "width"
    )
    project, new = make_block.make_block(
        project, "Unit", ops(project), ("conv1", "relu"), "Half"
    )
    assert [param.name for param in project.blocks["Half"].params] == ["width"]
    assert project.blocks["Unit"].graph.nodes[new].params["width"] == Expr("width")
    assert same(project, residual())


# -- any drawing ------------------------------------------------------------------------------------------------------


@st.composite
def drawings(draw: st.DrawFn) -> Graph:
    """A loop-free net of functions and layers over one input, every node of which reaches the output."""
    count = draw(st.integers(2, 9))
    rows: list[tuple[str, str, dict[str, object]]] = [("input", "in", {"shape": (4,)})]
    wires: list[tuple[str, ...]] = []
    for i in range(count):
        op = draw(
            st.sampled_from(
                [
                    "nn.ReLU",
                    "torch.tanh",
                    "operator.add",
                    "operator.mul",
                    "nn.Linear",
                    "torch.cat",
                ]
            )
        )
        rows.append((op, f"n{i}", {"out_features": 4} if op == "nn.Linear" else {}))
        earlier = ["in", *(f"n{j}" for j in range(i) if rows[j + 1][0] != "torch.cat")]
        wires.append((draw(st.sampled_from(earlier)), f"n{i}"))
        if op in ("operator.add", "operator.mul"):
            wires.append((draw(st.sampled_from(earlier)), f"n{i}", "other"))
        if op == "torch.cat":
            wires.append((draw(st.sampled_from(earlier)), f"n{i}", "tensors"))
    taken = {wire[0] for wire in wires}
    for i in range(count):
        if f"n{i}" not in taken:
            rows.append(("output", f"out{i}", {}))
            wires.append((f"n{i}", f"out{i}"))
    return net(rows, wires)


@given(drawings(), st.data())
def test_block_or_not_the_network_computes_the_same(
    graph: Graph, data: st.DataObject
) -> None:
    """Whatever is selected: refused, or a net that gives the very numbers, as a block and expanded again."""
    layers = [node for node in graph.nodes if node.startswith("n")]
    chosen = data.draw(st.sets(st.sampled_from(layers), min_size=1))
    project = Project(
        graph=graph,
        positions=FrozenMap({n: (200.0 * i, 0.0) for i, n in enumerate(graph.nodes)}),
    )
    try:
        after, new = make_block.make_block(project, "", BASE, chosen, "Part")
    except BlockError:
        return
    assert same(after, project)
    assert loads(dumps(after)) == after
    opened, ids = expand_block.expand(after, "", ops(after), new)
    assert len(ids) == len(chosen)
    assert same(opened, project)
    assert sorted(n.name for n in opened.graph.nodes.values()) == sorted(
        n.name for n in graph.nodes.values()
    )
    assert len(opened.graph.edges) == len(graph.edges)


# -- expanding --------------------------------------------------------------------------------------------------------


def test_expanding_puts_numbers_for_expressions() -> None:
    project, new = made()
    project = block_params.expose_param(
        project, "Unit", ops(project), inner(project, "conv1"), "out_channels", "width"
    )
    conv2 = inner(project, "conv2")
    graph = project.blocks["Unit"].graph.with_param(
        conv2, "out_channels", Expr("width * 2 // 2")
    )
    project = blocks.put_block(
        project, "Unit", replace(project.blocks["Unit"], graph=graph)
    )
    project = replace(project, graph=project.graph.with_param(new, "width", 6))
    after, ids = expand_block.expand(project, "", ops(project), new)
    widths = {
        n.params.get("out_channels")
        for i in ids
        if (n := after.graph.nodes[i]).op == "nn.Conv2d"
    }
    assert widths == {6}
    assert "Unit" in after.blocks
    assert same(after, residual())


def test_expanding_a_repeated_block_writes_out_every_repetition() -> None:
    project, new = made()
    project = blocks.set_repeat(project, ops(project), new, 3)
    after, ids = expand_block.expand(project, "", ops(project), new)
    assert len(ids) == 3 * len(UNIT)
    assert same(after, project)
    assert len(set(after.positions.values())) == len(after.graph.nodes)


def test_expanding_inside_a_block_keeps_its_parameters() -> None:
    project, _ = made()
    project = block_params.expose_param(
        project, "Unit", ops(project), inner(project, "conv1"), "out_channels", "width"
    )
    project, new = make_block.make_block(
        project, "Unit", ops(project), ("conv1", "relu"), "Half"
    )
    graph = project.blocks["Unit"].graph.with_param(new, "width", Expr("width + 0"))
    project = blocks.put_block(
        project, "Unit", replace(project.blocks["Unit"], graph=graph)
    )
    project, ids = expand_block.expand(project, "Unit", ops(project), new)
    conv = next(
        n for i in ids if (n := project.blocks["Unit"].graph.nodes[i]).op == "nn.Conv2d"
    )
    assert conv.params["out_channels"] == Expr("width + 0")


@pytest.mark.parametrize("change", [{"muted": True}, {"op": "nn.ReLU"}])
def test_what_cannot_be_expanded_is_refused(change: dict[str, object]) -> None:
    project, new = made()
    project = replace(
        project,
        graph=project.graph.with_node(replace(project.graph.nodes[new], **change)),
    )
    with pytest.raises(BlockError):
        expand_block.expand(project, "", ops(project), new)


# -- names, copies ----------------------------------------------------------------------------------------------------


def twice() -> tuple[Project, str, str]:
    """Two instances one behind the other."""
    project, first = made()
    project, second = edits.add_behind(
        project, ops(project), "block.Unit", first, (900.0, 0.0)
    )
    end = next(edge for edge in project.graph.edges if edge.target == "y")
    return (
        edits.connect(edits.cut(project, [end]), ops(project), second, 0, "y", "input"),
        first,
        second,
    )


def test_renaming_a_block_takes_its_instances_along() -> None:
    project, first, second = twice()
    project, _ = make_block.make_block(project, "", ops(project), (second,), "Outer")
    after = blocks.rename_block(project, "Unit", "Residual")
    assert (
        list(after.blocks) == ["Residual", "Outer"]
        and after.blocks["Residual"].name == "Residual"
    )
    assert after.graph.nodes[first].op == "block.Residual"
    assert {node.op for node in after.blocks["Outer"].graph.nodes.values()} == {
        "input",
        "output",
        "block.Residual",
    }
    assert same(after, project)
    with pytest.raises(BlockError, match="already"):
        blocks.rename_block(after, "Residual", "Outer")


def test_a_block_in_use_cannot_be_deleted() -> None:
    project, first, second = twice()
    with pytest.raises(BlockError, match=r"unit1 in the network and 1 more"):
        blocks.delete_block(project, "Unit")
    project = edits.delete(project, [first, second])
    assert not blocks.delete_block(project, "Unit").blocks


def test_made_unique_an_instance_goes_its_own_way() -> None:
    project, first, second = twice()
    project, new = blocks.make_unique(project, "", first)
    assert new == "Unit2" and project.graph.nodes[first].op == "block.Unit2"
    assert project.graph.nodes[second].op == "block.Unit"
    with pytest.raises(BlockError, match="only"):
        blocks.make_unique(project, "", second)


def test_a_copy_is_another_block() -> None:
    project, _ = made()
    project, new = blocks.duplicate_block(project, "Unit")
    assert new == "Unit2" and project.blocks[new].name == "Unit2"
    assert project.blocks[new].graph is project.blocks["Unit"].graph


# -- another definition -----------------------------------------------------------------------------------------------


def ports() -> tuple[Project, str]:
    """An instance with two inputs, relu and stem, and outputs conv2_out and sum_out."""
    project = residual()
    graph = project.graph.with_node(Node("z", "output", "z"))
    project = replace(project, graph=graph.with_edge(Edge("conv2", 0, "z", "input")))
    return made(project, ("conv2", "sum"))


def edited(project: Project, change: object) -> Project:
    block = project.blocks["Unit"]
    return blocks.put_block(project, "Unit", replace(block, graph=change(block.graph)))  # type: ignore[operator]


def test_a_renamed_input_keeps_its_wire() -> None:
    project, new = ports()
    wire = next(edge for edge in project.graph.into(new) if edge.port == "stem")
    project = replace(project, bends=FrozenMap({wire: ((1.0, 2.0),)}))
    after = edited(
        project, lambda graph: graph.with_name(inner(project, "stem"), "skip")
    )
    assert {edge.port for edge in after.graph.into(new)} == {"relu", "skip"}
    assert {edge.port for edge in after.bends} == {"skip"}
    assert same(after, project)


def test_inputs_that_swap_their_names_keep_their_wires() -> None:
    project, new = ports()
    a, b = inner(project, "stem"), inner(project, "relu")
    after = edited(
        project, lambda graph: graph.with_name(a, "relu").with_name(b, "stem")
    )
    assert {(edge.source, edge.port) for edge in after.graph.into(new)} == {
        ("stem", "relu"),
        ("relu", "stem"),
    }
    assert same(after, project)


def test_outputs_in_another_order_keep_their_wires() -> None:
    project, new = ports()

    def turned(graph: Graph) -> Graph:
        return Graph(FrozenMap(dict(reversed(list(graph.nodes.items())))), graph.edges)

    after = edited(project, turned)
    assert {(e.output, e.target) for e in after.graph.out_of(new)} != {
        (e.output, e.target) for e in project.graph.out_of(new)
    }
    assert same(after, project)


def test_a_removed_end_takes_its_wires_along() -> None:
    project, new = ports()
    gone = inner(project, "conv2_out")
    after = edited(
        project, lambda graph: graph.without_nodes([gone, inner(project, "stem")])
    )
    assert {edge.port for edge in after.graph.into(new)} == {"relu"}
    assert [(edge.output, edge.target) for edge in after.graph.out_of(new)] == [
        (0, "y")
    ]


def test_two_inputs_never_have_one_name() -> None:
    project, _ = ports()
    after = edited(
        project, lambda graph: graph.with_name(inner(project, "stem"), "relu")
    )
    assert sorted(node.name for node in after.blocks["Unit"].inputs) == [
        "relu",
        "relu2",
    ]


def test_a_block_never_contains_itself() -> None:
    project, _ = made()
    project, _ = make_block.make_block(
        project, "Unit", ops(project), ("conv1",), "Half"
    )
    for name in ("Unit", "Half"):
        block, _ = edits.add(
            project.blocks["Half"], ops(project), f"block.{name}", (0.0, 0.0)
        )
        with pytest.raises(BlockError, match="cannot contain itself"):
            blocks.put_block(project, "Half", block)


# -- parameters -------------------------------------------------------------------------------------------------------


def exposed() -> tuple[Project, str]:
    project, new = made()
    project = blocks.set_repeat(project, ops(project), new, 2)
    conv = inner(project, "conv1")
    return block_params.expose_param(
        project, "Unit", ops(project), conv, "out_channels", "hidden"
    ), new


def conv1(project: Project) -> object:
    return (
        project.blocks["Unit"]
        .graph.nodes[inner(project, "conv1")]
        .params.get("out_channels")
    )


def test_an_exposed_parameter_is_set_on_the_instance() -> None:
    project, new = exposed()
    (param,) = project.blocks["Unit"].params
    assert (param.name, param.kind, param.default, param.minimum) == (
        "hidden",
        "int",
        6,
        1,
    )
    assert conv1(project) == Expr("hidden")
    assert same(project, blocks.set_repeat(made()[0], ops(project), new, 2))
    wide = replace(project, graph=project.graph.with_param(new, "hidden", 9))
    check_node(ops(wide)["block.Unit"], wide.graph.nodes[new])
    assert any(p.shape[:1] == (9,) for p in load_class(source(wide))().parameters())
    assert loads(dumps(wide)) == wide


def test_a_second_node_joins_a_parameter() -> None:
    project, _ = exposed()
    second = inner(project, "conv2")
    project = block_params.expose_param(
        project, "Unit", ops(project), second, "out_channels", "hidden"
    )
    assert len(project.blocks["Unit"].params) == 1
    with pytest.raises(BlockError, match="another kind"):
        block_params.expose_param(
            project, "Unit", ops(project), inner(project, "relu"), "inplace", "hidden"
        )


def test_what_cannot_be_exposed_is_refused() -> None:
    project, _ = exposed()
    conv = inner(project, "conv1")
    for param, name, words in (
        ("out_channels", "more", "computed from parameters"),
        ("padding_mode", "mode", "one of fixed choices"),
        ("in_channels", "c", "inferred from the input"),
        ("stride", "class", "cannot name an argument"),
        ("nothing", "n", "no parameter nothing"),
    ):
        with pytest.raises(BlockError, match=words):
            block_params.expose_param(project, "Unit", ops(project), conv, param, name)
    assert (
        project.blocks["Unit"].graph.nodes[conv].params.get("in_channels", AUTO) is AUTO
    )
    with pytest.raises(BlockError, match="network itself"):
        block_params.expose_param(project, "", ops(project), "stem", "stride", "s")


def test_a_parameter_taken_away_leaves_its_default() -> None:
    project, new = exposed()
    project = block_params.set_default(project, "Unit", "hidden", 5)
    project = replace(project, graph=project.graph.with_param(new, "hidden", 9))
    after = block_params.unexpose(project, "Unit", ops(project), "hidden")
    assert conv1(after) == 5 and not after.blocks["Unit"].params
    assert not after.graph.nodes[new].params
    with pytest.raises(BlockError):
        block_params.set_default(after, "Unit", "hidden", 5)


def test_a_renamed_parameter_is_followed_everywhere() -> None:
    project, new = exposed()
    project = replace(project, graph=project.graph.with_param(new, "hidden", 9))
    after = block_params.rename_param(project, "Unit", "hidden", "width")
    assert conv1(after) == Expr("width") and after.graph.nodes[new].params == FrozenMap(
        width=9
    )
    assert same(after, project)


def test_a_default_is_what_the_parameter_takes() -> None:
    project, _ = exposed()
    for bad in ("six", 1.5, None, Expr("hidden")):
        with pytest.raises(BlockError):
            block_params.set_default(project, "Unit", "hidden", bad)


def test_values_for_parameters_that_went_go_too() -> None:
    project, new = exposed()
    project = replace(project, graph=project.graph.with_param(new, "hidden", 9))
    block = project.blocks["Unit"]
    plain = replace(
        block,
        params=(),
        graph=block.graph.with_param(inner(project, "conv1"), "out_channels", 6),
    )
    assert not blocks.put_block(project, "Unit", plain).graph.nodes[new].params


# -- repeats ----------------------------------------------------------------------------------------------------------


def test_only_what_takes_what_it_gives_is_repeated() -> None:
    project, new = ports()
    refused = (
        (new, 2, "2 outputs"),
        ("stem", 0, "1 to"),
        ("stem", 1001, "1 to"),
        ("x", 2, "function"),
    )
    for node, count, words in refused:
        with pytest.raises(BlockError, match=words):
            blocks.set_repeat(project, ops(project), node, count)
    assert (
        blocks.set_repeat(project, ops(project), "relu", 4).graph.nodes["relu"].repeat
        == 4
    )


def test_a_run_of_the_tests_own_nets() -> None:
    """The block's own class runs alone for any batch."""
    project, _ = made()
    assert run(source(project), 3)[0].shape == (3, 6, 8, 8)
    assert isinstance(project.blocks["Unit"], Block)


def test_numbers_and_tuples_go_over_the_edge_of_a_block() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (3, 4)}),
            ("Tensor.size", "size", {"dim": 1}),
            ("nn.ReLU", "relu", {}),
            ("Tensor.view", "view", {"size": (-1, 12)}),
            ("output", "y", {}),
        ],
        [("x", "size"), ("x", "relu"), ("relu", "view"), ("view", "y")],
    )
    project = edits.connect(Project(graph=graph), BASE, "size", 0, "view", "size[1]")
    for chosen in (("size",), ("view",), ("size", "relu"), ("size", "relu", "view")):
        after, new = made(project, chosen)
        assert not analyse(after.graph, ops(after)).errors
        assert same(after, project)
        opened, _ = expand_block.expand(after, "", ops(after), new)
        assert same(opened, project)


def test_ends_after_a_path_of_modules_have_a_plain_name() -> None:
    project = residual()
    project = replace(project, graph=project.graph.with_name("relu", "layer1.0.relu"))
    after, _ = made(project, ("conv2", "sum"))
    assert [node.name for node in after.blocks["Unit"].inputs] == [
        "layer1_0_relu",
        "stem",
    ]
    assert same(after, project)
