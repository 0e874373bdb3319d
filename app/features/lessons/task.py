"""Grade a hand-in: its net is analysed, what goals ask of a run is trained, a batch of it is captured, the memory of a
step estimated; acts are as the hand-in records them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from msgspec.structs import asdict, replace

from app.autograd.batch import TrainingBatch, preserve_gradients, run_backward
from app.autograd.diagnostics.findings import find_all
from app.autograd.errors import CaptureError
from app.builder.analysis import analyse
from app.builder.catalog.custom import is_custom
from app.data.sources import DataError
from app.engine.requests.capture import CaptureRequest
from app.engine.server import Context, handles
from app.engine.tasks.capture import batch_of
from app.features.lessons.facts import (
    MEASURED_AGAIN,
    OF_RUN,
    OF_TAPE,
    OF_WINDOW,
    ON_TAPE,
    Situation,
    TapeFigures,
)
from app.features.lessons.lesson import (
    Goal,
    format_value,
    is_reached,
    is_recorded,
    parsed,
    seeded,
    seen_of,
)
from app.features.lessons.situation import run_figures, tape_figures, with_analysis
from app.features.lessons.values import (
    FROM_RECORD,
    MEASURED,
    GoalVerdict,
    Grade,
    Graded,
)
from app.preflight import preflight
from app.project import custom_layers
from app.project.project import LessonWork, Project
from app.training.events import EpochDone, Failed, Finished
from app.training.history import History
from app.training.loop import train
from app.training.monitoring import measured_memory
from app.util import module_tree
from app.util.language import marked, tr
from tapedeck.norms import norm_of, values_of

if TYPE_CHECKING:
    from app.builder.results import Analysis

NO_STUDENT = marked("It names no student, so it is graded with the seed that it has.")
COMES_WITH = ("sklearn.", "made.")  # sources that need no file
NAMES_FILES = marked(
    "Its run reads files that the hand-in names, which is not done here, so goals of a run are not reached."
)
OWN_CODE = marked(
    "It has code of its own, which is not run; goals of its net cannot be judged."
)
NO_TAPE = marked("No batch of its net can be captured: {error}")


@handles(Grade)
def grade(request: Grade, _context: Context) -> Graded:
    """Judge every goal of the lesson. Raises LessonError."""
    lesson = parsed(request.lesson, request.name)
    project = replace(request.project, layer_files=())  # which are not read
    work = project.lesson or LessonWork(lesson.name)
    start, error = request.start, ""
    if lesson.seed and work.student:
        project = seeded(project, work.student)
        start = seeded(start, work.student) if start is not None else None
    elif lesson.seed:
        error = tr(NO_STUDENT)
    states: tuple[Situation, ...] = (Situation(project=project),)
    if _has_own_code(project):
        error = tr(OWN_CODE)
    elif project.graph.nodes:
        states, not_measured = _states(project, lesson.goals, work.answers)
        error = not_measured or error
    before: tuple[Situation, ...] = ()
    of_start = [goal for goal in lesson.goals if _is_open_before(goal, states, work)]
    if start is not None and of_start and not _has_own_code(start):
        before, _ = _states(start, of_start, work.answers)
    verdicts = [_verdict(goal, states, before, work) for goal in lesson.goals]
    seed = project.training.seed if lesson.seed else None
    return Graded(tuple(verdicts), error, work.student, seed)


def _has_own_code(project: Project) -> bool:
    own = any(is_custom(node.op) for node in project.graph.nodes.values())
    return own or project.opened is not None


def _analysis(project: Project) -> Analysis:
    return analyse(project.graph, custom_layers.ops_of(project))


def _states(
    project: Project, goals: Sequence[Goal], answers: Mapping[str, str]
) -> tuple[tuple[Situation, ...], str]:
    """Return what is known of a project once what goals ask for is measured, with a batch that is captured in train
    mode, and in eval mode; and why something cannot be, "" if all can."""
    analysis = _analysis(project)
    situation = with_analysis(
        Situation(project=project), analysis, len(analysis.errors)
    )
    situation, no_run = _trained(project, situation, analysis, goals, answers)
    situation = _with_memory(project, situation, analysis, goals)
    states, no_tape = _captured(project, situation, analysis, goals)
    return states, no_run or no_tape


def _trained(
    project: Project,
    situation: Situation,
    analysis: Analysis,
    goals: Sequence[Goal],
    answers: Mapping[str, str],
) -> tuple[Situation, str]:
    """Add what is known of a run, up to the epoch in which all goals of it are reached, as in the window."""
    of_run = [goal for goal in goals if goal.fact in OF_RUN and not goal.once]
    if not of_run:
        return situation, ""
    if not analysis.runnable:
        return situation, tr("Its net cannot run, so goals of a run are not reached.")
    if _reads_files(project):
        return situation, tr(NAMES_FILES)
    history = History()
    torch.manual_seed(project.training.seed)
    for event in train(preflight.job(project, analysis)):
        history.extend([event])
        figures = run_figures(history)
        if isinstance(event, Failed):
            situation = replace(situation, run=replace(figures, ended="failed"))
            error = tr("Its run failed: {error}", error=event.message)
            return situation, error if not _want_failure(of_run) else ""
        if isinstance(event, Finished):
            situation = replace(situation, run=replace(figures, ended=event.reason))
        elif isinstance(event, EpochDone):
            situation = replace(situation, run=figures, runs=1)
            if all(is_reached(goal, situation, answers) for goal in of_run):
                break
    return situation, ""


def _want_failure(goals: Sequence[Goal]) -> bool:
    return any(goal.fact == "ended" and goal.wanted == "failed" for goal in goals)


def _reads_files(project: Project) -> bool:
    """Return whether a run would read files that a hand-in names."""
    comes_with = project.data.source.startswith(COMES_WITH)
    return not comes_with or project.training.start is not None


def _with_memory(
    project: Project, situation: Situation, analysis: Analysis, goals: Sequence[Goal]
) -> Situation:
    """Add the memory of a step, in bytes, if a goal asks for it and the net can run."""
    is_wanted = any(goal.fact == "memory" for goal in goals)
    if not is_wanted or not analysis.runnable or _reads_files(project):
        return situation
    step = measured_memory.before(preflight.job(project, analysis), "cpu").step
    if step is None:
        return situation
    sizes = asdict(step.total) | {"total": step.total.total}
    return replace(situation, measured={"memory": sizes})


def _captured(
    project: Project, situation: Situation, analysis: Analysis, goals: Sequence[Goal]
) -> tuple[tuple[Situation, ...], str]:
    """Return what is known of a project once a batch of it is captured in train mode, and in eval mode; and why it
    cannot be, "" if it can or no goal asks for it."""
    facts = {goal.fact for goal in goals}
    if not facts & (OF_TAPE | ON_TAPE):
        return (situation,), ""
    if not analysis.runnable:
        return (situation,), tr(NO_TAPE, error=tr("its net cannot run."))
    try:
        batch = batch_of(_request(project, analysis))
        tapes = [_figures(replace(batch, train=train)) for train in (True, False)]
        findings = find_all(batch).found if "finding" in facts else ()
    except (CaptureError, DataError) as error:
        return (situation,), tr(NO_TAPE, error=error)
    counts = Counter(finding.kind for finding in findings)
    return tuple(replace(situation, tape=tape, findings=counts) for tape in tapes), ""


def _request(project: Project, analysis: Analysis) -> CaptureRequest:
    """Return the capture of a batch with initial weights, on random inputs where data or weights would be read from
    files."""
    job = preflight.job(project, analysis)
    request = CaptureRequest(replace(job, training=replace(job.training, start=None)))
    if not project.data.source.startswith(COMES_WITH):
        request = replace(request, options=replace(request.options, data="random"))
    return request.diagnosed


def _figures(batch: TrainingBatch) -> TapeFigures:
    with batch.hold() as graph, preserve_gradients(batch.model):
        run_backward(graph)
        return tape_figures(graph.tape, dict(_norms(batch)))


def _norms(batch: TrainingBatch) -> Iterator[tuple[str, float]]:
    for name, parameter in module_tree.named_parameters(batch.model):
        if parameter.grad is not None:
            yield name, float(norm_of(values_of(parameter.grad)))


def _verdict(
    goal: Goal,
    states: tuple[Situation, ...],
    before: tuple[Situation, ...],
    work: LessonWork,
) -> GoalVerdict:
    """Judge a goal by what is measured, in one of the `states` of the hand-in; one that need have held only once, also
    by what it records, where what can be measured is true of the net that the lesson began with (`before`)."""
    answers = work.answers
    is_act = _is_act(goal)
    asks_before = goal.question and goal.fact in MEASURED_AGAIN
    measured = () if is_act else (*states, *before) if asks_before else states
    reached = [state for state in measured if is_reached(goal, state, answers)]
    seen, evidence = tr("not reached"), MEASURED
    if goal.question or not is_act:
        seen = seen_of(goal, (*reached, *states)[0], answers)
    is_record = not reached and goal.stays
    if is_record:
        evidence = FROM_RECORD
    is_recorded_one = is_record and is_recorded(goal, work.reached, answers)
    passed = bool(reached) or (
        is_recorded_one and _may_be(goal, states, before, answers)
    )
    if passed and is_record:
        seen = work.reached[goal.key] or tr("reached in the window")
    wanted = f"{goal.comparison} {format_value(goal.wanted)}"
    return GoalVerdict(goal.text, passed, seen, wanted, evidence)


def _is_act(goal: Goal) -> bool:
    """Return whether a goal is about what was done in the window, which nothing can be measured of."""
    return goal.fact in OF_WINDOW - MEASURED_AGAIN or goal.wanted == "stopped"


def _is_open_before(
    goal: Goal, states: tuple[Situation, ...], work: LessonWork
) -> bool:
    """Return whether a goal is reached only if it is so by the net that the lesson began with."""
    if goal.fact not in MEASURED_AGAIN or _is_act(goal):
        return False
    return not any(is_reached(goal, state, work.answers) for state in states)


def _may_be(
    goal: Goal,
    states: tuple[Situation, ...],
    before: tuple[Situation, ...],
    answers: Mapping[str, str],
) -> bool:
    """Return whether what a hand-in records of a goal can be true."""
    if goal.fact in ON_TAPE:
        return any(state.tape is not None for state in states)
    if goal.fact in MEASURED_AGAIN and not goal.once and not _is_act(goal):
        return any(is_reached(goal, state, answers) for state in before)
    return True
