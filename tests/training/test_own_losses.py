"""A model's own loss comes first, outputs are laid out for theirs: trained to the losses of a plain loop."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from app.source.interface import Interface, Returned
from app.training.choices import ChoiceError, loss_named
from tests.slow import own_losses

pytestmark = pytest.mark.usefixtures("no_pictures")

SHORT = ("Own2", "Own5", "Own26", "Words1", "Words14", "Words19", "Line1", "Line9")


def test_models_train_to_the_losses_of_a_plain_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [*own_losses.cases()]
    own_losses.written(tmp_path, known)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("models")
    found = [own_losses.result_of(case, module, tmp_path) for case in known if case.name in SHORT]
    sys.modules.pop("models")
    assert len(found) == len(SHORT) and all(right for right, _ in found), found


def test_a_loss_is_told_from_other_numbers() -> None:
    tensor, number = Returned("[0]", (2, 4), "float32"), Returned("[1]", (), "float32")
    assert Interface("", (), (tensor, number)).own_losses == (number,)
    detached = Returned("[1]", (), "float32", detached=True)
    assert Interface("", (), (tensor, detached)).own_losses == ()
    parts = tuple(Returned(f'["{name}"]', (), "float32") for name in ("loss_a", "loss_b", "kl"))
    assert Interface("", (), parts).own_losses == parts[:2]
    assert Interface("", (), (*parts, Returned('["loss"]', (), "float32"))).own_losses[0].name == "loss"


def test_a_loss_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ChoiceError, match="Choose own, or one of: CrossEntropyLoss"):
        loss_named("hinge")
