"""Grade a hand-in: its net is analysed, what goals ask of a run is trained, the rest is as the hand-in records it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.custom import is_custom
from app.engine.server import Context, handles
from app.features.lessons.facts import OF_RUN, OF_WINDOW, Situation
from app.features.lessons.lesson import (
    Goal,
    format_value,
    is_reached,
    is_recorded,
    parsed,
    seeded,
    seen_of,
)
from app.features.lessons.situation import run_figures, with_analysis
from app.features.lessons.values import GoalVerdict, Grade, Graded
from app.preflight import preflight
from app.project import custom_layers
from app.project.project import LessonWork, Project
from app.training.events import EpochDone, Failed
from app.training.history import History
from app.training.loop import train
from app.util.language import marked, tr

NO_STUDENT = marked("It names no student, so it is graded with the seed that it has.")
COMES_WITH = ("sklearn.", "made.")  # sources that need no file
NAMES_FILES = marked(
    "Its run reads files that the hand-in names, which is not done here, so goals of a run are not reached."
)


@handles(Grade)
def grade(request: Grade, _context: Context) -> Graded:
    """Judge every goal of the lesson. Raises LessonError."""
    lesson = parsed(request.lesson, request.name)
    project = replace(request.project, layer_files=())  # which are not read
    work = project.lesson or LessonWork(lesson.name)
    error = ""
    if lesson.seed and work.student:
        project = seeded(project, work.student)
    elif lesson.seed:
        error = tr(NO_STUDENT)
    situation = Situation(project=project)
    own = any(is_custom(node.op) for node in project.graph.nodes.values())
    if own or project.opened is not None:
        error = tr(
            "It has code of its own, which is not run; goals of its net cannot be judged."
        )
    elif project.graph.nodes:
        situation, not_measured = _measured(project, lesson.goals, work.answers)
        error = not_measured or error
    verdicts = [_verdict(goal, situation, work) for goal in lesson.goals]
    seed = project.training.seed if lesson.seed else None
    return Graded(tuple(verdicts), error, work.student, seed)


def _measured(
    project: Project, goals: tuple[Goal, ...], answers: Mapping[str, str]
) -> tuple[Situation, str]:
    """Return what is known of a project: of its net, and of a run, up to the epoch in which all goals of it are
    reached, as in the window."""
    analysis = analyse(project.graph, custom_layers.ops_of(project))
    situation = with_analysis(
        Situation(project=project), analysis, len(analysis.errors)
    )
    of_run = [goal for goal in goals if goal.fact in OF_RUN and not goal.once]
    if not of_run:
        return situation, ""
    if not analysis.runnable:
        return situation, tr("Its net cannot run, so goals of a run are not reached.")
    if not project.data.source.startswith(COMES_WITH) or project.training.start:
        return situation, tr(NAMES_FILES)
    history = History()
    torch.manual_seed(project.training.seed)
    for event in train(preflight.job(project, analysis)):
        if isinstance(event, Failed):
            return situation, tr("Its run failed: {error}", error=event.message)
        history.extend([event])
        if isinstance(event, EpochDone):
            situation = replace(situation, run=run_figures(history), runs=1)
            if all(is_reached(goal, situation, answers) for goal in of_run):
                break
    return situation, ""


def _verdict(goal: Goal, situation: Situation, work: LessonWork) -> GoalVerdict:
    """Judge a goal by what is measured; one that need have held only once, also by what the hand-in records."""
    by_window = goal.fact in OF_WINDOW
    passed = not by_window and is_reached(goal, situation, work.answers)
    seen = tr("not reached")
    if goal.question or not by_window:
        seen = seen_of(goal, situation, work.answers)
    is_from_record = not passed and goal.once
    if is_from_record and is_recorded(goal, work.reached, work.answers):
        passed = True
        seen = work.reached[goal.key] or tr("reached in the window")
    wanted = f"{goal.comparison} {format_value(goal.wanted)}"
    return GoalVerdict(goal.text, passed, seen, wanted, not is_from_record)
