"""The plans of `tapedeck fit` beside those of `torch.distributed._tools`, for as many bytes: the time of a step.

torch's are of its memory tracker, its estimators and its solver `sac_milp`, which choose modules and the share of their
activations to recompute. They time operations with CUDA's events; here the clock stands in for these. What they choose
is done with a selective checkpoint and measured as ours is, on the CPU: its peak is the limit that ours keeps to.

    python benchmarks/bench_fit.py [NET ...]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import torch
from _peer import Missing
from _report import OUT, Figure, in_turns, publish
from msgspec.structs import replace
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from app.cli import _parser, nets
from app.features.fit.cli import on_synthetic_data
from app.features.fit.compute.plans import _Trial, _Variant, fit
from app.features.fit.compute.step_peak import tensors_of
from app.features.fit.values import Fit
from app.preflight import preflight
from app.training.job import Job
from app.training.objectives import info_of
from app.training.setup.isolated_step import (
    aside,
    stepper_of,
    synthetic_batch,
    synthetic_info,
)
from tests.slow.fitted_steps import MODELS, NETS, Net

PACKAGES = ("pulp==3.3.2", "pwlf==2.7.0")
SHARES = (0.8, 0.6)  # of the peak of the step as it is
ROUNDS = 5
NOISE = 1.05  # of a time: what differs by less is as fast


def solver() -> Any:
    """torch's solver; what it needs beside torch and scipy lies in a folder of its own. Raises Missing."""
    folder = OUT / "sac_milp"
    if not (folder / "pwlf").exists():
        print(f"installing {' '.join(PACKAGES)} into {folder}", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*pip, "--target", str(folder), *PACKAGES], capture_output=True, text=True
        )
        if done.returncode:
            raise Missing((done.stderr.strip() or "pip failed").splitlines()[-1])
    sys.path.append(str(folder))
    return importlib.import_module("torch.distributed._tools.sac_ilp")


class Clock:
    """In place of an event of CUDA."""

    def __init__(self, enable_timing: bool) -> None:
        self.seconds = 0.0

    def record(self, _stream: None) -> None:
        self.seconds = perf_counter()

    def elapsed_time(self, end: Clock) -> float:
        return 1000 * (end.seconds - self.seconds)


@contextmanager
def timed_on_the_cpu() -> Iterator[None]:
    with (
        mock.patch("torch.cuda.Event", Clock),
        mock.patch("torch.cuda.current_stream", lambda: None),
        mock.patch("torch.cuda.synchronize", lambda: None),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        yield


def job_of(net: Net) -> Job:
    options = _parser("fit").parse_args(
        ["fit", *net.arguments, "--trust", "--device", "cpu"]
    )
    project = nets.read(options)
    if project.opened is not None:
        project = on_synthetic_data(project)
    training = project.training.changed(device="cpu", threads=1)
    project = replace(project, training=training)
    return preflight.job(project, nets.sound(project), None)


class Whole(nn.Module):
    """A net with its loss, which torch's tools want in one module."""

    def __init__(self, stepper: Any) -> None:
        super().__init__()
        self.model, self.loss = stepper.model, stepper.loss
        self.stepper = [stepper]  # no module of this one

    def forward(self, inputs: Any, labels: Any) -> torch.Tensor:
        (stepper,) = self.stepper
        return stepper.measured(stepper.output(self.model, inputs), labels)


class Theirs:
    """What torch's tools know of the step of a job: made once, asked for each limit."""

    def __init__(self, job: Job) -> None:
        from torch.distributed._tools import ilp_utils
        from torch.distributed._tools.mem_tracker import MemTracker
        from torch.distributed._tools.runtime_estimator import RuntimeEstimator
        from torch.distributed._tools.sac_estimator import SACEstimator

        info = info_of(job, synthetic_info(job))
        tracker, times, self.estimator = (
            MemTracker(),
            RuntimeEstimator(),
            SACEstimator(),
        )
        # Parameters that are fake are not moved.
        stay = mock.patch.object(nn.Module, "to", lambda module, *_, **__: module)
        with aside(job.training.seed), timed_on_the_cpu(), FakeTensorMode(), stay:
            stepper = stepper_of(job, info, "cpu")
            inputs, labels = synthetic_batch(job, info, "cpu")
            # Else a layer without weights has no backward.
            for tensor in tensors_of(inputs):
                if tensor.is_floating_point():
                    tensor.requires_grad_()
            whole = Whole(stepper)
            loss = partial(whole, inputs, labels)
            tracker.track_external(whole, stepper.optimizer)
            with tracker:
                for step in range(2):  # the first makes the state of the optimizer
                    loss().backward()
                    stepper.optimizer.step()
                    stepper.optimizer.zero_grad()
                    if step == 0:
                        tracker.reset_mod_stats()
            with times("operator-level-benchmark"):
                loss().backward()
                stepper.optimizer.step()
                stepper.optimizer.zero_grad()
            with self.estimator("operator-level-benchmark"):
                value = loss()
            value.backward()
            self.graph = ilp_utils.parse_module_info(
                ilp_utils.aggregate_stats(
                    whole, tracker, times, self.estimator, torch.device("cpu")
                )
            )
        self.peak, _ = ilp_utils.get_peak_memory_runtime_baseline(self.graph)

    def chosen(self, solve: Any, limit: int) -> dict[str, list[int]]:
        """Return for each module to checkpoint which of its operations are saved; none if there is no solution."""
        with contextlib.redirect_stdout(io.StringIO()):
            shares, _, peak = solve.sac_milp(self.graph, limit / 2**30)
        if peak < 0:
            return {}
        return {
            name.removeprefix("Whole.model").removeprefix("."): (
                solve.get_optimal_checkpointing_policy_per_module(
                    self.estimator.sac_mod_stats[name], 1 - share
                )
            )
            for name, share in shares.items()
        }


class _Policy:
    """Saves the operations of a call that are to be saved, by their order."""

    def __init__(self, saved: Sequence[int]) -> None:
        self._saved, self._counts = saved, {False: 0, True: 0}

    def __call__(self, context: Any, operation: Any, *_: Any, **__: Any) -> Any:
        from torch.distributed._tools.sac_estimator import OPS_TO_ALWAYS_SKIP

        if operation in OPS_TO_ALWAYS_SKIP:
            return CheckpointPolicy.PREFER_RECOMPUTE
        at = self._counts[context.is_recompute]
        self._counts[context.is_recompute] += 1
        saved = at < len(self._saved) and self._saved[at]
        return (
            CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE
        )


class _Selective(_Trial):
    """Measures a step with what torch's tools chose."""

    def __init__(self, job: Job, chosen: dict[str, list[int]]) -> None:
        info = info_of(job, synthetic_info(job))
        super().__init__(job, info, "cpu", lambda _: None, lambda: False)
        self._chosen = chosen

    @contextmanager
    def _begun(self, *arguments: Any) -> Iterator[Any]:
        with super()._begun(*arguments) as begun:
            for path, saved in self._chosen.items():
                _checkpoint(begun[0].model.get_submodule(path), saved)
            yield begun


def _checkpoint(module: nn.Module, saved: list[int]) -> None:
    module.forward = partial(  # type: ignore[method-assign]
        checkpoint,
        module.forward,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(
            _Policy(saved), allow_cache_entry_mutation=True
        ),
    )


def compared(net: Net, solve: Any) -> tuple[list[Figure], str]:
    """Return a figure for each limit at which torch's tools choose something, and why there is none."""
    job = job_of(net)
    plain = _Selective(job, {}).peak(_Variant((), job.training))
    try:
        theirs = Theirs(job)
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        return [], f"torch's tools raise {type(error).__name__}: {text:.80}"
    beside = plain.peak - theirs.peak  # what they leave out: the optimizer's state
    figures = []
    for share in SHARES:
        chosen = theirs.chosen(solve, int(share * plain.peak) - beside)
        if not chosen:
            continue
        as_is = _Variant((), job.training)
        selective = _Selective(job, chosen)
        try:
            limit = min(selective.peak(as_is).peak, plain.peak)
        except RuntimeError as error:
            text = str(error).strip().partition("\n")[0]
            print(f"  {net.name}, {share:.0%}: theirs does not run: {text:.100}")
            continue
        result = fit(job, limit)
        assert isinstance(result, Fit), result
        exact = result.plans[1]
        print(
            f"  {net.name}, {share:.0%}: theirs {', '.join(chosen)} {limit:,} bytes; "
            f"ours {', '.join(exact.changes) or 'as it is'} {exact.peak:,} bytes",
            flush=True,
        )
        if not exact.fits:
            figures.append(
                Figure(f"{net.name}, {share:.0%}", "s", (float("inf"),), (1,))
            )
            continue
        ours = _Selective(job, {})
        variant = _Variant(exact.changes, exact.training)
        mine, other = in_turns(
            partial(ours.seconds, variant), partial(selective.seconds, as_is), ROUNDS
        )
        figures.append(Figure(f"{net.name}, {share:.0%}", "s", mine, other, NOISE))
    return figures, "" if figures else "torch's solver has no plan at any limit"


def main(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    solve = solver()
    every: list[Figure] = []
    faster, without = 0, []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nets.py").write_text(MODELS)
        os.chdir(folder)
        for net in NETS:
            if names and net.name not in names:
                continue
            figures, reason = compared(net, solve)
            every += figures
            faster += bool(figures) and all(figure.met for figure in figures)
            if not figures:
                without.append(f"{net.name}: {reason}")
            for figure in figures:
                print(f"  {figure}", flush=True)
        os.chdir(OUT)
    publish("fit", every)
    count = len(names or NETS)
    print(
        f"as fast at the same bytes in {faster} of {count - len(without)} nets that torch's tools have a plan for"
    )
    print("\n".join(without))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("nets", nargs="*")
    main(parser.parse_args().nets)
