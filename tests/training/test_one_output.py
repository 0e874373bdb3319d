"""One output for labels of two classes: trained as a plain loop would, and measured as two classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import nn

from app.data.config import DataConfig
from app.data.loaders import load
from app.source.compiled import make_module
from app.training.config import Choice, OutputLoss
from app.training.control import Control
from app.training.evaluation.evaluator import Evaluator
from app.training.evaluation.shown_samples import shown
from app.training.events import EpochDone, Failed
from app.training.job import Job
from app.training.loop import train
from app.training.registry import make_loss
from app.util.frozen import FrozenMap
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import job, losses, net

CODE = {"column": "return self.line(x)", "flat": "return self.line(x).squeeze(1)"}
PROBABILITIES = "return self.line(x).sigmoid()"
LOGITS = Choice("BCEWithLogitsLoss")


@pytest.fixture
def signs(tmp_path: Path) -> DataConfig:
    """Rows of four numbers, and whether the first is large."""
    x = torch.randn(120, 4, generator=torch.Generator().manual_seed(0)).numpy()
    np.savez(
        tmp_path / "signs.npz",
        x=x,
        y=(x[:, 0] > 0.2).astype(np.int64),
        three=np.arange(120) % 3,
    )
    return DataConfig(
        "file.tensors",
        path=str(tmp_path / "signs.npz"),
        options=FrozenMap(inputs="x", labels="y"),
    )


def binary_job(
    data: DataConfig, code: str = CODE["column"], loss: Choice = LOGITS, **training: Any
) -> Job:
    source = net(["self.line = nn.Linear(4, 1)"], [code], (4,))
    adam = Choice("Adam", FrozenMap(lr=0.05))
    return job(
        source,
        data=data,
        **{"epochs": 2, "batch_size": 32, "loss": loss, "optimizer": adam, **training},
    )


def plain_losses(a_job: Job) -> list[float]:
    """Train as a person would write it."""
    torch.manual_seed(a_job.training.seed)
    model, loss_function = make_module(a_job.source), make_loss(a_job.training.loss)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    samples, values = load(a_job.data).train, []
    for _ in range(a_job.training.epochs):
        for inputs, labels in samples.batches(
            torch.arange(len(samples)).split(a_job.training.batch_size)
        ):
            optimizer.zero_grad()
            output = model(inputs)
            loss = loss_function(output, labels.float().reshape(output.shape))
            loss.backward()
            optimizer.step()
            values.append(loss.item())
    return values


@pytest.mark.parametrize("shape", CODE)
@pytest.mark.parametrize(
    "loss",
    [LOGITS, Choice("MSELoss"), Choice(LOGITS.name, FrozenMap(pos_weight=(3.0,)))],
)
def test_losses_are_those_of_a_plain_loop(
    signs: DataConfig, shape: str, loss: Choice
) -> None:
    a_job = binary_job(replace(signs, shuffle=False), CODE[shape], loss)
    found = losses(list(train(a_job)))
    assert found and found == plain_losses(a_job)


@pytest.mark.parametrize("loss", [LOGITS, Choice("BCELoss")])
@pytest.mark.parametrize("settings", [{}, {"amp": "bfloat16", "mixup": 0.4}])
def test_the_script_has_the_losses_accuracy_and_metrics_of_the_run(
    signs: DataConfig,
    loss: Choice,
    settings: dict[str, Any],
    run_script: Any,
) -> None:
    code = CODE["column"] if loss == LOGITS else PROBABILITIES
    settings = {} if loss != LOGITS else settings  # torch refuses BCELoss in autocast
    a_job = binary_job(signs, code, loss, metrics=("f1", "auroc"), **settings)
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours and '"val_auroc"' in lines[-2]


@pytest.mark.parametrize("shape", CODE)
def test_evaluation_has_two_classes_and_the_second_where_the_logit_is_above_0(
    signs: DataConfig, shape: str
) -> None:
    a_job, control = binary_job(signs, CODE[shape], epochs=4), Control()
    last = [event for event in train(a_job, control) if isinstance(event, EpochDone)][
        -1
    ]
    assert control.result is not None and control.result.state_dict is not None
    evaluator = Evaluator(a_job, control.result.state_dict)
    found, samples = evaluator.evaluate(), evaluator.samples("validation")
    inputs, labels = next(iter(samples.batches([torch.arange(len(samples))])))
    with torch.no_grad():
        logits = evaluator.stepper.model(inputs).flatten()
    called = (logits > 0).long()
    assert (found.loss, found.accuracy) == (last.val_loss, last.val_accuracy)
    assert found.accuracy == pytest.approx(float((called == labels).float().mean()))
    assert found.columns["called"][:, 0].tolist() == called.tolist()
    assert found.confusion is not None and found.confusion.tolist() == [
        [int(((labels == true) & (called == other)).sum()) for other in (0, 1)]
        for true in (0, 1)
    ]
    each = nn.BCEWithLogitsLoss(reduction="none")(logits, labels.float())
    assert found.columns["loss"] == pytest.approx(each.numpy(), abs=1e-6)
    worst = found.worst()[0]
    assert (
        worst == int(each.argmax())
        and "%" in shown(evaluator, found, [worst])[0].detail
    )


def test_one_of_several_outputs_may_be_for_two_classes(
    signs: DataConfig, run_script: Any
) -> None:
    source = replace(
        net(
            ["self.line = nn.Linear(4, 1)", "self.three = nn.Linear(4, 3)"],
            ["return self.line(x), self.three(x)"],
            (4,),
        ),
        outputs=("line", "three"),
    )
    rows = (
        OutputLoss("line", LOGITS, 1.0, "y"),
        OutputLoss("three", Choice("CrossEntropyLoss"), 0.5, "three"),
    )
    data = replace(signs, options=FrozenMap(inputs="x", labels="y, three"))
    a_job = replace(binary_job(data, losses=rows, metrics=("f1",)), source=source)
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours and '"val_f1"' in lines[-2]


@pytest.mark.parametrize(
    ("labels", "loss", "words"),
    [
        ("three", LOGITS, "one value for each of the 3 classes"),
        ("y", Choice("CrossEntropyLoss"), "choose BCEWithLogitsLoss"),
        (
            "y",
            Choice(LOGITS.name, FrozenMap(pos_weight=(1.0, 2.0))),
            "Give pos_weight one number",
        ),
    ],
)
def test_what_one_output_cannot_be_compared_with_is_refused(
    signs: DataConfig, labels: str, loss: Choice, words: str
) -> None:
    data = replace(signs, options=FrozenMap(inputs="x", labels=labels))
    events = list(train(binary_job(data, loss=loss)))
    assert isinstance(events[-1], Failed) and words in events[-1].message
