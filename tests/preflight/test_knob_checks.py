"""Knobs of the training that contradict one another or the net are said before a run, and one click mends them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.diagnostics.problems import Problem
from app.data.config import DataConfig
from app.preflight import preflight
from app.project.project import Project
from app.training.config import Choice, ParameterGroup, Schedule, TrainingConfig
from app.util.frozen import FrozenMap
from tests.preflight.test_preflight import MLP, NORMED, project, said

LBFGS = Choice("LBFGS")
ONE_CYCLE = Schedule(
    Choice("OneCycleLR", FrozenMap(max_lr=0.1, total_steps=100)), "step"
)
PLATEAU = Schedule(Choice("ReduceLROnPlateau"))
UNHELD = DataConfig(validation_fraction=0.0)

WRONG: dict[str, tuple[dict[str, Any], DataConfig, str, str]] = {
    "accumulation with LBFGS": (
        {"optimizer": LBFGS, "accumulate": 2},
        DataConfig(),
        "error",
        "does not support",
    ),
    "AMP with LBFGS": (
        {"optimizer": LBFGS, "amp": "bfloat16"},
        DataConfig(),
        "error",
        "does not support",
    ),
    "no_decay with LBFGS": (
        {"optimizer": LBFGS, "no_decay": True},
        DataConfig(),
        "error",
        "parameter groups",
    ),
    "groups with LBFGS": (
        {"optimizer": LBFGS, "groups": (ParameterGroup("fc"),)},
        DataConfig(),
        "error",
        "parameter groups",
    ),
    "a cycle that is too short": (
        {"schedule": ONE_CYCLE},
        DataConfig(),
        "error",
        "ends before the run",
    ),
    "a plateau nobody sees": (
        {"schedule": PLATEAU},
        UNHELD,
        "warning",
        "needs a validation loss",
    ),
    "patience without validation": (
        {"patience": 3},
        UNHELD,
        "warning",
        "patience=3 ends the run",
    ),
    "fewer samples than a fraction": (
        {},
        DataConfig(validation_fraction=1e-4),
        "warning",
        "No samples are held out",
    ),
    "a layer that is gone": (
        {"recompute": ("gone", "fc")},
        DataConfig(),
        "error",
        "recompute names gone",
    ),
    "a group of nothing": (
        {"groups": (ParameterGroup("fc"), ParameterGroup("gone"))},
        DataConfig(),
        "warning",
        "gone is empty",
    ),
}


def cured(found: Project, problem: Problem) -> Project:
    cure = problem.cures[0]
    return replace(
        found,
        training=replace(found.training, **cure.settings),
        data=replace(found.data, **cure.data),
    )


@pytest.mark.parametrize("name", WRONG)
def test_it_is_said_and_one_click_mends_it(name: str) -> None:
    training, data, severity, words = WRONG[name]
    wrong = replace(project(*MLP, **training), data=data)
    (problem,) = said(wrong)
    assert problem.severity == severity and words in problem.message and problem.reason
    assert said(cured(wrong, problem)) == ()


def test_a_schedule_made_as_long_as_the_run_goes_through() -> None:
    wrong = project(*MLP, schedule=ONE_CYCLE)
    right = cured(wrong, said(wrong)[0])
    assert right.training.schedule.choice.params["total_steps"] == 20 * 23


def test_a_path_into_a_layer_is_one_of_the_net() -> None:
    assert (
        said(
            project(
                *MLP,
                groups=(ParameterGroup("fc.weight", FrozenMap(lr=0.1)),),
                recompute=("fc",),
            )
        )
        == ()
    )


def test_a_last_batch_of_one_is_no_problem_where_it_is_left_out() -> None:
    training = TrainingConfig(
        batch_size=479
    )  # 1,438 samples: three batches and one sample
    wrong = replace(project(*NORMED), training=training)
    assert any("last batch" in problem.message for problem in said(wrong))
    assert said(replace(wrong, data=DataConfig(drop_last=True))) == ()
    assert said(replace(wrong, training=replace(training, one_batch=True))) == ()


def test_a_net_with_errors_of_its_own_hears_nothing_of_its_layers() -> None:
    wrong = project(
        ("nn.Flatten", "flatten", {}),
        ("nn.Linear", "fc", {"in_features": 3, "out_features": 10}),
        recompute=("gone",),
    )
    analysis = analyse(wrong.graph)
    assert not [
        each
        for each in preflight.problems(wrong, analysis)
        if "recompute" in each.message
    ]
