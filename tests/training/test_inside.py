"""Activations and filters of a layer for one sample, of a run, of its weights, of fresh ones."""

import numpy as np
import pytest

from app.training.control import Control
from app.training.events import Paused, StepDone
from app.training.loop import train
from app.training.monitoring.activations import of_weights
from app.training.monitoring.snapshots import activations, filters, of_values
from app.training.run_requests import LookInside
from tests.support.training_jobs import CONV_NET, SMALL_NET, job, losses, run


def test_the_channels_are_those_of_plain_torch_in_eval_mode():
    import torch

    from app.source.compiled import make_module

    torch.manual_seed(0)
    model = make_module(CONV_NET).train()
    sample = torch.randn(1, 1, 8, 8)
    found = activations(model, "conv2", sample)
    assert model.training and found.count == 32 and found.pictures.shape == (32, 8, 8)
    model.eval()
    wanted = (
        model.conv2(torch.relu(model.norm1(model.conv1(sample))))[0].detach().numpy()
    )
    np.testing.assert_array_equal(found.pictures, wanted)


def test_a_vector_is_a_picture_of_lines_and_what_is_missing_of_the_last_is_empty():
    import torch

    found = of_values(torch.arange(100.0), "x")
    assert (
        found.pictures.shape == (1, 2, 64) and np.isnan(found.pictures[0, 1, 36:]).all()
    )


def test_filters_of_a_convolution_and_of_a_linear_that_sees_the_picture():
    import torch

    from app.source.compiled import make_module

    torch.manual_seed(0)
    conv, small = make_module(CONV_NET), make_module(SMALL_NET)
    assert filters(conv, "conv1", (1, 8, 8)).pictures.shape == (16, 3, 3)
    assert filters(conv, "conv2", (1, 8, 8)).pictures.shape == (256, 3, 3)  # of 512
    assert filters(conv, "conv2", (1, 8, 8)).count == 512
    assert filters(small, "linear1", (1, 8, 8)).pictures.shape == (16, 8, 8)
    assert filters(small, "linear2", (1, 8, 8)).pictures.shape == (1, 10, 16)
    assert filters(small, "drop1", (1, 8, 8)) is None


def test_looking_into_a_run_changes_none_of_its_numbers():
    control, events, seen = Control(), [], []
    for _ in range(3):
        control.step()
    for event in train(job(), control):
        events.append(event)
        if isinstance(event, Paused):
            seen.append(control.call(LookInside("linear1", 5)).result())
            control.resume()
    assert losses(events) == losses(run(job()))
    (found,) = seen
    assert found.weights == "the run's weights after step 3" and found.sample == 5
    assert found.channels.pictures.shape == (1, 1, 16) and found.filters.count == 16
    assert found.picture.shape == (1, 8, 8) and found.label in set("0123456789")


def test_weights_of_a_run_and_fresh_ones_differ_and_say_so():
    control = Control()
    steps = sum(isinstance(e, StepDone) for e in train(job(max_steps=9), control))
    fresh = of_weights(job(), None, "linear1", 0, "fresh weights")
    again = of_weights(job(), None, "linear1", 0, "fresh weights")
    trained = of_weights(
        job(), control.result.state_dict, "linear1", 0, f"step {steps}"
    )
    np.testing.assert_array_equal(fresh.channels.pictures, again.channels.pictures)
    assert not np.array_equal(fresh.channels.pictures, trained.channels.pictures)
    assert trained.weights == "step 9" and fresh.weights == "fresh weights"


def test_a_sample_beyond_the_last_is_the_last():
    found = of_weights(job(), None, "linear1", 10**9, "")
    assert found.sample == found.count - 1


def test_a_layer_that_is_not_run_has_no_activations():
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(4, 4))
    assert activations(model, "0", torch.zeros(1, 4)) is not None
    model.forward = lambda x: x
    assert activations(model, "0", torch.zeros(1, 4)) is None


def test_a_layer_that_is_not_there_is_an_error():
    with pytest.raises(AttributeError):
        of_weights(job(), None, "nothing", 0, "")
