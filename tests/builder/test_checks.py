"""What runs and is hardly meant is said, the cure takes it away, and a good network hears nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import Catalog, OpSpec, Port, catalog
from app.builder.diagnostics.problems import Problem, apply_cure
from app.builder.diagnostics.training_checks import training
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import DType
from app.builder.results import Analysis
from tests.support.builder_nets import net

PICTURE: Mapping[str, Any] = {"shape": (3, 32, 32)}
ROW: Mapping[str, Any] = {"shape": (784,)}


def ops_with(key: str, target: str, category: str = "act") -> Catalog:
    """The catalog with an op more, of one tensor."""
    spec = OpSpec(
        key,
        "function",
        target,
        key.rpartition(".")[2],
        category,
        "op",
        (Port("input"),),
    )
    return Catalog(
        (*(known for known in catalog().values() if known.key != key), spec),
        catalog().torch_version,
    )


def chain(
    *layers: tuple[str, str, Mapping[str, Any]], given: Mapping[str, Any] = PICTURE
) -> Graph:
    return net([("input", "x", given), *layers, ("output", "y", {})])


def said(graph: Graph, ops: Catalog | None = None) -> tuple[Problem, ...]:
    analysis = analyse(graph, ops)
    assert analysis.errors == (), analysis.errors
    return analysis.problems


def heard(
    graph: Graph,
    loss: str = "CrossEntropyLoss",
    batch_size: int = 64,
    samples: int | None = 1000,
) -> list[Problem]:
    return training(analyse(graph), catalog(), loss, batch_size, samples)


# (what is drawn, the node it is said of, words that must be in it: the evidence)
STRUCTURE = {
    "bias before BatchNorm2d": (
        chain(("nn.Conv2d", "conv", {"out_channels": 8}), ("nn.BatchNorm2d", "bn", {})),
        "conv",
        "8 bias parameters",
    ),
    "bias before BatchNorm1d": (
        chain(
            ("nn.Linear", "fc", {"out_features": 20}),
            ("nn.BatchNorm1d", "bn", {}),
            given=ROW,
        ),
        "fc",
        "20 bias parameters",
    ),
    "ReLU of ReLU": (
        chain(
            ("nn.Conv2d", "conv", {}), ("nn.ReLU", "relu1", {}), ("F.relu", "relu2", {})
        ),
        "relu2",
        "changes no value of N×32×30×30",
    ),
    "Tanh of GELU": (
        chain(
            ("nn.Conv2d", "conv", {}), ("nn.GELU", "gelu", {}), ("nn.Tanh", "tanh", {})
        ),
        "tanh",
        "N×32×30×30",
    ),
    "Linear after Linear": (
        chain(
            ("nn.Linear", "fc1", {"out_features": 128}),
            ("nn.Linear", "fc2", {"out_features": 10}),
            given=ROW,
        ),
        "fc2",
        "7,850 parameters could express what these 101,770 do",
    ),
    "Linear, Dropout, Linear": (
        chain(
            ("nn.Linear", "fc1", {"out_features": 128}),
            ("nn.Dropout", "drop", {}),
            ("nn.Linear", "fc2", {"out_features": 10}),
            given=ROW,
        ),
        "fc2",
        "784→128→10",
    ),
    "Dropout at the end": (
        chain(
            ("nn.Linear", "fc", {"out_features": 10}),
            ("nn.Dropout", "drop", {"p": 0.25}),
            given=ROW,
        ),
        "drop",
        "each of the 10 output values to 0 with probability 0.25",
    ),
    "Dropout before the softmax": (
        chain(
            ("nn.Linear", "fc", {"out_features": 10}),
            ("nn.Dropout", "drop", {}),
            ("nn.LogSoftmax", "soft", {}),
            given=ROW,
        ),
        "drop",
        "10 output values",
    ),
    "a pool that leaves out two columns": (
        chain(("nn.MaxPool2d", "pool", {"kernel_size": 3}), ("nn.Conv2d", "conv", {})),
        "pool",
        "reach 30",
    ),
    "a large Linear": (
        chain(
            ("nn.Conv2d", "conv", {"out_channels": 64, "padding": 1}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "fc", {"out_features": 1000}),
        ),
        "fc",
        "100 % of the network and 262 MB",
    ),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_the_graph_alone_tells(name: str) -> None:
    graph, node, evidence = STRUCTURE[name]
    if name.startswith("a pool"):
        assert said(graph)[0].message == "pool leaves out the last 2 of 32"
    (problem,) = said(graph)
    assert (problem.severity, problem.node) == ("warning", node)
    assert evidence in problem.reason


@pytest.mark.parametrize("name", STRUCTURE)
def test_each_cure_takes_its_warning_away(name: str) -> None:
    graph, _, _ = STRUCTURE[name]
    (problem,) = said(graph)
    assert problem.cures
    for cure in problem.cures:
        assert said(apply_cure(graph, catalog(), cure)) == ()


def test_a_cure_that_would_break_the_net_is_not_offered() -> None:
    """With one row and column more, the Linear behind would no longer fit what is typed into it."""
    graph = chain(
        ("nn.MaxPool2d", "pool", {"kernel_size": 3}),
        ("nn.Flatten", "flatten", {}),
        ("nn.Linear", "fc", {"in_features": 300, "out_features": 10}),
    )
    (problem,) = said(graph)
    assert problem.node == "pool" and problem.cures == ()


def test_large_linear_with_typed_width_is_cured_with_the_width() -> None:
    graph = chain(
        ("nn.Conv2d", "conv", {"out_channels": 64, "padding": 1}),
        ("nn.Flatten", "flatten", {}),
        ("nn.Linear", "fc", {"in_features": 65536, "out_features": 1000}),
    )
    (problem,) = said(graph)
    assert said(apply_cure(graph, catalog(), problem.cures[0])) == ()


@pytest.mark.parametrize(
    ("key", "dtype", "why"),
    [
        ("torch.argmax", "int64", "gives int64, which has no gradient"),
        ("torch.round", "float32", "derivative"),
    ],
)
def test_parameters_behind_a_cut_are_named(key: str, dtype: str, why: str) -> None:
    ops = ops_with(key, key)
    rows = [
        ("input", "x", ROW),
        ("nn.Linear", "fc1", {}),
        ("nn.ReLU", "relu", {}),
        ("nn.Linear", "fc2", {}),
    ]
    names = ["x", "fc1", "relu", "fc2"]
    graph = net(
        [*rows, ("output", "y", {})],
        [*zip(names, names[1:], strict=False), ("fc2", "y")],
    )
    wire = graph.into("y")[0]
    graph = (
        graph.without_edge(wire)
        .with_node(Node("cut", key, "cut"))
        .with_edge(replace(wire, target="cut"))
    )
    graph = graph.with_edge(Edge("cut", 0, "y", "input"))
    (problem,) = said(graph, ops)
    assert problem.message == "No gradient flows through cut"
    assert (
        why in problem.reason
        and "fc1 and fc2 before it, with 54,400 parameters" in problem.reason
    )
    assert said(apply_cure(graph, ops, problem.cures[0]), ops) == ()


def test_an_embedding_of_ids_that_a_net_made_up_is_a_cut() -> None:
    """Only what lies before the ids: the table itself learns, and so does what comes after it."""
    ops = ops_with("torch.argmax", "torch.argmax")
    graph = chain(
        ("nn.Linear", "fc", {}),
        ("nn.Embedding", "embed", {}),
        ("nn.Linear", "head", {}),
        given=ROW,
    )
    wire = next(edge for edge in graph.into("embed"))
    graph = graph.without_edge(wire).with_node(Node("ids", "torch.argmax", "ids"))
    graph = graph.with_edge(Edge("fc", 0, "ids", "input")).with_edge(
        Edge("ids", 0, "embed", "input")
    )
    (problem,) = said(graph, ops)
    assert "fc before it, with 50,240 parameters, gets no gradient" in problem.reason


# --- What loss and batches tell -----------------------------------------------------------------------------------

LOGITS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("nn.Linear", "fc", {"out_features": 10}),
)
LOSSES = {
    "softmax before CrossEntropyLoss": (
        "CrossEntropyLoss",
        ("nn.Softmax", "end", {}),
        "1.46, not 0",
    ),
    "F.softmax before CrossEntropyLoss": (
        "CrossEntropyLoss",
        ("F.softmax", "end", {}),
        "10 classes",
    ),
    "LogSoftmax before CrossEntropyLoss": (
        "CrossEntropyLoss",
        ("nn.LogSoftmax", "end", {}),
        "choose NLLLoss",
    ),
    "logits before NLLLoss": ("NLLLoss", None, "no lower bound"),
    "softmax before NLLLoss": (
        "NLLLoss",
        ("nn.Softmax", "end", {}),
        "expects log-probabilities",
    ),
    "F.softmax before NLLLoss": (
        "NLLLoss",
        ("F.softmax", "end", {}),
        "expects log-probabilities",
    ),
    "logits before KLDivLoss": ("KLDivLoss", None, "at most 0"),
    "Sigmoid before BCEWithLogitsLoss": (
        "BCEWithLogitsLoss",
        ("nn.Sigmoid", "end", {}),
        "0.5 to 0.73",
    ),
    "logits before BCELoss": ("BCELoss", None, "below 0 or above 1"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_end_of_the_net_suits_the_loss_and_is_cured(name: str) -> None:
    loss, end, evidence = LOSSES[name]
    graph = chain(*LOGITS, *([end] if end else []), given=ROW)
    (problem,) = heard(graph, loss)
    assert problem.severity == "warning" and evidence in problem.reason
    for cure in problem.cures:
        mended = apply_cure(graph, catalog(), cure)
        chosen = cure.settings.get("loss", loss)
        assert heard(mended, chosen) == [] and said(mended) == ()
    assert problem.cures


@pytest.mark.parametrize(
    ("loss", "end"),
    [
        ("CrossEntropyLoss", None),
        ("MultiMarginLoss", None),
        ("MSELoss", ("nn.Softmax", "end", {})),
        ("NLLLoss", ("nn.LogSoftmax", "end", {})),
        ("NLLLoss", ("F.log_softmax", "end", {})),
        ("KLDivLoss", ("nn.LogSoftmax", "end", {})),
        ("BCEWithLogitsLoss", None),
        ("BCELoss", ("nn.Sigmoid", "end", {})),
        ("BCELoss", ("nn.Softmax", "end", {})),
    ],
)
def test_what_suits_hears_nothing(
    loss: str, end: tuple[str, str, Mapping[str, Any]] | None
) -> None:
    assert heard(chain(*LOGITS, *([end] if end else []), given=ROW), loss) == []


def normed(kind: str) -> Graph:
    if kind == "row":
        return chain(
            ("nn.Linear", "fc", {"bias": False}),
            ("nn.BatchNorm1d", "bn", {}),
            given=ROW,
        )
    return chain(("nn.Conv2d", "conv", {"bias": False}), ("nn.BatchNorm2d", "bn", {}))


def test_batch_norm_and_a_batch_of_one() -> None:
    (error,) = heard(normed("row"), batch_size=1)
    (warning,) = heard(normed("picture"), batch_size=1)
    assert (error.severity, warning.severity) == ("error", "warning")
    assert "900 values of one sample" in warning.reason


def test_batch_norm_and_a_last_batch_of_one() -> None:
    (problem,) = heard(normed("row"), batch_size=64, samples=1025)
    assert (
        problem.severity == "error"
        and "1,025 samples in batches of 64 leave 1" in problem.reason
    )
    assert "to 65, for example: that leaves 50" in problem.reason
    assert heard(normed("row"), batch_size=65, samples=1025) == []
    assert heard(normed("picture"), batch_size=64, samples=1025) == []
    assert heard(normed("row"), batch_size=64, samples=None) == []


def test_batches_of_one_are_cured_by_a_setting_of_the_training_and_not_in_the_graph() -> (
    None
):
    for kind in ("row", "picture"):
        (problem,) = heard(normed(kind), batch_size=1, samples=1025)
        (cure,) = problem.cures
        size = cure.settings["batch_size"]
        assert heard(normed(kind), batch_size=size, samples=1025) == []
        assert apply_cure(normed(kind), catalog(), cure) == normed(kind)
    (problem,) = heard(normed("row"), batch_size=64, samples=1025)
    assert [cure.settings for cure in problem.cures] == [{"batch_size": 65}]
    (problem,) = heard(normed("row"), batch_size=1, samples=17)
    assert (
        heard(
            normed("row"),
            batch_size=problem.cures[0].settings["batch_size"],
            samples=17,
        )
        == []
    )


def test_layers_before_a_detach_are_named() -> None:
    graph = chain(
        ("nn.Linear", "fc1", {}),
        ("nn.ReLU", "relu", {}),
        ("torch.detach", "cut", {}),
        ("nn.Linear", "fc2", {}),
        given=ROW,
    )
    (problem,) = said(graph)
    assert (
        problem.message == "No gradient flows through cut"
        and "fc1 before it, with 50,240" in problem.reason
    )
    assert "detaches its output" in problem.reason
    assert said(apply_cure(graph, catalog(), problem.cures[0])) == ()
    frozen = graph.with_node(replace(graph.nodes["fc1"], frozen=True))
    assert said(frozen) == ()


def test_an_output_that_no_input_leads_to() -> None:
    rows: list[Any] = [
        ("input", "x", ROW),
        ("nn.Linear", "fc", {}),
        ("output", "y", {}),
        ("parameter", "w", {}),
        ("nn.ReLU", "relu", {}),
        ("output", "z", {}),
    ]
    graph = net(rows, [("x", "fc"), ("fc", "y"), ("w", "relu"), ("relu", "z")])
    (problem,) = [each for each in analyse(graph).problems if each.node == "z"]
    assert (
        problem.message == "No Input reaches z"
        and "depends only on w" in problem.reason
    )
    mended = apply_cure(graph, catalog(), problem.cures[0])
    assert "z" not in mended.nodes and not [
        each for each in analyse(mended).problems if "No Input" in each.message
    ]


def test_an_output_at_which_nothing_arrives_is_offered_the_loose_end() -> None:
    graph = net(
        [("input", "x", ROW), ("nn.Linear", "fc", {}), ("output", "y", {})],
        [("x", "fc")],
    )
    (error,) = analyse(graph).errors
    assert error.message == "No input connected to input of y"
    assert [cure.label for cure in error.cures] == ["Connect fc"]
    assert analyse(apply_cure(graph, catalog(), error.cures[0])).problems == ()


def test_a_large_convolution_is_told_of_too() -> None:
    graph = chain(("nn.Conv2d", "conv", {"out_channels": 4096, "kernel_size": 31}))
    (problem,) = said(graph)
    assert (
        problem.node == "conv"
        and "11.8 million parameters" in problem.message
        and "100 %" in problem.reason
    )


# --- Networks that people are proud of ----------------------------------------------------------------------------


def residual() -> Graph:
    """torchvision's BasicBlock with a projection, between a stem and a head."""
    off = {"bias": False}
    rows: list[Any] = [
        ("input", "x", PICTURE),
        (
            "nn.Conv2d",
            "stem",
            {"out_channels": 64, "kernel_size": 7, "stride": 2, "padding": 3, **off},
        ),
        ("nn.BatchNorm2d", "bn0", {}),
        ("nn.ReLU", "relu0", {}),
        ("nn.MaxPool2d", "pool", {"kernel_size": 3, "stride": 2, "padding": 1}),
        (
            "nn.Conv2d",
            "conv1",
            {"out_channels": 128, "kernel_size": 3, "stride": 2, "padding": 1, **off},
        ),
        ("nn.BatchNorm2d", "bn1", {}),
        ("nn.ReLU", "relu1", {}),
        (
            "nn.Conv2d",
            "conv2",
            {"out_channels": 128, "kernel_size": 3, "padding": 1, **off},
        ),
        ("nn.BatchNorm2d", "bn2", {}),
        (
            "nn.Conv2d",
            "down",
            {"out_channels": 128, "kernel_size": 1, "stride": 2, **off},
        ),
        ("nn.BatchNorm2d", "bn3", {}),
        ("operator.add", "add", {}),
        ("nn.ReLU", "relu2", {}),
        ("nn.AdaptiveAvgPool2d", "avg", {}),
        ("nn.Flatten", "flatten", {}),
        ("nn.Linear", "fc", {"out_features": 10}),
        ("output", "y", {}),
    ]
    main = "x stem bn0 relu0 pool conv1 bn1 relu1 conv2 bn2 add relu2 avg flatten fc y".split()
    return net(
        rows,
        [
            *zip(main, main[1:], strict=False),
            ("pool", "down"),
            ("down", "bn3"),
            ("bn3", "add", "other"),
        ],
    )


def transformer() -> Graph:
    """An encoder block, norm first, dropout where "Attention is all you need" has it."""
    rows: list[Any] = [
        ("input", "x", {"shape": (16, 64)}),
        ("nn.LayerNorm", "ln1", {}),
        ("nn.MultiheadAttention", "attn", {"need_weights": False}),
        ("nn.Dropout", "drop1", {"p": 0.1}),
        ("operator.add", "add1", {}),
        ("nn.LayerNorm", "ln2", {}),
        ("nn.Linear", "fc1", {"out_features": 256}),
        ("nn.GELU", "gelu", {}),
        ("nn.Linear", "fc2", {"out_features": 64}),
        ("nn.Dropout", "drop2", {"p": 0.1}),
        ("operator.add", "add2", {}),
        ("output", "y", {}),
    ]
    wires = [
        ("x", "ln1"),
        ("ln1", "attn", "query"),
        ("ln1", "attn", "key"),
        ("ln1", "attn", "value"),
    ]
    wires += [
        ("attn", "drop1"),
        ("x", "add1"),
        ("drop1", "add1", "other"),
        ("add1", "ln2"),
        ("ln2", "fc1"),
    ]
    wires += [
        ("fc1", "gelu"),
        ("gelu", "fc2"),
        ("fc2", "drop2"),
        ("add1", "add2"),
        ("drop2", "add2", "other"),
    ]
    return net(rows, [*wires, ("add2", "y")])


def unet() -> Graph:
    rows: list[Any] = [
        ("input", "x", {"shape": (1, 64, 64)}),
        ("nn.Conv2d", "conv1", {"out_channels": 16, "padding": 1}),
        ("nn.ReLU", "relu1", {}),
        ("nn.MaxPool2d", "pool", {}),
        ("nn.Conv2d", "conv2", {"out_channels": 32, "padding": 1}),
        ("nn.ReLU", "relu2", {}),
        (
            "nn.ConvTranspose2d",
            "up",
            {"out_channels": 16, "kernel_size": 2, "stride": 2},
        ),
        ("torch.cat", "cat", {}),
        ("nn.Conv2d", "conv3", {"out_channels": 16, "padding": 1}),
        ("nn.ReLU", "relu3", {}),
        ("nn.Conv2d", "head", {"out_channels": 1, "kernel_size": 1}),
        ("output", "y", {}),
    ]
    main = "x conv1 relu1 pool conv2 relu2 up cat conv3 relu3 head y".split()
    return net(rows, [*zip(main, main[1:], strict=False), ("relu1", "cat", "tensors")])


def alexnet() -> Graph:
    """Its features leave a row and a column out, its first Linear has 38 of 61 million parameters."""
    relu = ("nn.ReLU", {})
    conv, pool = "nn.Conv2d", ("nn.MaxPool2d", {"kernel_size": 3, "stride": 2})
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (conv, {"out_channels": 64, "kernel_size": 11, "stride": 4, "padding": 2}),
        relu,
        pool,
        (conv, {"out_channels": 192, "kernel_size": 5, "padding": 2}),
        relu,
        pool,
        (conv, {"out_channels": 384, "padding": 1}),
        relu,
        (conv, {"out_channels": 256, "padding": 1}),
        relu,
        (conv, {"out_channels": 256, "padding": 1}),
        relu,
        pool,
        ("nn.AdaptiveAvgPool2d", {"output_size": 6}),
        ("nn.Flatten", {}),
        ("nn.Dropout", {}),
        ("nn.Linear", {"out_features": 4096}),
        relu,
        ("nn.Dropout", {}),
        ("nn.Linear", {"out_features": 4096}),
        relu,
        ("nn.Linear", {"out_features": 1000}),
    ]
    rows = [(op, f"l{i}", params) for i, (op, params) in enumerate(layers)]
    return chain(*rows, given={"shape": (3, 224, 224)})


def squeeze_head() -> Graph:
    """SqueezeNet ends in Dropout, a convolution, ReLU and a mean."""
    return chain(
        ("nn.Conv2d", "conv1", {}),
        ("nn.ReLU", "relu1", {}),
        ("nn.Dropout", "drop", {}),
        ("nn.Conv2d", "conv2", {"out_channels": 10, "kernel_size": 1}),
        ("nn.ReLU", "relu2", {}),
        ("nn.AdaptiveAvgPool2d", "avg", {}),
        ("nn.Flatten", "flatten", {}),
    )


def narrow() -> Graph:
    """A map of low rank, made so on purpose."""
    return chain(
        ("nn.Linear", "down", {"out_features": 16}),
        ("nn.Linear", "up", {"out_features": 784}),
        given=ROW,
    )


def mish() -> Graph:
    rows: list[Any] = [
        ("input", "x", ROW),
        ("nn.Linear", "fc", {}),
        ("nn.Softplus", "soft", {}),
    ]
    rows += [("nn.Tanh", "tanh", {}), ("operator.mul", "mul", {}), ("output", "y", {})]
    wires = [
        ("x", "fc"),
        ("fc", "soft"),
        ("soft", "tanh"),
        ("fc", "mul"),
        ("tanh", "mul", "other"),
        ("mul", "y"),
    ]
    return net(rows, wires)


def words() -> Graph:
    """Nearly all parameters of a small language model are in its table of words."""
    return chain(
        ("nn.Embedding", "embed", {"num_embeddings": 50_000, "embedding_dim": 300}),
        ("torch.mean", "mean", {"dim": (1,)}),
        ("nn.Linear", "fc", {"out_features": 2}),
        given={"shape": (20,), "dtype": DType("int64")},
    )


GOOD = [residual, transformer, unet, alexnet, squeeze_head, narrow, mish, words]


@pytest.mark.parametrize("make", GOOD, ids=lambda make: make.__name__)
def test_a_good_network_hears_nothing(make: Any) -> None:
    graph = make()
    assert said(graph) == ()
    assert heard(graph) == []


def test_nothing_is_checked_before_the_drawing_runs() -> None:
    graph = chain(
        ("nn.Conv2d", "conv", {"kernel_size": 64}),
        ("nn.ReLU", "a", {}),
        ("nn.ReLU", "b", {}),
    )
    analysis: Analysis = analyse(graph)
    assert [problem.severity for problem in analysis.problems] == ["error"]


def test_a_muted_layer_counts_for_nothing() -> None:
    soft = chain(*LOGITS, ("nn.Softmax", "soft", {}), given=ROW)
    assert heard(soft.with_node(replace(soft.nodes["soft"], muted=True))) == []
    mlp = chain(
        ("nn.Linear", "fc1", {}),
        ("nn.ReLU", "relu", {}),
        ("nn.Linear", "fc2", {}),
        given=ROW,
    )
    (problem,) = said(mlp.with_node(replace(mlp.nodes["relu"], muted=True)))
    assert problem.node == "fc2"
