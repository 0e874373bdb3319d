"""Rows 19 to 27 of the concepts that the program is made for, each by its number, as they are met in a snippet."""

from __future__ import annotations

from tests.features.snippets.snippet_answers import leaves, made_by, ran, shown


def test_row_19_gradients_per_layer_and_of_what_lies_between() -> None:
    answer = ran(
        "net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))\n"
        "h = net[0](torch.ones(2, 3))\nh.retain_grad()\nloss = net[2](net[1](h)).sum()\n"
        "loss.backward()"
    )
    gradients = {
        tensor.name: tensor.grad_norm for tensor in answer.tensors if tensor.grad
    }
    assert set(gradients) == {
        "h",
        "net.0.weight",
        "net.0.bias",
        "net.2.weight",
        "net.2.bias",
    }
    assert all(norm > 0 for norm in gradients.values())
    assert (
        answer.tensor("h").retains_grad
        and shown("retain_grad").tensor("u").grad == "[1.2, -1.8, 6.2]"
    )


def test_row_20_gradients_checked_by_finite_differences_in_double_and_in_single_precision() -> (
    None
):
    answer = shown("finite_differences")
    assert (
        float(answer.tensor("numeric_double").values)
        < 1e-5
        < 1e-2
        < float(answer.tensor("numeric_float").values)
    )
    assert "gradcheck: True" in shown("linear_function").output
    assert shown("gradcheck_fails").error.kind == "GradcheckError"


def test_row_21_no_grad_detach_and_data_cut_the_graph() -> None:
    answer = shown("cutting")
    assert [answer.tensor(name).grad_fn for name in "bcde"] == [
        "",
        "",
        "",
        "MulBackward0",
    ]
    # One factor of a.detach() * a leads back to x, and one edge alone goes that way.
    product = next(
        node
        for node in answer.graph.tape.nodes
        if node.line == 12 and node.name == "MulBackward0"
    )
    assert len(answer.graph.tape.outgoing[product.id]) == 1


def test_row_22_requires_grad_spreads_and_a_part_is_excluded() -> None:
    answer = shown("spreading")
    assert {tensor.name: tensor.requires_grad for tensor in answer.tensors} == {
        "x": False,
        "y": False,
        "z": True,
        "a": False,
        "b": True,
    }
    assert leaves(shown("subgraph").graph.tape) == {"head"}
    assert leaves(shown("frozen_resnet18").graph.tape) == {
        "model.fc.weight",
        "model.fc.bias",
    }


def test_row_23_the_graph_is_made_anew_and_leaves_have_no_grad_fn() -> None:
    answer = shown("control_flow")
    assert answer.tensor("w").is_leaf and not answer.tensor("w").grad_fn
    short = ran(
        "w = torch.ones(1, requires_grad=True)\ny = w\nfor _ in range(2):\n    y = y.exp()"
    )
    long = ran(
        "w = torch.ones(1, requires_grad=True)\ny = w\nfor _ in range(5):\n    y = y.exp()"
    )
    assert (len(made_by(short.graph.tape)), len(made_by(long.graph.tape))) == (2, 5)


def test_row_24_a_vector_jacobian_product() -> None:
    answer = shown("vector_jacobian")
    assert answer.tensor("y").shape == (2,) == answer.tensor("v").shape
    assert answer.tensor("x").grad == "[7.2, 4.2, 3.2]"
    refused = ran("x = torch.ones(2, requires_grad=True)\n(x * 2).backward()")
    assert (
        "grad can be implicitly created only for scalar outputs"
        in refused.error.message
    )


def test_row_25_in_place_operations_are_counted_and_stop_backward() -> None:
    answer = shown("inplace_saved")
    assert answer.error.line == 7 and answer.tensor("h").version == 1
    mended = ran(
        "w = torch.tensor([0.5], requires_grad=True)\nh = w.sigmoid()\nh = h + 1\nh.sum().backward()"
    )
    assert mended.error is None and mended.tensor("w").grad
    assert "two changes: 2" in shown("versions").output
    assert "leaf Variable" in shown("inplace_leaf").error.message


def test_row_26_broadcasting_fits_stretches_and_does_not_fit() -> None:
    assert shown("broadcast_fits").tensor("z").shape == (5, 3, 4, 7)
    assert "(2) must match" in shown("broadcast_misfit").error.message
    assert (
        "doesn't match the broadcast shape" in shown("broadcast_inplace").error.message
    )
    edges = shown("broadcast_fits").graph.tape.edges
    assert {
        edge.shape
        for edge in edges
        if shown("broadcast_fits").graph.tape.nodes[edge.target].is_leaf
    } == {
        (5, 3, 4, 1),
        (3, 1, 7),
    }


def test_row_27_a_function_of_ones_own_with_what_it_saves_and_gradcheck() -> None:
    linear, constant = shown("linear_function"), shown("mul_constant")
    assert "needs_input_grad: (False, True, True)" in linear.output
    saved = next(
        node.saved
        for node in linear.graph.tape.nodes
        if node.name == "LinearFunctionBackward"
    )
    assert [one.name for one in saved] == ["saved_tensors[0]", "saved_tensors[1]"]
    assert "gradcheck: True" in constant.output
    module = ran("""from torch.autograd import Function

class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return Twice.apply(x * self.weight)

layer = Layer()
y = layer(torch.ones(2)).sum()
""")
    assert {
        node.layer for node in module.graph.tape.nodes if node.name == "TwiceBackward"
    } == {"layer"}
    assert leaves(module.graph.tape) == {"layer.weight"}
