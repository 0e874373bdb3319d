"""Random inputs and targets of a net's own shapes and dtypes, whatever the project's data are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from app.autograd.capture_options import CaptureOptions
from app.autograd.diagnostics.findings import find_all
from app.data.config import DataConfig
from app.engine.requests.capture import CaptureRequest
from app.engine.tasks.capture import batch_of
from app.main import main
from app.preflight import random_batch
from app.project import file
from app.source.generated import InputSpec, Source
from app.training.choices import LOSSES
from app.training.config import Choice, OutputLoss, TrainingConfig
from app.training.job import Job
from app.util import resources
from app.util.frozen import FrozenMap

TOKENS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.kinds = nn.Embedding(50, 8), nn.Embedding(3, 8)
        self.places = nn.Embedding(6, 8)
        self.head = nn.Linear(8, 50)

    def forward(self, ids, kinds, keep, scale):
        x = self.words(ids.long().view(-1, 6)) + self.kinds(kinds.clone()) + self.places(torch.arange(ids.shape[1]))
        x = torch.where(keep.unsqueeze(-1), x, 0 * x) * scale.unsqueeze(-1)
        return self.head(x)
"""
INPUTS = (
    InputSpec("ids", (6,), "int32"),
    InputSpec("kinds", (6,), "int64"),
    InputSpec("keep", (6,), "bool"),
    InputSpec("scale", (6,), "float64"),
)
RANDOM = CaptureOptions(data="random")


def asked(job: Job, batch: int = 0) -> CaptureRequest:
    return CaptureRequest(job, options=RANDOM).of_samples(batch)


def source(text: str = TOKENS, inputs: tuple[InputSpec, ...] = INPUTS) -> Source:
    return Source(text, inputs, ("out",))


def token_job(**training: Any) -> Job:
    text = TOKENS.replace("nn.Linear(8, 50)", "nn.Linear(8, 50).double()")
    return Job(source(text), training=TrainingConfig(**training))


def linear(features: int, loss: str, then: str = "x") -> Job:
    text = (
        f"import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        self.fc = nn.Linear(5, {features})\n\n    def forward(self, x):\n"
        f"        x = self.fc(x)\n        return {then}\n"
    )
    return Job(
        Source(text, (InputSpec("x", (5,)),), ("out",)),
        training=TrainingConfig(loss=Choice(loss)),
    )


def test_each_input_is_of_its_own_shape_dtype_and_range() -> None:
    given = random_batch.inputs(source(), 400, 0)
    assert [(tuple(one.shape), one.dtype) for one in given] == [
        ((400, 6), torch.int32),
        ((400, 6), torch.int64),
        ((400, 6), torch.bool),
        ((400, 6), torch.float64),
    ]
    ids, kinds, keep, _ = given
    assert (int(ids.min()), int(ids.max())) == (0, 49) and set(
        kinds.unique().tolist()
    ) == {0, 1, 2}
    assert set(keep.unique().tolist()) == {False, True}
    again = random_batch.inputs(source(), 400, 0)
    assert all(torch.equal(one, other) for one, other in zip(given, again, strict=True))
    stated = source(inputs=(replace(INPUTS[0], low=3, high=500), *INPUTS[1:]))
    ids = random_batch.inputs(stated, 400, 0)[0]
    assert (int(ids.min()), int(ids.max())) == (3, 49), (
        "the narrower of what is stated and what the table has"
    )


@pytest.mark.parametrize(
    "name",
    [
        "ids[torch.arange(6)].view(-1)",
        "torch.nn.functional.one_hot(ids.long(), 7)",
        "self.table[ids]",
        "self.table.index_select(0, ids.flatten())",
    ],
)
def test_other_look_ups_state_a_range_too(name: str) -> None:
    text = (
        f"import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        self.table = nn.Parameter(torch.ones(7, 2))\n\n"
        f"    def forward(self, ids):\n        return ({name}).float().sum() * self.table.sum()\n"
    )
    ids = random_batch.inputs(source(text, (InputSpec("ids", (9,), "int64"),)), 64, 0)[
        0
    ]
    assert int(ids.max()) == (6 if "7" in name or "table" in name else 1)


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_gets_targets_of_what_the_net_gives(loss: str) -> None:
    job = linear(
        13,
        loss,
        {"BCELoss": "x.sigmoid()", "KLDivLoss": "x.log_softmax(-1)"}.get(loss, "x"),
    )
    subject = batch_of(asked(job, 4))
    assert not [one for one in find_all(subject).found if one.severity == "error"]
    with batch_of(asked(job, 4)).hold() as graph:
        first = graph.tape.loss
    assert first is not None and first == subject.forward()[0].item(), (
        "the same targets each time"
    )


def test_classes_of_tokens_come_last_and_of_pixels_second() -> None:
    target = random_batch.OwnTarget(
        Choice("CrossEntropyLoss", FrozenMap(weight=(1.0, 2.0))), 0
    )
    for shape, wanted, classes in (
        ((4, 6, 50), (4, 6), 50),
        ((2, 3, 8, 8), (2, 8, 8), 3),
        ((4, 7), (4,), 7),
    ):
        target(torch.randn(shape))
        assert target.target is not None and tuple(target.target.shape) == wanted
        assert int(target.target.max()) < classes


def test_several_losses_take_the_outputs_that_there_are() -> None:
    losses = (
        OutputLoss("out", Choice("MSELoss"), 0.5, "gone"),
        OutputLoss("lost", Choice("MSELoss"), 1.0, ""),
    )
    job = linear(3, "MSELoss")
    job = replace(job, training=replace(job.training, losses=losses))
    with batch_of(asked(job, 2)).hold() as graph:
        assert graph.tape.loss is not None and graph.tape.loss > 0


def test_a_batch_that_nobody_chose_is_that_of_the_training_or_what_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = token_job(batch_size=12)
    with batch_of(asked(job)).hold() as graph:
        assert graph.tape.input_shapes[0] == (12, 6)
        held = graph.tape.held_bytes
    each = random_batch.probe(job.source).bytes_per_sample
    assert each is not None and abs(each * 12 - held) < 0.1 * held, (
        "the estimate is what is held"
    )
    monkeypatch.setattr(random_batch, "HELD", 5 * each)
    with batch_of(asked(job)).hold() as graph:
        assert graph.tape.input_shapes[0] == (5, 6)
    with batch_of(asked(job, 9)).hold() as graph:
        assert graph.tape.input_shapes[0] == (9, 6)


def test_the_command_captures_a_net_that_its_data_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    project, out = (
        file.read(resources.path("examples", "U-Net.tape")),
        tmp_path / "p.json",
    )
    example = str(tmp_path / "on digits.tape")
    file.write(replace(project, data=DataConfig()), Path(example))
    assert main(["autograd", example, "--batch", "2", "--out", str(out)]) == 1, (
        "digits are no pictures of 64 x 64"
    )
    for more in ([], ["--outputs", "1"], ["--outputs", "all"], ["--findings"]):
        assert main(
            [
                "autograd",
                example,
                "--random",
                "--batch",
                "2",
                "--play",
                "--out",
                str(out),
                *more,
            ]
        ) in (0, 1)
        told = json.loads(out.read_text())
        assert (told["loss"] is None) == ("--outputs" in more) and told["played"][
            "failed"
        ] is None
    assert "Handwritten digits" not in capsys.readouterr().out
