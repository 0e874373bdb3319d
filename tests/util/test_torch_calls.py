"""What is called of torch in a region of code goes to a visitor, with the place of the call."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from app.util.torch_calls import FunctionCalls, KernelCalls


def test_a_visitor_sees_public_functions_with_the_frame_that_calls_them() -> None:
    names: list[str] = []

    def visit(func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        assert frame is here
        names.append(func.__name__)
        return func(*args, **kwargs)

    here = sys._getframe()
    x = torch.ones(2)
    with FunctionCalls(visit):
        total = torch.add(x, x, alpha=2).sum()
    torch.add(x, x)
    assert names == ["add", "sum"] and total.item() == 6


def test_a_visitor_sees_kernels_of_the_backward_pass_too_and_its_result_is_the_calls() -> (
    None
):
    kernels: list[str] = []

    def visit(func: Any, args: Any, kwargs: Any, _frame: FrameType) -> Any:
        kernels.append(func.overloadpacket.__name__)
        result = func(*args, **kwargs)
        return result + 1 if func is torch.ops.aten.exp.default else result

    x = torch.zeros(1, requires_grad=True)
    with KernelCalls(visit):
        y = x.exp()
        y.backward()
    assert y.item() == 2 and kernels[0] == "exp" and "mul" in kernels
