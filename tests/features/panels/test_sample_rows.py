"""Samples of several evaluated runs: matched by what they are of, not by their place."""

from __future__ import annotations

import numpy as np

from app.features.panels.sample_rows import (
    orders_for,
    prediction_of,
    rows_of,
    target_text,
)
from app.features.panels.values import RunEvaluation
from app.training.evaluation.result import Evaluation


def evaluated(
    called: list[int],
    true: list[int],
    loss: list[float],
    rows: list[int] | None = None,
    space="a",
):
    columns = {
        "true": np.array(true)[:, None],
        "called": np.array(called)[:, None],
        "loss": np.array(loss),
        "right": (np.array(called) == np.array(true)).astype(float),
        "sure": np.full(len(true), 0.25),
        "shares": np.full((len(true), 2), 0.75),
        "top": np.zeros((len(true), 2), int),
    }
    if rows is not None:
        columns["row"] = np.array(rows)
    found = Evaluation(
        "x",
        "validation",
        "best",
        "classes",
        ("cat", "dog"),
        len(true),
        0.5,
        0.5,
        (),
        None,
        columns,
    )
    return RunEvaluation(found, space, True, "")


def numbers(rows) -> list[tuple[int | None, ...]]:
    return [row.numbers for row in rows[0]]


def test_samples_of_other_splits_are_matched_by_their_rows() -> None:
    one = evaluated([0, 1, 1], [0, 1, 0], [0.1, 0.2, 3.0], [10, 20, 30])
    other = evaluated([1, 1], [0, 0], [2.0, 0.3], [30, 40])
    assert numbers(rows_of([one, None, other], "first", 9)) == [
        (2, None, 0),
        (0, None, None),
        (1, None, None),
        (None, None, 1),
    ]
    assert numbers(rows_of([one, None, other], "wrong", 9)) == [
        (2, None, 0),
        (None, None, 1),
    ]
    assert rows_of([one, None, other], "differ", 9) == ([], 0), (
        "they call the only one that both have the same"
    )


def test_where_runs_disagree_comes_first_what_their_losses_differ_most_in() -> None:
    one = evaluated([0, 0, 0, 1], [0, 0, 0, 1], [0.1, 0.1, 0.1, 0.1])
    other = evaluated([1, 0, 1, 1], [0, 0, 0, 1], [2.0, 9.0, 5.0, float("nan")])
    rows, total = rows_of([one, other], "differ", 1)
    assert [row.numbers for row in rows] == [(2, 2)] and total == 2
    assert [row[0] for row in numbers(rows_of([one, other], "worst", 9))] == [
        3,
        1,
        2,
        0,
    ], "not a number counts as most"


def test_samples_of_other_data_are_never_the_same() -> None:
    runs = [evaluated([0], [0], [0.1]), evaluated([0], [0], [0.2], space="other")]
    assert numbers(rows_of(runs, "worst", 9)) == [(None, 0), (0, None)]
    assert "differ" not in orders_for(runs), "they can neither agree nor disagree"


def test_right_and_wrong_are_words() -> None:
    run = evaluated([0, 1], [0, 0], [0.1, 2.0])
    assert prediction_of(run, 0) == (("cat, right", "75 %", "loss 0.1"), True)
    assert prediction_of(run, 1) == (
        ("dog, wrong", "75 %, target cat: 25 %", "loss 2"),
        False,
    )
    assert target_text(run.found, 1) == "target cat"
    assert (
        orders_for([run, None]) == ["wrong", "worst", "first"]
        and orders_for([run, run])[0] == "differ"
    )
