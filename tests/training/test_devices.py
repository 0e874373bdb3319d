"""What "auto" means, and what is said where a device is absent."""

import pytest

from app.training.job import JobError
from app.training.setup.device import Device
from app.training.setup.devices import devices, resolve

CPU = Device("cpu", "CPU")
GPUS = (Device("cuda:0", "H200"), Device("cuda:1", "H200"), CPU)


def test_the_cpu_is_always_there():
    assert devices()[-1].id == "cpu" and len(
        {device.id for device in devices()}
    ) == len(devices())


@pytest.mark.parametrize(
    ("name", "present", "chosen", "noted"),
    [
        ("auto", (CPU,), "cpu", False),
        ("auto", GPUS, "cuda:0", False),
        ("auto", (Device("mps:0", "Apple GPU"), CPU), "mps:0", False),
        ("cuda", GPUS, "cuda:0", False),
        ("cuda:1", GPUS, "cuda:1", False),
        ("cuda:2", GPUS, "cpu", True),
        ("mps", (Device("mps:0", "Apple GPU"), CPU), "mps:0", False),
        ("mps", GPUS, "cpu", True),
        ("npu:1", GPUS, "cpu", True),
        ("cpu", GPUS, "cpu", False),
    ],
)
def test_which_device_a_name_takes(name, present, chosen, noted):
    resolved = resolve(name, present)
    assert resolved.id == chosen and (resolved.note is not None) == noted
    assert not noted or name in resolved.note


@pytest.mark.parametrize("name", ["", "GPU 1", "cuda:", "cuda:x", "cpu\n", "auto cpu"])
def test_what_is_no_device_is_refused(name):
    with pytest.raises(JobError):
        resolve(name, GPUS)
