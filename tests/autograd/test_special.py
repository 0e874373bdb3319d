"""AMP, checkpoint, compile, second order and several outputs: each graph is shown for what it is."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.errors import NoGraphError
from app.autograd.forward_modes import Special
from app.autograd.node_notes import notes_of, notes_of_tape
from app.autograd.tape import Tape
from tests.support.autograd_tapes import SOURCE

Y = torch.tensor([0, 1, 1])


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8),
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)),
        nn.Linear(8, 2),
    )


def batch() -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def tape_of(model: nn.Module, special: Special, x: torch.Tensor | None = None) -> Tape:
    with TrainingBatch(
        model, batch() if x is None else x, nn.CrossEntropyLoss(), Y, special=special
    ).hold() as graph:
        return graph.tape


def names(tape: Tape) -> set[str]:
    return {node.name for node in tape.nodes}


def test_autocast_shows_its_casts() -> None:
    tape = tape_of(net(), Special(amp="bfloat16"))
    casts = [node for node in tape.nodes if node.name == "ToCopyBackward0"]
    assert casts and "A cast to another dtype" in notes_of(tape, casts[0])[0]
    assert "bfloat16" in {saved.dtype for node in tape.nodes for saved in node.saved}
    assert "ToCopyBackward0" not in names(tape_of(net(), Special()))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_part_keeps_its_input_alone(reentrant: bool) -> None:
    model = net()
    plain = tape_of(model, Special())
    tape = tape_of(model, Special(checkpoint=("1",), reentrant=reentrant))
    words = [text for node in tape.nodes for text in notes_of(tape, node)]
    if reentrant:
        assert "CheckpointFunctionBackward" in names(
            tape
        ) and "TanhBackward0" not in names(tape)
        assert len(words) == 1 and words[0].startswith(
            "A reentrant checkpoint: one opaque node"
        )
    else:
        assert names(tape) == names(plain) and tape.held_bytes < plain.held_bytes
        assert words and all(
            text.startswith("Checkpointed (use_reentrant=False)") for text in words
        )
    assert "forward" not in vars(model[1])


def test_a_checkpoint_computes_again_while_the_graph_is_held() -> None:
    model = net()
    with TrainingBatch(
        model, batch(), nn.CrossEntropyLoss(), Y, special=Special(checkpoint=("1",))
    ).hold() as graph:
        again = torch.autograd.grad(graph.ends, list(model.parameters()))
    with TrainingBatch(model, batch(), nn.CrossEntropyLoss(), Y).hold() as graph:
        plain = torch.autograd.grad(graph.ends, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(again, plain, strict=True))


def test_a_compiled_net_is_one_node_and_says_so() -> None:
    model, x = net(), batch()
    tape = tape_of(model, Special(compile=True), x)
    compiled = [node for node in tape.nodes if node.name == "CompiledFunctionBackward"]
    assert (
        len(compiled) == 1
        and "Capture without compile" in notes_of(tape, compiled[0])[0]
    )
    assert notes_of_tape(tape) == ("torch.compile: the network is one node.",)
    leaves = {name for node in tape.nodes for name in node.parameters}
    assert leaves == {
        name for name, _ in model.named_parameters()
    } and "forward" not in vars(model)
    assert tape.loss == pytest.approx(
        TrainingBatch(model, x, nn.CrossEntropyLoss(), Y).capture().loss
    )


def test_the_second_order_graph_gives_the_gradient_of_the_gradients_norm() -> None:
    model, x = net(), batch()
    with TrainingBatch(
        model, x, nn.CrossEntropyLoss(), Y, special=Special(second_order=True)
    ).hold() as graph:
        tape = graph.tape
        got = torch.autograd.grad(
            graph.ends, list(model.parameters()), allow_unused=True
        )
    loss = nn.CrossEntropyLoss()(model(x), Y)
    first = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    norm = torch.stack([grad.square().sum() for grad in first]).sum()
    for mine, theirs in zip(
        got,
        torch.autograd.grad(norm, list(model.parameters()), allow_unused=True),
        strict=True,
    ):
        assert (mine is None and theirs is None) or torch.allclose(mine, theirs)
    assert loss.item() == pytest.approx(tape.loss)
    made = [node for node in tape.nodes if node.order == 2]
    tanh = [node for node in made if node.name == "TanhBackwardBackward0"]
    assert len(tanh) == 1 and (tanh[0].layer, tanh[0].in_loss) == ("1.1", True)
    assert notes_of(tape, tanh[0])[0].startswith(
        "A graph of second order: made while 1.1 ran backward"
    )
    assert {"1.0", "1.2", "2"} <= {node.layer for node in made}
    assert "the square of the norm" in notes_of_tape(tape)[0]


def test_a_gradient_that_never_changes_has_no_second_order() -> None:
    with pytest.raises(NoGraphError, match="does not depend on the weights"):
        TrainingBatch(
            nn.Linear(4, 2), batch(), special=Special(second_order=True)
        ).hold()


def test_outputs_are_chosen_and_each_wants_a_vector() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.a(x), self.b(x).exp()

    model = Two()
    both = TrainingBatch(model, batch()).capture()
    assert notes_of_tape(both) == (
        "2 outputs: backward takes a vector for each, and adds up where they meet.",
    )
    with TrainingBatch(model, batch(), special=Special(outputs=(1,))).hold() as graph:
        assert {name for node in graph.tape.nodes for name in node.parameters} == {
            "b.weight",
            "b.bias",
        }
        assert [tuple(end.shape) for end in graph.ends] == [(3, 3)]


def test_a_custom_function_is_named() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Twice.apply(self.fc(x))

    tape = TrainingBatch(Net(), batch()).capture()
    said = {node.name: notes_of(tape, node) for node in tape.nodes}
    assert said["TwiceBackward"][0].startswith("A custom Function, Twice:")
    assert [name for name, words in said.items() if words] == ["TwiceBackward"]


@pytest.mark.parametrize(
    "special",
    [
        Special(second_order=True),
        Special(checkpoint=("relu1",)),
        Special(amp="bfloat16"),
    ],
)
def test_a_text_is_captured_as_special_too_and_nothing_is_kept(
    special: Special,
) -> None:
    made = compile_batch(
        SOURCE,
        torch.ones(3, 1, 8, 8),
        torch.tensor([1, 2, 3]),
        nn.CrossEntropyLoss(),
        0,
    )
    graph = made.hold(special=special)
    del made
    seen = weakref.ref(graph.ends[0])
    assert {node.node for node in graph.tape.nodes if node.order == 2} <= {
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
        None,
    }
    graph.release()
    gc.collect()
    assert seen() is None
