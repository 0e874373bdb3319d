"""Lists, dictionaries and tuples of tensors as arguments: pictures with boxes, a batch as a dictionary, states."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from app.cli import run
from app.engine.requests.observe import Observe
from app.engine.tasks.observe import answer
from app.observe.observe import interface_of
from app.source.interface import Argument
from app.sources.spec import parse_source
from tests.support import own_code, script_here

pytestmark = pytest.mark.usefixtures("no_pictures")

NET = '''
import torch
from torch import nn


class Finder(nn.Module):
    """Finds things as torchvision's models do: losses in train mode, boxes in eval mode."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2))
        self.box, self.kind = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, images, targets=None):
        assert isinstance(images, list) and images[0].ndim == 3
        seen = [self.body(one[None]).mean((2, 3))[0] for one in images]
        if not self.training:
            return [{"boxes": self.box(one)[None], "labels": self.kind(one).argmax()[None]} for one in seen]
        box = torch.stack([(self.box(one) - to["boxes"]).abs().mean() for one, to in zip(seen, targets)])
        kind = [nn.functional.cross_entropy(self.kind(one).expand(len(to["labels"]), -1), to["labels"])
                for one, to in zip(seen, targets)]
        return {"loss_box": box.mean(), "loss_kind": torch.stack(kind).mean()}


def make():
    target = {"boxes": torch.rand(2, 4), "labels": torch.tensor([0, 2])}
    return Finder(), ([torch.rand(1, 8, 8)], [target]), {}
'''
DATA = """
import torch
from torch.utils.data import Dataset


class Things(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, number):
        draw = torch.Generator().manual_seed(number)
        count = 1 + number % 3
        boxes, labels = torch.rand(count, 4, generator=draw), torch.randint(3, (count,), generator=draw)
        return torch.rand(1, 8, 8, generator=draw), {"boxes": boxes, "labels": labels}
"""
SHORT = ("--epochs", "2", "--set", "batch_size=8", "--set", "threads=1", "--trust")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "finder.py").write_text(NET)
    (tmp_path / "things.py").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("finder", None)


def test_a_model_that_detects_trains_on_its_own_losses_as_its_script_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples have one to three boxes; validation is on the same losses."""
    from app.data.own_files import dataset_class
    from app.source import layer_files

    layer_files.allow(dataset_class.file_of(folder / "things.py").sha256, tried=True)
    assert (
        run(
            [
                "train",
                "finder.py:make()",
                "--on",
                "things.py",
                *SHORT,
                "--out",
                "run",
                "--json",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-2])["val_loss"] > 0
    with pytest.MonkeyPatch.context() as here:
        here.delitem(sys.modules, "finder", raising=False)
        here.syspath_prepend(str(folder / "run"))
        assert script_here.run_script(folder / "run", "--json") is None
    told = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("{")
    ]
    assert [line for line in told if '"saved"' not in line] == [
        line for line in lines if '"saved"' not in line
    ]


def test_an_opened_model_that_detects_is_described_by_its_losses(folder: Path) -> None:
    own_code.trust("finder.py:make()", folder)
    found = answer(
        Observe(parse_source("finder.py:make()"), folder=str(folder))
    ).interface
    assert found is not None and found.losses_in_training
    assert [one.name for one in found.own_losses] == ["loss_box", "loss_kind"]
    assert [(one.name, one.of, one.way, one.shape) for one in found.takes] == [
        ("images", "images", "[*]", (1, 1, 8, 8)),
        ("boxes", "targets", '[*]["boxes"]', (1, 2, 4)),
        ("labels", "targets", '[*]["labels"]', (1, 2)),
    ]


BATCHES = """
import torch
from torch import nn
from torch.utils.data import Dataset


class Fusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.numbers, self.head = nn.EmbeddingBag(20, 4), nn.Linear(2, 2), nn.Linear(6, 3)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, batch):
        logits = self.head(torch.cat((self.words(batch["tokens"]), self.numbers(batch["numbers"])), 1))
        result = {"logits": logits}
        if "label" in batch:
            result["loss"] = self.loss(logits, batch["label"]) / 2
        return result


class Batches(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, number):
        draw = torch.Generator().manual_seed(number)
        tokens, numbers = torch.randint(20, (5,), generator=draw), torch.randn(2, generator=draw)
        return {"tokens": tokens, "numbers": numbers, "label": torch.tensor(number % 3)}
"""


def test_a_loss_that_a_model_computes_from_the_label_of_its_batch_is_trained_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inputs are proposed without the label: the loss appears in a call that has one."""
    (folder / "fusion.py").write_text(BATCHES)
    command = ["train", "fusion.py:Fusion", "--on", "fusion.py:Batches", *SHORT]
    assert run([*command, "--out", "run", "--json"]) == 0
    output = capsys.readouterr()
    assert "OwnLoss of output loss, chosen by the model" in output.out + output.err
    with pytest.MonkeyPatch.context() as here:
        here.delitem(sys.modules, "fusion", raising=False)
        here.syspath_prepend(str(folder / "run"))
        assert script_here.run_script(folder / "run", "--json") is None
    of_script = capsys.readouterr().out.splitlines()
    losses = [line for line in output.out.splitlines() if '"val_loss"' in line]
    assert losses and [line for line in of_script if '"val_loss"' in line] == losses


class Nested(nn.Module):
    def forward(self, batch: Any, state: Any = None, scale: Any = None) -> Any:
        return batch["x"] + state[0] * (1 if scale is None else scale["x"][0])


def test_each_tensor_within_an_argument_is_an_argument_of_its_own() -> None:
    x = torch.ones(2, 3)
    given = {"batch": {"x": x, "mask": x > 0}, "state": (x, x), "scale": {"x": [x]}}
    takes = interface_of(Nested(), (), given, x, {}).takes
    assert [(one.name, one.of, one.way) for one in takes] == [
        ("x", "batch", '["x"]'),
        ("mask", "batch", '["mask"]'),
        ("state0", "state", "(0)"),
        ("state1", "state", "(1)"),
        ("scalex0", "scale", '["x"][0]'),
    ]
    odd = interface_of(Nested(), (), {**given, "scale": {"x": "wide"}}, x, {}).takes
    assert odd[-1] == Argument("scale", other="dict")
