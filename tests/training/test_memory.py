"""The memory of a step: counted by layer, estimated without running anything, shown and written."""

import json
from types import SimpleNamespace

import pytest

from app.data.loaders import load
from app.telemetry import gpu
from app.telemetry.gpu import Allocator, GpuReading
from app.telemetry.layer_memory import saved
from app.training.config import Choice
from app.training.control import Control
from app.training.events import Paused
from app.training.loop import train
from app.training.monitoring import measured_memory, memory_by_layer, memory_report
from app.training.run_requests import TellMemory
from app.training.setup import devices
from tests.support.training_jobs import CONV_NET, SGD, SMALL_NET, adam, job, losses, run


def measured(a_job):
    """What a step of the run holds after its second batch, and the losses of the whole run."""
    control, events, found = Control(), [], []
    control.step()
    control.step()
    for event in train(a_job, control):
        events.append(event)
        if isinstance(event, Paused):
            found.append(control.call(TellMemory()).result())
            control.resume()
    return found[0], losses(events)


def test_what_autograd_holds_is_counted_once_by_the_layer_that_held_it_first():
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2))
    inputs = torch.randn(16, 4)
    with saved(model) as held:
        output = model(inputs)
    by_layer = {layer: size for layer, size in held.values()}
    # The input, and the output of the sigmoid, which the next Linear wants as well.
    assert by_layer == {"0": 16 * 4 * 4, "1": 16 * 8 * 4}
    output.sum().backward()
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks


def test_parameters_gradients_and_the_optimizers_state_are_those_of_the_layers():
    report, _ = measured(job(SMALL_NET, optimizer=adam(lr=0.001), max_steps=4))
    rows = {row.layer: row for row in report.step.layers}
    assert rows["linear1"].parameters == rows["linear1"].gradients == 4 * (64 * 16 + 16)
    assert (
        rows["linear1"].optimizer == 2 * 4 * (64 * 16 + 16) + 8
    )  # two moments, and a step for each parameter
    assert rows["drop1"].activations and not rows["drop1"].parameters
    assert report.step.batch == 64 and report.step.total.parameters == 4 * (
        64 * 16 + 16 + 160 + 10
    )


@pytest.mark.parametrize("source", [CONV_NET, SMALL_NET], ids=["conv", "small"])
@pytest.mark.parametrize("optimizer", [adam(lr=0.001), SGD], ids=["Adam", "SGD"])
def test_the_estimate_on_meta_tensors_is_what_a_step_holds(source, optimizer):
    a_job = job(source, optimizer=optimizer, max_steps=4)
    report, told = measured(a_job)
    assert memory_by_layer.estimate(a_job, load(a_job.data).info) == report.step
    assert told == losses(run(a_job)), "measuring changes no number"


def test_a_layer_that_is_computed_anew_in_backward_holds_less():
    plain = memory_by_layer.estimate(job(CONV_NET), load(job().data).info)
    anew = memory_by_layer.estimate(
        job(CONV_NET, recompute=("norm1",)), load(job().data).info
    )
    assert anew.total.activations < plain.total.activations


def test_an_optimizer_that_cannot_be_estimated_is_none():
    assert (
        memory_by_layer.estimate(job(optimizer=Choice("LBFGS")), load(job().data).info)
        is None
    )


def test_a_report_is_a_file_of_bytes():
    raw = json.loads(measured_memory.before(job(), "cpu").to_json())
    assert raw["estimated"] and raw["step"]["batch"] == 64 and raw["allocator"] is None
    assert raw["step"]["total"]["parameters"] == sum(
        row["parameters"] for row in raw["step"]["layers"]
    )
    assert raw["gpu"]["reason"] == "cpu reports neither utilisation nor temperature"
    assert memory_report.score(90, 100) == pytest.approx(-0.1)


def test_an_estimate_asks_the_device_that_auto_means_here(monkeypatch):
    present = (devices.Device("cuda:1", "NVIDIA H200"), devices.Device("cpu", "CPU"))
    monkeypatch.setattr(devices, "devices", lambda: present)
    monkeypatch.setattr(
        gpu, "read", lambda device: gpu.GpuReading(name=f"what is at {device}")
    )
    for asked, meant in (("auto", "cuda:1"), ("cuda:1", "cuda:1"), ("cuda:7", "cpu")):
        report = measured_memory.before(job(), asked)
        assert (report.device, report.gpu.name) == (meant, f"what is at {meant}")


def test_a_gpu_tells_what_it_has_and_leaves_out_the_rest(monkeypatch):
    def refuse(_device):
        raise ValueError("the driver is too old")

    card = SimpleNamespace(
        get_device_name=lambda _device: "Some GPU",
        utilization=lambda _device: 43,
        temperature=refuse,
    )
    with monkeypatch.context() as there:
        there.setattr(gpu.torch, "get_device_module", lambda _device: card)
        assert gpu.read("cuda:0") == GpuReading("Some GPU", 43)
        card.utilization = refuse
        assert gpu.read("cuda:0").reason == "the driver is too old"
    assert gpu.read("mps").reason == "mps reports neither utilisation nor temperature"
    assert (
        Allocator(50, 100, 80, 25).fragmentation == 0.25
        and Allocator(0, 0, 0, 0).fragmentation == 0.0
    )
