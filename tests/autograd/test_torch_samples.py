"""The Autograd room over samples of torch's own operator tests; `tests/slow/op_samples.py` runs all of them."""

from __future__ import annotations

import pytest
import torch

from tests.slow import op_samples


@pytest.mark.filterwarnings("ignore")
def test_samples_of_torch_raise_no_false_alarm() -> None:
    counts = op_samples.Counts()
    op_samples.ask_each(op_samples.SHORT, op_samples.look, counts)
    assert counts.wrong == []
    assert sum(counts.told.values()) >= 15  # some have no sample that fits


def test_who_has_read_the_table_of_operators_can_still_set_the_flags_of_cudnn() -> None:
    """torch's own test helpers forbid that to their process; a deterministic run sets one."""
    op_samples.operators(["fft.ifft"])
    assert not torch.backends.flags_frozen()
