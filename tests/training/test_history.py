"""The columns that curves and maps are drawn from."""

import csv
import io
import math

import numpy as np

from app.training.events import EpochDone, GradientNorms, Started, StepDone, to_json
from app.training.history import Columns, History
from tests.support.training_jobs import CONV_NET, job, run


def test_columns_grow_and_their_views_stay_what_they_were():
    columns = Columns("a", "b")
    columns.append(1, None)
    early = columns["a"]
    for number in range(1000):
        columns.append(number, -number)
    assert len(columns) == 1001 and early.tolist() == [1.0]
    assert columns["a"][-1] == 999 and math.isnan(columns["b"][0])
    assert columns.matrix().shape == (2, 1001) and not columns["a"].flags.writeable


def test_a_history_holds_every_number_of_a_run():
    events = run(job(CONV_NET, epochs=2))
    history = History()
    history.extend(events)
    steps = [event for event in events if isinstance(event, StepDone)]
    assert history.steps["loss"].tolist() == [event.loss for event in steps]
    norms = [event for event in events if isinstance(event, GradientNorms)]
    assert history.layers == ("conv1", "norm1", "conv2", "linear1")
    assert history.gradients.matrix().T.tolist() == [
        list(event.norms) for event in norms
    ]
    assert history.gradient_steps.tolist() == [event.step for event in norms]
    assert len(history.epochs) == 2 and len(history.memory) >= 1
    assert history.samples_per_second() > 0
    rows = list(csv.DictReader(io.StringIO(history.to_csv())))
    assert [float(row["loss"]) for row in rows if row["event"] == "step"] == [
        event.loss for event in steps
    ]
    last = next(event for event in reversed(events) if isinstance(event, EpochDone))
    assert rows[-1]["event"] == "epoch" and float(rows[-1]["val_loss"]) == last.val_loss
    assert rows[-1]["epoch"] == "2" and rows[0]["train_loss"] == ""


def test_a_new_run_begins_a_new_history():
    history = History()
    history.add(StepDone(1, 1, 2.5, 64, 0.1))
    history.add(Started("cpu", None, 1, 64, 1, 0, 10, ("a", "b"), 64, 0))
    assert len(history.steps) == 0 and history.layers == ("a", "b")
    history.add(GradientNorms(1, ("a", "b"), (1.0, math.nan)))
    assert history.gradients.matrix().shape == (2, 1)
    assert history.samples_per_second() is None


def test_json_lines_hold_floats_in_full_and_null_for_what_is_not_finite():
    value = 0.1 + 0.2
    assert to_json(StepDone(1, 1, value, 64, 0.5)) == (
        '{"event": "step", "epoch": 1, "step": 1, "loss": 0.30000000000000004}'
    )
    line = to_json(EpochDone(3, 9, 1.0, 0.5, math.inf, None, 2.0))
    assert line == (
        '{"event": "epoch", "epoch": 3, "step": 9, "train_loss": 1.0, "train_accuracy": 0.5, '
        '"val_loss": null, "val_accuracy": null}'
    )
    assert to_json(GradientNorms(1, ("a",), (np.nan,))) is None


def test_a_run_that_goes_on_as_a_script_keeps_what_it_told_before():
    """A script on several processes tells no layers; the gradients seen before stay."""
    history = History()
    history.add(Started("cpu", None, 1, 2, 3, 4, 5, ("a", "b"), 6, 7))
    for step in (1, 2, 3):
        history.add(StepDone(1, step, 0.5, 2, 0.1))
        history.add(GradientNorms(step, ("a", "b"), (1.0, 2.0)))
    history.add(Started("cpu", "On 2 processes", 1, 2, 3, 4, 5, (), 6, 7, 2))
    assert history.steps["step"].tolist() == [1, 2] and history.layers == ("a", "b")
    assert history.gradient_steps.tolist() == [1, 2]
