"""Handlers: evaluate stored runs and show their samples."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from app.engine.server import Context, handles
from app.engine.tasks.evaluators import make_evaluator, tell_samples
from app.engine.tasks.runs import stored
from app.features.panels import evaluations
from app.features.panels.values import (
    EvaluatedRun,
    EvaluateRun,
    RunEvaluation,
    RunSample,
    ShowRunSamples,
)
from app.runs.checkpoint_files import checkpoints
from app.runs.named import NamedRun
from app.runs.record import RunError
from app.training.checkpoints.checkpoint import CheckpointError, stage_of
from app.training.evaluation import shown_samples
from app.training.evaluation.evaluator import (
    EvaluationCancelledError,
    Evaluator,
    checkpoint_weights,
)
from app.training.metrics import PLAIN, reading
from app.training.setup.torch_flags import cpu_threads


class _Run(Struct):
    """The object held under a handle."""

    evaluator: Evaluator
    evaluation: RunEvaluation


@handles(EvaluateRun)
def evaluate_run(request: EvaluateRun, context: Context) -> EvaluatedRun:
    try:
        stored_run, _, job = stored(request.run, request.data_root)
        identity, path = (
            evaluations.checkpoint_of(stored_run),
            NamedRun(stored_run).checkpoint(),
        )
        job, weights = job.at_stage(stage_of(path)), checkpoint_weights(path)
    except (CheckpointError, OSError) as error:
        raise RunError(str(error)) from error
    label = next(
        stored_checkpoint.label
        for stored_checkpoint in checkpoints(stored_run)
        if stored_checkpoint.path == path
    )
    with cpu_threads(None):
        evaluator = make_evaluator(job, weights, context)
        evaluation = evaluations.read(stored_run, request.part)
        if evaluation is None or evaluation.checkpoint != identity:
            computed = evaluator.evaluate(
                request.part, (), tell_samples(context), context.cancelled, label
            )
            unit = reading(evaluator.task.loss) != PLAIN
            evaluation = RunEvaluation(
                computed, evaluations.space_of(job, computed), unit, identity
            )
            if context.cancelled():
                raise EvaluationCancelledError
            try:
                evaluations.write(stored_run, evaluation)
            except OSError as error:
                raise RunError(
                    f"The evaluation could not be stored: {error}"
                ) from error
    return EvaluatedRun(context.keep(_Run(evaluator, evaluation)), evaluation)


@handles(ShowRunSamples)
def show_run_samples(
    request: ShowRunSamples, context: Context
) -> tuple[RunSample, ...]:
    run: _Run = context.object_of(request.net)
    shown = shown_samples.shown(run.evaluator, run.evaluation.found, request.numbers)
    maps = shown_samples.output_maps(
        run.evaluator, run.evaluation.found.part, request.numbers
    )
    samples = (
        RunSample(shown_sample.number, shown_sample.picture, shown_sample.text)
        for shown_sample in shown
    )
    return tuple(
        replace(
            sample, target=maps[at].target, output=maps[at].output, note=maps[at].note
        )
        if maps
        else sample
        for at, sample in enumerate(samples)
    )
