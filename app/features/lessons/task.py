"""Grade a hand-in: its net is analysed, what goals ask of a run is trained, the rest is as the hand-in records it."""

from __future__ import annotations

import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.custom import is_custom
from app.engine.server import Context, handles
from app.features.lessons.facts import OF_RUN, OF_WINDOW, Situation, value_of
from app.features.lessons.lesson import Goal, format_value, is_reached, parsed
from app.features.lessons.situation import run_figures, with_analysis
from app.features.lessons.values import GoalVerdict, Grade, Graded
from app.preflight import preflight
from app.project import custom_layers
from app.project.project import LessonWork, Project
from app.training.events import EpochDone, Failed
from app.training.history import History
from app.training.loop import train

COMES_WITH = ("sklearn.", "made.")  # sources that need no file
NAMES_FILES = "Its run reads files that the hand-in names, which is not done here, so goals of a run are not reached."


@handles(Grade)
def grade(request: Grade, _context: Context) -> Graded:
    """Judge every goal of the lesson. Raises LessonError."""
    lesson = parsed(request.lesson, request.name)
    project = replace(request.project, layer_files=())  # which are not read
    work = project.lesson or LessonWork(lesson.name)
    error = ""
    situation = Situation(project=project)
    own = any(is_custom(node.op) for node in project.graph.nodes.values())
    if own or project.opened is not None:
        error = "It has code of its own, which is not run; goals of its net cannot be judged."
    elif project.graph.nodes:
        situation, error = _measured(project, lesson.goals)
    verdicts = [_verdict(goal, situation, work) for goal in lesson.goals]
    return Graded(tuple(verdicts), error)


def _measured(project: Project, goals: tuple[Goal, ...]) -> tuple[Situation, str]:
    """Return what is known of a project: of its net, and of a run, up to the epoch in which all goals of it are
    reached, as in the window."""
    analysis = analyse(project.graph, custom_layers.ops_of(project))
    situation = with_analysis(
        Situation(project=project), analysis, len(analysis.errors)
    )
    of_run = [goal for goal in goals if goal.fact in OF_RUN and not goal.question]
    if not of_run:
        return situation, ""
    if not analysis.runnable:
        return situation, "Its net cannot run, so goals of a run are not reached."
    if not project.data.source.startswith(COMES_WITH) or project.training.start:
        return situation, NAMES_FILES
    history = History()
    torch.manual_seed(project.training.seed)
    for event in train(preflight.job(project, analysis)):
        if isinstance(event, Failed):
            return situation, f"Its run failed: {event.message}"
        history.extend([event])
        if isinstance(event, EpochDone):
            situation = replace(situation, run=run_figures(history), runs=1)
            if all(is_reached(goal, situation, {}) for goal in of_run):
                break
    return situation, ""


def _verdict(goal: Goal, situation: Situation, work: LessonWork) -> GoalVerdict:
    """Judge a goal; what only the window can see is taken from what the hand-in records."""
    answer = work.answers.get(goal.question, "") if goal.question else ""
    if goal.fact in OF_WINDOW:
        passed = goal.key in work.reached
        seen = answer or ("reached in the window" if passed else "not reached")
    else:
        passed = is_reached(goal, situation, work.answers)
        value = value_of(goal.fact, goal.argument, situation) if goal.fact else None
        seen = answer if goal.question else "" if value is None else format_value(value)
    return GoalVerdict(
        goal.text, passed, seen, f"{goal.comparison} {format_value(goal.wanted)}"
    )
