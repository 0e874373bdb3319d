"""Examines the data and the net of a run that has ended."""

from __future__ import annotations

from app.engine.server import Context, handles
from app.engine.tasks.evaluation import make_evaluator
from app.engine.tasks.weights import load_chosen
from app.features.coach.compute import examine
from app.features.coach.values import Examination, ExamineRun
from app.training.setup.torch_flags import cpu_threads


@handles(ExamineRun)
def examine_run(request: ExamineRun, context: Context) -> Examination:
    job = request.job
    weights = load_chosen(
        request.weights, job.source, job.training.seed, job.training.start
    )
    with cpu_threads(None):
        evaluator = make_evaluator(job, weights.state_dict, context)
        return examine(evaluator, request.one_batch, context.cancelled)
