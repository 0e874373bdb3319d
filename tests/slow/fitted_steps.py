"""Twelve nets against three limits of memory each, on the CPU and on the simulated accelerator: what a plan promises.

    python -m tests.slow.fitted_steps [NET ...] [--device cpu|sim]

Each plan that fits is trained for twenty steps. On the accelerator the limit is the device's, and the peak its
allocator's; on the CPU the peak is that of torch's allocator as its profiler notes it, without the data that a run
holds and their order. Prints a table: plans that fit and ran, plans that do not and are refused, the largest difference
of a peak from what was said of it, and of the gradients of exact plans. Exits with 1 on a fault.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "tests" / "support" / "packages"
EXAMPLES = ROOT / "resources" / "examples"
DEVICES = {"cpu": "cpu", "sim": "sim:0"}
LIMITS = (1.02, 0.75, 0.5)  # of the peak of the step as it is
STEPS = 20  # at least, and two updates
CLOSE = 0.05  # of a peak
ROUNDING = 1e-6  # of a gradient
MODELS = '''
import torch
from torch import nn
from torch.nn import functional as F


class Tied(nn.Module):
    """A language model whose last weight is that of its embedding."""

    def __init__(self, words=200, width=64, depth=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.last = nn.Linear(width, words, bias=False)
        self.last.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.last(x).transpose(1, 2)


class Cells(nn.Module):
    """An LSTM over words."""

    def __init__(self):
        super().__init__()
        self.words, self.cells = nn.Embedding(50, 32), nn.LSTM(32, 64, 2, batch_first=True)
        self.last = nn.Linear(64, 50)

    def forward(self, ids):
        return self.last(self.cells(self.words(ids))[0]).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(F.gelu(x))))


class Deep(nn.Module):
    """Residual convolutions without a norm."""

    def __init__(self, width=16, depth=8):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.last = nn.Linear(width, 10)

    def forward(self, x):
        return self.last(self.blocks(self.first(x)).mean((2, 3)))


class Shared(nn.Module):
    """One block called six times."""

    def __init__(self, width=256):
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 10)
        self.block = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())

    def forward(self, x):
        x = self.first(x)
        for _ in range(6):
            x = x + self.block(x)
        return self.last(x)
'''


class Net(NamedTuple):
    """A net by its name, and what a command takes for it."""

    name: str
    arguments: tuple[str, ...]


NETS = (
    Net("digits", (str(EXAMPLES / "digits.tape"),)),
    Net("MLP", (str(EXAMPLES / "MLP on digits.tape"),)),
    Net("residual", (str(EXAMPLES / "Residual net on digits.tape"),)),
    Net("siamese", (str(EXAMPLES / "Siamese net on digits.tape"),)),
    Net("transformer", (str(EXAMPLES / "Transformer on digits.tape"),)),
    Net("U-Net", (str(EXAMPLES / "U-Net.tape"),)),
    Net("dates", (str(EXAMPLES / "Encoder-decoder on dates.tape"),)),
    Net("Tied", ("nets.py:Tied", "--input", "8x32:int64:0..199")),
    Net("Cells", ("nets.py:Cells", "--input", "8x20:int64:0..49")),
    Net("Deep", ("nets.py:Deep", "--input", "8x3x32x32")),
    Net("Shared", ("nets.py:Shared", "--input", "64x64")),
    Net("resnet18", ("torchvision.models:resnet18", "--input", "4x3x64x64")),
)


class PlanRun(NamedTuple):
    """A plan as it ran: whether it kept to the limit, or why it did not, and the peak of its run."""

    plan: str
    fits: bool
    said: int
    peak: int
    ended: str
    difference: float


# -- in a process of its own ------------------------------------------------------------------------------------------


def child(net: Net, device: str) -> None:
    """Print a line of JSON for each limit: it, and its plans as they ran."""
    import torch
    from msgspec.structs import replace

    from app.cli import _parser, nets
    from app.features.fit.cli import on_synthetic_data
    from app.features.fit.compute.plans import fit
    from app.features.fit.values import Fit
    from app.preflight import preflight

    torch.set_num_threads(1)
    options = _parser("fit").parse_args(
        ["fit", *net.arguments, "--trust", "--device", device]
    )
    project = nets.read(options)
    if project.opened is not None:
        project = on_synthetic_data(project)
    training = project.training.changed(device=device, threads=1)
    project = replace(project, training=training)
    job = preflight.job(project, nets.sound(project), None)
    plain = fit(job, 1 << 50)
    assert isinstance(plain, Fit), plain
    for share in LIMITS:
        limit = int(plain.peak * share)
        result = fit(job, limit)
        assert isinstance(result, Fit), result
        runs = [trained(job, plan, device, limit) for plan in unique(result.plans)]
        print(json.dumps([limit, runs]), flush=True)


def unique(plans: tuple[Any, ...]) -> list[Any]:
    return list({plan.training: plan for plan in plans}.values())


def trained(job: Any, plan: Any, device: str, limit: int) -> PlanRun:
    """Train with the settings of a plan; one that does not fit is not begun on the CPU."""
    import torch
    from msgspec.structs import replace

    from app.training.events import Failed, Finished
    from app.training.loop import train

    settings = replace(
        plan.training,
        epochs=10_000,
        max_steps=max(STEPS, 2 * plan.training.accumulate),
        patience=0,
        metrics=(),
    )
    planned = replace(job, training=settings)
    gc.collect()
    on_device = device != "cpu"
    if on_device:
        torch.accelerator.reset_peak_memory_stats()
        torch.get_device_module("sim").set_memory_limit(limit)
    try:
        if on_device:
            events = list(train(planned, threads=1, watch=looking()))
            peak = torch.accelerator.max_memory_allocated()
        else:
            events, peak = on_cpu(planned)
    finally:
        if on_device:
            torch.get_device_module("sim").set_memory_limit(None)
    last = events[-1]
    del events
    if isinstance(last, Finished):
        ended = "" if peak <= limit else f"{peak - limit} above the limit"
    else:
        assert isinstance(last, Failed)
        ended = last.message
    return PlanRun(plan.name, plan.fits, plan.peak, peak, ended, plan.difference)


def looking() -> Any:
    """Return a watcher that measures the layers at every update, which a run does twice a second at most."""
    from app.training.monitoring.watcher import Watcher

    class Looking(Watcher):
        every_step = True

        def begin(self) -> None:
            self.look_due, self._looked_at = True, None
            super().begin()

    return Looking


def on_cpu(job: Any) -> tuple[list[Any], int]:
    """Train, and return the events and the peak of torch's allocator without the data and their order."""
    from time import time_ns

    import torch
    from torch import Tensor
    from torch.profiler import ProfilerActivity, profile

    from app.data.loaders import load
    from app.features.fit.compute.step_peak import storage_bytes, tensors_of
    from app.training.events import StepDone
    from app.training.loop import train
    from app.training.objectives import prepared

    data = prepared(job, load(job.data, job.data_root))
    tensors = [
        tensor
        for samples in (data.train, data.val, data.test)
        for fields in (samples.inputs, samples.labels)
        for tensor in tensors_of(fields)
    ]
    tensors += list(data.rows.values())
    held = storage_bytes([tensor for tensor in tensors if isinstance(tensor, Tensor)])
    held += len(data.train) * torch.int64.itemsize  # the order of an epoch
    events, begun = [], 0
    with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as profiled:
        for event in train(job, threads=1, watch=looking()):
            events.append(event)
            if isinstance(event, StepDone) and not begun:
                begun = time_ns()
    moments = allocated(profiled)
    # The totals go on from those of what was profiled before.
    before = moments[0].total - moments[0].size
    peak = max(each.total for each in moments if each.nanoseconds >= begun)
    return events, peak - before - held


class Allocation(NamedTuple):
    """When torch's allocator took or gave bytes, how many, and its total after it."""

    nanoseconds: int
    size: int
    total: int


def allocated(profiled: Any) -> list[Allocation]:
    """Return what torch's allocator did, in order."""
    moments, nodes = (
        list[Allocation](),
        list(profiled.profiler.kineto_results.experimental_event_tree()),
    )
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.tag.name == "Allocation":
            fields = node.extra_fields
            moments.append(
                Allocation(
                    node.start_time_ns, fields.alloc_size, fields.total_allocated
                )
            )
    return sorted(moments)


# -- the table --------------------------------------------------------------------------------------------------------


def measured(net: Net, device: str, folder: str) -> list[tuple[int, list[PlanRun]]]:
    """Run a net in a process with the device; raises RuntimeError with the end of what it wrote."""
    paths = [str(PACKAGES), str(ROOT)] if device != "cpu" else [str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "tests.slow.fitted_steps", "--child", net.name]
    done = subprocess.run(
        [*command, "--device", device],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout)[-1000:])
    limits = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "["]
    return [(limit, [PlanRun(*row) for row in rows]) for limit, rows in limits]


def faults(limits: list[tuple[int, list[PlanRun]]]) -> list[str]:
    """Return what does not hold."""
    wrong = []
    for limit, plans in limits:
        for plan in plans:
            where = f"{plan.plan} in {limit}"
            if plan.fits and plan.ended:
                wrong.append(f"{where}: {plan.ended}")
            if plan.fits and abs(plan.said / max(plan.peak, 1) - 1) > CLOSE:
                wrong.append(f"{where}: said {plan.said}, took {plan.peak}")
            if not plan.fits and not plan.ended:
                wrong.append(f"{where}: ran, and is said not to fit")
            if plan.plan == "exact" and plan.difference > ROUNDING:
                wrong.append(f"{where}: gradients differ by {plan.difference:.2g}")
    return wrong


def main(names: list[str], devices: list[str]) -> int:
    """Print the table; return 1 on a fault."""
    print(
        "| net | device | limits with a plan | plans run | refused | peak off by | faults |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nets.py").write_text(MODELS)
        for net in NETS:
            for device in devices if not names or net.name in names else ():
                try:
                    limits = measured(net, device, folder)
                except RuntimeError as error:
                    wrong.append(f"{net.name} on {device}: {error}")
                    print(f"| {net.name} | {device} | | | | | failed |", flush=True)
                    continue
                broken = faults(limits)
                wrong += [f"{net.name} on {device}: {text}" for text in broken]
                plans = [plan for _, rows in limits for plan in rows]
                run = [plan for plan in plans if plan.fits]
                off = max(
                    (abs(p.said / p.peak - 1) for p in run if p.peak), default=0.0
                )
                within = sum(any(p.fits for p in rows) for _, rows in limits)
                print(
                    f"| {net.name} | {device} | {within} of {len(limits)} | {len(run)} | "
                    f"{len(plans) - len(run)} | {100 * off:.1f} % | {len(broken)} |",
                    flush=True,
                )
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("nets", nargs="*")
    parser.add_argument("--child")
    parser.add_argument("--device", choices=tuple(DEVICES))
    chosen = parser.parse_args()
    if chosen.child:
        child(next(n for n in NETS if n.name == chosen.child), DEVICES[chosen.device])
        sys.exit(0)
    sys.exit(main(chosen.nets, [chosen.device] if chosen.device else list(DEVICES)))
