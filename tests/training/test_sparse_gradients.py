"""Nets with sparse gradients are trained as plain torch trains them, measured, saved, resumed and recomputed."""

import math

import pytest
import torch
from torch import nn

from app.telemetry.gradients import GradientSampler
from app.training.checkpoints import checkpoint
from app.training.config import Choice
from app.training.control import Control
from app.training.events import Failed, Finished, to_json
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.export.test_script_begun import numbers, run_script  # noqa: F401  a fixture
from tests.support.training_jobs import job, losses, net

NET = net(
    [
        "self.embedding1 = nn.Embedding(17, 4, sparse=True)",
        "self.linear1 = nn.Linear(256, 10)",
    ],
    [
        "x = self.embedding1(x.flatten(1).clamp(0, 16).long())",
        "return self.linear1(x.flatten(1))",
    ],
)
SPARSE_ONLY = net(
    ["self.embedding1 = nn.Embedding(17, 10, sparse=True)"],
    ["return self.embedding1(x.flatten(1).clamp(0, 16).long()).mean(1)"],
)


def optimizer(name: str, **params: object) -> dict[str, Choice]:
    return {"optimizer": Choice(name, FrozenMap(params))}


WAYS = {
    "plain": optimizer("SGD", lr=0.1),
    "momentum": optimizer("SGD", lr=0.1, momentum=0.9),
    "adagrad": optimizer("Adagrad", lr=0.1),
    "clipped": {**optimizer("SGD", lr=0.1), "clip_norm": 0.05},
    "clipped values": {**optimizer("SGD", lr=0.1), "clip_value": 0.001},
    "average": {**optimizer("SGD", lr=0.1), "ema": 0.9},
    "accumulated": {**optimizer("SGD", lr=0.1), "accumulate": 3},
}


@pytest.mark.parametrize("name", WAYS)
def test_a_run_with_sparse_gradients_is_that_of_its_script_and_is_resumed(
    name, run_script, tmp_path
):
    a_job = job(NET, epochs=1, batch_size=200, save_every=4, **WAYS[name])
    events = list(train(a_job, folder=tmp_path / "run"))
    assert isinstance(events[-1], Finished), events[-1]
    lines, ended = run_script(a_job, "--json")
    ours = numbers(line for event in events if (line := to_json(event)))
    assert ended is None and numbers(lines) == ours
    rest = list(train(a_job, resume=tmp_path / "run" / checkpoint.step_file(4)))
    assert losses(rest) == losses(events)[4:]
    again, ended = run_script(
        a_job, "--json", "--resume", str(tmp_path / "run" / checkpoint.step_file(4))
    )
    assert ended is None and numbers(again) == numbers(
        line for event in rest if (line := to_json(event))
    )


def test_sparse_adam_trains_a_net_of_sparse_gradients_alone():
    events = list(train(job(SPARSE_ONLY, epochs=1, **optimizer("SparseAdam", lr=0.1))))
    assert isinstance(events[-1], Finished) and losses(events)[-1] < losses(events)[0]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "NAdam", "SparseAdam"])
def test_an_optimizer_that_does_not_take_them_says_what_torch_says_with_the_cure(name):
    failed = list(train(job(NET, epochs=1, **optimizer(name))))[-1]
    assert (
        isinstance(failed, Failed)
        and "gradients" in failed.message
        and "SGD or Adagrad" in failed.cure
    )


def test_norms_are_of_the_coalesced_values():
    layer = nn.Embedding(5, 2, sparse=True)
    layer(torch.tensor([1, 1, 3])).sum().backward()
    assert layer.weight.grad is not None and not layer.weight.grad.is_coalesced()
    sampler = GradientSampler(nn.Sequential(layer, nn.Linear(2, 2)))
    first, *others = sampler.measure().tolist()
    assert first == pytest.approx(math.sqrt(2 * 4 + 2 * 1)) and all(
        math.isnan(one) for one in others
    )


def test_every_step_is_measured_and_hashed(tmp_path):
    from app.training.events import GradientNorms, Histograms

    events = list(train(job(NET, epochs=3, **WAYS["momentum"]), Control()))
    assert isinstance(events[-1], Finished)
    norms = [event for event in events if isinstance(event, GradientNorms)]
    assert norms and all(
        "embedding1" in event.layers and event.norms[0] > 0 for event in norms
    )
    assert any(isinstance(event, Histograms) for event in events)
