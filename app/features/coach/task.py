"""Examines the data and the net of a run that has ended."""

from __future__ import annotations

from app.data.spec import ReadingCancelledError
from app.engine.server import Context, handles
from app.engine.tasks.weights import load_chosen
from app.features.coach.compute import examine
from app.features.coach.values import Examination, ExamineRun
from app.training.evaluation.evaluator import Evaluator
from app.training.setup.torch_flags import cpu_threads


@handles(ExamineRun)
def examine_run(request: ExamineRun, context: Context) -> Examination:
    job = request.job
    weights = load_chosen(
        request.weights, job.source, job.training.seed, job.training.start
    )

    def reading(_done: int, _total: int, _name: str) -> None:
        if context.cancelled():
            raise ReadingCancelledError

    with cpu_threads(None):
        evaluator = Evaluator(job, weights.state_dict, reading=reading)
        return examine(evaluator, request.one_batch, context.cancelled)
