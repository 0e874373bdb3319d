"""A run on the accelerator: its losses, its memory, its weights, and what it says when memory ends."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.data.config import DataConfig
from app.preflight.setting_checks import memory_cures
from app.project import file as project_file
from app.project.custom_layers import ops_of
from app.project.project import Project
from app.telemetry import gpu, memory
from app.training.checkpoints import checkpoint
from app.training.config import Choice, TrainingConfig
from app.training.control import Control
from app.training.events import (
    Failed,
    Finished,
    GainFigures,
    GradientNorms,
    Histograms,
    LayerFigures,
    Looking,
    MemorySample,
    Skipped,
    Started,
    StepDone,
)
from app.training.job import Job
from app.training.loop import train
from app.training.monitoring import answers as step_profile
from app.training.monitoring import measured_memory
from app.training.setup.devices import devices, resolve
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tapedeck import devices as accelerators
from tests.support.needs import needs
from tests.support.training_jobs import CONV_NET, SETTINGS, SMALL_NET, job, losses, net

Same = Callable[[object, object], bool]


def without_float64(device: str) -> bool:
    return accelerators.widest_float(device.partition(":")[0]) is torch.float32


def ran(a_job: Job, **more: Any) -> tuple[list[Any], dict[str, Any]]:
    control = Control()
    events = list(train(a_job, control, **more))
    assert isinstance(events[-1], Finished), events[-1]
    assert control.result is not None and control.result.state_dict is not None
    return events, control.result.state_dict


def stopped_after(a_job: Job, step: int, folder: Path) -> list[Any]:
    control, events = Control(), []
    for event in train(a_job, control, folder=folder):
        events.append(event)
        if isinstance(event, StepDone) and event.step == step:
            control.stop()
    return events


def answers(a_job: Job, *questions: Callable[[Any], Any]) -> list[Any]:
    """Ask a run between two of its steps, and end it."""
    control, asked = Control(), []
    for event in train(a_job, control):
        if isinstance(event, StepDone) and not asked:
            asked = [control.call(question) for question in questions]
        if asked and all(each.done() for each in asked):
            control.stop()
        assert not isinstance(event, Failed), event
    return [each.result(60) for each in asked]


def test_auto_takes_it_and_it_has_a_name_and_memory(device: str, figure) -> None:
    assert resolve("auto").id == resolve(device.partition(":")[0]).id == device
    first = devices()[0]
    assert first.id == device and first.name and first.memory
    figure("device", f"{device}, {first.name}, {first.memory / 2**30:.1f} GiB")


@pytest.mark.parametrize("name", SETTINGS)
def test_losses_and_weights_are_those_of_the_cpu(
    name: str, device: str, exact: bool, same: Same
) -> None:
    a_job = job(CONV_NET if name == "AMP with bfloat16" else SMALL_NET, epochs=1)
    a_job = replace(a_job, training=replace(a_job.training, **SETTINGS[name]))
    # A device draws numbers of its own: dropout differs there.
    if not exact:
        a_job = replace(
            a_job,
            source=replace(
                a_job.source,
                text=a_job.source.text.replace("Dropout(0.", "Dropout(0 * 0."),
            ),
        )
    on_cpu, wanted = ran(a_job)
    events, weights = ran(
        replace(a_job, training=replace(a_job.training, device=device))
    )
    (started,) = (event for event in events if isinstance(event, Started))
    assert started.device == device and started.device_note is None
    if name != "AMP with bfloat16" or exact:
        assert same(losses(events), losses(on_cpu))
    assert {value.device.type for value in weights.values()} == {"cpu"}
    if exact:
        assert all(torch.equal(weights[key], wanted[key]) for key in wanted)


def test_weights_of_classes_are_on_it(device: str) -> None:
    events, _ = ran(
        job(
            CONV_NET,
            data=DataConfig(class_weights=True),
            max_steps=2,
            device=device,
        )
    )
    assert len(losses(events)) == 2


def test_mixed_precision_computes_in_it(device: str) -> None:
    for amp in ("bfloat16", "float16"):
        if amp == "float16" and without_float64(device):
            break
        (found,) = answers(
            job(CONV_NET, epochs=2, amp=amp, device=device),
            lambda live: live.stepper.output(live.model, live.data.batch(4)[0]).dtype,
        )
        assert found == getattr(torch, amp)


def test_what_takes_float64_is_a_sentence_where_the_device_has_none(
    device: str,
) -> None:
    """Of MPS torch's GradScaler knows that it has none."""
    if not without_float64(device) or device.startswith("mps"):
        pytest.skip("the device computes in float64")
    failed = list(train(job(CONV_NET, amp="float16", device=device)))[-1]
    assert isinstance(failed, Failed) and "float64" in failed.message
    assert "Choose bfloat16 for amp" in failed.cure


def test_its_memory_is_counted_and_said_as_the_device_s(device: str, figure) -> None:
    events, _ = ran(job(CONV_NET, epochs=1, device=device))
    samples = [event for event in events if isinstance(event, MemorySample)]
    assert samples and all(sample.scope == "device" for sample in samples)
    assert all(0 < each.allocated <= each.peak for each in samples)
    assert all(each.allocated <= each.reserved for each in samples)
    weights = 4 * sum(p.numel() for p in torch.nn.Linear(512, 10).parameters())
    assert samples[-1].allocated > weights
    figure("peak of the digits net, MiB", round(samples[-1].peak / 2**20, 2))


def test_nothing_of_a_run_stays_on_it(device: str) -> None:
    ran(job(SMALL_NET, epochs=1, device=device))
    gc.collect()
    before = accelerators.memory(device).allocated
    for _ in range(2):
        ran(job(SMALL_NET, epochs=1, device=device))
    gc.collect()
    assert accelerators.memory(device).allocated <= before


def test_everything_of_a_run_is_on_it(device: str) -> None:
    def places(live: Any) -> set[str]:
        states = live.stepper.optimizer.state.values()
        tensors = [
            *live.model.state_dict().values(),
            *live.stepper.average.module.state_dict().values(),
            *live.data.batch(4),
            *(state[name] for state in states for name in state if name != "step"),
        ]
        return {str(tensor.device) for tensor in tensors}

    (seen,) = answers(job(CONV_NET, epochs=2, device=device, ema=0.9), places)
    assert seen == {device}


def test_measurements_are_those_of_the_cpu(device: str, same: Same) -> None:
    source = net(
        ["self.linear1 = nn.Linear(64, 16)", "self.linear2 = nn.Linear(16, 10)"],
        ["x = F.relu(self.linear1(x.flatten(1)))", "return self.linear2(x)"],
    )
    ours, theirs = (
        ran(job(source, epochs=1, device=where))[0] for where in (device, "cpu")
    )

    def first(events: list[Any], kind: type) -> Any:
        return next(event for event in events if isinstance(event, kind))

    assert same(
        list(first(ours, GradientNorms).norms), list(first(theirs, GradientNorms).norms)
    )
    figures = first(ours, LayerFigures)
    assert all(math.isfinite(ratio) for ratio in figures.ratios)
    assert {event.kind for event in ours if isinstance(event, Histograms)} == {
        "weights",
        "gradients",
        "activations",
    }
    assert first(ours, GainFigures).reached > 0
    last = [event for event in ours if isinstance(event, Looking)][-1]
    assert 0 < last.spent < last.seconds


def test_losses_are_fetched_together_and_none_is_missed(device: str, figure) -> None:
    began = time.perf_counter()
    events, _ = ran(job(CONV_NET, epochs=1, device=device))
    count = len(losses(events))
    steps = [event.step for event in events if isinstance(event, StepDone)]
    assert steps == list(range(1, count + 1))
    seconds = time.perf_counter() - began
    figure("steps a second of the digits net", round(count / seconds, 1))


@pytest.mark.parametrize("there_and_back", [False, True])
def test_a_run_is_resumed_on_another_device(
    there_and_back: bool, device: str, exact: bool, same: Same, tmp_path: Path
) -> None:
    source = SMALL_NET if exact else CONV_NET
    if not exact:
        text = source.text.replace("Dropout(0.2)", "Dropout(0.0)")
        source = replace(source, text=text)
    first, then = (device, "cpu") if there_and_back else ("cpu", device)
    on_first, on_then = (job(source, epochs=2, device=where) for where in (first, then))
    whole, wanted = ran(on_then)
    begun = stopped_after(on_first, len(losses(whole)) // 2 + 1, tmp_path)
    rest, weights = ran(on_then, resume=checkpoint.newest(tmp_path))
    assert rest[0].device == resolve(then).id
    assert same(losses(begun) + losses(rest), losses(whole))
    kinds = [where.partition(":")[0] for where in (then, first)]
    assert f"{kinds[0]} instead of {kinds[1]}" in rest[0].changed
    if exact:
        assert all(torch.equal(weights[key], wanted[key]) for key in wanted)


def test_a_checkpoint_holds_nothing_of_the_device(device: str, tmp_path: Path) -> None:
    """So that it can be read where there is no such device."""
    stopped_after(job(SMALL_NET, epochs=1, device=device), 3, tmp_path)
    path = checkpoint.newest(tmp_path)
    state = torch.load(path, weights_only=True)  # no map_location

    def tensors(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict | list | tuple):
            for each in value.values() if isinstance(value, dict) else value:
                yield from tensors(each)

    assert {tensor.device.type for tensor in tensors(state)} == {"cpu"}


def test_steps_before_are_restored_with_the_random_numbers_of_the_device(
    device: str, tmp_path: Path
) -> None:
    a_job = job(SMALL_NET, epochs=2, device=device)
    whole, wanted = ran(a_job)
    begun = stopped_after(a_job, len(losses(whole)) // 2 + 1, tmp_path)
    torch.rand(3, device=device)
    rest, weights = ran(a_job, resume=checkpoint.newest(tmp_path))
    assert losses(begun) + losses(rest) == losses(whole)
    assert all(torch.equal(weights[key], wanted[key]) for key in wanted)


def test_a_loss_that_is_read_late_blames_no_layer(device: str) -> None:
    source = net(
        ["self.linear1 = nn.Linear(64, 10)"],
        ["x = torch.log(x.flatten(1))", "return self.linear1(x)"],
    )
    failed = list(train(job(source, device=device)))[-1]
    assert isinstance(failed, Failed) and failed.kind == "not finite"
    assert failed.node is None and "which made the weights non-finite" in failed.message
    (*_, skipped) = (
        event
        for event in train(job(source, max_steps=2, not_finite="skip", device=device))
        if isinstance(event, Skipped)
    )
    assert skipped.node == "f1" and "torch.log" in skipped.message


# --- Memory that ends


@pytest.fixture
def scarce(device: str):
    """Leave a device so much memory that a step does not fit."""
    if device.startswith("sim"):
        torch.sim.set_memory_limit(accelerators.memory(device).allocated + 2**20)
        yield 64
        torch.sim.set_memory_limit(None)
    else:
        kept = accelerators.total_memory(device)
        used = accelerators.memory(device).reserved or 0
        module = torch.get_device_module(device)
        module.set_per_process_memory_fraction((used + 2**26) / kept)
        yield 1024
        module.set_per_process_memory_fraction(1.0)


WIDE = net(
    ["self.linear1 = nn.Linear(64, 512)", "self.linear2 = nn.Linear(512, 10)"],
    [
        "x = self.linear1(x.flatten(1))",
        "x = torch.tanh(x)",
        "x = torch.tanh(x)",
        "x = torch.tanh(x)",
        "x = torch.tanh(x)",
        "x = torch.tanh(x)",
        "x = torch.tanh(x)",
        "return self.linear2(x)",
    ],
)


def test_what_backward_needs_waits_on_the_cpu(device: str) -> None:
    plain = job(WIDE, epochs=1, batch_size=1024, device=device)
    ended = []
    for save_on_cpu in (False, True):
        training = replace(plain.training, save_on_cpu=save_on_cpu)
        gc.collect()
        accelerators.forget_peak(device)
        events, weights = ran(replace(plain, training=training))
        ended.append((losses(events), weights, accelerators.memory(device).peak))
        del events
    (wanted, expected, most), (found, weights, peak) = ended
    assert found == wanted
    assert all(torch.equal(weights[key], expected[key]) for key in expected)
    if device.startswith("sim"):  # others take memory in larger blocks
        assert most - peak > 4 * 2**21, "of seven activations of 2 MiB"


def test_memory_that_ends_is_a_sentence_with_its_cures(
    device: str, scarce: int
) -> None:
    a_job = job(WIDE, epochs=1, batch_size=1024, device=device)
    failed = list(train(a_job))[-1]
    assert isinstance(failed, Failed) and failed.kind == "memory"
    assert failed.message.count(". ") == 0 and "ran out of memory: " in failed.message
    assert "batch_size" in failed.cure and "accumulate" in failed.cure
    assert "recompute" in failed.cure and "OutOfMemoryError" in failed.traceback
    project = Project(training=a_job.training)
    half, parts = memory_cures(project, None)
    assert half.settings == {"batch_size": 512}
    assert parts.settings == {"batch_size": 512, "accumulate": 2}


def test_the_cures_of_memory_that_ended_work(device: str) -> None:
    if not device.startswith("sim"):
        pytest.skip("bytes of a step are exact on the simulated accelerator alone")

    def fails(**settings: Any) -> bool:
        gc.collect()
        base = accelerators.memory(device).allocated
        torch.sim.set_memory_limit(base + 14 * 2**20)
        try:
            last = list(
                train(job(WIDE, epochs=1, max_steps=2, device=device, **settings))
            )[-1]
        finally:
            torch.sim.set_memory_limit(None)
        assert isinstance(last, Finished) or last.kind == "memory", last
        return isinstance(last, Failed)

    assert fails(batch_size=1024)
    assert not fails(batch_size=256)
    assert not fails(batch_size=256, accumulate=4)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("Encoder-decoder on dates", ("encoder", "decoder")),
        ("Transformer on digits", ("encoder.0", "encoder.1")),
    ],
)
def test_blocks_are_recomputed_where_memory_ended(
    name: str, blocks: tuple[str, ...], device: str, figure
) -> None:
    """Those of torch, such as nn.TransformerEncoderLayer, and each repetition of drawn ones."""
    project = project_file.read(resource_path("examples", f"{name}.tape"))
    analysis = analyse(project.graph, ops_of(project))
    *_, cure = memory_cures(project, analysis)
    assert cure.settings == {"recompute": blocks}
    training = {"device": device, "max_steps": 2, "batch_size": 300, "amp": ""}
    training |= {"epochs": 1, "accumulate": 1}
    plain = Job(analysis.source, project.data, replace(project.training, **training))
    peaks, curves = [], []
    for a_job in (
        plain,
        replace(plain, training=replace(plain.training, **cure.settings)),
    ):
        gc.collect()
        accelerators.forget_peak(device)
        before = accelerators.memory(device).allocated
        curves.append(losses(ran(a_job)[0]))
        peaks.append(accelerators.memory(device).peak - before)
    assert curves[0] == pytest.approx(curves[1], rel=1e-5) and peaks[1] < 0.8 * peaks[0]
    figure(f"peak of {name}, MiB", round(peaks[0] / 2**20, 1))
    figure(f"peak of {name} with recomputed blocks, MiB", round(peaks[1] / 2**20, 1))


def test_a_run_after_one_that_had_no_memory_is_a_run(device: str, scarce: int) -> None:
    failed = list(train(job(WIDE, epochs=1, batch_size=1024, device=device)))[-1]
    assert isinstance(failed, Failed)
    if device.startswith("sim"):
        torch.sim.set_memory_limit(None)
    events, _ = ran(job(SMALL_NET, epochs=1, device=device))
    assert losses(events)


@needs("trials")
def test_a_dry_run_says_it_too_and_a_rate_test_runs(device: str, figure) -> None:
    from app.features.trials.compute.trials import dry_run, rate_test

    tried = dry_run(job(CONV_NET, device=device))
    assert not isinstance(tried, Failed) and tried.device == device
    assert tried.scope == "device" and tried.memory > 0
    figure("a step of the dry run, ms", round(1000 * tried.seconds[-1], 2))
    elsewhere = dry_run(job(CONV_NET, device="cpu"))
    assert not isinstance(elsewhere, Failed) and elsewhere.scope == "process"
    assert len(rate_test(job(CONV_NET, device=device), batches=20).losses) > 5


def test_an_error_that_comes_late_ends_the_run_in_a_sentence(device: str) -> None:
    if not device.startswith("sim"):
        pytest.skip("an assertion on a real device ends it for the whole process")
    control, events = Control(), []
    for event in train(job(SMALL_NET, epochs=1, device=device), control):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 3:
            torch.sim.fail_later("device-side assert triggered")
    assert isinstance(events[-1], Failed)
    assert "device-side assert triggered" in events[-1].message


# --- What is measured


def test_memory_of_a_step_and_its_profile(device: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    report, profile = answers(
        job(CONV_NET, epochs=2, device=device),
        measured_memory.of_run,
        lambda live: step_profile.of_run(live, str(trace)),
    )
    assert report.device == device and report.step.total.total > 0
    assert report.allocator.allocated > 0 and report.allocator.peak > 0
    assert profile.device == device and profile.rows and trace.stat().st_size


def test_a_late_error_is_met_where_the_device_is_waited_for(device: str) -> None:
    if not device.startswith("sim"):
        pytest.skip("an assertion on a real device ends it for the whole process")
    torch.sim.fail_later("late")
    with pytest.raises(RuntimeError, match="late"):
        accelerators.synchronize(device)


def test_a_peak_is_forgotten(device: str) -> None:
    kept = torch.zeros(2**22, device=device)
    del kept
    assert accelerators.memory(device).peak >= 2**24
    accelerators.forget_peak(device)
    assert accelerators.memory(device).peak < 2**24


def test_the_cache_can_be_emptied(device: str) -> None:
    kept = torch.zeros(2**22, device=device)
    del kept
    before = gpu.allocator(device)
    assert before.reserved >= 2**24 and before.peak >= before.allocated
    assert accelerators.empty_cache(device) > 0
    assert memory.read(device).reserved < before.reserved
    assert gpu.read(device).reason or gpu.read(device).name


@needs("fit")
def test_a_plan_keeps_on_the_cpu_what_backward_needs(device: str) -> None:
    if not device.startswith("sim"):
        pytest.skip("bytes are exact on the simulated accelerator alone")
    from app.features.fit.compute.plans import fit

    # Its batch cannot be split, and the net has no block to recompute.
    lbfgs = Choice("LBFGS", FrozenMap(max_iter=1, history_size=1))
    a_job = job(WIDE, epochs=1, batch_size=1024, device=device, optimizer=lbfgs)
    gc.collect()
    plain = fit(a_job, 1 << 30)
    training = replace(a_job.training, save_on_cpu=True)
    kept = fit(replace(a_job, training=training), 1 << 30)
    by = kept.by
    kinds = (by.parameters, by.gradients, by.optimizer, by.saved, by.temporary)
    assert sum(kinds) == kept.peak and by.saved < plain.by.saved / 2
    _, exact, _ = fit(a_job, (kept.peak + plain.peak) // 2).plans
    assert exact.fits and exact.difference == 0 and exact.training.save_on_cpu
    assert "save_on_cpu=true" in exact.changes


@needs("fit")
def test_a_plan_that_fits_runs_within_its_limit_and_its_peak_is_the_allocator_s(
    device: str,
) -> None:
    if not device.startswith("sim"):
        pytest.skip("a limit of bytes is exact on the simulated accelerator alone")
    from app.features.fit.compute.plans import fit

    def ran_within(limit: int, training: TrainingConfig) -> bool:
        gc.collect()
        torch.sim.set_memory_limit(limit)
        accelerators.forget_peak(device)
        try:
            last = list(train(replace(a_job, training=training)))[-1]
        finally:
            torch.sim.set_memory_limit(None)
        assert isinstance(last, Finished) or last.kind == "memory", last
        return isinstance(last, Finished)

    a_job = job(WIDE, epochs=4, max_steps=4, batch_size=1024, device=device)
    gc.collect()
    whole = fit(a_job, 1 << 30)
    assert whole.scope == "device" and whole.fits
    limit = whole.peak - 6 * 2**20
    result = fit(a_job, limit)
    assert not result.fits and not ran_within(limit, a_job.training)
    gc.collect()
    torch.sim.set_memory_limit(accelerators.memory(device).allocated + 2**20)
    try:  # what does not even run there once is measured on the CPU
        on_cpu = fit(a_job, limit)
    finally:
        torch.sim.set_memory_limit(None)
    assert on_cpu.device == "cpu" and on_cpu.scope == "device"
    # What earlier tests have left on the device is not there.
    assert 0 < on_cpu.peak <= whole.peak and on_cpu.plans[0].fits
    # Of the smallest a copy of the parameters is 8 %, and a run may have one more for a moment.
    for plan, error in zip(result.plans, (0.05, 0.05, 0.1), strict=True):
        assert plan.fits and ran_within(limit, plan.training), plan
        peak = accelerators.memory(device).peak
        assert plan.peak == pytest.approx(peak, rel=error), plan
