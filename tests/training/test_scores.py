"""Metrics beside loss and accuracy: their values are scikit-learn's, and watching them changes no number of a run."""

import json
import math

import pytest

from app.data.config import DataConfig
from app.training.config import Choice
from app.training.evaluation.metric_values import Gathered, probabilities
from app.training.events import EpochDone, to_json
from app.training.history import History
from app.training.job import JobError, check_numbers
from app.training.metrics import SCORES, fitting, refusal
from app.training.task import Task
from tests.data.test_files import csv, text, values
from tests.data.test_files import fitting as net_for
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import SMALL_NET, job, losses, run

OF_CLASSES = ("f1", "precision", "recall", "auroc", "top2_accuracy", "top5_accuracy")


def gathered(names, task, output, labels, size=32):
    found = Gathered(names, task)
    for part in range(0, len(labels), size):
        found.add(output[part : part + size], labels[part : part + size])
    return dict(found.compute())


def test_the_metrics_of_classes_are_those_of_scikit_learn():
    import torch
    from sklearn import metrics

    torch.manual_seed(0)
    labels = torch.randint(10, (300,))
    output = torch.randn(300, 10) + 1.5 * torch.nn.functional.one_hot(labels, 10)
    ours = gathered(OF_CLASSES, Task("CrossEntropyLoss", 10), output, labels)
    truth, rows = labels.numpy(), output.softmax(1).numpy()
    called = rows.argmax(1)
    theirs = {
        "f1": metrics.f1_score(truth, called, average="macro"),
        "precision": metrics.precision_score(truth, called, average="macro"),
        "recall": metrics.balanced_accuracy_score(truth, called),
        "auroc": metrics.roc_auc_score(truth, rows, multi_class="ovr"),
        "top2_accuracy": metrics.top_k_accuracy_score(truth, rows, k=2),
        "top5_accuracy": metrics.top_k_accuracy_score(truth, rows, k=5),
    }
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_the_metrics_of_values_are_those_of_scikit_learn():
    import torch
    from sklearn import metrics

    torch.manual_seed(0)
    labels = torch.randn(100, 2)
    output = labels + 0.3 * torch.randn(100, 2)
    ours = gathered(
        ("mae", "rmse", "r2"), Task("MSELoss", 0, "values", 2), output, labels
    )
    truth, told = labels.numpy(), output.numpy()
    theirs = {
        "mae": metrics.mean_absolute_error(truth, told),
        "rmse": math.sqrt(metrics.mean_squared_error(truth, told)),
        "r2": metrics.r2_score(truth, told),
    }
    assert ours == pytest.approx(theirs, abs=1e-5)
    alone = gathered(
        ("r2",), Task("MSELoss", 0, "values"), output[:1, :1], labels[:1, :1]
    )
    assert math.isnan(alone["r2"]), "one sample has no variance to explain"


def test_perplexity_is_e_to_the_mean_loss_of_a_token():
    import torch

    torch.manual_seed(0)
    labels, output = torch.randint(7, (40, 12)), torch.randn(40, 12, 7)
    ours = gathered(
        ("perplexity", "f1"), Task("CrossEntropyLoss", 7, "tokens", 12), output, labels
    )
    loss = torch.nn.functional.cross_entropy(output.flatten(0, 1), labels.flatten())
    assert ours["perplexity"] == pytest.approx(math.exp(loss.item()), rel=1e-5)
    assert 0 < ours["f1"] < 1


@pytest.mark.parametrize("name", SCORES)
def test_every_metric_measures_a_task_that_it_fits_and_is_refused_elsewhere(name):
    score = SCORES[name]
    for kind in ("classes", "values", "tokens"):
        fits = score in fitting(kind, 10)
        assert fits == (kind in score.kinds) == (refusal(name, kind, 10) == "")
    assert score.doc and score.label


def test_an_output_is_read_as_its_loss_reads_it():
    import torch

    output = torch.tensor([[1.0, 2.0]])
    assert torch.equal(probabilities("CrossEntropyLoss", output), output.softmax(1))
    logs = output.log_softmax(1)
    assert torch.allclose(probabilities("NLLLoss", logs), logs.exp())
    assert torch.equal(probabilities("BCEWithLogitsLoss", output), output.sigmoid())
    assert torch.equal(probabilities("MSELoss", output), output)


def test_watching_metrics_changes_no_number_and_they_are_kept_and_told():
    plain, watched = run(job(epochs=2)), run(job(epochs=2, metrics=("f1", "auroc")))
    assert losses(plain) == losses(watched)
    history = History()
    history.extend(watched)
    last = [event for event in watched if isinstance(event, EpochDone)][-1]
    assert (
        dict(last.metrics).keys() == {"f1", "auroc"}
        and 0 < dict(last.metrics)["f1"] <= 1
    )
    assert (
        history.metrics == ("f1", "auroc")
        and history.scores["f1"][-1] == dict(last.metrics)["f1"]
    )
    assert json.loads(to_json(last))["val_auroc"] == dict(last.metrics)["auroc"]
    header, *rows = history.to_csv().splitlines()
    assert "val_f1,val_auroc" in header and repr(dict(last.metrics)["f1"]) in rows[-1]


@pytest.mark.parametrize(
    ("metrics", "data", "word"),
    [
        (("mae",), DataConfig(), "f1"),
        (("nonsense",), DataConfig(), "nonsense"),
        (("top5_accuracy",), DataConfig("sklearn.iris"), "3 classes"),
    ],
)
def test_a_metric_that_says_nothing_of_the_data_is_refused_before_the_run(
    metrics, data, word
):
    with pytest.raises(JobError, match=word):
        check_numbers(job(SMALL_NET, data=data, metrics=metrics))


def test_a_run_without_validation_samples_has_no_metrics():
    events = run(
        job(
            epochs=1,
            metrics=("f1",),
            data=DataConfig(validation_fraction=0.0),
            loss=Choice("NLLLoss"),
        )
    )
    assert [event.metrics for event in events if isinstance(event, EpochDone)] == [()]


FILES = {
    "values": (
        lambda folder: values(folder, "pt"),
        ("mae", "rmse", "r2"),
        {"loss": Choice("MSELoss")},
    ),
    "one value": (
        lambda folder: csv(folder, target="length"),
        ("r2",),
        {"loss": Choice("L1Loss")},
    ),
    "tokens": (text, ("f1", "top3_accuracy", "perplexity"), {}),
    "perplexity alone": (text, ("perplexity",), {}),
    "classes of a table": (csv, ("auroc", "recall"), {"loss": Choice("MSELoss")}),
}


@pytest.mark.parametrize("name", FILES)
def test_metrics_of_every_task_are_those_of_the_script_and_of_an_evaluation(
    name, tmp_path, run_script
):
    from app.data.loaders import read_spec
    from app.training.control import Control
    from app.training.evaluation.evaluator import Evaluator
    from app.training.loop import train

    make, metrics, training = FILES[name]
    data = make(tmp_path)
    a_job = job(
        net_for(read_spec(data)),
        data=data,
        epochs=2,
        batch_size=16,
        metrics=metrics,
        **training,
    )
    ours = app_lines(
        a_job
    )  # first, so that torchmetrics finds a torchvision that can be imported here
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours
    assert all(f'"val_{metric}": ' in lines[-2] for metric in metrics)
    assert max(map(len, (tmp_path / "train.py").read_text().splitlines())) <= 120
    control = Control()
    (last,) = [
        event
        for event in train(a_job, control)
        if isinstance(event, EpochDone) and event.epoch == 2
    ]
    found = Evaluator(a_job, control.weights()).evaluate()
    assert (found.loss, found.accuracy) == (last.val_loss, last.val_accuracy)
    assert {name: dict(found.metrics)[name] for name in metrics} == pytest.approx(
        dict(last.metrics), nan_ok=True
    )
    assert len(found.to_csv().splitlines()) == found.count + 1


def test_a_metric_of_another_task_is_refused_once_a_file_was_read(tmp_path):
    from app.data.loaders import read_spec

    data = csv(tmp_path)
    a_job = job(net_for(read_spec(data)), data=data, metrics=("mae",))
    assert "does not apply" in app_lines(a_job)[-1]
