"""Carries out `tapedeck fit`."""

from __future__ import annotations

import argparse
import json
import os
import shlex

from msgspec import to_builtins
from msgspec.structs import replace

from app.cli import console, failures, nets, settings
from app.features.fit.compute.plans import fit
from app.features.fit.values import Fit, Plan
from app.preflight import opened, preflight, synthetic_data
from app.project.project import Project
from app.training.events import Failed
from app.training.setup.devices import resolve
from app.util.formatting import bytes_text
from tapedeck import devices


def run(options: argparse.Namespace) -> int:
    """Print what a step takes and the plans; return 1 if none of them fits."""
    project = nets.read(options)
    if project.opened is not None and options.on is None:
        project = on_synthetic_data(project)
    if options.device:
        device = settings.device(options.device)
        project = replace(project, training=replace(project.training, device=device))
    analysis = nets.sound(project)
    job = preflight.job(project, analysis, str(options.data) if options.data else None)
    limit = options.memory or _total(resolve(job.training.device).id)
    result = fit(job, limit)
    if isinstance(result, Failed):
        raise console.CommandError(
            failures.describe_failure(result, options.traceback), 1
        )
    if options.json:
        print(json.dumps(_record(result)))
    else:
        print("\n".join(_lines(result)))
    return 0 if any(plan.fits for plan in result.plans) else 1


def on_synthetic_data(project: Project) -> Project:
    """Return the project of a model with synthetic data of its shapes, and warn; the same project if there are none."""
    synthetic = synthetic_data.with_these(project, opened.analysis_of(project))
    if synthetic is None:
        return project
    console.warn(
        "measured on synthetic data that fit the model; --on DATA names others"
    )
    return synthetic


def _total(device: str) -> int:
    """Return the memory of a device, of this machine for the CPU. Raises CommandError where it is not told."""
    if device != "cpu":
        total = devices.total_memory(device)
    elif hasattr(os, "sysconf"):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        total = None
    if total is None:
        raise console.CommandError(
            f"{device} does not tell how much memory it has; name a limit: --memory 8GiB"
        )
    return total


def _record(result: Fit) -> dict[str, object]:
    plans = [
        {
            field: getattr(plan, field)
            for field in Plan.__struct_fields__
            if field != "training"
        }
        for plan in result.plans
    ]
    record: dict[str, object] = to_builtins(replace(result, plans=()))
    return record | {"plans": plans}


def _lines(result: Fit) -> list[str]:
    owner = f"{result.phase} of {result.owner}" if result.owner else result.phase
    how = (
        "by the allocator"
        if result.scope == "device"
        else "counted at torch's operations, without their workspace"
    )
    lines = [
        f"device: {result.device}, batch {result.batch}",
        f"limit: {bytes_text(result.memory)}",
        f"peak of a step: {bytes_text(result.peak)}, in {owner} ({how})",
        *(
            f"  {kind:<10}  {bytes_text(size):>9}"
            for kind, size in to_builtins(result.by).items()
        ),
        f"step: {1000 * result.step_seconds:.3g} ms",
        "fits as it is" if result.fits else "does not fit as it is",
        *map(_plan_line, result.plans),
        *(f"not measured: {reason}" for reason in result.failed),
    ]
    return lines


def _plan_line(plan: Plan) -> str:
    if plan.difference == 0:
        gradients = "the same gradients"
    elif plan.exact:
        gradients = "the same gradients but for rounding"
    else:
        gradients = f"gradients differ by up to {plan.difference:.2g}"
    changes = " ".join(f"--set {shlex.quote(change)}" for change in plan.changes)
    return (
        f"{plan.name}: {bytes_text(plan.peak)}, {1000 * plan.step_seconds:.3g} ms, {gradients}; "
        f"{'fits' if plan.fits else 'does not fit'}; {changes or 'as it is'}"
    )
