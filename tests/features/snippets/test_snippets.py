"""A few lines of PyTorch as they run: which tensor is shown, what its nodes are called, what is said of errors."""

from __future__ import annotations

import pytest

from app.autograd.pictures.diagram import summary, to_drawing
from app.autograd.tape import below
from app.engine.values import Codec
from tests.features.snippets.snippet_answers import leaves, made_by, ran

SPREADING = """x = torch.ones(2, 2)
y = torch.ones(2, 2)
z = torch.ones(2, 2, requires_grad=True)
a = x + y
b = a + z
c = (b * z).sum()
"""


def test_variables_name_nodes_and_leaves() -> None:
    answer = ran(SPREADING)
    assert (answer.ended, answer.error) == ("done", None)
    tape = answer.graph.tape
    assert {node.name: node.variables for node in tape.nodes if node.variables} == {
        "AddBackward0": ("b",),
        "SumBackward0": ("c",),
    }
    assert leaves(tape) == {"z"} and tape.loss == 12.0
    added = next(node for node in tape.nodes if node.name == "AddBackward0")
    assert (
        added.line == 5
        and tape.code_of(added) == "b = a + z"
        and tape.title_of(added) == "b = a + z"
    )


LOCALS = """def layer(x, w):
    h = x @ w
    h += 1
    return torch.relu(h)

def make():
    inner = torch.ones(2, 2, requires_grad=True)
    return inner * 3

x = layer(torch.ones(2, 2), make())
x = x * 2
x.mean()
"""


def test_nodes_have_the_names_of_local_variables_and_of_those_that_were_bound_again() -> (
    None
):
    tape = ran(LOCALS).graph.tape
    assert sorted(
        (node.name, *node.variables) for node in tape.nodes if node.variables
    ) == [
        ("AddBackward0", "h"),
        ("MmBackward0", "h"),
        ("MulBackward0", "w"),
        ("MulBackward0", "x"),
        ("ReluBackward0", "x"),
    ]
    assert leaves(tape) == {"inner"}


def test_every_named_tensor_is_told_and_the_newest_graph_is_shown_first() -> None:
    answer = ran(SPREADING)
    assert [tensor.name for tensor in answer.tensors] == ["x", "y", "z", "a", "b", "c"]
    assert [graph.name for graph in answer.graphs] == ["c", "b"]
    a, b, z = (answer.tensor(name) for name in "abz")
    assert (a.requires_grad, a.is_leaf, a.grad_fn) == (False, True, "")
    assert (b.requires_grad, b.is_leaf, b.grad_fn) == (True, False, "AddBackward0")
    assert (z.shape, z.dtype, z.version, z.values) == (
        (2, 2),
        "float32",
        0,
        "[1, 1, 1, 1]",
    )


def test_a_last_expression_and_a_loss_go_before_what_is_newer() -> None:
    assert ran(SPREADING + "a.sum() + b.sum()").graph.name == "a.sum() + b.sum()"
    assert ran(SPREADING + "b").graph.name == "b"
    assert ran(SPREADING + "loss = b.mean()\nlater = c * 2").graph.name == "loss"


def test_backward_leaves_gradients_and_a_freed_graph_is_said_to_be_freed() -> None:
    answer = ran(SPREADING + "c.backward()")
    assert (
        answer.tensor("z").grad == "[4, 4, 4, 4]"
        and answer.tensor("z").grad_norm == 8.0
    )
    graph = answer.graph
    assert (graph.name, graph.freed_at) == ("c", 7)
    assert any(node.saved for node in graph.tape.nodes), "it is shown as it was before"
    kept = ran(SPREADING + "c.backward(retain_graph=True)")
    assert (
        kept.graph.freed_at is None
        and kept.graph.tape.held_bytes == graph.tape.held_bytes
    )


def test_part_of_a_freed_graph_is_shown_as_it_was() -> None:
    answer = ran(
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nloss = (h * h).sum()\nloss.backward()"
    )
    assert [graph.freed_at for graph in answer.graphs] == [4, 4]
    part = answer.graph_of("h").tape
    assert (
        made_by(part) == ["ExpBackward0"]
        and part.held_bytes == 12
        and part.loss is None
    )


def test_a_part_of_a_tape_is_a_tape() -> None:
    tape = ran(
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nloss = (h * h).sum()"
    ).graph.tape
    root = next(node for node in tape.nodes if node.name == "MulBackward0")
    part = below(tape, root.id)
    assert [node.id for node in part.nodes] == list(
        range(len(part.nodes))
    ) and part.roots == (0,)
    assert made_by(part) == ["MulBackward0", "ExpBackward0"]
    assert {storage.freed_by for storage in part.storages} <= set(
        range(len(part.nodes))
    )
    assert part.steps[part.storages[0].freed_by] == max(
        part.steps[one] for one in part.storages[0].holders
    )


def test_a_loop_makes_a_graph_each_time_and_lines_that_are_come_back_to_are_told_apart() -> (
    None
):
    answer = ran(
        "x = torch.ones(2, requires_grad=True)\ny = x\nfor _ in range(2):\n    y = y * 2\n    y = y.exp()\n"
    )
    tape = answer.graph.tape
    titles = [tape.title_of(node) for node in tape.forward if not node.is_leaf]
    assert titles == ["y = y * 2", "y = y.exp()", "y = y * 2 · 2", "y = y.exp() · 2"]


def test_layers_go_by_the_names_that_lead_to_them() -> None:
    answer = ran(
        "net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))\ny = net(torch.ones(4, 2)).mean()"
    )
    tape = answer.graph.tape
    assert [node.layer for node in tape.forward if not node.is_leaf and node.layer] == [
        "net.0",
        "net.0",
        "net.1",
        "net.2",
        "net.2",
    ]
    assert leaves(tape) == {"net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"}
    assert tape.layers["net.0"] == "Linear"


def test_an_error_says_its_line_and_what_was_made_before_it_is_shown() -> None:
    answer = ran(
        "x = torch.ones(2, requires_grad=True)\ny = x.exp()\nz = y + torch.ones(3)\n"
    )
    assert (
        answer.ended == "failed"
        and answer.error.kind == "RuntimeError"
        and answer.error.line == 3
    )
    assert (
        'File "snippet", line 3' in answer.error.traceback
        and "app/" not in answer.error.traceback
    )
    assert answer.graph.name == "y"
    wrong = ran("x = (1\n")
    assert (wrong.error.kind, wrong.error.line) == (
        "SyntaxError",
        1,
    ) and not wrong.graphs
    ended = ran("x = 1\nraise SystemExit(3)")
    assert (
        ended.error.sentence(ended.error.message)
        == "SystemExit in line 2: exit status 3"
    )


def test_an_exit_without_an_error_is_the_end_and_no_failure() -> None:
    answer = ran(
        "import sys\nx = torch.ones(2, requires_grad=True)\ny = x.exp()\nsys.exit()\nz = y * 2"
    )
    assert (answer.ended, answer.error, answer.words) == (
        "done",
        None,
        "It exited in line 4.",
    )
    assert [graph.name for graph in answer.graphs] == ["y"]
    assert ran("import sys\nsys.exit('no more')").error.message == "no more"


def test_errors_without_a_text_and_with_one_that_raises_are_said_in_a_sentence() -> (
    None
):
    text = "class Odd(BaseException):\n    def __str__(self):\n        raise ValueError\nraise Odd"
    assert "Odd in line 4: its text cannot be read" in _said(text)
    assert _said("raise KeyboardInterrupt") == "KeyboardInterrupt in line 1"
    assert "input() has no keyboard here" in _said(
        "raise EOFError('EOF when reading a line')"
    )
    assert _said("raise EOFError('mine')") == "EOFError in line 1: mine"


def _said(text: str) -> str:
    error = ran(text).error
    return error.sentence(error.message)


def test_a_hook_that_exits_ends_the_snippet_and_not_the_process_that_plays_it() -> None:
    text = "x = torch.ones(2, requires_grad=True)\ny = x.exp().sum()\nx.register_hook(lambda _: exit())\n"
    assert ran(f"{text}y.backward()", play=True).words == "It exited in line 3."
    assert "SystemExit" in ran(text, play=True).graph.stopped


def test_the_graph_of_a_backward_that_failed_is_shown_first_with_both_versions() -> (
    None
):
    text = "w = torch.ones(2, requires_grad=True)\nh = w.sigmoid()\nz = h.exp().sum()\nh.add_(1)\nz.backward()"
    answer = ran(text)
    assert (answer.error.line, answer.graph.name) == (5, "z")
    assert answer.graph.freed_at == 5, (
        "what ran before the error has let go of its tensors"
    )
    changed = [
        (node.name, s.name, s.version, s.version_now)
        for node in answer.graph.tape.nodes
        for s in node.saved
        if s.version != s.version_now
    ]
    assert changed == [("SigmoidBackward0", "result", 0, 1)]


def test_why_there_is_no_graph_is_said() -> None:
    assert "requires_grad=True" in ran("x = torch.ones(2)\ny = x * 2").words
    assert "No variable" in ran("x = 1").words
    assert "computed from" in ran("x = torch.ones(2, requires_grad=True)").words


def test_the_same_text_gives_the_same_numbers() -> None:
    text = "x = torch.randn(3)\nprint(x)"
    assert ran(text).output == ran(text).output


def test_tensors_in_lists_are_told_and_a_tensor_of_ones_own_mode_is_no_trouble() -> (
    None
):
    answer = ran(
        "xs = [torch.ones(1, requires_grad=True), torch.zeros(1)]\n"
        "with torch.inference_mode():\n    held = xs[0] * 2\nsparse = torch.eye(2).to_sparse()\n"
        "big = torch.randn(3, dtype=torch.cfloat, requires_grad=True)\nloss = big.abs().sum()"
    )
    assert answer.error is None
    assert [tensor.name for tensor in answer.tensors] == [
        "xs[0]",
        "xs[1]",
        "held",
        "sparse",
        "big",
        "loss",
    ]
    assert answer.tensor("held").version is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "x = nn.LazyLinear(3)",
            "cannot be read: Can't access the shape of an uninitialized parameter",
        ),
        (
            "kept = []\ntorch.func.vmap(lambda a: kept.append(a) or a)(torch.ones(3, 2))",
            "cannot be read: ",
        ),
        (
            "x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)\ny = x * 2",
            "cannot be",
        ),
        ("x = torch.ones(3, device='meta', requires_grad=True)\ny = (x * 2).sum()", ""),
        (
            "x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)",
            "[1, 1, 1]",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_of_an_odd_kind_keeps_nobody_from_being_told_of(
    text: str, told: str
) -> None:
    answer = ran(text)
    assert answer.error is None and any(
        tensor.values.startswith(told) for tensor in answer.tensors
    )
    assert not answer.words.startswith("The graph of")


def test_what_is_compiled_is_shown_as_the_one_node_that_it_is() -> None:
    answer = ran(
        "f = torch.compile(lambda a: (a * 2).sin(), backend='aot_eager')\n"
        "x = torch.ones(3, requires_grad=True)\ny = f(x).sum()"
    )
    assert answer.error is None and "unknown" in answer.words
    assert made_by(answer.graph.tape) == ["SumBackward0", "CompiledFunctionBackward"]


def test_a_long_loop_shows_its_last_graph_as_it_was() -> None:
    answer = ran(
        "w = torch.ones(2, requires_grad=True)\nfor _ in range(150):\n    loss = (w * w).sum()\n"
        "    loss.backward()"
    )
    assert answer.graph.freed_at == 4 and any(
        node.saved for node in answer.graph.tape.nodes
    )


def test_an_answer_is_the_same_behind_a_pipe() -> None:
    answer = ran(SPREADING + "inf = c / 0\nc.backward()\nraise ValueError('so')")
    assert Codec(0).decode(*Codec(1).encode(answer)) == answer


# -- a function of a file ----------------------------------------------------------------------------------------------

FILE = """import torch
from torch import nn

def loss():
    w = torch.ones(3, requires_grad=True)
    h = w.exp()
    return h.sum()

def make():
    return nn.Sequential(nn.Linear(4, 2), nn.Tanh())

def of(x):
    return {"first": x.requires_grad_().sin(), "second": x * 2}

def nothing():
    return 3
"""


def test_a_function_gives_its_result_and_its_locals() -> None:
    answer = ran(FILE, name="mine.py", function="loss")
    assert answer.error is None and answer.graph.name == "loss"
    assert leaves(answer.graph.tape) == {"w"} and answer.graph_of("h") is not None
    assert [node.line for node in answer.graph.tape.nodes if not node.is_leaf] == [7, 6]


def test_a_factory_gives_a_net_that_is_called_with_inputs() -> None:
    answer = ran(FILE, name="mine.py", function="make", inputs=(((5, 4), "float32"),))
    assert made_by(answer.graph.tape) == [
        "TanhBackward0",
        "AddmmBackward0",
        "TBackward0",
    ]
    assert leaves(answer.graph.tape) == {"make.0.weight", "make.0.bias"}
    assert "--input" in ran(FILE, name="mine.py", function="make").error.message


def test_a_function_with_arguments_gets_the_inputs_and_may_give_several_tensors() -> (
    None
):
    answer = ran(FILE, name="mine.py", function="of", inputs=(((2, 2), "float32"),))
    assert {graph.name for graph in answer.graphs} >= {"of", "of[1]"}
    assert "no tensor" in ran(FILE, name="mine.py", function="nothing").error.message
    assert (
        "no function gone" in ran(FILE, name="mine.py", function="gone").error.message
    )


def test_a_warning_of_torch_names_the_line_of_the_snippet() -> None:
    with pytest.warns(UserWarning, match="not a leaf Tensor") as told:
        ran("x = torch.ones(3, requires_grad=True)\ny = x * 2\nprint(y.grad)")
    assert [(one.filename, one.lineno) for one in told] == [("snippet", 3)]


def test_a_leaf_that_several_lines_use_stands_beside_them() -> None:
    tape = ran(
        "x = torch.ones(3, requires_grad=True)\na = x * 3\nb = x.sin()\nloss = (a + b).sum()"
    ).graph.tape
    drawing = to_drawing(tape)
    (leaf,) = [box for box in drawing.boxes if box.shape == "leaf"]
    assert leaf.title == "x" and leaf.group is None
    assert {group.title for group in drawing.groups} == {
        "a = x * 3",
        "b = x.sin()",
        "loss = (a + b).sum()",
    }


def test_the_number_above_a_graph_has_the_name_that_the_snippet_gave_it() -> None:
    w = "w = torch.ones(3, requires_grad=True)\n"
    for text, name in (
        ("energy = w.sum()", "energy"),
        ("(w * 3).sum()", "(w * 3).sum()"),
        ("w.sum().backward()", "value"),
    ):
        assert f"· {name} {9 if '3' in text else 3} ·" in summary(
            ran(w + text).graph.tape
        )
