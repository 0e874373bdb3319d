"""Several losses on several outputs: their sum is learnt from, and each is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch.nn import functional as F

from app.data.config import DataConfig, Transform
from app.data.loaders import load
from app.source.compiled import make_module
from app.source.generated import OutputSpec
from app.training.checkpoints import checkpoint
from app.training.config import INPUT, Choice, OutputLoss
from app.training.control import Control
from app.training.evaluation.evaluator import Evaluator
from app.training.events import EpochDone, Event, Failed, Finished, LossParts
from app.training.history import History
from app.training.job import Job, JobError, check_numbers
from app.training.loop import train
from app.training.monitoring.memory_by_layer import estimate
from app.training.multi_output import SeveralLosses
from app.training.script_recipes import mixed
from app.training.setup import weighted_losses
from app.training.setup.prepare import set_up
from app.util.frozen import FrozenMap
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import TWO_LOSSES, TWO_OUTPUTS, job, losses, net, run

ROWS = "\n".join(
    f"{i % 7},{i % 3},{'ab'[i % 2]},{i % 5 / 4},{'red green blue'.split()[i % 3]}"
    for i in range(60)
)
TABLE = "x,y,kind,size,colour\n" + ROWS + "\n"
HEADS = replace(
    net(
        [
            "self.body = nn.Linear(2, 8)",
            "self.kind = nn.Linear(8, 2)",
            "self.size = nn.Linear(8, 1)",
            "self.colour = nn.Linear(8, 3)",
        ],
        [
            "x = torch.tanh(self.body(x))",
            'return {"k": self.kind(x), "s": self.size(x), "c": self.colour(x)}',
        ],
        (2,),
    ),
    outputs=("kind", "size", "colour"),
    ends=(OutputSpec("kind", "k"), OutputSpec("size", "s"), OutputSpec("colour", "c")),
)
FOUR_HEADS = replace(
    net(
        [
            "self.body = nn.Linear(2, 8)",
            "self.kind = nn.Linear(8, 2)",
            "self.size = nn.Linear(8, 1)",
            "self.colour = nn.Linear(8, 3)",
            "self.again = nn.Linear(8, 2)",
        ],
        [
            "x = torch.tanh(self.body(x))",
            "return self.kind(x), self.size(x), self.colour(x), self.again(x)",
        ],
        (2,),
    ),
    outputs=("kind", "size", "colour", "again"),
)
OF_HEADS = (
    OutputLoss("colour", Choice("CrossEntropyLoss"), 1.0, "colour"),
    OutputLoss("size", Choice("SmoothL1Loss"), 2.0, "size"),
    OutputLoss("kind", Choice("BCEWithLogitsLoss"), 0.25, "kind"),
)


def table(folder: Path) -> DataConfig:
    (folder / "table.csv").write_text(TABLE)
    options: Any = FrozenMap(
        target="kind", more_targets=("size", "colour"), numbers=("size",)
    )
    return DataConfig("file.csv", path=str(folder / "table.csv"), options=options)


def parts(events: list[Event]) -> list[tuple[float, ...]]:
    return [event.losses for event in events if isinstance(event, LossParts)]


def test_the_loss_is_the_weighted_sum_and_its_parts_are_told() -> None:
    a_job = job(TWO_OUTPUTS, epochs=1, batch_size=300, losses=TWO_LOSSES)
    control = Control()
    events = list(train(a_job, control))
    assert isinstance(events[-1], Finished)
    assert [d + 0.5 * a for d, a in parts(events)] == pytest.approx(
        losses(events), rel=1e-6
    )
    told = dict(next(event for event in events if isinstance(event, EpochDone)).metrics)
    model, data = make_module(a_job.source), load(a_job.data)
    assert control.result is not None and control.result.state_dict is not None
    model.load_state_dict(control.result.state_dict)
    with torch.no_grad():
        digit, again = model.eval()(data.val.inputs)
        assert told["loss_again"] == pytest.approx(
            float(F.mse_loss(again, data.val.inputs)), rel=1e-5
        )
        wanted = float(F.cross_entropy(digit, data.val.labels, label_smoothing=0.1))
        assert told["loss_digit"] == pytest.approx(wanted, rel=1e-5)


SEVERAL: dict[str, dict[str, Any]] = {
    "plain": {},
    "closure": {
        "optimizer": Choice("LBFGS", FrozenMap(lr=0.1, max_iter=3)),
        "batch_size": 512,
    },
    "accumulated, bfloat16, ema": {
        "accumulate": 3,
        "amp": "bfloat16",
        "ema": 0.9,
        "clip_norm": 1.0,
    },
}


MIXED: dict[str, dict[str, Any]] = {
    "mixed, weighed": {},
    "closure": {
        "optimizer": Choice("LBFGS", FrozenMap(lr=0.1, max_iter=2)),
        "epochs": 1,
    },
    "accumulated, bfloat16": {"accumulate": 2, "amp": "bfloat16", "epochs": 1},
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_samples_and_weighed_classes_are_the_same_in_the_script(
    name: str,
    tmp_path: Path,
    run_script: Any,
) -> None:
    """Classes by one-hot rows and by ids, values, and the input again, all in one run."""
    rows = (*OF_HEADS, OutputLoss("again", Choice("L1Loss"), 0.5, INPUT))
    data = replace(table(tmp_path), class_weights=True)
    given = {"epochs": 2, "batch_size": 16, "mixup": 0.4, "losses": rows, **MIXED[name]}
    a_job = job(FOUR_HEADS, data=data, **given)
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours and any('"losses"' in line for line in lines)


def test_each_output_is_mixed_with_the_same_others_and_share() -> None:
    """Held against the formulas: numbers are mixed as the samples are, the losses of class ids by the same share."""
    torch.manual_seed(3)
    inputs, ids, values = torch.rand(6, 2), torch.randint(0, 3, (6,)), torch.rand(6, 1)
    outputs = {"c": torch.rand(6, 3), "s": torch.rand(6, 1), "again": torch.rand(6, 2)}
    both = SeveralLosses(
        [{name: name for name in outputs}],
        [
            ("c", "colour", torch.nn.CrossEntropyLoss(), 1.0, 0, False),
            ("s", "size", torch.nn.L1Loss(), 2.0, 0, False),
            ("again", INPUT, torch.nn.L1Loss(), 1.0, 0, False),
        ],
    )
    mixture, others, share = mixed(inputs, 0.4)
    total = both(outputs, {"colour": ids, "size": values, INPUT: inputs}, others, share)
    colour = F.cross_entropy(
        outputs["c"],
        share * F.one_hot(ids, 3) + (1 - share) * F.one_hot(ids[others], 3),
    )
    size = F.l1_loss(outputs["s"], share * values + (1 - share) * values[others])
    again = F.l1_loss(outputs["again"], mixture)
    assert [float(part) for part in both.parts.values()] == pytest.approx(
        [float(colour), float(size), float(again)]
    )
    assert float(total) == pytest.approx(float(colour + 2 * size + again))


def test_each_class_target_is_weighed_by_its_own_counts(tmp_path: Path) -> None:
    data = replace(
        table(tmp_path), class_weights=True, validation_fraction=0.25, split_seed=4
    )
    a_job = job(HEADS, data=data, losses=OF_HEADS)
    stepper, read = set_up(a_job, "cpu")
    weights: list[Any] = [getattr(loss, "weight", None) for loss in stepper.loss.losses]  # type: ignore[union-attr]
    counts = (
        read.train.samples.labels["colour"].bincount()
        if hasattr(read.train, "samples")
        else (
            read.train.labels["colour"].bincount()  # type: ignore[attr-defined]
        )
    )
    assert (weights[0] * counts).tolist() == pytest.approx([len(read.train) / 3] * 3)
    assert (
        weights[1] is None and weights[2] is None
    )  # values, and a loss that takes no weights of classes
    assert weighted_losses.summary_text(OF_HEADS) == (
        "Class weights apply to the loss of colour; not in that of size (SmoothL1Loss), kind (BCEWithLogitsLoss)."
    )


def test_samples_that_are_ids_cannot_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one and two and three " * 20)
    data = DataConfig("file.text", path=str(tmp_path / "words.txt"), shuffle=False)
    failed = run(Job(HEADS, data, job(mixup=0.3, epochs=1).training))[-1]
    assert (
        isinstance(failed, Failed)
        and "mixup blends samples as numbers" in failed.message
    )


@pytest.mark.parametrize("name", SEVERAL)
def test_the_script_prints_the_same_lines(name: str, run_script: Any) -> None:
    a_job = job(
        TWO_OUTPUTS, epochs=2, losses=TWO_LOSSES, **{"batch_size": 200, **SEVERAL[name]}
    )
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours
    assert any('"losses"' in line and '"loss_again"' in line for line in lines)


def test_the_input_that_comes_out_again_is_the_one_that_went_in(
    run_script: Any,
) -> None:
    """A transform that draws: the target is what the net saw."""
    blur = Transform("RandomErasing", FrozenMap(p=1.0))
    a_job = job(
        TWO_OUTPUTS,
        epochs=1,
        batch_size=300,
        losses=TWO_LOSSES,
        data=DataConfig(train_transforms=(blur,)),
    )
    ours = app_lines(
        a_job
    )  # first, so that the script finds a torchvision that can be imported here
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours


def test_a_resumed_run_is_the_one_that_was_never_stopped(tmp_path: Path) -> None:
    a_job = job(TWO_OUTPUTS, epochs=2, batch_size=200, losses=TWO_LOSSES, save_every=5)
    whole = list(train(a_job, folder=tmp_path))
    rest = list(train(a_job, resume=tmp_path / checkpoint.step_file(10)))
    assert losses(rest) == losses(whole)[10:] and parts(rest) == parts(whole)[10:]


def test_a_table_with_targets_of_three_kinds(tmp_path: Path, run_script: Any) -> None:
    a_job = job(
        HEADS,
        data=table(tmp_path),
        epochs=2,
        batch_size=16,
        losses=OF_HEADS,
        metrics=("f1",),
    )
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours and '"val_loss_colour"' in lines[-2]
    data = load(a_job.data)
    assert [(one.name, one.task, len(one.classes)) for one in data.info.targets] == [
        ("kind", "classes", 2),
        ("size", "values", 0),
        ("colour", "classes", 3),
    ]


def test_arrays_of_several_targets(tmp_path: Path, run_script: Any) -> None:
    path = tmp_path / "arrays.npz"
    x = np.random.default_rng(0).normal(size=(40, 2)).astype("float32")
    np.savez(path, x=x, kind=np.arange(40) % 2, size=x[:, 0], colour=np.arange(40) % 3)
    config = DataConfig(
        "file.tensors",
        path=str(path),
        options=FrozenMap(inputs="x", labels="kind, size, colour"),
    )
    a_job = job(HEADS, data=config, epochs=1, batch_size=16, losses=OF_HEADS)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


def test_a_head_for_training_alone_is_left_out_in_evaluation(run_script: Any) -> None:
    """As GoogLeNet's: the same target, a smaller weight, and nothing of it is validated."""
    source = replace(
        net(
            [
                "self.body = nn.Linear(64, 16)",
                "self.out = nn.Linear(16, 10)",
                "self.aux = nn.Linear(16, 10)",
            ],
            [
                "x = F.relu(self.body(x.flatten(1)))",
                "if self.training:",
                "    return self.out(x), self.aux(x)",
                "return self.out(x)",
            ],
        ),
        outputs=("out", "aux"),
        ends=(OutputSpec("out"), OutputSpec("aux", when="training")),
    )
    loss = Choice("CrossEntropyLoss")
    a_job = job(
        source,
        epochs=1,
        batch_size=200,
        losses=(OutputLoss("out", loss), OutputLoss("aux", loss, 0.3)),
    )
    events = run(a_job)
    done = next(event for event in events if isinstance(event, EpochDone))
    assert [name for name, _ in done.metrics] == ["loss_out"] and done.val_loss == dict(
        done.metrics
    )["loss_out"]
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
    first_aux = (OutputLoss("aux", loss), OutputLoss("out", loss))
    failed = run(replace(a_job, training=replace(a_job.training, losses=first_aux)))[-1]
    assert isinstance(failed, Failed) and "always returned" in failed.message


def test_evaluation_is_of_the_first_output_and_the_loss_of_all(tmp_path: Path) -> None:
    a_job = job(HEADS, data=table(tmp_path), epochs=1, losses=OF_HEADS)
    control = Control()
    events = list(train(a_job, control))
    done = next(event for event in events if isinstance(event, EpochDone))
    assert control.result is not None
    found = Evaluator(a_job, control.result.state_dict).evaluate()
    assert (found.loss, found.accuracy) == (done.val_loss, done.val_accuracy)
    assert found.classes == ("blue", "green", "red")


def test_an_estimate_has_all_targets(tmp_path: Path) -> None:
    a_job = job(HEADS, data=table(tmp_path), epochs=1, losses=OF_HEADS)
    info = load(a_job.data).info
    assert estimate(a_job, info) is not None


def test_metrics_csv_has_every_loss_and_the_rate() -> None:
    history = History()
    history.extend(run(job(TWO_OUTPUTS, epochs=1, batch_size=500, losses=TWO_LOSSES)))
    head, first, *_, last = history.to_csv().splitlines()
    assert head == (
        "event,epoch,step,loss,loss_digit,loss_again,rate,train_loss,train_accuracy,val_loss,val_accuracy,"
        "val_loss_digit,val_loss_again,seconds"
    )
    row, end = (
        dict(zip(head.split(","), line.split(","), strict=True))
        for line in (first, last)
    )
    assert float(row["loss"]) == pytest.approx(
        float(row["loss_digit"]) + 0.5 * float(row["loss_again"])
    )
    assert (
        row["rate"] == "0.001"
        and float(end["val_loss_again"]) > 0
        and not end["loss_digit"]
    )


def test_what_cannot_be_compared_is_refused_by_its_name(tmp_path: Path) -> None:
    loss = Choice("CrossEntropyLoss")
    for rows, words in (
        ((OutputLoss("digit", loss), OutputLoss("digit", loss)), "twice"),
        ((OutputLoss("digit", loss, -1.0),), "from 0 to"),
        ((OutputLoss("digit", loss, 0.0),), "nothing is trained"),
        ((OutputLoss("digit", Choice("os.system")),), "There is no loss"),
    ):
        with pytest.raises(JobError, match=words):
            check_numbers(job(TWO_OUTPUTS, losses=rows))
    with pytest.raises(JobError, match="class_weights: .* none of the losses does"):
        check_numbers(
            job(
                TWO_OUTPUTS,
                data=DataConfig(class_weights=True),
                losses=(TWO_LOSSES[1],),
            )
        )
    for rows, words in (
        ((OutputLoss("other", loss),), "no output “other”"),
        ((OutputLoss("digit", loss, 1.0, "colour"),), "no target “colour”"),
        ((OutputLoss("again", loss, 1.0, "(input)"),), "values to predict"),
    ):
        failed = run(job(TWO_OUTPUTS, losses=rows))[-1]
        assert isinstance(failed, Failed) and words in failed.message, failed.message
    failed = run(Job(HEADS, table(tmp_path), job(epochs=1).training))[-1]
    assert (
        isinstance(failed, Failed)
        and "has 3 targets (kind, size, colour)" in failed.message
    )


def test_the_losses_of_a_device_are_read_when_the_steps_are_told(
    monkeypatch: Any,
) -> None:
    """Elsewhere than on the CPU nothing is read step by step; what is told is the same."""
    from app.training import loop

    a_job = job(TWO_OUTPUTS, epochs=1, batch_size=300, losses=TWO_LOSSES)
    plain = [event for event in run(a_job) if isinstance(event, LossParts)]

    class Late(loop._Run):
        @property
        def _at_once(self) -> bool:
            return False

        @_at_once.setter
        def _at_once(self, _value: bool) -> None:
            """It stays so."""

    monkeypatch.setattr(loop, "_Run", Late)
    assert [event for event in run(a_job) if isinstance(event, LossParts)] == plain


def test_the_tape_shows_the_graph_of_the_sum() -> None:
    from app.engine.requests.capture import CaptureRequest
    from app.engine.tasks.capture import batch_of

    a_job = job(TWO_OUTPUTS, losses=TWO_LOSSES)
    names = [
        node.name
        for node in batch_of(CaptureRequest(a_job).of_samples(4)).capture().nodes
    ]
    assert (
        "NllLossBackward0" in names
        and "MseLossBackward0" in names
        and "AddBackward0" in names
    )


def test_a_kept_run_has_every_loss(tmp_path: Path) -> None:
    from app.runs import compare, store
    from tests.runs.test_store import kept_run

    recorder, events = kept_run(
        tmp_path, job(TWO_OUTPUTS, epochs=1, batch_size=300, losses=TWO_LOSSES)
    )
    history = store.history_of(recorder.kept)
    assert history.parts.names == (
        "step",
        "loss_digit",
        "loss_again",
    ) and history.metrics[:1] == ("loss_digit",)
    assert history.parts.matrix()[1:].T.tolist() == [list(one) for one in parts(events)]
    assert recorder.kept.record.loss == "CrossEntropyLoss + MSELoss"
    told = {
        setting.name: setting.values for setting in compare.settings((recorder.kept,))
    }
    assert told["training.losses.again.weight"] == ("0.5",) and told[
        "training.losses.again.target"
    ] == ("(input)",)
