"""`tapedeck try`: a dry run on synthetic data, the learning rate finder, or the memory or profile of a step."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, TypeVar

from msgspec import to_builtins
from msgspec.structs import replace

from app.cli import console, failures, nets, settings
from app.features.trials.compute.trials import dry_run, rate_test
from app.preflight import preflight
from app.training.choices import CLOSURE
from app.training.control import Control
from app.training.events import Failed, StepDone
from app.training.loop import train
from app.training.run_requests import ProfileStep, TellMemory
from app.util.formatting import bytes_text, shape_text

if TYPE_CHECKING:
    from app.features.trials.values import LayerTimes
    from app.training.job import Job
    from app.training.monitoring.looks import StepProfile
    from app.training.monitoring.memory_report import MemoryReport
    from app.training.run_requests import RunRequest

T = TypeVar("T")
PARTS = ("parameters", "gradients", "optimizer", "activations")


def run(options: argparse.Namespace) -> int:
    """Run the trial and print its measurements; return 1 if it fails."""
    project = nets.read(options)
    if options.device:
        project = replace(
            project,
            training=replace(project.training, device=settings.device(options.device)),
        )
    analysis = nets.sound(project)
    job = preflight.job(project, analysis, str(options.data) if options.data else None)
    if options.memory or options.profile is not None:
        return _measure(job, options)
    if options.find_rate:
        return _find(job, options.batches, options.json)
    return _try(job, options.json, options.traceback)


def _try(job: Job, as_json: bool, full: bool) -> int:
    tried = dry_run(job, layers=job.training.optimizer.name != CLOSURE)
    if isinstance(tried, Failed):
        raise console.CommandError(failures.describe_failure(tried, full), 1)
    if as_json:
        print(json.dumps(to_builtins(tried)))
        return 0
    first, second = tried.seconds
    print(f"device: {tried.device}" + (f" ({tried.note})" if tried.note else ""))
    print(f"batch: {shape_text((tried.batch_size, *tried.input_shape))}")
    print(f"step: {1000 * second:.3g} ms, the first {1000 * first:.3g} ms")
    print(f"validation batch: {1000 * tried.validation_seconds:.3g} ms")
    print(
        f"loss on synthetic data: {', '.join(f'{loss:.4g}' for loss in tried.losses)}"
    )
    if tried.memory is not None:
        of = (
            "peak memory on the device"
            if tried.scope == "device"
            else "process memory growth, libraries included"
        )
        print(f"memory: {bytes_text(tried.memory)} {of}")
    if tried.times is not None:
        print("\n".join(_time_lines(tried.times)))
    return 0


def _time_lines(times: LayerTimes) -> list[str]:
    """Return a table of the layers' times beside the least that their operations need on this device."""
    width = max(len(row.layer) for row in times.layers)
    speed = f"{times.flop_per_second / 1e9:.3g} GFLOP/s and {times.bytes_per_second / 1e9:.3g} GB/s"
    lines = [
        f"time of layers in a step of {1000 * times.step_seconds:.3g} ms; possible at {speed}, measured here:",
        f"{'layer':<{width}}  {'forward':>11}  {'possible':>11}  {'backward':>11}  {'possible':>11}",
    ]
    for row in times.layers:
        figures = (
            row.forward,
            row.forward_possible,
            row.backward,
            row.backward_possible,
        )
        cells = (f"{1000 * seconds:>8.4f} ms" for seconds in figures)
        lines.append(f"{row.layer:<{width}}  {'  '.join(cells)}")
    lines.append(f"{'optimizer':<{width}}  {1000 * times.optimizer_seconds:>8.4f} ms")
    return lines


def _measure(job: Job, options: argparse.Namespace) -> int:
    """Measure the second step of a run."""
    if options.memory:
        report = _answered(job, TellMemory(), options)
        print(report.to_json() if options.json else "\n".join(_memory_lines(report)))
    if options.profile is not None:
        profile = _answered(job, ProfileStep(options.profile), options)
        print(
            json.dumps(to_builtins(profile))
            if options.json
            else "\n".join(_profile_lines(profile))
        )
    return 0


def _answered(job: Job, request: RunRequest[T], options: argparse.Namespace) -> T:
    """Return what a run answers after its first step, when its optimizer has its state."""
    control, answer = Control(), None
    for event in train(
        replace(job, training=replace(job.training, epochs=2, max_steps=2)), control
    ):
        if isinstance(event, Failed):
            raise console.CommandError(
                failures.describe_failure(event, options.traceback), 1
            )
        if isinstance(event, StepDone) and answer is None:
            answer = control.call(request)
    assert answer is not None
    try:
        return answer.result(0)
    except OSError as error:
        raise console.CommandError(
            f"{options.profile}: {error.strerror or error}"
        ) from error


def _memory_lines(report: MemoryReport) -> list[str]:
    if report.step is None:
        return [f"The memory of a step on {report.device} cannot be measured."]
    named = [
        *((row.layer or "outside layers", row) for row in report.step.layers),
        ("total", report.step.total),
    ]
    rows = [("layer", *PARTS)] + [
        (name, *(bytes_text(getattr(row, kind)) for kind in PARTS))
        for name, row in named
    ]
    width = max(len(row[0]) for row in rows)
    return [
        f"device: {report.device}",
        *(
            f"{name:<{width}}" + "".join(f"  {size:>11}" for size in sizes)
            for name, *sizes in rows
        ),
    ]


def _profile_lines(profile: StepProfile) -> list[str]:
    lines = [
        f"device: {profile.device}",
        f"step: {profile.milliseconds:.3g} ms, batch {profile.batch}",
    ]
    width = max([len(row.name) for row in profile.rows], default=0)
    for row in profile.rows:
        device = (
            ""
            if row.on_device is None
            else f"  {row.on_device / 1000:>9.3f} ms on the device"
        )
        lines.append(
            f"{row.name:<{width}}  {row.calls:>5}x  {row.cpu / 1000:>9.3f} ms{device}"
        )
    return lines


def _find(job: Job, batches: int, as_json: bool) -> int:
    range_test = rate_test(job, batches=batches)
    if as_json:
        print(json.dumps(to_builtins(range_test)))
    elif range_test.suggested is None:
        print(
            f"The loss did not fall over {len(range_test.rates)} batches. {range_test.ended}".strip()
        )
    else:
        print(
            f"The loss falls most steeply at lr={range_test.suggested:.2g}. {range_test.ended}".strip()
        )
    return 0
