"""Gradient norms by layer, as autograd left them."""

import math

import pytest


def torch_model():
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    model(torch.randn(5, 4)).pow(2).sum().backward()
    return model


def test_the_norm_of_a_layer_is_that_of_all_its_gradients_together():
    import torch

    from app.telemetry.gradients import GradientSampler

    model = torch_model()
    sampler = GradientSampler(model)
    assert sampler.layers == ("0", "2")
    norms = sampler.by_layer(sampler.measure().tolist())
    for layer, norm in zip((model[0], model[2]), norms, strict=True):
        flat = torch.cat([layer.weight.grad.flatten(), layer.bias.grad])
        assert norm == pytest.approx(flat.norm().item(), rel=1e-6)


def test_frozen_parameters_are_left_out_and_absent_gradients_are_nan():
    from app.telemetry.gradients import GradientSampler

    model = torch_model()
    model[0].requires_grad_(False)
    model[2].bias.grad = None
    sampler = GradientSampler(model)
    assert sampler.layers == ("2",)
    (norm,) = sampler.by_layer(sampler.measure().tolist())
    assert norm == pytest.approx(model[2].weight.grad.norm().item(), rel=1e-6)
    model.zero_grad()
    assert math.isnan(sampler.by_layer(sampler.measure().tolist())[0])


def test_a_net_without_parameters_has_nothing_to_measure():
    from torch import nn

    from app.telemetry.gradients import GradientSampler

    assert GradientSampler(nn.ReLU()).layers == ()


def test_a_parameter_of_the_network_itself_goes_by_its_own_name():
    import torch
    from torch import nn

    from app.telemetry.gradients import GradientSampler

    model = nn.Module()
    model.scale, model.fc = nn.Parameter(torch.ones(3)), nn.Linear(3, 3)
    assert GradientSampler(model).layers == ("scale", "fc")
