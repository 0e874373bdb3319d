"""Why `.grad` of a tensor is None: each reason that lines of PyTorch can have, in a sentence with a cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from app.autograd.diagnostics.detached_paths import CutWatcher
from app.autograd.diagnostics.grad_none import explain_grad
from app.autograd.diagnostics.results import GradAnswer


def leaf() -> torch.Tensor:
    return torch.tensor([1.0, -2.0], requires_grad=True)


def not_a_leaf() -> Any:
    w = leaf()
    h = w * 2
    h.sum().backward()
    return h


def retained() -> Any:
    w = leaf()
    h = w * 2
    h.retain_grad()
    h.sum().backward()
    return h


def not_called() -> Any:
    w = leaf()
    (w * 2).sum()
    return w


def cleared() -> Any:
    w = leaf()
    optimizer = torch.optim.SGD([w], 0.1)
    (w * 2).sum().backward()
    optimizer.zero_grad()
    return w


def zeroed() -> Any:
    w = leaf()
    optimizer = torch.optim.SGD([w], 0.1)
    (w * 2).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    return w


def cut() -> Any:
    w, v = leaf(), leaf()
    ((w * 3).detach() * v).sum().backward()
    return w


def unused() -> Any:
    w, v = leaf(), leaf()
    v.sum().backward()
    return w


def left_out() -> Any:
    w, v = leaf(), leaf()
    w.exp()
    v.sum().backward()
    return w


def dead() -> Any:
    w = leaf()
    (w - 9).relu().sum().backward()
    return w


def flowing() -> Any:
    w = leaf()
    (w * 2).sum().backward()
    return w


CASES: list[tuple[Callable[[], Any], str, str, str]] = [
    (not_a_leaf, "none", "not a leaf", "t is not a leaf: MulBackward0 computed it"),
    (retained, "flows", "", "t has a gradient; its norm is 1.41"),
    (not_called, "none", "backward not called", "backward() has not been called"),
    (cleared, "none", "set to none", "zero_grad() does so (set_to_none=True)"),
    (zeroed, "zero", "zeroed", "zero_grad(set_to_none=False) does so"),
    (cut, "none", "detach", "The path of t is cut at line "),
    (unused, "none", "unused", "t is not used"),
    (left_out, "none", "not in the loss", "ExpBackward0"),
    (dead, "zero", "zero", "exists and is exactly zero"),
    (flowing, "flows", "", "its norm is 2.83"),
    (lambda: torch.ones(2), "none", "no requires_grad", "has requires_grad=False"),
    (lambda: torch.ones(2).long(), "none", "integer", "t is torch.int64: only tensors of floating point"),
]


def asked(lines: Callable[[], Any]) -> GradAnswer:
    with CutWatcher() as watcher:
        tensor = lines()
    return explain_grad(tensor, "t", watcher)


@pytest.mark.parametrize(("lines", "state", "kind", "words"), CASES, ids=[case[2] or "flows" for case in CASES])
def test_each_reason_has_its_sentence(lines: Callable[[], Any], state: str, kind: str, words: str) -> None:
    answer = asked(lines)
    assert (answer.state, answer.kind) == (state, kind) and words in answer.sentence
    assert answer.cure or state == "flows"


def test_the_line_that_cleared_it_is_named() -> None:
    place = asked(cleared).place
    assert place is not None and place.code == "optimizer.zero_grad()" and place.file == __file__
    cut_place = asked(cut).place
    assert cut_place is not None and cut_place.code == "((w * 3).detach() * v).sum().backward()"


def test_a_gradient_that_came_after_it_was_cleared_counts() -> None:
    def lines() -> Any:
        w = cleared()
        (w * 2).sum().backward()
        return w

    assert asked(lines).state == "flows"
