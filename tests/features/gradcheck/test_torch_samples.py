"""gradcheck beside torch's own, over samples of its operator tests; `tests/slow/op_samples.py` runs all of them."""

from __future__ import annotations

import pytest

from tests.slow import op_samples


@pytest.mark.filterwarnings("ignore")
def test_samples_of_torch_have_torchs_verdict() -> None:
    counts = op_samples.Counts()
    op_samples.ask_each(op_samples.SHORT, op_samples.compare, counts)
    assert counts.wrong == []
    assert sum(counts.told.values()) >= 15  # some have no sample that fits


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ["linalg.det", "nn.functional.gelu", "fmod", "fft.ifft"])
def test_a_gradient_that_is_one_percent_off_is_wrong_to_both(op: str) -> None:
    counts = op_samples.Counts()
    (found,) = op_samples.operators([op])
    sample = next(
        one
        for one in op_samples.samples(found, 4)
        if any(leaf.numel() for leaf in one.leaves)
    )
    op_samples.compare(op_samples.planted(sample, 1.01), counts)
    assert counts.told == {"wrong/wrong": 1} and counts.wrong == []
