"""A played node is called where that comes to the same as torch's engine, and left to the engine where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from app.autograd.batch import TrainingBatch
from app.autograd.playback import node_call
from app.autograd.playback.playback import Playback, StepError
from tests.support.playback_nets import NETS, Residual, Twice, batch, loss


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that are left to the engine."""
    names: list[str] = []
    by_engine = node_call._by_engine

    def noted(node: Any, *more: Any) -> Any:
        names.append(node.name())
        return by_engine(node, *more)

    monkeypatch.setattr(node_call, "_by_engine", noted)
    return names


def played(
    model: nn.Module, x: Tensor, y: Any, of: Callable[..., Tensor] = loss, **more: Any
) -> Playback:
    torch.manual_seed(3)
    playback = Playback(TrainingBatch(model, x, of, y).hold(), **more)
    playback.run()
    return playback


def told(playback: Playback) -> list[tuple[Any, ...]]:
    return [
        (r.node, r.arriving, r.leaving, r.fan_ins, r.made, r.hooked, r.inside)
        for r in playback.records
    ]


def total(out: Tensor, _target: Any = None) -> Tensor:
    return out.float().square().sum()


class Net(nn.Module):
    """`work` of the input and a weight."""

    def __init__(
        self, work: Callable[[Tensor, Tensor], Tensor], weight: Tensor
    ) -> None:
        super().__init__()
        self.work, self.weight = work, nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.work(x, self.weight)


def as_the_engine(
    make: Callable[[], nn.Module],
    x: Tensor,
    y: Any,
    of: Any,
    monkeypatch: pytest.MonkeyPatch,
    graphs: tuple[bool, ...] = (False, True),
) -> None:
    """Called or left to the engine: the same bits and the same records, without and with `create_graph`."""
    for create_graph in graphs:
        torch.manual_seed(0)
        ours = played(make(), x, y, of, create_graph=create_graph)
        with monkeypatch.context() as patch:
            patch.setattr(node_call, "can_be_called", lambda *_: False)
            torch.manual_seed(0)
            theirs = played(make(), x, y, of, create_graph=create_graph)
        want = theirs.gradients
        assert {**ours.gradients}.keys() == want.keys()
        for name, gradient in ours.gradients.items():
            assert (
                torch.equal(gradient.to_dense(), want[name].to_dense())
                and gradient.dtype == want[name].dtype
            )
            assert gradient.requires_grad == want[name].requires_grad
        assert told(ours) == told(theirs)
        ours.release()
        theirs.release()


@pytest.mark.parametrize("name", NETS)
def test_a_call_is_what_the_engine_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = batch()
    as_the_engine(NETS[name], x, y, loss, monkeypatch, (False,))


@pytest.mark.parametrize("name", NETS)
def test_what_is_left_to_the_engine(name: str, left: list[str]) -> None:
    """A Function one of whose outputs goes unused, and a reentrant checkpoint."""
    x, y = batch()
    played(NETS[name](), x, y).release()
    assert left == {
        "custom": ["TwiceBackward"],
        "reentrant": ["CheckpointFunctionBackward"],
    }.get(name, [])


def test_a_long_chain_with_a_weight_in_every_link_is_called_throughout(
    left: list[str],
) -> None:
    def work(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(300):
            x = Both.apply(x * weight, weight, 0.5)
        return x

    playback = played(Net(work, torch.full((4,), 1.001)), torch.ones(2, 4), None, total)
    assert len(playback) == 600 + 3 and left == []
    (want,) = torch.autograd.grad(
        playback.graph.ends, list(playback.graph.model.parameters())
    )  # type: ignore
    torch.testing.assert_close(playback.gradients["weight"], want)
    playback.release()


class Both(torch.autograd.Function):
    """Two tensors and a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x + factor * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return (
            gradient,
            gradient * 0.5,
            None,
        )  # the second is summed down to the weight's shape


WORKS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor, list[str]]] = {
    "broadcast": (lambda x, w: x * w, torch.ones(1, 8), []),
    "cast": (lambda x, w: x.bfloat16() * w, torch.ones(8), []),
    "complex": (lambda x, w: (x * (w * 1j)).abs(), torch.ones(8), []),
    "function": (lambda x, w: Both.apply(x * w, w, 2.0), torch.ones(1, 8), []),
    "function of a constant": (
        lambda x, w: Both.apply(x.sigmoid(), w, 2.0),
        torch.ones(8),
        ["BothBackward"],
    ),
    "both outputs of a function": (
        lambda x, w: sum(Twice.apply(x * w, 2.0, w * x)),
        torch.ones(8),
        [],
    ),  # type: ignore
    "views": (
        lambda x, w: (x * w).split(3, 1)[1].T.contiguous().view(-1)[::2],
        torch.ones(8),
        [],
    ),
    "in place": (lambda x, w: (x * w).clone().mul_(2.0).relu_(), torch.ones(8), []),
    "in place on a view": (lambda x, w: _halved(x * w), torch.ones(8), []),
}


def _halved(x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, ::2].mul_(0.5)
    return y


@pytest.mark.parametrize("name", WORKS)
def test_sums_casts_and_functions(
    name: str, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, weight, by_engine = WORKS[name]
    x, _ = batch()
    as_the_engine(lambda: Net(work, weight), x, None, total, monkeypatch)
    left.clear()
    played(Net(work, weight), x, None, total).release()
    assert left == by_engine


def test_a_weight_whose_gradient_has_another_dtype() -> None:
    model = Net(lambda x, w: x * w, torch.ones(8, dtype=torch.bfloat16))
    model.weight.grad_dtype = torch.float32
    x, _ = batch()
    playback = played(model, x.bfloat16(), None, total)
    playback.graph.ends[0].backward(retain_graph=True)
    assert (
        playback.gradients["weight"].dtype == model.weight.grad.dtype == torch.float32
    )  # type: ignore[union-attr]
    playback.release()


def test_hooks_of_nodes_run_once_each_and_go_when_they_are_taken_off(
    left: list[str],
) -> None:
    x, y = batch()
    torch.manual_seed(0)
    model, calls = Residual(), []
    with TrainingBatch(model, x, loss, y).hold() as graph:
        node = model.kept.grad_fn
        hooks = [
            node.register_prehook(
                lambda gradients: calls.append("before") or (gradients[0] * 2.0,)
            ),
            node.register_hook(
                lambda left, _: (
                    calls.append("after") or tuple(each * 3.0 for each in left)
                )
            ),
        ]
        playback = Playback(graph)
        playback.run()
        assert calls == ["before", "after"] and left == [node.name()]
        (hooked,) = [record.node for record in playback.records if record.hooked]
        assert graph.nodes[hooked] is node
        want = torch.autograd.grad(
            graph.ends[0], list(model.parameters()), retain_graph=True
        )
        got = playback.gradients
        for (name, _), gradient in zip(model.named_parameters(), want, strict=True):
            torch.testing.assert_close(got[name], gradient)
        for hook in hooks:
            hook.remove()
        calls.clear()
        left.clear()
        playback.seek(0)
        playback.run()
        assert calls == left == [] and not any(
            record.hooked for record in playback.records
        )


def test_a_gradient_is_retained_as_in_backward() -> None:
    x, y = batch()
    model = Residual()
    with TrainingBatch(model, x, loss, y).hold() as graph:
        model.kept.retain_grad()
        Playback(graph).run()
        ours, model.kept.grad = model.kept.grad, None
        graph.ends[0].backward()
        torch.testing.assert_close(ours, model.kept.grad)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda g: (g,), "incorrect number of gradients"),
        (lambda g: (g, g, 1.0), "different (than|from) None at position 3"),
        (lambda g: (g[:, :3], g, None), "invalid gradient at index 0"),
        (lambda g: (3, g, None), "expected Variable or None"),
    ],
)
def test_a_function_that_answers_wrongly_is_told_so_in_the_words_of_torch(
    answer: Any, said: str
) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, factor: float) -> Tensor:
            return x * weight * factor

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            return answer(gradient)

    x, _ = batch()
    with TrainingBatch(
        Net(lambda x, w: Wrong.apply(x * w, w, 2.0), torch.ones(8)), x, total
    ).hold() as graph:
        playback = Playback(graph)
        with pytest.raises(StepError, match=said):
            playback.run()
        assert playback.tape.nodes[playback.next_node].name == "WrongBackward"  # type: ignore[index]


def test_a_checkpoint_computes_again_once_for_each_of_its_nodes() -> None:
    x, y = batch()
    model = NETS["checkpoint"]()
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    model.inner.register_forward_hook(count, always_call=True)  # type: ignore[union-attr, operator]
    with TrainingBatch(model, x, loss, y).hold() as graph:
        playback = Playback(graph)
        calls = 0
        playback.run()
        again = sum(node_call.may_use_rng(node) for node in graph.nodes)
        assert calls == again > 3


def test_saved_tensors_that_are_packed_are_unpacked(left: list[str]) -> None:
    unpacked = []
    packing = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.clone(), lambda tensor: unpacked.append(1) or tensor
    )
    x, y = batch()
    torch.manual_seed(0)
    model = Residual()
    with TrainingBatch(model, x, loss, y).hold(around=packing) as graph:
        playback = Playback(graph)
        playback.run()
        assert unpacked and left == []
        want = torch.autograd.grad(
            graph.ends[0], list(model.parameters()), retain_graph=True
        )
        for (name, _), gradient in zip(model.named_parameters(), want, strict=True):
            assert torch.equal(playback.gradients[name], gradient)
