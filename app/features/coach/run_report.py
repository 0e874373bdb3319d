"""What `tapedeck train` says of a run that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.features.coach.compute import examine
from app.features.coach.judgement import (
    OVERFITTING,
    is_examined,
    judge,
    setup_of,
    wants_one_batch,
)
from app.training.evaluation.evaluator import Evaluator

if TYPE_CHECKING:
    from torch import Tensor

    from app.builder.results import Analysis
    from app.features.coach.values import Remark, RunSetup
    from app.project.project import Project
    from app.training.history import History
    from app.training.job import Job

SAID_BEFORE = "scale"  # by the command, before the run


def report(
    project: Project,
    analysis: Analysis,
    job: Job,
    history: History,
    weights: Mapping[str, Tensor] | None,
) -> dict[str, Any] | None:
    """Return the JSON fields of the one remark on a run, with its `sentence`; None where there is nothing to say."""
    if history.cuts:
        return None  # the net is no longer that of the project
    remark = remark_on(setup_of(project, analysis), job, history, weights)
    if remark is None or remark.kind == SAID_BEFORE:
        return None
    return {
        "event": "remark",
        "kind": remark.kind,
        "sentence": remark.sentence,
        "numbers": dict(remark.numbers),
    }


def remark_on(
    setup: RunSetup, job: Job, history: History, weights: Mapping[str, Tensor] | None
) -> Remark | None:
    """Return the remark on a run that has ended; data and net are examined where its numbers alone say nothing."""
    remark = judge(setup, history, ended=True)
    if remark is not None and remark.kind != OVERFITTING:
        return remark
    if weights is None or not is_examined(setup, history):
        return remark
    try:
        evaluator = Evaluator(job, weights)
        examination = examine(evaluator, wants_one_batch(setup, history))
    except Exception:  # of a person's own layers or data: the run itself has ended well
        return remark
    return judge(setup, history, True, examination)
