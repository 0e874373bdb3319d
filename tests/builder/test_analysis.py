"""What is said of a drawing is what the code then does: for any drawing, any batch, and however deep."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import DType, Slice
from app.builder.plan import plan
from app.builder.results import Analysis
from app.builder.shapes import meta_calls, shapes
from app.builder.value_types import Dim, TensorType, TupleType
from app.util import rng
from app.util.frozen import FrozenMap
from tests.support.builder_nets import chain, measured, net, returned, run, wired

JOINS = ("operator.add", "operator.sub", "operator.mul", "torch.cat", "torch.matmul")
NO_TENSOR = {
    key
    for key, spec in catalog().items()
    if not any("tensor" in port.kind for port in spec.outputs)
}
# Whether these run is up to the values: a matrix may be singular, one sample has no variance, and torch refuses one
# sample of which each group of GroupNorm has one value.
BY_VALUE = {key for key in catalog() if key.startswith("torch.linalg.")} | {
    "F.batch_norm",
    "nn.GroupNorm",
    "F.group_norm",
    "torch.logdet",
}
LAYERS = tuple(
    key
    for key in catalog()
    if key not in {"input", *JOINS, *BY_VALUE, *NO_TENSOR - {"operator.getitem"}}
)
TWEAKS = {
    "nn.Linear": [{"out_features": 4}, {"out_features": 8, "bias": False}],
    "nn.Conv2d": [
        {"out_channels": 4, "padding": 1},
        {"out_channels": 2, "kernel_size": (1, 2), "stride": 2},
    ],
    "nn.Conv1d": [{"out_channels": 4, "padding": "same"}],
    "nn.ConvTranspose2d": [{"out_channels": 2, "stride": 2}],
    "nn.LSTM": [{"hidden_size": 4, "bidirectional": True}],
    "nn.GRU": [{"hidden_size": 4, "num_layers": 2}],
    "Tensor.view": [{"size": (-1, 8)}, {"size": (-1, 2, 4)}],
    "torch.mean": [{"dim": (1,)}, {"dim": (-1,), "keepdim": True}],
    "torch.transpose": [{"dim0": 1, "dim1": -1}],
    "nn.Flatten": [{}, {"start_dim": 0}, {"start_dim": -2}],
    "torch.permute": [{"dims": (0, 2, 1)}, {"dims": (0, 2, 3, 1)}, {"dims": (1, 0, 2)}],
}


@st.composite
def drawings(draw: st.DrawFn) -> Analysis:
    """A drawing that grew as people draw: a layer behind what is there, a join of two, taken back if it did not fit."""
    ops = catalog()
    graph = Graph()
    for i in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from([(4,), (8,), (4, 8), (2, 4, 4), (2, 6, 6)]))
        graph = graph.with_node(
            Node(f"in{i}", "input", f"input{i}", FrozenMap(shape=shape))
        )
    analysis = analyse(graph)
    for i in range(draw(st.integers(1, 10))):
        values = sorted(
            place
            for place, value in analysis.values.items()
            if isinstance(value, TensorType)
        )
        join = draw(st.booleans())
        key = draw(st.sampled_from(JOINS if join else LAYERS))
        params = draw(st.sampled_from(TWEAKS.get(key, [{}])))
        bigger = analysis.graph.with_node(
            Node(f"n{i}", key, f"n{i}", ops[key].starting_params().update(params))
        )
        source = draw(st.sampled_from(values))
        for port in ops[key].inputs:
            if port.required:
                source = draw(st.sampled_from(values)) if join else source
                bigger = wired(bigger, source[0], f"n{i}", port.name, source[1])
        if join and key == "torch.cat":
            other = draw(st.sampled_from(values))
            bigger = wired(bigger, other[0], f"n{i}", "tensors", other[1])
        after = analyse(bigger)
        if not [problem for problem in after.errors if problem.node]:
            analysis = after
    graph = analysis.graph
    loose = [
        place
        for place, value in analysis.values.items()
        if isinstance(value, TensorType)
    ]
    for number, (node, output) in enumerate(loose):
        if not any(edge.output == output for edge in graph.out_of(node)):
            graph = graph.with_node(Node(f"out{number}", "output", f"output{number}"))
            graph = graph.with_edge(Edge(node, output, f"out{number}", "input"))
    return analyse(graph)


@given(drawings(), st.sampled_from([(1, 4), (2, 3), (7, 10)]))
def test_code_gives_what_the_drawing_says(
    analysis: Analysis, batches: tuple[int, int]
) -> None:
    assert analysis.errors == ()
    for batch in batches:
        assert measured(run(analysis.source, batch)) == returned(analysis, batch)


def test_groups_of_one_value_run_with_two_samples_and_torch_refuses_one() -> None:
    """Why no random drawing above has a GroupNorm; with groups of more it is as drawn, whatever the batch."""
    for groups, batches in ((8, (2, 3)), (4, (1, 3))):
        analysis = analyse(
            net(
                [
                    ("input", "x", {"shape": (8,)}),
                    ("nn.GroupNorm", "norm", {"num_groups": groups}),
                    ("output", "y", {}),
                ]
            )
        )
        assert analysis.errors == ()
        for batch in batches:
            assert measured(run(analysis.source, batch)) == returned(analysis, batch)
        if groups == 8:
            with pytest.raises(ValueError, match="more than 1 value per channel"):
                run(analysis.source, 1)


# With some batches they run and with others not, or the call gives fewer values than it is asked for.
RUN_BY_CHANCE = "Tensor.view torch.reshape nn.Flatten nn.Unflatten nn.GLU F.glu torch.chunk operator.getitem".split()


@pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # torch's words on shapes that nobody would draw
def test_meta_tensors_say_what_real_ones_say() -> None:
    """Random parameters on random shapes: a call that runs gives what was said, of one that does not that was said."""
    import random

    from app.builder.literals import AUTO
    from app.builder.params import ParamError, check_param
    from app.builder.plan import Step

    dice = random.Random(5)
    ops = [
        spec
        for spec in catalog().values()
        if spec.inputs and all("tensor" in p.kind for p in spec.inputs)
    ]
    ops = [
        spec
        for spec in ops
        if spec.kind != "output" and not any(p.kind == "tuple" for p in spec.outputs)
    ]

    def value_of(param):
        value = {
            "int": lambda: dice.choice([0, 1, 2, 3, 4, 8, -1, -2, 5]),
            "float": lambda: dice.choice([0.0, 0.5, 1.0]),
            "bool": lambda: dice.random() < 0.5,
            "choice": lambda: dice.choice(param.choices),
            "ints": lambda: dice.choice(
                [
                    dice.randint(1, 4),
                    tuple(dice.randint(-1, 4) for _ in range(param.count or 2)),
                    *param.choices,
                ]
            ),
            "dtype": lambda: None,
            "number": lambda: dice.choice([1, 2, 0.5, -3, True]),
            "index": lambda: dice.choice(
                [0, -1, Slice(1), (Slice(), 0), (Ellipsis, None), Slice(None, None, 2)]
            ),
            "equation": lambda: dice.choice(["bij,bij->bj", "bij,bjk->bik"]),
        }[param.kind]()
        check_param(param, value)
        return value

    ran = 0
    for _ in range(500):
        spec = dice.choice(ops)
        params = dict(spec.starting_params())
        for param in spec.params:
            if dice.random() < 0.3:
                try:
                    params[param.name] = value_of(param)
                except ParamError:
                    continue
        shape = tuple(
            dice.choice([1, 2, 3, 4, 8]) for _ in range(dice.choice([1, 2, 2, 3, 3, 4]))
        )
        dtype = (
            "int64" if spec.key == "nn.Embedding" or dice.random() < 0.1 else "float32"
        )
        value = TensorType((Dim(1), *shape), dtype)
        inputs = FrozenMap(
            {
                p.name: (value,) * (2 if p.variadic else 1)
                for p in spec.inputs
                if p.required
            }
        )
        step = Step(
            Node("a", spec.key, "a", FrozenMap(params)), spec, FrozenMap(), True
        )
        resolved = shapes.resolve(step, inputs)
        if AUTO in resolved.values():
            continue
        said = shapes.run(spec, resolved, inputs)
        batch = (isinstance(said, shapes.Ran) and said.fixed_batch) or 6
        try:
            with torch.no_grad():
                found = meta_calls.TorchCall.resolve(spec, resolved)(
                    inputs, batch, "cpu"
                )
        except Exception as error:
            assert isinstance(said, shapes.CallFailed) or spec.key in BY_VALUE, (
                f"{spec.key} {value}: {error}"
            )
            continue
        if isinstance(
            said, shapes.CallFailed
        ):  # it does run with a batch of 6 by chance
            assert spec.key in RUN_BY_CHANCE, (
                spec.key,
                dict(resolved),
                value,
            )
            continue
        ran += 1
        tensors = [
            t
            for t in (found if isinstance(found, tuple) else (found,))
            if isinstance(t, torch.Tensor)
        ]
        types = [v for v in said.outputs if isinstance(v, TensorType)]
        assert [tuple(t.shape) for t in tensors] == [v.with_batch(batch) for v in types]
    assert ran > 150


@pytest.mark.parametrize(
    ("op", "dtype", "given", "message"),
    [
        ("torch.rand_like", "int64", {}, "expects float32, gets int64 in N×4 from x"),
        ("torch.rand_like", "bool", {}, "expects float32, gets bool in N×4 from x"),
        ("torch.randn_like", "int64", {}, "expects float32, gets int64 in N×4 from x"),
        (
            "torch.rand_like",
            "float32",
            {"dtype": DType("int64")},
            "cannot draw random int64",
        ),
        ("torch.rand_like", "int64", {"dtype": DType("float32")}, ""),
        ("torch.rand_like", "complex64", {}, ""),
        (
            "nn.Dropout",
            "complex64",
            {},
            "expects float32, gets complex64 in N×4 from x",
        ),
        ("F.dropout", "complex64", {}, "expects float32, gets complex64 in N×4 from x"),
        ("F.dropout", "complex64", {"training": False}, ""),
    ],
)
def test_random_numbers_of_a_dtype_that_torch_does_not_draw(
    op: str, dtype: str, given: dict, message: str
) -> None:
    """Meta tensors take any dtype; what a run would refuse is said in a sentence, with the conversion as its cure."""
    graph = net(
        [
            ("input", "x", {"shape": (4,), "dtype": DType(dtype)}),
            (op, "r", given),
            ("output", "out", {}),
        ]
    )
    found = analyse(graph)
    errors = [problem for problem in found.errors if problem.node == "r"]
    if not message:
        assert not errors
        return
    (problem,) = errors
    assert message in problem.message
    if "expects" in message:
        assert any("Insert Tensor.to(float32)" in cure.label for cure in problem.cures)
        module = meta_calls.TorchCall.resolve(catalog()[op], FrozenMap(given))
        with pytest.raises((RuntimeError, NotImplementedError)):  # as torch does
            module(FrozenMap(input=(TensorType((Dim(1), 4), dtype),)), 2, "cpu")


def test_thousands_of_layers() -> None:
    """No step of the way may go as deep as the net: file, plan, shapes, source."""
    from app.project import file
    from app.project.project import Project

    length = 3000
    graph = chain(length)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        project = file.loads(file.dumps(Project(graph=graph)))
        analysis = analyse(project.graph)
    finally:
        sys.setrecursionlimit(limit)
    assert analysis.runnable and len(analysis.source.lines) == length + 2
    assert analysis.source.text.count("nn.ReLU()") == length


def test_work_grows_with_the_net_and_no_faster() -> None:
    """Counted in calls of Python functions, which a clock that others share cannot disturb."""

    def work(length: int) -> int:
        graph, count = chain(length, "nn.Tanh"), 0

        def tick(frame, event, arg) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(tick)
        try:
            analyse(graph)
        finally:
            sys.setprofile(None)
        return count

    work(10)
    assert work(800) < 2.3 * work(400)


def test_an_edit_runs_again_only_what_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = chain(200, "nn.Linear", out_features=16)
    analyse(graph)
    real, seen = shapes.run, []

    def counted(spec, params, inputs):
        seen.append(spec.key)
        return real(spec, params, inputs)

    monkeypatch.setattr(shapes, "run", counted)
    assert analyse(graph).runnable and seen == []
    # Another width in the middle: this layer, and the next, whose input is another now.
    assert analyse(graph.with_param("n100", "out_features", 77)).runnable
    assert seen == ["nn.Linear"] * 2
    seen.clear()
    assert (
        analyse(
            graph.with_name("n3", "other").with_param("n100", "out_features", 77)
        ).runnable
        and seen == []
    )
    assert analyse(graph.with_param("n50", "bias", False)).runnable and seen == [
        "nn.Linear"
    ]


def test_a_long_sequence_costs_no_more_than_a_short_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def net_of(length: int) -> Graph:
        return net(
            [
                ("input", "x", {"shape": (length, 6)}),
                ("nn.LSTM", "lstm", {"num_layers": 2}),
                ("output", "y", {}),
            ]
        )

    taken = []
    real = meta_calls.TorchCall.__call__

    def watched(self, inputs, batch, device):
        taken.append(inputs["input"][0])
        return real(self, inputs, batch, device)

    monkeypatch.setattr(meta_calls.TorchCall, "__call__", watched)
    analysis = analyse(net_of(5011))
    assert [value.shape[1] for value in taken] == [1, 1]
    assert (
        str(analysis.values["lstm", 0]) == "N×5011×64"
        and str(analysis.values["lstm", 1]) == "(2×N×64, 2×N×64)"
    )


# --- The batch -----------------------------------------------------------------------------------------------------


def shape_after(
    shape: tuple[int, ...], *rows: tuple[str, dict]
) -> tuple[str, Analysis]:
    named = [(op, f"n{i}", params) for i, (op, params) in enumerate(rows)]
    analysis = analyse(
        net([("input", "x", {"shape": shape}), *named, ("output", "y", {})])
    )
    return str(analysis.values.get((f"n{len(rows) - 1}", 0))), analysis


def test_batch_stays_a_symbol() -> None:
    for shape, rows, wanted in (
        ((3, 8, 8), [("nn.Conv2d", {})], "N×32×6×6"),
        ((7, 7, 4), [("Tensor.view", {"size": (-1, 4)})], "49N×4"),
        ((6, 64), [("nn.Flatten", {"start_dim": 0, "end_dim": 1})], "6N×64"),
        ((4,), [("torch.reshape", {"shape": (-1,)})], "4N"),
        ((5, 6), [("torch.permute", {"dims": (1, 0, 2)})], "5×N×6"),
        (
            (2, 5),
            [("torch.permute", {"dims": (1, 2, 0)}), ("nn.Conv1d", {})],
            "2×32×N−2",
        ),
        (
            (2, 5),
            [("torch.permute", {"dims": (1, 2, 0)}), ("nn.Conv1d", {"padding": 4})],
            "2×32×N+6",
        ),
        ((64,), [("torch.mean", {"dim": (0,)})], "64"),
        ((64,), [("torch.mean", {"dim": (0, 1)})], "scalar"),
    ):
        said, analysis = shape_after(shape, *rows)
        assert said == wanted and analysis.runnable
        for batch in (9, 12):
            assert measured(run(analysis.source, batch)) == returned(analysis, batch)


def test_a_batch_size_that_is_written_down_is_warned_of() -> None:
    said, analysis = shape_after(
        (2, 8), ("Tensor.view", {"size": (32, 16)}), ("nn.Linear", {})
    )
    assert said == "32×64"
    (warning,) = analysis.problems
    assert (
        warning.message == "n0 works with a batch size of 32 only" and analysis.runnable
    )
    assert tuple(run(analysis.source, 32)[0].shape) == (32, 64)
    from app.builder.diagnostics.problems import apply_cure

    mended = analyse(apply_cure(analysis.graph, catalog(), warning.cures[0]))
    assert mended.problems == () and str(mended.values["n1", 0]) == "N×64"


def test_a_size_that_is_no_batch_is_not_taken_for_one() -> None:
    """With 64 samples these would run by chance, with any other number they do not."""
    _, analysis = shape_after((2, 8), ("Tensor.view", {"size": (-1, 100)}))
    assert not analysis.runnable
    _, analysis = shape_after((28, 28), ("nn.Conv2d", {"in_channels": 64}))
    assert not analysis.runnable
    graph = net(
        [
            ("input", "a", {"shape": ()}),
            ("input", "b", {"shape": (64,)}),
            ("operator.add", "add", {}),
            ("output", "y", {}),
        ],
        [("a", "add"), ("b", "add", "other"), ("add", "y")],
    )
    assert not analyse(graph).runnable


def test_half_a_batch_is_refused() -> None:
    _, analysis = shape_after((8,), ("Tensor.view", {"size": (-1, 16)}))
    (problem,) = analysis.errors
    assert "does not fit N×8" in problem.message


def test_dimensions_print_and_evaluate() -> None:
    assert [str(Dim(*parts)) for parts in ((1,), (49,), (1, 3), (2, -1))] == [
        "N",
        "49N",
        "N+3",
        "2N−1",
    ]
    assert Dim(49, 2).with_batch(3) == 149
    value = TensorType((Dim(1), 4, 5))
    assert (value.tuple_text, value.with_batch(3), value.per_sample()) == (
        "(N, 4, 5)",
        (3, 4, 5),
        20,
    )
    assert (
        TensorType((Dim(2), 4)).per_sample() is None
        and TensorType(()).per_sample() is None
    )
    assert str(TupleType((value, TensorType((), "int64")))) == "(N×4×5, scalar)"
    assert TensorType((Dim(2, -1),)).tuple_text == "(2N-1,)"


# --- What is known of a drawing under way ----------------------------------------------------------------------------


def test_nothing_at_all() -> None:
    analysis = analyse(Graph())
    assert (
        not analysis.runnable
        and analysis.problems[0].node is None
        and analysis.output_type() is None
    )


def test_input_and_output_are_asked_for() -> None:
    messages = [
        problem.message for problem in analyse(net([("nn.ReLU", "r", {})])).errors
    ]
    assert (
        "The network has no Input" in messages
        and "The network has no Output" in messages
    )


def test_a_loop_is_named_and_nothing_hangs() -> None:
    rows = [
        ("input", "x", {"shape": (4,)}),
        ("operator.add", "add", {}),
        ("nn.ReLU", "relu", {}),
        ("nn.Tanh", "after", {}),
        ("output", "y", {}),
    ]
    graph = net(
        rows, [("x", "add"), ("add", "relu"), ("relu", "after"), ("after", "y")]
    )
    graph = graph.with_edge(Edge("relu", 0, "add", "other"))
    assert plan(graph, catalog()).loops == ("add", "relu")
    analysis = analyse(graph)
    assert "add → relu" in analysis.errors[0].reason and not analysis.runnable
    assert analysis.assumed == {"add", "relu", "after"}
    selfish = net(rows[:2] + rows[4:], [("x", "add"), ("add", "y")]).with_edge(
        Edge("add", 0, "add", "other")
    )
    assert plan(selfish, catalog()).loops == ("add",) and not analyse(selfish).runnable


def test_parameters_count_what_is_part_of_the_net() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (4,)}),
            ("nn.Linear", "a", {"out_features": 3}),
            ("nn.Linear", "loose", {}),
            ("output", "y", {}),
        ],
        [("x", "a"), ("a", "y"), ("x", "loose")],
    )
    analysis = analyse(graph)
    assert analysis.parameters["a"] == 15 and analysis.total_parameters == 15
    assert analysis.live == {"x", "a", "y"}
    assert analysis.resolved["a"]["in_features"] == 4
    assert str(analysis.output_type()) == "N×3"


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    ("op", "params", "arriving"),
    [
        ("nn.Linear", {"out_features": HUGE}, {"shape": (HUGE,)}),
        ("nn.Conv2d", {"out_channels": HUGE, "padding": HUGE}, {"shape": (3, 8, 8)}),
        (
            "nn.Embedding",
            {"num_embeddings": HUGE, "embedding_dim": HUGE},
            {"shape": (4,), "dtype": DType("int64")},
        ),
        ("nn.LSTM", {"num_layers": HUGE}, {"shape": (4, 4)}),
        ("Tensor.view", {"size": (HUGE,) * 64}, {"shape": (4,)}),
    ],
    ids=str,
)
def test_numbers_beyond_reason_are_an_error_and_not_a_hang(
    op: str, params: dict[str, Any], arriving: dict[str, Any]
) -> None:
    analysis = analyse(
        net([("input", "x", arriving), (op, "it", params), ("output", "y", {})])
    )
    (problem,) = analysis.errors
    assert (
        problem.node == "it"
        and "expects int64" not in problem.message
        and str(HUGE) in str(problem)
    )


def test_several_threads_may_ask_at_once() -> None:
    failures: list[BaseException] = []

    def ask(width: int) -> None:
        try:
            for i in range(6):
                assert analyse(chain(10, "nn.Linear", out_features=width + i)).runnable
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(100 * (i + 1),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- Beside a run ---------------------------------------------------------------------------------------------------


def broken_and_whole() -> list[Graph]:
    rows = [
        ("nn.Linear", {"in_features": 3}),
        ("nn.Dropout", {}),
        ("nn.Linear", {}),
        ("nn.LSTM", {"dropout": 0.5, "num_layers": 2}),
    ]
    graphs = [
        net(
            [("input", "x", {"shape": (5, 7)}), (op, "it", params), ("output", "y", {})]
        )
        for op, params in rows
    ]
    typed = [graph.with_param("x", "dtype", DType("float64")) for graph in graphs]
    return graphs + typed


def test_no_random_number_is_drawn_and_no_lock_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run in another thread holds the generator for the length of its step; the analysis must not wait for it."""
    shapes._memo.clear()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    taken = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with rng.GENERATOR:
            taken.set()
            assert done.wait(300)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(300)
    try:
        for graph in broken_and_whole():
            analyse(graph)
    finally:
        done.set()
        holder.join()
    assert torch.equal(torch.get_rng_state(), before)


def test_gradient_mode_and_default_device_are_left_alone() -> None:
    shapes._memo.clear()
    for graph in broken_and_whole():
        analyse(graph)
    assert torch.is_grad_enabled() and torch.zeros(1).device.type == "cpu"


def test_a_shared_module_is_settled_by_the_first_call_whichever_node_has_it() -> None:
    """The node whose module it is can come second: what it is given must fit what was made for the other."""
    from app.builder.blocks import Block, with_blocks
    from app.source.compiled import make_module
    from app.util.frozen import FrozenMap
    from tests.support.builder_sheets import row_of, sheet

    block = Block("Unit", row_of([("a", "nn.Linear", "fc", {"out_features": 6})]))
    ops = with_blocks(catalog(), FrozenMap(Unit=block))

    def both(second: int):
        rows = [
            ("i", "input", "x", {"shape": (second,)}),
            ("j", "input", "y", {"shape": (16,)}),
            ("owner", "block.Unit", "unit"),
            ("again", "block.Unit", "again", {}, {"shares": "owner"}),
            ("r", "nn.ReLU", "act"),
            ("o", "output", "a"),
            ("p", "output", "b"),
        ]
        return analyse(sheet(rows, "j>again i>r r>owner owner>o again>p"), ops)

    good = both(16)
    assert not good.errors and good.total_parameters == 16 * 6 + 6
    assert (
        "Unit(" in good.source.text
        and make_module(good.source).unit.fc.in_features == 16
    )
    (told,) = both(6).errors
    assert "shares its weights with" in told.message
