"""Results that are said without an evaluation on meta tensors are those of torch; what it may refuse is left to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from app.builder.shapes.meta_shortcuts import meta_result

LAYERS: list[tuple[Any, tuple[int, ...]]] = [
    (nn.Linear(6, 4), (6,)),
    (nn.Linear(6, 4, bias=False), (3, 5, 6)),
    (nn.Linear(6, 4), (0, 6)),
    (nn.ReLU(), (2, 3)),
    (nn.ReLU(), ()),
    (nn.GELU(), (2, 3)),
    (nn.GELU("tanh"), (4,)),
    (nn.LayerNorm(6), (2, 6)),
    (nn.LayerNorm((3, 6), elementwise_affine=False), (2, 3, 6)),
    (nn.BatchNorm1d(3), (4, 3)),
    (nn.BatchNorm2d(3), (2, 3, 4, 4)),
    (nn.BatchNorm3d(3), (2, 3, 4, 4, 4)),
    (F.relu, (2, 3)),
    (F.gelu, (2, 3)),
    (torch.relu, (2, 0)),
    (nn.Conv1d(3, 4, 3, padding=2), (2, 3, 9)),
    (nn.Conv2d(4, 8, 3, 2, 1), (2, 4, 7, 7)),
    (
        nn.Conv2d(4, 8, (3, 2), (1, 2), (0, 1), (2, 1), groups=2, bias=False),
        (2, 4, 9, 8),
    ),
    (nn.Conv2d(1, 1, 1), (1, 1, 1, 1)),
    (nn.Conv2d(1, 8, 1), (1, 1, 4, 4)),
    (nn.Conv2d(4, 1, 4), (3, 4, 4, 4)),
    (nn.Conv3d(2, 4, 3, padding=1), (2, 2, 5, 6, 7)),
]
LEFT: list[tuple[Any, tuple[int, ...], torch.dtype]] = [
    (nn.Linear(6, 4), (2, 5), torch.float32),
    (nn.Linear(6, 4), (2, 6), torch.float64),
    (nn.Linear(6, 4), (), torch.float32),
    (nn.LayerNorm(6), (2, 5), torch.float32),
    (nn.BatchNorm1d(3), (1, 3), torch.float32),
    (nn.BatchNorm2d(3), (2, 3), torch.float32),
    (nn.Conv2d(4, 8, 3), (2, 5, 7, 7), torch.float32),
    (nn.Conv2d(4, 8, 3), (2, 4, 2, 7), torch.float32),
    (nn.Conv2d(4, 8, 3), (4, 7, 7), torch.float32),
    (nn.Conv2d(4, 8, 3), (0, 4, 7, 7), torch.float32),
    (nn.Conv2d(4, 8, 3), (2, 4, 7, 7), torch.float64),
    (nn.Conv2d(4, 8, 3, stride=0), (2, 4, 7, 7), torch.float32),
    (nn.Conv2d(4, 8, 3, padding="same"), (2, 4, 7, 7), torch.float32),
    (nn.Conv2d(4, 8, 3, padding=-1), (2, 4, 7, 7), torch.float32),
    (
        nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"),
        (2, 4, 7, 7),
        torch.float32,
    ),
    (nn.GELU("none of both"), (2,), torch.float32),
    (nn.ReLU(), (2,), torch.complex64),
    (F.gelu, (2,), torch.int64),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=map(str, range(len(LAYERS))))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_it_is_the_result_of_torch(
    layer: Callable[..., Any], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    if isinstance(layer, nn.Module):
        layer = layer.to("meta", dtype)
    given = torch.empty(shape, dtype=dtype, device="meta")
    mine, theirs = meta_result(layer, (given,), {}), layer(given)
    assert mine is not None and mine is not given and mine.device == theirs.device
    assert (mine.shape, mine.dtype, mine.stride()) == (
        theirs.shape,
        theirs.dtype,
        theirs.stride(),
    )


@pytest.mark.parametrize(
    ("layer", "shape", "dtype"), LEFT, ids=map(str, range(len(LEFT)))
)
def test_what_torch_may_refuse_is_left_to_it(
    layer: Any, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    if isinstance(layer, nn.Module):
        layer = layer.to("meta")
    assert (
        meta_result(layer, (torch.empty(shape, dtype=dtype, device="meta"),), {})
        is None
    )


def test_what_is_another_result_is_left_to_torch() -> None:
    turned = torch.empty(3, 2, device="meta").T
    for layer in (nn.ReLU(), nn.Linear(3, 4, device="meta")):
        assert meta_result(layer, (turned,), {}) is None
    given = torch.empty(2, 3, device="meta")
    assert meta_result(nn.ReLU(inplace=True), (given,), {}) is None, (
        "it is the tensor that it is given"
    )
    assert meta_result(F.relu, (given,), {"inplace": True}) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert meta_result(nn.Linear(3, 4, device="meta"), (given,), {}) is None
    assert meta_result(nn.Linear(3, 4), (torch.empty(2, 3),), {}) is None, (
        "there are values to compute with"
    )
