"""Each mistake that people make is told with both shapes, and each cure that is offered mends it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Problem, apply_cure
from app.builder.graph import Edge, Graph
from app.builder.literals import AUTO, DType
from tests.support.builder_nets import INT64, net, run
from tests.support.pseudo_language import speak_pseudo


@dataclass(frozen=True)
class Mistake:
    """`graph` goes wrong at the node "it"; the message holds `says`, and there are the cures `cures`."""

    graph: Graph
    says: tuple[str, ...]
    cures: tuple[str, ...] = ()


def behind(
    shape: tuple[int, ...],
    op: str,
    params: dict[str, Any] | None = None,
    dtype: DType | None = None,
) -> Graph:
    """input -> it -> output, and what comes after it."""
    given = {"shape": shape, **({"dtype": dtype} if dtype else {})}
    return net(
        [
            ("input", "x", given),
            (op, "it", params or {}),
            ("nn.Tanh", "after", {}),
            ("output", "y", {}),
        ]
    )


def joined(
    left: tuple[int, ...],
    right: tuple[int, ...],
    op: str,
    params: dict[str, Any] | None = None,
) -> Graph:
    ports = ("tensors", "tensors") if op == "torch.cat" else ("input", "other")
    return net(
        [
            ("input", "a", {"shape": left}),
            ("input", "b", {"shape": right}),
            (op, "it", params or {}),
            ("output", "y", {}),
        ],
        [("a", "it", ports[0]), ("b", "it", ports[1]), ("it", "y")],
    )


def products(left: tuple[int, ...], right: tuple[int, ...]) -> Graph:
    rows = [
        ("input", "a", {"shape": left}),
        ("input", "b", {"shape": right}),
        ("torch.einsum", "it", {}),
        ("output", "y", {}),
    ]
    return net(rows, [("a", "it", "tensors"), ("b", "it", "tensors"), ("it", "y")])


def attention(
    query: tuple[int, ...], other: tuple[int, ...], params: dict[str, Any] | None = None
) -> Graph:
    return net(
        [
            ("input", "q", {"shape": query}),
            ("input", "kv", {"shape": other}),
            ("nn.MultiheadAttention", "it", params or {}),
            ("output", "y", {}),
        ],
        [("q", "it", "query"), ("kv", "it", "key"), ("kv", "it", "value"), ("it", "y")],
    )


MISTAKES: dict[str, Mistake] = {
    "linear: a picture that wants a Flatten": Mistake(
        behind((32, 5, 5), "nn.Linear", {"in_features": 800}),
        ("Linear expects 800 features, gets 32×5×5", "insert Flatten"),
        ("Insert Flatten",),
    ),
    "linear: another number of features": Mistake(
        behind((784,), "nn.Linear", {"in_features": 128}),
        ("Linear expects 128 features, gets 784 in N×784",),
        ("Infer in_features from the input",),
    ),
    "linear: another number of features, in a picture": Mistake(
        behind((3, 8, 8), "nn.Linear", {"in_features": 100}),
        ("expects 100 features, gets 8 in N×3×8×8",),
        ("Insert Flatten and follow", "Infer in_features from the input"),
    ),
    "linear: whole numbers": Mistake(
        behind((8,), "nn.Linear", dtype=INT64),
        ("Linear expects float32, gets int64 in N×8 from x",),
        ("Make x float32", "Insert Tensor.to(float32)"),
    ),
    "linear: double precision": Mistake(
        behind((8,), "nn.Linear", dtype=DType("float64")),
        ("expects float32, gets float64 in N×8",),
        ("Make x float32", "Insert Tensor.to(float32)"),
    ),
    "activation: whole numbers": Mistake(
        behind((8,), "nn.GELU", dtype=INT64),
        ("GELU expects float32, gets int64 in N×8",),
        ("Make x float32", "Insert Tensor.to(float32)"),
    ),
    "conv: channels": Mistake(
        behind((3, 8, 8), "nn.Conv2d", {"in_channels": 1}),
        ("Conv2d expects 1 channel, gets 3 in N×3×8×8",),
        ("Infer in_channels from the input",),
    ),
    "conv: no channel dimension": Mistake(
        behind((28, 28), "nn.Conv2d"),
        ("Conv2d expects 4 dimensions, gets N×28×28",),
        ("Add a channel dimension", "Use Conv1d"),
    ),
    "conv: flattened picture": Mistake(
        behind((784,), "nn.Conv2d"),
        ("Conv2d expects 4 dimensions, gets N×784",),
        ("Insert Unflatten (1×28×28)",),
    ),
    "conv: what is no picture": Mistake(
        behind((10,), "nn.Conv2d"), ("Conv2d expects 4 dimensions, gets N×10",)
    ),
    "conv: too small": Mistake(
        behind((3, 2, 2), "nn.Conv2d", {"kernel_size": 5}),
        ("window of 5×5, larger than its input of 2×2",),
        ("Set padding=2", "Set kernel_size=2"),
    ),
    "conv: a tuple that is too small": Mistake(
        behind((3, 8, 2), "nn.Conv2d", {"kernel_size": (3, 5)}),
        ("window of 3×5", "8×2"),
        ("Set padding=(1, 2)", "Set kernel_size=(3, 2)"),
    ),
    "conv: groups": Mistake(
        behind((3, 8, 8), "nn.Conv2d", {"groups": 2}),
        ("cannot split 3 channels into 2 groups",),
        ("Set groups=1",),
    ),
    "conv: whole numbers": Mistake(
        behind((3, 8, 8), "nn.Conv2d", dtype=DType("uint8")),
        ("Conv2d expects float32, gets uint8",),
        ("Make x float32", "Insert Tensor.to(float32)"),
    ),
    "conv1d: a picture": Mistake(
        behind((3, 8, 8), "nn.Conv1d"),
        ("Conv1d expects 3 dimensions, gets N×3×8×8",),
        ("Insert Flatten", "Use Conv2d"),
    ),
    "conv1d: a row": Mistake(
        behind((100,), "nn.Conv1d"),
        ("Conv1d expects 3 dimensions, gets N×100",),
        ("Add a channel dimension",),
    ),
    "conv1d: too small": Mistake(
        behind((4, 2), "nn.Conv1d"),
        ("larger than its input of 2",),
        ("Set padding=1", "Set kernel_size=2"),
    ),
    "convtranspose: channels": Mistake(
        behind((3, 8, 8), "nn.ConvTranspose2d", {"in_channels": 5}),
        ("expects 5 channels, gets 3",),
        ("Infer in_channels from the input",),
    ),
    "bn2d: features": Mistake(
        behind((3, 8, 8), "nn.BatchNorm2d", {"num_features": 8}),
        ("BatchNorm2d expects 8 features, gets 3 in N×3×8×8",),
        ("Infer num_features from the input",),
    ),
    "bn2d: rank": Mistake(
        behind((10,), "nn.BatchNorm2d"),
        ("BatchNorm2d expects 4 dimensions, gets N×10",),
        ("Use BatchNorm1d",),
    ),
    "bn1d: rank": Mistake(
        behind((3, 8, 8), "nn.BatchNorm1d"),
        ("BatchNorm1d expects 2 or 3 dimensions, gets N×3×8×8",),
        ("Insert Flatten", "Use BatchNorm2d"),
    ),
    "layernorm: shape": Mistake(
        behind((5, 16), "nn.LayerNorm", {"normalized_shape": (8,)}),
        ("LayerNorm expects 8 last, gets N×5×16",),
        ("Infer normalized_shape from the input",),
    ),
    "pool: too small": Mistake(
        behind((3, 1, 1), "nn.MaxPool2d"),
        ("MaxPool2d has a window of 2×2, larger than its input of 1×1",),
        ("Set padding=1", "Set kernel_size=1"),
    ),
    "pool: rank": Mistake(
        behind((100,), "nn.MaxPool2d"),
        ("MaxPool2d expects 4 dimensions, gets N×100",),
        ("Insert Unflatten (1×10×10)",),
    ),
    "functional pool: too small": Mistake(
        behind((3, 1, 4), "F.max_pool2d"),
        ("max_pool2d has a window of 2×2",),
        ("Set padding=1", "Set kernel_size=1"),
    ),
    "embedding: floats": Mistake(
        behind((7,), "nn.Embedding"),
        ("Embedding expects int64, gets float32 in N×7 from x",),
        ("Make x int64", "Insert Tensor.to(int64)"),
    ),
    "lstm: features": Mistake(
        behind((5, 12), "nn.LSTM", {"input_size": 64}),
        ("LSTM expects 64 features, gets 12 in N×5×12",),
        ("Infer input_size from the input",),
    ),
    "lstm: a picture": Mistake(
        behind((3, 8, 8), "nn.LSTM"),
        ("LSTM expects 2 or 3 dimensions, gets N×3×8×8",),
        ("Insert Flatten",),
    ),
    "gru: features": Mistake(
        behind((5, 12), "nn.GRU", {"input_size": 64}),
        ("GRU expects 64 features, gets 12",),
        ("Infer input_size from the input",),
    ),
    "attention: heads": Mistake(
        attention((5, 30), (5, 30), {"num_heads": 4}),
        ("cannot split 30 features among 4 heads",),
        ("Set num_heads=3",),
    ),
    "attention: embed_dim": Mistake(
        attention((5, 32), (5, 32), {"embed_dim": 64}),
        ("MultiheadAttention expects 64 features, gets 32 in N×5×32",),
        ("Infer embed_dim from the input",),
    ),
    "attention: keys of another width": Mistake(
        attention((5, 32), (5, 16), {"kdim": 32, "vdim": 16}),
        ("expects 32 features as key, gets 16",),
        ("Set kdim=16",),
    ),
    "add: no broadcast": Mistake(
        joined((32, 26, 26), (32, 28, 28), "operator.add"),
        ("add cannot join N×32×26×26 and N×32×28×28",),
        ("Resize b to 26×26",),
    ),
    "sub: no broadcast": Mistake(
        joined((4,), (5,), "operator.sub"),
        ("sub cannot join N×4 and N×5",),
        ("Insert Linear to 4 after b",),
    ),
    "mul: no broadcast": Mistake(
        joined((4, 5), (4, 6), "operator.mul"),
        ("mul cannot join N×4×5 and N×4×6",),
        ("Insert Linear to 5 after b", "Resize b to 5"),
    ),
    "add: nothing makes them meet": Mistake(
        joined((3, 4, 5), (7,), "operator.add"),
        ("add cannot join N×3×4×5 and N×7", "5 from a and 7 from b"),
    ),
    "cat: other dimensions": Mistake(
        joined((3, 8), (4, 8), "torch.cat", {"dim": 2}),
        ("cat cannot join N×3×8 and N×4×8",),
        ("Set dim=1",),
    ),
    "cat: rank": Mistake(
        joined((3, 8), (8,), "torch.cat"),
        ("cat cannot join N×3×8 and N×8",),
        ("Insert unsqueeze(1) after b", "Insert Flatten after a"),
    ),
    "cat: dim out of range": Mistake(
        joined((8,), (8,), "torch.cat", {"dim": 4}), ("dim=4", "N×8"), ("Set dim=-1",)
    ),
    "matmul: second wants turning": Mistake(
        joined((4, 6), (5, 6), "torch.matmul"),
        ("matmul cannot multiply N×4×6 and N×5×6",),
        ("Transpose the second", "Insert Linear to 5 after a"),
    ),
    "matmul: nothing fits": Mistake(
        joined((4, 6), (5, 7), "torch.matmul"),
        ("matmul cannot multiply N×4×6 and N×5×7",),
        ("Insert Linear to 5 after a",),
    ),
    "einsum: one letter for two sizes": Mistake(
        products((4, 6), (5, 7)),
        ("einsum cannot take 'j' for 6 and for 5", "N×4×6 from a", "N×5×7 from b"),
    ),
    "einsum: more letters than dimensions": Mistake(
        products((4, 6), (5,)),
        ("einsum expects 3 dimensions for 'bjk', gets N×5 from b",),
    ),
    "view: wrong product": Mistake(
        behind((3, 8, 8), "Tensor.view", {"size": (-1, 100)}),
        ("view to (-1, 100) does not fit N×3×8×8",),
        ("Set size=(-1, 192)",),
    ),
    "reshape: wrong product": Mistake(
        behind((3, 8, 8), "torch.reshape", {"shape": (-1, 7, 5)}),
        ("reshape to (-1, 7, 5)", "N×3×8×8"),
        ("Set shape=(-1, 192)",),
    ),
    "unflatten: wrong product": Mistake(
        behind((12,), "nn.Unflatten", {"unflattened_size": (3, 5)}),
        ("(3, 5)", "N×12"),
        ("Set unflattened_size=(3, -1)",),
    ),
    "permute: too few": Mistake(
        behind((3, 8, 8), "torch.permute", {"dims": (0, 2, 1)}),
        ("permute names 3 dimensions, N×3×8×8 has 4",),
        ("Set dims=(0, 2, 3, 1)",),
    ),
    "permute: one twice": Mistake(
        behind((5, 6), "torch.permute", {"dims": (0, 1, 1)}),
        ("permute to (0, 1, 1) does not fit N×5×6",),
        ("Set dims=(0, 2, 1)",),
    ),
    "transpose: out of range": Mistake(
        behind((5,), "torch.transpose"), ("dim1=2", "N×5"), ("Set dim1=-1",)
    ),
    "mean: out of range": Mistake(
        behind((5,), "torch.mean"), ("dim=(2, 3)", "N×5"), ("Set dim=(-1,)",)
    ),
    "softmax: out of range": Mistake(
        behind((5,), "F.softmax", {"dim": 3}), ("dim=3", "N×5"), ("Set dim=-1",)
    ),
    "flatten: out of range": Mistake(
        behind((5,), "nn.Flatten", {"start_dim": 3}),
        ("start_dim=3", "N×5"),
        ("Set start_dim=-1",),
    ),
    "any other": Mistake(
        behind((3, 8), "torch.diff", {"n": 0, "dim": 1})
        if "torch.diff" in catalog()
        else behind((3, 8, 8), "nn.FractionalMaxPool2d", {"kernel_size": 8}),
        ("it does not fit: ", "N×3×8"),
    ),
}


def problem_at(graph: Graph, node: str = "it") -> Problem:
    (problem,) = [problem for problem in analyse(graph).errors if problem.node == node]
    return problem


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
class TestEveryMistake:
    def test_is_told_with_both_shapes(self, mistake: Mistake) -> None:
        problem = problem_at(mistake.graph)
        words = f"{problem.message} {problem.reason}"
        for part in mistake.says:
            assert part in words
        assert problem.reason and problem.torch_message
        assert tuple(cure.label for cure in problem.cures) == mistake.cures

    def test_is_told_in_another_language_with_all_its_cures(
        self, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        english = problem_at(mistake.graph)
        speak_pseudo(monkeypatch)
        other = problem_at(mistake.graph)
        assert other.message != english.message and other.reason != english.reason
        for cure, same in zip(other.cures, english.cures, strict=True):
            assert cure.label != same.label and cure.edits == same.edits

    def test_is_the_only_error_and_nothing_is_said_of_what_follows(
        self, mistake: Mistake
    ) -> None:
        analysis = analyse(mistake.graph)
        assert [problem.node for problem in analysis.errors] == [
            "it"
        ] and not analysis.runnable
        after = {"it", "after"} & set(mistake.graph.nodes)
        assert not any(node in after for node, _ in analysis.values)
        assert analysis.assumed == after - {"it"}

    def test_every_cure_mends_it(self, mistake: Mistake) -> None:
        cures = problem_at(mistake.graph).cures
        assert len(cures) >= len(mistake.cures)
        for cure in cures:
            mended = apply_cure(mistake.graph, catalog(), cure)
            analysis = analyse(mended)
            assert analysis.errors == (), cure.label
            assert len(run(analysis.source, 3)) == 1


def test_a_cure_that_mends_nothing_is_not_offered() -> None:
    """With a dilation the usual padding is too little, so it is not offered."""
    graph = behind((3, 2, 2), "nn.Conv2d", {"kernel_size": 3, "dilation": 4})
    assert [cure.label for cure in problem_at(graph).cures] == ["Set kernel_size=1"]


def test_attention_without_weights_is_told_where_they_are_taken() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (5, 64)}),
            ("nn.MultiheadAttention", "it", {"need_weights": False}),
            ("output", "y", {}),
            ("output", "weights", {}),
        ],
        [
            ("x", "it", "query"),
            ("x", "it", "key"),
            ("x", "it", "value"),
            ("it", "y"),
            ("it", "weights", "input", 1),
        ],
    )
    problem = problem_at(graph, "weights")
    assert "it has no output 1" in problem.message
    (cure,) = problem.cures
    assert analyse(apply_cure(graph, catalog(), cure)).runnable


def test_a_tuple_from_a_file_in_the_place_of_a_tensor_is_an_error() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (5, 8)}),
            ("nn.LSTM", "lstm", {}),
            ("nn.Linear", "it", {}),
            ("output", "y", {}),
        ],
        [("x", "lstm"), ("it", "y")],
    ).with_edge(Edge("lstm", 1, "it", "input"))
    assert (
        problem_at(graph).message == "lstm gives a tuple, it expects a tensor as input"
    )


def test_auto_says_what_it_lacks() -> None:
    problem = problem_at(behind((), "nn.Linear"))
    assert "cannot infer in_features from N" in problem.message


def test_missing_and_wrong_parameters_are_told_before_anything_runs() -> None:
    graph = behind((4,), "nn.Linear").without_param("it", "out_features")
    assert problem_at(graph).message == "it needs out_features"
    assert (
        "out_features must be at least 1"
        in problem_at(graph.with_param("it", "out_features", 0)).message
    )
    assert (
        "has no parameter 'x'"
        in problem_at(behind((4,), "nn.Linear", {"x": 1})).message
    )
    assert (
        "in_features" not in dict(graph.nodes["it"].params)
        or graph.nodes["it"].params["in_features"] is AUTO
    )


def test_warnings_do_not_stop_a_net() -> None:
    analysis = analyse(behind((3, 8, 8), "nn.Linear"))
    (warning,) = analysis.problems
    assert warning.severity == "warning" and analysis.runnable
    assert (
        analyse(apply_cure(analysis.graph, catalog(), warning.cures[0])).problems == ()
    )


def test_a_sequence_layer_that_reads_the_batch_as_time_is_warned_of() -> None:
    analysis = analyse(behind((5, 12), "nn.LSTM", {"batch_first": False}))
    (warning,) = analysis.problems
    assert warning.message == "it reads the batch as a sequence"
    assert (
        analyse(apply_cure(analysis.graph, catalog(), warning.cures[0])).problems == ()
    )


def test_what_reaches_no_output_is_left_out_and_can_be_removed() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (4,)}),
            ("nn.ReLU", "r", {}),
            ("output", "y", {}),
            ("nn.Tanh", "loose", {}),
        ],
        [("x", "r"), ("r", "y"), ("x", "loose")],
    )
    analysis = analyse(graph)
    (warning,) = analysis.problems
    assert (
        warning.node == "loose"
        and "loose" not in analysis.source.text
        and analysis.runnable
    )
    mended = apply_cure(graph, catalog(), warning.cures[-1])
    assert set(mended.nodes) == {"x", "r", "y"} and analyse(mended).problems == ()


def test_a_flat_width_that_was_typed_is_inferred_as_the_flatten_moves() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (3, 7, 9)}),
            ("nn.Flatten", "flat", {}),
            ("nn.Conv2d", "conv", {"in_channels": 189}),
            ("nn.ReLU", "relu", {}),
            ("output", "y", {}),
        ]
    )
    moved, removed = problem_at(graph, "conv").cures
    assert moved.label == "Move flat behind conv and infer in_channels"
    assert removed.label == "Remove flat and infer in_channels"
    for cure in (moved, removed):
        assert analyse(apply_cure(graph, catalog(), cure)).errors == ()
    flat = next(node for node in graph.nodes.values() if node.name == "flat")
    assert apply_cure(graph, catalog(), moved).nodes[flat.id] == flat
    without_relu = graph.without_nodes(["relu"])
    assert apply_cure(without_relu, catalog(), moved).nodes[flat.id] == flat


@pytest.mark.parametrize(
    ("shape", "row", "size"),
    [
        ((1024,), ("nn.Conv2d", "it", {"in_channels": 8}), "[N, 1024]"),
        ((67,), ("nn.Conv2d", "it", {"in_channels": 8}), "[N, 67]"),
        ((28, 64), ("nn.Linear", "it", {"in_features": 8}), "28Nx64"),
        ((1 << 20,), ("nn.Linear", "it", {"in_features": 8}), "[N, 1048576]"),
    ],
)
def test_the_batch_is_n_in_the_message_of_torch_too(
    shape: tuple[int, ...], row: tuple[str, str, dict[str, Any]], size: str
) -> None:
    rows = [("input", "x", {"shape": shape}), row, ("output", "y", {})]
    problem = problem_at(net(rows), "it")
    assert size in problem.torch_message, problem
    texts = f"{problem.message} {problem.reason} {problem.torch_message}"
    assert not re.search(r"[(\[](64|67|71|1009|2017)\b", texts), texts
    assert "N×" in f"{problem.message} {problem.reason}"


def test_cures_of_a_graph_that_moved_on_do_nothing() -> None:
    graph = MISTAKES["conv: channels"].graph
    (cure,) = problem_at(graph).cures
    gone = graph.without_nodes(["it"])
    assert apply_cure(gone, catalog(), cure) == gone
    (flatten,) = problem_at(
        MISTAKES["linear: a picture that wants a Flatten"].graph
    ).cures
    cut = MISTAKES["linear: a picture that wants a Flatten"].graph
    cut = cut.without_edge(cut.into("it")[0])
    assert apply_cure(cut, catalog(), flatten) == cut


def test_many_errors_at_once_are_all_told() -> None:
    rows = [("input", "x", {"shape": (3, 8, 8)}), ("output", "y", {})]
    rows += [("nn.Conv2d", f"c{i}", {"in_channels": 7}) for i in range(30)] + [
        ("torch.cat", "cat", {})
    ]
    wires = (
        [("x", f"c{i}") for i in range(30)]
        + [(f"c{i}", "cat", "tensors") for i in range(30)]
        + [("cat", "y")]
    )
    errors = analyse(net(rows, wires)).errors
    assert len(errors) == 30 and errors[0].cures


@pytest.mark.parametrize(
    "turn", [("torch.transpose", {}), ("nn.LSTM", {"hidden_size": 6})]
)
def test_a_view_of_what_does_not_lie_in_a_row(turn: tuple[str, dict[str, Any]]) -> None:
    """The words of torch are a riddle to a learner, and shapes alone would let it pass."""
    op, params = turn
    graph = net(
        [
            ("input", "x", {"shape": (4, 6)}),
            (op, "turned", params),
            ("nn.ReLU", "relu", {}),
        ]
        + [("Tensor.view", "it", {"size": (-1, 24)}), ("output", "y", {})]
    )
    problem = problem_at(graph)
    assert (
        "is not contiguous in memory" in problem.message
        and "stride" in problem.torch_message
    )
    (cure,) = problem.cures
    mended = analyse(apply_cure(graph, catalog(), cure))
    assert mended.problems == () and mended.graph.nodes["it"].op == "torch.reshape"
    assert tuple(run(mended.source, 3)[0].shape) == (3, 24)
