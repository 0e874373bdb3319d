"""The Autograd room over samples of torch's own operator tests; `tests/slow/op_samples.py` runs all of them."""

from __future__ import annotations

import pytest
import torch

from tests.slow import op_samples

# Each has an Inf or a NaN inside and none outside, sparse tensors, empty ones, complex numbers, outputs that have no
# derivative or a wrong one alone, or a gradient so small that rounding is most of it.
OPS = (
    "logdet",
    "nn.functional.ctc_loss",
    "linalg.det",
    "linalg.slogdet",
    "sparse.mm.reduce",
    "sparse.sampled_addmm",
    "native_group_norm",
    "native_layer_norm",
    "nn.functional.batch_norm",
    "nn.functional.prelu",
    "fft.ifft",
    "angle",
    "roll",
    "fmod",
    "softmax",
    "__rpow__",
    "xlogy",
    "to_sparse",
    "nn.functional.scaled_dot_product_attention",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "ask", [op_samples.look, op_samples.compare], ids=["findings", "gradcheck"]
)
def test_samples_of_torch_raise_no_false_alarm_and_have_torchs_verdict(
    ask: op_samples.Ask,
) -> None:
    counts = op_samples.Counts()
    for op in op_samples.operators(OPS):
        for sample in op_samples.samples(op, 1):
            ask(sample, counts)
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


def test_who_has_read_the_table_of_operators_can_still_set_the_flags_of_cudnn() -> None:
    """torch's own test helpers forbid that to their process; a deterministic run sets one."""
    op_samples.operators(["fft.ifft"])
    assert not torch.backends.flags_frozen()
