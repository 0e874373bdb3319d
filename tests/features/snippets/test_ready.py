"""Each snippet that comes with the program shows what it says, run for real."""

from __future__ import annotations

import pytest

from app.features.snippets.values import ready
from tests.features.snippets.snippet_answers import leaves, made_by, shown

FAILING = {
    "inplace_saved": (7, "modified by an inplace operation"),
    "inplace_leaf": (
        7,
        "a leaf Variable that requires grad is being used in an in-place operation",
    ),
    "inplace_split": (5, "is a view and is being modified inplace"),
    "broadcast_misfit": (
        3,
        "The size of tensor a (2) must match the size of tensor b (3)",
    ),
    "broadcast_inplace": (8, "doesn't match the broadcast shape [3, 3, 7]"),
    "gradcheck_fails": (18, "Jacobian mismatch"),
}


@pytest.mark.parametrize("key", [one.key for one in ready()])
def test_it_runs_to_the_end_or_to_the_error_that_it_is_about(key: str) -> None:
    answer = shown(key)
    if key in FAILING:
        line, words = FAILING[key]
        assert (
            answer.ended == "failed"
            and answer.error.line == line
            and words in answer.error.message
        )
    else:
        assert (answer.ended, answer.error) == ("done", None)


def test_spreading() -> None:
    answer = shown("spreading")
    assert answer.graph.name == "b" and made_by(answer.graph.tape) == ["AddBackward0"]
    assert leaves(answer.graph.tape) == {"z"}
    assert not answer.tensor("a").requires_grad and answer.tensor("b").requires_grad
    assert answer.output.startswith("a: False None\nb: True <AddBackward0")


def test_a_part_that_backward_never_enters() -> None:
    answer = shown("subgraph")
    assert leaves(answer.graph.tape) == {"head"} and "ReluBackward0" not in made_by(
        answer.graph.tape
    )
    assert answer.tensor("encoder").grad == "" and answer.tensor("head").grad_norm > 0
    assert answer.graph.freed_at == 7


def test_a_frozen_resnet18_learns_in_its_head_alone() -> None:
    answer = shown("frozen_resnet18")
    assert leaves(answer.graph.tape) == {"model.fc.weight", "model.fc.bias"}
    with_gradients = {tensor.name for tensor in answer.tensors if tensor.grad}
    assert with_gradients == {"model.fc.weight", "model.fc.bias"}
    assert sum(tensor.name.startswith("model.") for tensor in answer.tensors) == 62
    assert {node.layer for node in answer.graph.tape.nodes if node.layer} == {
        "model.fc"
    }


def test_a_saved_result_that_is_overwritten() -> None:
    tape = shown("inplace_saved").graph.tape
    sigmoid = next(node for node in tape.nodes if node.name == "SigmoidBackward0")
    assert [
        (saved.name, saved.version, saved.version_now) for saved in sigmoid.saved
    ] == [("result", 0, 1)]
    assert sigmoid.line == 2


def test_a_leaf_in_place() -> None:
    answer = shown("inplace_leaf")
    assert answer.tensor("w").version == 1 and answer.tensor("w").is_leaf


def test_a_view_in_place_rewrites_the_graph_of_its_base() -> None:
    answer = shown("inplace_view")
    assert answer.tensor("b").grad_fn == "CopySlices" and "CopySlices" in made_by(
        answer.graph.tape
    )
    assert answer.tensor("x").grad == "[20, 20, 20, 2, 2, 2]"


def test_versions_count_and_data_is_not_counted() -> None:
    answer = shown("versions")
    told = dict(line.split(": ", 1) for line in answer.output.splitlines())
    assert told["two changes"] == "2" and told["one more, through a view"] == "3 3"
    assert told["through .data"] == "True" and "0., 0., 0." in told["w.grad is wrong"]
    assert told["through detach()"] == "1" and "modified" in told["so backward stops"]


def test_what_is_stretched_gets_its_gradient_summed() -> None:
    answer = shown("broadcast_fits")
    assert answer.tensor("z").shape == (5, 3, 4, 7)
    assert (
        "x.grad: (5, 3, 4, 1) each [7.0]" in answer.output
        and "y.grad: (3, 1, 7) each [20.0]" in answer.output
    )


@pytest.mark.parametrize(
    ("key", "name"),
    [("linear_function", "LinearFunction"), ("mul_constant", "MulConstant")],
)
def test_functions_of_ones_own_pass_gradcheck(key: str, name: str) -> None:
    answer = shown(key)
    assert "gradcheck: True" in answer.output
    assert f"{name}Backward" in made_by(answer.graph.tape)


def test_a_linear_function_saves_and_is_asked_for_what_is_needed() -> None:
    answer = shown("linear_function")
    function = next(
        node
        for node in answer.graph.tape.nodes
        if node.name == "LinearFunctionBackward"
    )
    assert [saved.shape for saved in function.saved] == [
        (4, 3),
        (2, 3),
    ] and function.variables == ("y",)
    assert (
        answer.graph.tape.code_of(function)
        == "y = LinearFunction.apply(x, weight, bias)"
    )
    assert answer.output.startswith("needs_input_grad: (False, True, True)\n")
    assert answer.tensor("x").grad == "" and answer.tensor("bias").grad == "[4, 4]"


def test_mul_constant_keeps_its_constant() -> None:
    answer = shown("mul_constant")
    function = next(
        node for node in answer.graph.tape.nodes if node.name == "MulConstantBackward"
    )
    assert function.values["constant"] == 5.5 and not function.saved
    assert answer.tensor("x").grad == "[5.5, 5.5, 5.5]"


def test_retain_grad() -> None:
    answer = shown("retain_grad")
    assert (
        answer.tensor("u").retains_grad
        and answer.tensor("u").grad == "[1.2, -1.8, 6.2]"
    )
    assert (
        answer.tensor("v").grad == "" and answer.tensor("w").grad == "[1.2, -3.6, 18.6]"
    )


def test_vector_jacobian() -> None:
    answer = shown("vector_jacobian")
    first, second = (
        line.partition("tensor")[2] for line in answer.output.splitlines()[:2]
    )
    assert (
        first == second and answer.graph.name == "y" and answer.graph.tape.loss is None
    )
    assert answer.graph.freed_at is None, "it was retained"


def test_finite_differences_need_double() -> None:
    answer = shown("finite_differences")
    errors = {
        name: float(answer.tensor(name).values)
        for name in (
            "numeric_float",
            "numeric_double",
            "analytic_float",
            "analytic_double",
        )
    }
    assert errors["numeric_float"] > 1e-2 and errors["numeric_double"] < 1e-5
    assert errors["analytic_float"] < 1e-6 and errors["analytic_double"] < 1e-14


def test_three_cuts() -> None:
    answer = shown("cutting")
    assert [answer.tensor(name).requires_grad for name in "bcde"] == [
        False,
        False,
        False,
        True,
    ]
    assert answer.tensor("x").grad == "[9, 18]"


def test_control_flow_makes_another_graph() -> None:
    answer = shown("control_flow")
    assert "w.grad_fn: None" in answer.output
    assert "from 1.0: 6 nodes" in answer.output and "from 4.0: 4 nodes" in answer.output
    assert made_by(answer.graph_of("y").tape) == ["MulBackward0"] * 3


def test_double_backward_records_the_first_one() -> None:
    answer = shown("double_backward")
    assert (
        answer.tensor("first").values == "[3, 12, 27]"
        and answer.tensor("second").values == "[6, 12, 18]"
    )
    assert answer.graph.name == "first" and "PowBackward0" in made_by(answer.graph.tape)
    assert {node.line for node in answer.graph.tape.nodes if node.variables} == {3}


def test_checkpoint_holds_less_and_runs_again() -> None:
    answer = shown("checkpoint")
    assert (
        answer.graph_of("plain").tape.held_bytes == 8000
        and answer.graph_of("frugal").tape.held_bytes == 0
    )
    assert (
        "before backward: 2\n" in answer.output
        and "after backward:  3\n" in answer.output
    )
    assert "same gradient: True" in answer.output
