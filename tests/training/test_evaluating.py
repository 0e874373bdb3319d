"""A net held against samples: the numbers of a run, scikit-learn's table, and nothing that a run would notice."""

import csv
import io
import json
import math

import numpy as np
import pytest
from sklearn.datasets import load_digits

from app.data.config import DataConfig
from app.data.loaders import load
from app.training.config import Choice
from app.training.control import Control
from app.training.evaluation.evaluator import (
    EvaluationCancelledError,
    EvaluationError,
    Evaluator,
    checkpoint_weights,
    views,
)
from app.training.events import EpochDone
from app.training.loop import train
from tests.support.training_jobs import CONV_NET, SMALL_NET, job, losses, run

JOB = job(CONV_NET, epochs=2, data=DataConfig(test_fraction=0.1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run: its events, its last weights, its folder of checkpoints."""
    control, folder = Control(), tmp_path_factory.mktemp("checkpoints")
    events = list(train(JOB, control, folder=folder))
    return events, control.weights(), folder


@pytest.fixture(scope="module")
def found(trained):
    return Evaluator(JOB, trained[1]).evaluate(weights_name="newest")


def test_loss_and_accuracy_are_those_of_the_run_bit_for_bit(trained, found):
    last = [event for event in trained[0] if isinstance(event, EpochDone)][-1]
    assert (found.loss, found.accuracy) == (last.val_loss, last.val_accuracy)


@pytest.mark.parametrize("name", ["last.pt", "best.pt"])
def test_a_checkpoint_is_evaluated_as_it_was_validated(name, trained):
    best = min(event.val_loss for event in trained[0] if isinstance(event, EpochDone))
    weights = checkpoint_weights(trained[2] / name)
    assert Evaluator(JOB, weights).evaluate().loss == (
        found_last(trained) if name == "last.pt" else best
    )


def found_last(trained):
    return [event for event in trained[0] if isinstance(event, EpochDone)][-1].val_loss


def test_the_running_mean_of_a_checkpoint_is_what_is_evaluated(tmp_path):
    a_job = job(SMALL_NET, epochs=1, ema=0.9)
    (last,) = [
        event for event in train(a_job, folder=tmp_path) if isinstance(event, EpochDone)
    ]
    assert (
        Evaluator(a_job, checkpoint_weights(tmp_path / "last.pt")).evaluate().loss
        == last.val_loss
    )


def test_the_table_and_the_matrix_are_those_of_scikit_learn(found):
    from sklearn import metrics

    true, called = found.columns["true"][:, 0], found.columns["called"][:, 0]
    assert np.array_equal(
        found.confusion, metrics.confusion_matrix(true, called, labels=range(10))
    )
    wanted = zip(
        *metrics.precision_recall_fscore_support(true, called, labels=range(10)),
        strict=True,
    )
    for row, (precision, recall, f1, support) in zip(
        found.class_rows(), wanted, strict=True
    ):
        assert (row.precision, row.recall, row.f1) == pytest.approx(
            (precision, recall, f1)
        ) and row.support == support
    assert dict(found.metrics)["f1"] == pytest.approx(
        metrics.f1_score(true, called, average="macro")
    )


def test_the_worst_samples_come_first_and_a_cell_has_its_own(found):
    order = found.worst()
    assert (
        found.columns["loss"][order[0]] == found.columns["loss"].max()
        and len(order) == found.count
    )
    assert found.columns["loss"].mean() == pytest.approx(found.loss, abs=1e-5)
    wrong = found.wrong()
    assert (
        len(wrong)
        == round(found.count * (1 - found.accuracy))
        == (found.confusion.sum() - found.confusion.trace())
    )
    number = wrong[0]
    true, called = found.columns["true"][number, 0], found.columns["called"][number, 0]
    cell = found.cell(true, called)
    assert number in cell and len(cell) == found.confusion[true, called]
    assert found.columns["top"][number, 0] == called
    assert found.columns["sure"][number] == pytest.approx(
        math.exp(-found.columns["loss"][number]), abs=1e-5
    )


def test_start_weights_are_evaluated_as_a_run_begins_with_them():
    import torch

    first = Evaluator(JOB)
    model = first.stepper.model
    torch.manual_seed(JOB.training.seed)
    from app.source.compiled import make_module

    again = make_module(JOB.source)
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_every_part_has_its_samples_and_one_without_says_what_to_set(trained):
    evaluator = Evaluator(JOB, trained[1])
    info = load(JOB.data).info
    assert evaluator.evaluate("test").count == info.test_count > 0
    assert evaluator.evaluate("training").count == info.train_count
    with pytest.raises(EvaluationError, match="test_fraction"):
        Evaluator(job(CONV_NET), trained[1]).evaluate("test")


def test_test_time_augmentation_takes_the_mean_of_the_probabilities(trained):
    import torch

    evaluator = Evaluator(JOB, trained[1])
    plain, found = evaluator.evaluate(), evaluator.evaluate(augment=("shift",))
    assert found.loss == plain.loss and found.views == 5
    inputs, labels = evaluator.read("validation", range(found.count))
    up = torch.nn.functional.pad(inputs, (0, 0, 0, 1), mode="replicate")[..., 1:, :]
    every = [inputs, *views(inputs, ("shift",))]
    assert any(torch.equal(up, one) for one in every)
    with torch.no_grad():
        mean = torch.stack(
            [evaluator.stepper.model(one).softmax(1) for one in every]
        ).mean(0)
    assert np.array_equal(found.columns["called"][:, 0], mean.argmax(1).numpy())
    assert found.columns["sure"] == pytest.approx(
        mean[range(len(labels)), labels].numpy(), abs=1e-5
    )
    assert len(views(inputs, ("flip", "shift"))) == 9


def test_evaluating_while_a_run_goes_on_changes_no_number_of_it():
    a_job = job(SMALL_NET, epochs=2)
    control, events, seen = Control(), [], []
    for event in train(a_job, control):
        events.append(event)
        if len(events) in (5, 30):
            seen.append(Evaluator(a_job, control.weights()).evaluate(augment=("flip",)))
    assert losses(events) == losses(run(a_job)) and seen[0].loss != seen[1].loss


def test_an_evaluation_can_be_broken_off_and_tells_how_far_it_is():
    told = []
    with pytest.raises(EvaluationCancelledError):
        Evaluator(job()).evaluate(
            "training",
            watch=lambda *at: told.append(at),
            stopping=lambda: len(told) == 2,
        )
    assert told == [(64, 1438), (128, 1438)]


def test_weights_of_another_net_are_refused_by_name(trained):
    with pytest.raises(EvaluationError, match=r"conv1\.weight"):
        Evaluator(job(SMALL_NET), trained[1])


def test_classes_that_a_loss_compares_by_one_hot_rows_and_weights_are_measured_as_in_the_run():
    for changes in (
        {"loss": Choice("MSELoss")},
        {"data": DataConfig(class_weights=True)},
        {"amp": "bfloat16"},
    ):
        a_job = job(SMALL_NET, epochs=1, **changes)
        control = Control()
        (last,) = [
            event for event in train(a_job, control) if isinstance(event, EpochDone)
        ]
        found = Evaluator(a_job, control.weights()).evaluate()
        assert (found.loss, found.accuracy) == (last.val_loss, last.val_accuracy)


def test_what_was_found_is_written_as_a_table(found):
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert (
        len(rows) == found.count
        and sum(int(row["right"]) for row in rows) / len(rows) == found.accuracy
    )
    assert float(rows[3]["loss"]) == found.columns["loss"][3]
    digits = (
        load_digits().target
    )  # the number of a sample in the whole data leads to it
    assert [str(digits[int(row["row"])]) for row in rows] == [
        row["class"] for row in rows
    ]
    assert found.classes_csv().startswith("class,precision,recall,f1,support\n0,")
    told = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert (
        told["loss"] == found.loss
        and told["classes"][0]["support"] == found.class_rows()[0].support
    )


def test_training_samples_are_looked_at_without_what_is_drawn_for_learning():
    from msgspec.structs import replace

    from app.data.config import Transform
    from app.util.frozen import FrozenMap

    plain = job(SMALL_NET)
    noisy = replace(
        plain,
        data=DataConfig(
            train_transforms=(Transform("RandomErasing", FrozenMap(p=1.0)),)
        ),
    )
    first, second = (Evaluator(one).evaluate("training") for one in (plain, noisy))
    assert first.loss == second.loss and np.array_equal(
        first.columns["loss"], second.columns["loss"]
    )
