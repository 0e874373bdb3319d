"""How the values of a tensor are spread, held against torch's own counts."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from app.telemetry.histogram import BINS
from app.telemetry.histogram_of import histogram

NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(st.lists(NUMBERS, max_size=40))
@example([math.inf, 1.0, -math.inf])
def test_every_value_is_counted_or_said_to_be_not_finite_without_a_warning(
    values: list[float],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = histogram("fc", torch.tensor(values, dtype=torch.float32))
    finite = [value for value in values if math.isfinite(value)]
    assert sum(found.counts) == len(finite) and found.not_finite == len(values) - len(
        finite
    )
    if finite:
        assert (found.low, found.high) == (min(finite), max(finite))
        assert found.zeros == finite.count(0.0) and found.size == len(values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_its_figures_are_those_of_torch(dtype: torch.dtype) -> None:
    values = torch.randn(5_000, generator=torch.Generator().manual_seed(0)).to(dtype)
    found, wide = histogram("fc", values.reshape(50, 100)), values.float()
    assert (found.low, found.high) == tuple(float(end) for end in wide.aminmax())
    std, mean = torch.std_mean(wide.double(), correction=0)
    assert (found.mean, found.std) == (
        pytest.approx(float(mean)),
        pytest.approx(float(std)),
    )
    apart = torch.histc(wide, BINS, found.low, found.high) - torch.tensor(found.counts)
    assert apart.abs().sum() <= 4, "but for values on an edge"
