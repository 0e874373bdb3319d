"""NaN and Inf in backward: found where they arise, masked afterwards or not, with the reason and the cure."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import find_all
from app.autograd.diagnostics.results import Finding
from tests.slow.planted_nans import PLANTED, SOUND, batch_of, of_planted, of_sound


@pytest.mark.parametrize(
    "name",
    [
        "sqrt, ReLU",
        "sqrt of a sum, ReLU",
        "log, where",
        "log, masked_fill",
        "power 0.5, maximum",
        "sqrt, an index",
        "softmax without keys, masked_fill",
        "a custom Function, clamp",
        "a hook, clamp",
        "cosine of zeros by hand, ReLU",
    ],
)
def test_a_nan_that_arises_in_backward_is_named_as_anomaly_mode_names_it(
    name: str,
) -> None:
    assert of_planted(name)[1] == ""


@pytest.mark.parametrize(
    "name",
    [
        "gradients of 1e25",
        "gradients near the largest float",
        "sqrt with epsilon",
        "causal attention with weights",
        "padded attention",
        "softmax with some keys masked",
        "greatest of some masked keys",
        "norm of zeros",
    ],
)
def test_a_sound_net_has_no_finding_of_a_nan(name: str) -> None:
    assert of_sound(name)[1] == ""


def test_forty_nets_of_each_kind_are_there_for_the_long_form() -> None:
    assert min(len(PLANTED), len(SOUND)) >= 40


def nonfinite(name: str) -> list[Finding]:
    return [
        one
        for one in find_all(batch_of(PLANTED[name])).found
        if one.kind == "non-finite"
    ]


def test_a_masked_one_is_a_warning_that_names_what_masks_it() -> None:
    (finding,) = nonfinite("sqrt, ReLU")
    assert finding.severity == "warning" and finding.layer == "spot"
    assert (
        "ReluBackward0 of spot" in finding.sentence
        and "masks it: no parameter receives it" in finding.sentence
    )
    (reaching,) = nonfinite("sqrt, unmasked")
    assert reaching.severity == "error" and "masks it" not in reaching.sentence


def test_a_nan_made_of_an_inf_says_where_the_inf_comes_from() -> None:
    (finding,) = nonfinite("sqrt of a sum, ReLU")
    assert "PowBackward0 of spot" in finding.sentence
    assert "It is made of an Inf of SqrtBackward0 of spot" in finding.sentence


def test_the_branch_of_a_where_that_is_not_taken_is_to_be_masked_too() -> None:
    backward = [
        one for one in nonfinite("log, where") if "In the backward pass" in one.sentence
    ]
    assert (
        backward
        and "Mask its input too" in backward[0].cure
        and "its result is not taken there" in backward[0].sentence
    )


class Masked(nn.Module):
    def __init__(self, step: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.step = nn.Linear(4, 4), step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self.fc(x))  # type: ignore[operator]


def findings_of(step: object) -> list[Finding]:
    loss = lambda output, _target: output.mean()  # noqa: E731
    return list(
        find_all(
            TrainingBatch(Masked(step), (torch.ones(3, 4),), loss, own_lines=True)
        ).found
    )


def test_a_row_without_keys_is_no_log_of_0() -> None:
    first = findings_of(
        lambda h: h.masked_fill(torch.ones(3, 4) > 0, float("-inf")).softmax(-1)
    )[0]
    assert (
        "all of its keys are masked" in first.sentence
        and "3 of 3 rows" in first.sentence
    )
    assert "every row" in first.cure and "sqrt" not in first.cure


def test_the_mean_of_no_rows_is_no_vanishing_gradient() -> None:
    problems = findings_of(lambda h: h[h[:, 0] > 1e9].mean())
    assert (
        "mean of no values" in problems[0].sentence
        and "count.clamp(min=1)" in problems[0].cure
    )
    assert not [one for one in problems if one.kind == "vanishes"]


def test_a_batch_of_ignored_targets_is_a_mean_over_no_targets() -> None:
    first = findings_of(lambda h: F.cross_entropy(h, torch.full((3,), -100)))[0]
    assert "Every target is ignored" in first.sentence
