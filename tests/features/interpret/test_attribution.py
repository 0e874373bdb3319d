"""Attributions by captum: those of torch's own gradients, complete, and of tokens by their embedding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.features.interpret import task as reading
from app.features.interpret.compute import attribution
from app.features.interpret.compute.subject import of_model
from app.features.interpret.values import (
    GRAD_CAM,
    INTEGRATED_GRADIENTS,
    SALIENCY,
    InterpretError,
    ReadAttributions,
    SampleLook,
    Samples,
)
from app.training.evaluation.evaluator import Evaluator
from tests.support.training_jobs import CONV_NET, job

pytestmark = pytest.mark.skipif(
    bool(attribution.captum_missing()), reason="attributions are an extra"
)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator(job(CONV_NET))


def test_saliency_is_the_gradient_of_the_score(evaluator):
    (found,) = reading.attributions(
        evaluator, ReadAttributions(None, Samples((4,)), SALIENCY, target=2)
    )
    inputs, _ = evaluator.read("validation", (4,))
    inputs.requires_grad_()
    score = evaluator.stepper.model.eval()(inputs)[0, 2]
    (gradient,) = torch.autograd.grad(score, inputs)
    torch.testing.assert_close(torch.tensor(found.values), gradient[0].abs())
    assert found.score == pytest.approx(
        score.item()
    ) and found.sample.picture.shape == (8, 8, 3)


def test_integrated_gradients_of_the_worst_samples_are_complete(evaluator):
    request = ReadAttributions(None, Samples(worst=3), INTEGRATED_GRADIENTS)
    found = reading.attributions(evaluator, request)
    worst = [int(one) for one in evaluator.evaluate().worst()[:3]]
    assert [one.sample.number for one in found] == worst
    for one in found:
        assert one.complete and one.steps >= 50 and one.incompleteness < 0.01
        assert one.values.sum() == pytest.approx(one.score - one.baseline, rel=0.01)
        assert one.sample.label and one.target == one.sample.prediction


def test_grad_cam_lies_over_the_picture(evaluator):
    (found,) = reading.attributions(
        evaluator, ReadAttributions(None, Samples((0,)), GRAD_CAM, layer="conv1")
    )
    assert (
        found.values.shape == (8, 8)
        and found.values.min() >= 0
        and found.layer == "conv1"
    )
    (found,) = reading.attributions(
        evaluator, ReadAttributions(None, Samples((0,)), GRAD_CAM)
    )
    assert found.layer == "conv2"
    with pytest.raises(
        InterpretError,
        match="linear1 gives no pictures .*; layers that do: conv1, norm1, conv2",
    ):
        reading.attributions(
            evaluator, ReadAttributions(None, Samples((0,)), GRAD_CAM, layer="linear1")
        )


def test_tokens_are_attributed_by_their_embedding():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(9, 8), nn.Embedding(6, 8)
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, ids):
            hidden = self.words(ids) + self.places(torch.arange(ids.shape[1]))
            return {"logits": self.head(self.body(hidden).tanh())}

    torch.manual_seed(0)
    one = of_model(Words(), (torch.tensor([[3, 1, 8, 2, 2, 5]]),), {})
    found = attribution.attribute(one, SampleLook(0), INTEGRATED_GRADIENTS)
    # The score is that of the last token alone, and nothing mixes tokens.
    assert (
        found.values.shape == (6,)
        and found.complete
        and found.against == "token 0"
        and (found.values[:5] == 0).all()
        and found.values[5] != 0
    )


def test_without_captum_the_cure_is_said(evaluator, monkeypatch):
    monkeypatch.setattr(attribution, "find_spec", lambda _name: None)
    with pytest.raises(
        InterpretError, match=r"pip install tapedeck-torch\[attribution\]"
    ):
        reading.attributions(evaluator, ReadAttributions(None))


def test_a_class_that_is_not_there_is_said(evaluator):
    with pytest.raises(InterpretError, match="the output has 10 values"):
        reading.attributions(evaluator, ReadAttributions(None, target=10))
