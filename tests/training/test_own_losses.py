"""A model's own loss comes first, outputs are laid out for theirs: trained to the losses of a plain loop."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path

import pytest

from app.cli import run
from app.source.interface import Interface, Returned
from app.training.choices import ChoiceError, loss_named
from tests.slow import own_losses
from tests.support.script_here import run_script

pytestmark = pytest.mark.usefixtures("forked_trials", "no_pictures")

SHORT = (
    "Own2",
    "Own5",
    "Own26",
    "Words1",
    "Words14",
    "Words19",
    "Line1",
    "Line9",
    "Two2",
    "Two5",
    "Two8",
    "Two10",
    "Two11",
    "Fine0",
    "Fine2",
)


def test_models_train_to_the_losses_of_a_plain_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [*own_losses.cases()]
    own_losses.written(tmp_path, known)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("models")
    found = [
        own_losses.result_of(case, module, tmp_path)
        for case in known
        if case.name in SHORT
    ]
    sys.modules.pop("models")
    assert len(found) == len(SHORT) and all(right for right, _ in found), found


def test_a_loss_is_told_from_other_numbers() -> None:
    tensor, number = Returned("[0]", (2, 4), "float32"), Returned("[1]", (), "float32")
    assert Interface("", (), (tensor, number)).own_losses == (number,)
    detached = Returned("[1]", (), "float32", detached=True)
    assert Interface("", (), (tensor, detached)).own_losses == ()
    parts = tuple(
        Returned(f'["{name}"]', (), "float32") for name in ("loss_a", "loss_b", "kl")
    )
    assert Interface("", (), parts).own_losses == parts[:2]
    assert (
        Interface("", (), (*parts, Returned('["loss"]', (), "float32")))
        .own_losses[0]
        .name
        == "loss"
    )


def test_a_loss_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ChoiceError, match="Choose own, or one of: CrossEntropyLoss"):
        loss_named("hinge")


DATASET = """
import torch
from torch.utils.data import Dataset

class Own(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        x = torch.full((6,), i / 40)
        return %s
"""
NET = "from torch import nn\n\nclass Net(nn.Sequential):\n    def __init__(self):\n        super().__init__(%s)\n"


@pytest.mark.parametrize(
    ("sample", "layers", "words"),
    [
        (
            "x, torch.eye(3)[i % 3]",
            "nn.Linear(6, 3)",
            "CrossEntropyLoss of its output, chosen by default for",
        ),
        (
            "x, torch.tensor([0.2, 0.8])",
            "nn.Linear(6, 2)",
            "CrossEntropyLoss of its output, chosen by default for prob",
        ),
        (
            "x, torch.tensor([i % 2, 1, 0])",
            "nn.Linear(6, 3)",
            "BCEWithLogitsLoss of its output, chosen by default for",
        ),
        (
            "x, i % 2 == 0",
            "nn.Linear(6, 1)",
            "BCEWithLogitsLoss of its output, chosen by default for labels of two",
        ),
        (
            "x, i % 3 if i > 5 else -100",
            "nn.Linear(6, 3)",
            "CrossEntropyLoss of its output, chosen by default for",
        ),
        ("x", "nn.Linear(6, 6)", "MSELoss of its output, chosen by default for values"),
        (
            "(x,)",
            "nn.Linear(6, 6)",
            "MSELoss of its output, chosen by default for values",
        ),
    ],
)
def test_labels_of_a_dataset_have_the_loss_that_torch_has_for_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sample: str,
    layers: str,
    words: str,
) -> None:
    losses, said = trained(
        tmp_path, monkeypatch, NET % layers, DATASET % sample, "--input", "2x6"
    )
    assert said.startswith(f"loss: {words}") and losses == own_losses.script_losses(
        tmp_path / "out"
    )


def test_whole_numbers_without_a_target_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = NET % "nn.Linear(6, 6)"
    losses, said = trained(
        tmp_path, monkeypatch, net, DATASET % "x.long()", "--input", "2x6"
    )
    assert (
        not losses
        and "it is torch.int64 alone: return a pair of input and target" in said
    )


def test_settings_that_no_loss_takes_fail_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ("--loss", "cross_entropy", "--set", "loss.params.label_smoothing=7")
    net = NET % "nn.Linear(6, 3)"
    losses, said = trained(
        tmp_path, monkeypatch, net, DATASET % "x, i % 3", "--input", "2x6", *wrong
    )
    assert not losses and "label_smoothing" in said and "Traceback" not in said


def test_accuracy_leaves_out_what_the_loss_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in own_losses.cases() if case.name == "Words7")
    trained(
        tmp_path,
        monkeypatch,
        own_losses.HEAD + case.code,
        own_losses.HEAD,
        "--set",
        "data.options.dataset=Ignoring",
        "--set",
        'metrics=["f1", "perplexity"]',
    )
    epochs = [
        line
        for line in (tmp_path / "events").read_text().splitlines()
        if '"epoch", ' in line
    ]
    again = io.StringIO()
    with contextlib.redirect_stdout(again):
        run_script(tmp_path / "out", "--json")
    assert epochs and set(epochs) <= {*again.getvalue().splitlines()}
    right = (
        json.loads(epochs[0])["train_accuracy"] * 38 * 6
    )  # of the 9 places of a sample the loss ignores 3
    assert right == pytest.approx(round(right), abs=1e-6) and right > 0


def trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, net: str, data: str, *options: str
) -> tuple[list[float], str]:
    """Train by the command; return the losses of its steps, and the sentence of its loss or what it said."""
    monkeypatch.chdir(folder)
    (folder / f"{folder.name}_net.py").write_text(net)
    (folder / f"{folder.name}_data.py").write_text(data)
    name = net.rpartition("class ")[2].partition("(")[0]
    out, said = io.StringIO(), io.StringIO()
    more = (
        "--epochs",
        "1",
        "--seed",
        "0",
        "--trust",
        "--json",
        "--set",
        "threads=1",
        "--out",
        "out",
    )
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(said),
        own_losses.in_one_process(str(folder)),
    ):
        code = run(
            [
                "train",
                f"{folder.name}_net.py:{name}",
                "--on",
                f"{folder.name}_data.py",
                *options,
                *more,
            ]
        )
    (folder / "events").write_text(out.getvalue())
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    losses = [line["loss"] for line in events if line["event"] == "step"]
    words = [line["loss"] for line in events if line["event"] == "started"]
    return (losses, words[0]) if not code else ([], said.getvalue())
