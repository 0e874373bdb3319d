"""Gradients checked against finite differences: right ones pass, wrong ones are found, kinks and chance are named."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.errors import CaptureError
from app.features.gradcheck.compute.gradcheck import (
    check_function,
    check_layer,
    check_net,
    check_node,
)
from app.features.gradcheck.values import GradcheckReport
from app.util.formatting import significant
from tests.support.autograd_tapes import SOURCE
from tests.support.playback_nets import NETS, DoesMuch, batch, loss

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 1])


class MulConstant(torch.autograd.Function):
    """As it should be."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, constant: float) -> torch.Tensor:
        ctx.constant = constant
        return x * constant

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * ctx.constant, None


class Forgetful(torch.autograd.Function):
    """Forgets the factor 2 of its square."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0]


class Net(nn.Module):
    def __init__(self, joint: Any = torch.tanh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.bn, self.b, self.joint = (
            nn.Linear(4, 6),
            nn.BatchNorm1d(6),
            nn.Linear(6, 2),
            joint,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.joint(self.bn(self.a(x))))


def subject(model: nn.Module) -> TrainingBatch:
    return TrainingBatch(model, (X,), nn.CrossEntropyLoss(), Y)


def inputs(report: GradcheckReport) -> set[str]:
    return {given.name for given in report.inputs}


def test_a_net_with_its_loss_passes_and_the_notes_lesson_is_told() -> None:
    model = Net()
    before = copy.deepcopy(model.state_dict())
    report = check_net(subject(model), budget=160)
    assert report.passed and report.what == "the whole network"
    assert inputs(report) == {"input 0", *dict(model.named_parameters())}
    assert report.worst is not None and report.worst.relative < 1e-5
    single, double = report.best("float32"), report.best("float64")
    assert single is not None and double is not None
    assert double.relative < 1e-7 < single.relative and double.eps < 1e-3
    tiny = {row.dtype: row.relative for row in report.table if row.eps == 1e-10}
    large = {row.dtype: row.relative for row in report.table if row.eps == 0.1}
    assert tiny["float32"] > 0.5 > tiny["float64"] > double.relative  # rounding
    assert large["float64"] > double.relative  # truncation
    assert report.sentences[0].startswith(
        "The gradient of the whole network is correct"
    )
    assert "(truncation), a smaller one loses digits (rounding)" in report.sentences[1]
    assert "it is the finite differences that fail" in report.sentences[2]
    after = model.state_dict()
    assert (
        all(torch.equal(before[key], after[key]) for key in before)
        and model.a.weight.grad is None
    )
    assert model.a.weight.dtype == torch.float32


def test_a_wrong_custom_function_is_found_with_the_element() -> None:
    report = check_function(Forgetful.apply, torch.tensor([0.5, -2.0, 1.0]))
    worst = report.worst
    assert not report.passed and worst is not None
    assert worst.numeric == pytest.approx(2 * worst.analytic, rel=1e-6)
    analytic, numeric = significant(worst.analytic, 6), significant(worst.numeric, 6)
    assert report.sentences == (
        f"The gradient of Forgetful is wrong: input 0[{worst.index[0]}] has {analytic} in backward, and "
        f"finite differences give {numeric}.",
    )
    assert check_function(MulConstant.apply, torch.randn(3, 4), 5.0).passed


def test_a_wrong_function_inside_a_net_fails_the_net_and_its_node_alone() -> None:
    wrong = subject(Net(Forgetful.apply))
    assert not check_net(wrong, budget=120).passed
    with wrong.hold() as graph:
        tape = graph.tape
    verdicts = {}
    wanted = ("ForgetfulBackward", "AddmmBackward0", "NativeBatchNormBackward0")
    for node in (
        next(node for node in tape.nodes if node.name == name) for name in wanted
    ):
        report = check_node(wrong, tape, node, budget=60)
        verdicts[node.name] = report.passed
        if node.name == "ForgetfulBackward":
            assert report.what == "custom Function Forgetful" and not report.note
    assert verdicts == {
        "ForgetfulBackward": False,
        "AddmmBackward0": True,
        "NativeBatchNormBackward0": True,
    }
    assert (
        Forgetful.apply(torch.ones(1)) == 1 and Forgetful.forward.__name__ == "forward"
    )


def test_a_node_is_checked_by_the_function_that_made_it() -> None:
    one = compile_batch(
        SOURCE, torch.randn(2, 1, 8, 8), torch.tensor([1, 2]), nn.CrossEntropyLoss(), 0
    )
    with one.hold() as graph:
        tape = graph.tape
    by_name = {node.name: node for node in tape.nodes}
    report = check_node(one, tape, by_name["ConvolutionBackward0"], budget=60)
    assert report.passed and report.what == "conv2d (ConvolutionBackward0)"
    assert inputs(report) == {"conv1.weight", "conv1.bias"}
    report = check_node(one, tape, by_name["NllLossBackward0"], budget=60)
    assert (
        report.passed
        and report.note == "cross_entropy created 2 nodes; they are checked together."
    )
    with pytest.raises(CaptureError, match="only adds to .grad"):
        check_node(one, tape, by_name["AccumulateGrad"])


def test_a_node_out_of_sight_is_checked_by_its_layer() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch._C.DisableTorchFunction():
                return self.fc(x).sigmoid()

    model = nn.Sequential(Hidden())
    hidden = TrainingBatch(model, (X,))
    with hidden.hold() as graph:
        tape = graph.tape
    node = next(node for node in tape.nodes if node.name == "SigmoidBackward0")
    report = check_node(hidden, tape, node)
    assert report.passed and report.what == "layer 0"
    assert report.note.startswith(
        "The operation of SigmoidBackward0 cannot be run again alone"
    )
    assert report.note.endswith("so the layer that created it is checked.")


def test_a_layer_is_checked_on_what_arrived_at_that_call() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model.append(model[0])
    twice = TrainingBatch(model, (X,))
    first, second = (check_layer(twice, "0", call=call) for call in (1, 2))
    assert (
        first.passed
        and second.passed
        and inputs(first) == {"input 0", "weight", "bias"}
    )
    with pytest.raises(CaptureError, match="called 2 times"):
        check_layer(twice, "0", call=3)
    with pytest.raises(CaptureError, match="no layer nowhere"):
        check_layer(twice, "nowhere")


@pytest.mark.parametrize(
    ("function", "x", "op", "ties"),
    [
        (torch.relu, [0.0, 1.0, -1.0], "relu", 1),
        (lambda x: F.relu(x.clone(), inplace=True), [0.0, 2.0, -3.0], "relu", 1),
        (F.leaky_relu, [0.0, 2.0, 0.0], "leaky_relu", 2),
        (lambda x: F.max_pool1d(x[None], 2), [1.0, 1.0, 3.0, 2.0], "max_pool1d", 1),
        (
            lambda x: F.max_pool2d(x.view(1, 2, 2), 2),
            [1.0, 0.0, 1.0, 0.0],
            "max_pool2d",
            1,
        ),
        (lambda x: x.clamp(0, 1), [1.0, 0.5, 2.0], "clamp", 0),
        (torch.round, [0.5, 1.2], "round", 0),
    ],
)
def test_a_point_without_derivative_is_flagged_and_not_called_wrong(
    function: Any, x: Any, op: str, ties: int
) -> None:
    report = check_function(function, torch.tensor(x), name=op)
    assert report.passed and [kink.place.op for kink in report.kinks] == [op]
    assert report.kinks[0].ties == ties
    assert any(
        f"{op} at line" in text and "neither is wrong" in text
        for text in report.sentences
    )


def test_chance_is_named_and_does_not_spoil_the_check() -> None:
    report = check_net(subject(Net(nn.Dropout(0.5))), budget=60)
    assert report.passed and [place.op for place in report.random] == ["dropout"]
    assert any(
        text.startswith("dropout at line") and "draws random numbers" in text
        for text in report.sentences
    )
    assert not check_net(
        TrainingBatch(Net(nn.Dropout(0.5)), (X,), train=False), budget=60
    ).random


def test_a_function_with_a_memory_cannot_be_checked() -> None:
    calls: list[int] = []

    def counting(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * len(calls)

    report = check_function(counting, torch.ones(2))
    assert report.changes and not report.passed
    assert (
        report.sentences[0]
        == "Counting returns different values for the same input, so it cannot be checked."
    )


def test_the_cost_is_bounded_and_the_rest_is_looked_at_along_a_direction() -> None:
    report = check_net(
        TrainingBatch(nn.Linear(60, 50), (torch.randn(2, 60),)), budget=100
    )
    assert report.passed and report.evaluations <= 106
    weight = next(one for one in report.inputs if one.name == "weight")
    assert (
        weight.checked < weight.elements == 3000
        and weight.direction is not None
        and weight.direction.fine
    )


def test_a_check_can_be_cancelled() -> None:
    calls: list[int] = []

    def enough() -> bool:
        calls.append(1)
        return len(calls) > 60

    report = check_net(subject(Net()), cancelled=enough)
    assert report.cancelled and report.evaluations <= 60 and report.table
    assert "was stopped" in report.sentences[0]


@settings(max_examples=8)
@given(
    st.lists(
        st.sampled_from("tanh sigmoid softplus gelu linear bn silu".split()), max_size=4
    ),
    st.integers(0, 99),
)
def test_right_nets_pass_and_agree_with_torch(parts: list[str], seed: int) -> None:
    torch.manual_seed(seed)
    made = {
        "tanh": nn.Tanh,
        "sigmoid": nn.Sigmoid,
        "softplus": nn.Softplus,
        "gelu": nn.GELU,
        "silu": nn.SiLU,
        "linear": lambda: nn.Linear(4, 4),
        "bn": lambda: nn.BatchNorm1d(4),
    }
    model = nn.Sequential(nn.Linear(4, 4), *(made[part]() for part in parts))
    report = check_net(TrainingBatch(model, (X,)), budget=50)
    assert report.passed, report.worst
    double = copy.deepcopy(model).double()
    assert torch.autograd.gradcheck(
        double, (X.double().requires_grad_(),), fast_mode=True
    )


def test_a_loss_of_a_batch_and_its_target_are_cast() -> None:
    model = nn.Linear(4, 2)
    report = check_net(TrainingBatch(model, (X,), nn.MSELoss(), torch.randn(3, 2)))
    assert report.passed and inputs(report) == {"input 0", "weight", "bias"}
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    assert check_net(TrainingBatch(model, (X,), weighted, Y)).passed


def test_what_backward_itself_refuses_is_said() -> None:
    spoiled = TrainingBatch(
        nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.ReLU(inplace=True)), (X,)
    )
    with pytest.raises(
        CaptureError,
        match="The whole network could not be checked: .*modified by an inplace operation",
    ):
        check_net(spoiled)
    fine = TrainingBatch(nn.Sequential(nn.Linear(4, 4), nn.ELU(inplace=True)), (X,))
    assert check_net(fine).passed and check_layer(fine, "1").passed


def test_tensors_that_a_net_makes_itself_are_double_too() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(x.shape[0], 3)
            for _ in range(2):
                state = self.cell(x, state)
            return state * (x[:, :3] > 0).float()

    assert check_net(TrainingBatch(Cell(), (X,)), budget=60).passed
    assert torch.get_default_dtype() is torch.float32


class Off(torch.autograd.Function):
    """The identity; its gradient is larger by the part `amount` than it should be."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, amount: float) -> torch.Tensor:
        ctx.amount = amount
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * (1 + ctx.amount), None


@pytest.mark.parametrize(
    ("scale", "amount", "right", "told"),
    [
        (0.0, 1.1e-10, True, False),
        (0.0, 5e-6, True, True),
        (0.0, 2e-5, False, False),
        (1.0, 9e-4, True, False),
        (1.0, 1.2e-3, False, False),
    ],
)
def test_tolerances_are_those_of_torch(
    scale: float, amount: float, right: bool, told: bool
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (
            Off.apply(x * scale if scale else x, amount)
            if scale
            else Off.apply(x, amount) - x
        )

    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    report = check_function(function, x, name="off")
    assert report.passed is right
    assert torch.autograd.gradcheck(function, (x,), raise_exception=False) is right
    assert any("absolute tolerance" in text for text in report.sentences) is told


class OneByOne(torch.autograd.Function):
    """x and 2x, with a gradient that is right for both together and wrong for each alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        return x.clone(), 2 * x

    @staticmethod
    def backward(ctx: Any, one: Any, two: Any) -> torch.Tensor | None:  # type: ignore[override]
        return one + 2 * two if one is not None and two is not None else one


def test_each_output_is_derived_alone() -> None:
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert not torch.autograd.gradcheck(OneByOne.apply, (x,), raise_exception=False)
    report = check_function(OneByOne.apply, x)
    assert not report.passed and report.worst is not None and report.worst.output == 1
    assert "in backward of output 2, and" in report.sentences[0]


def test_complex_inputs_are_checked_by_both_of_their_parts() -> None:
    x = torch.tensor([1 + 2j, 0.5 - 1j], dtype=torch.complex64)
    report = check_function(lambda x: (x * x.conj()).real + x.imag, x, name="square")
    assert report.passed and [
        (one.name, one.shape, one.checked) for one in report.inputs
    ] == [("input 0", (2, 2), 4)]
    assert not check_function(
        lambda x: Forgetful.apply(x).abs(), x, name="forgetful"
    ).passed


@pytest.mark.parametrize(
    "function", [torch.frac, lambda x: torch.fmod(x, 1.5), lambda x: x % 1.5]
)
def test_a_wrong_gradient_behind_a_remainder_is_no_kink(function: Any) -> None:
    x = torch.tensor([0.3, 1.7, -2.2])
    assert check_function(function, x, name="remainder").passed
    assert not check_function(
        lambda x: Forgetful.apply(function(x)), x, name="remainder"
    ).passed
    assert check_function(function, torch.tensor([3.0]), name="remainder").kinks


@pytest.mark.parametrize(
    "name", [name for name in NETS if name not in ("recurrent", "convolutions")]
)
def test_the_gradients_of_every_kind_of_net_check(name: str) -> None:
    torch.manual_seed(0)
    x, y = batch()
    report = check_net(TrainingBatch(NETS[name](), (x,), loss, y), budget=50)
    assert report.passed, (report.worst, report.sentences)


def test_forward_passes_that_do_much_are_checked_too() -> None:
    subject = TrainingBatch(DoesMuch(), (X,), loss, Y)
    report = check_net(subject, budget=60)
    assert report.passed and report.worst is not None and report.worst.relative < 1e-6
    assert float(subject.model.calls) == 0


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_torchscript_is_not_checked() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 2))
    subject = TrainingBatch(model, (torch.randn(3, 4),), loss, Y)
    with pytest.raises(CaptureError, match="contains TorchScript"):
        check_net(subject)
