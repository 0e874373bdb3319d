"""A model of somebody's code in the window: it becomes the project, is trained, evaluated, saved and opened again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.builder.edits.edits import add
from app.features.opened.open_dialog import ObserveTrustDialog, OpenModelDialog
from app.project import file as project_file
from app.sources.spec import AskedModel
from app.training.config import TARGET, Choice, OutputLoss
from app.training.events import EpochDone
from app.training.loop import train
from app.util.frozen import FrozenMap
from app.views.inspector.inspector import OverviewPage
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready, wait_for

MINE = """
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Output:
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.head = nn.Linear(64, width), nn.Linear(width, 10)

    def forward(self, pixels, labels=None):
        logits = self.head(self.first(pixels.flatten(1)).relu())
        return Output(nn.functional.cross_entropy(logits, labels) if labels is not None else None, logits)
"""

pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "mine_opened.py"
    path.write_text(MINE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield path
    sys.path[:] = before
    sys.modules.pop("mine_opened", None)


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, mine: Path) -> WholeWindow:
    """The window on the model of the file, trained for two short epochs."""
    asked = AskedModel("mine_opened.py:Net", '{"width": 6}', ("2x1x8x8",), trust=True)
    window.actions_by_key.trigger("open-source", asked)
    qtbot.waitUntil(lambda: window.document.project.opened is not None)
    qtbot.waitUntil(lambda: not window.findChildren(OpenModelDialog))
    put(window, epochs=2, batch_size=256, device="cpu", threads=1, seed=4)
    ready(qtbot, window)
    return window


def put(window: WholeWindow, **training: object) -> None:
    project = window.document.project
    window.document.apply(
        "Set", replace(project, training=replace(project.training, **training))
    )


def by_itself(window: WholeWindow) -> list[float]:
    """The losses of the job of the window's run, trained in this process."""
    run = window.session.current
    assert run is not None
    return [
        event.train_loss for event in train(run.job) if isinstance(event, EpochDone)
    ]


def offered(window: WholeWindow, key: str) -> bool:
    tabs = (window.bottom.pane if key == "cost" else window.centre).tabs
    return tabs.isTabVisible(tabs.index(key))


def test_an_opened_model_is_trained_and_evaluated_in_place_of_a_drawing(
    qtbot: QtBot, window: WholeWindow
) -> None:
    assert (
        offered(window, "observed")
        and not offered(window, "network")
        and window.pages.is_front("observed")
    )
    assert window.run_control.blocked == "" and window.live.errors == ()
    window.run_control.run()
    wait_for(qtbot, window, "done")
    run = window.session.current
    assert run is not None and [*run.history.epochs["train_loss"]] == by_itself(window)
    assert {"first", "head"} == set(run.history.layers) and len(
        run.history.gradient_steps
    )
    if hasattr(window, "evaluation"):
        window.pages.show("evaluation")
        qtbot.mouseClick(window.evaluation.run, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: window.evaluation.found is not None)
        assert window.evaluation.found.count == 359


def test_the_loss_of_the_model_itself_is_chosen_in_the_form(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.pages.show("training")
    form = window.training_form
    qtbot.waitUntil(lambda: [*form.data.fields.choices] == ["pixels", "labels"])
    assert (
        form.loss.output.choices() == ("loss", "logits")
        and form.loss.output.value() == "loss"
    )
    form.loss.output.edited.emit("logits")
    assert window.document.project.training.losses == (
        OutputLoss("logits", Choice("CrossEntropyLoss")),
    )
    form.loss.output.edited.emit("loss")
    measured, row = (
        OutputLoss("logits", Choice("CrossEntropyLoss"), 0.0),
        OutputLoss("loss", Choice("OwnLoss")),
    )
    assert window.document.project.training.losses == (measured, row)
    assert (
        dict(window.document.project.training.inputs) == {"labels": TARGET}
        and not window.live.errors
    )
    qtbot.waitUntil(lambda: form.data.fields.choices["labels"].value() == TARGET)
    window.run_control.run()
    wait_for(qtbot, window, "done")
    assert [*window.session.current.history.epochs["train_loss"]] == by_itself(window)
    assert window.session.current.history.epochs["val_accuracy"][-1] > 0


def test_a_model_whose_loss_lost_its_target_gets_it_by_a_click(
    qtbot: QtBot, window: WholeWindow
) -> None:
    assert [row.loss.name for row in window.document.project.training.losses] == [
        "OwnLoss"
    ]
    put(window, inputs=FrozenMap())
    qtbot.waitUntil(lambda: bool(window.live.errors))
    (problem,) = window.live.errors
    assert (
        problem.message == "The model does not receive the target"
        and "loss" in problem.reason
    )
    assert window.run_control.blocked == "Fix 1 error to run"
    (cure,) = problem.cures
    assert cure.label == "Pass it as labels"
    window.cures.apply_to_network(cure)
    qtbot.waitUntil(lambda: not window.live.errors)
    assert (
        dict(window.document.project.training.inputs) == {"labels": TARGET}
        and window.run_control.blocked == ""
    )


@needs("cost")
def test_a_saved_model_is_opened_again_and_a_drawing_takes_its_place(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    path = tmp_path / "mine.tape"
    assert window.files.save_to(path)
    saved = window.document.project
    assert not offered(window, "cost")
    window.document.new()
    assert (
        offered(window, "network")
        and not offered(window, "observed")
        and window.pages.is_front("network")
    )
    assert offered(window, "cost")
    assert window.files.open(path)
    assert window.document.project == saved and not window.document.dirty
    qtbot.waitUntil(
        lambda: not window.findChildren(OpenModelDialog)
    )  # its code is trusted, so it is observed at once
    ready(qtbot, window)
    assert window.pages.is_front("observed") and not window.live.errors
    changed = "mine_opened.py:Net has changed since it was opened"
    for text in (
        MINE.replace("width=8", "width=4"),
        MINE,
        MINE.replace("width=8", "width=4"),
    ):  # and back in between
        (tmp_path / "mine_opened.py").write_text(text)
        wanted = "" if text == MINE else changed
        qtbot.waitUntil(lambda wanted=wanted: window.notifier.title == wanted)
        assert [one.message for one in window.live.errors] == [wanted] * bool(wanted)
    banner = window.findChildren(QPushButton)
    qtbot.mouseClick(
        next(one for one in banner if one.text() == "Open it again"),
        Qt.MouseButton.LeftButton,
    )
    (question,) = window.findChildren(ObserveTrustDialog)
    question.reject()
    next(iter(window.findChildren(OpenModelDialog))).reject()
    qtbot.waitUntil(lambda: not window.findChildren(OpenModelDialog))
    window.document.new()
    assert window.files.open(path)
    (question,) = window.findChildren(
        ObserveTrustDialog
    )  # it was edited: nothing of it runs before it is reviewed
    agree = next(
        button
        for button in question.findChildren(QPushButton)
        if button.text() == "Trust and open"
    )
    qtbot.mouseClick(agree, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.document.dirty and not window.live.errors)
    assert window.document.project.opened.sha256 != saved.opened.sha256
    window.document.undo_stack.setClean()


@needs("code")
def test_what_needs_a_drawing_says_so(qtbot: QtBot, window: WholeWindow) -> None:
    project = window.document.project
    window.pages.show("code")  # the inspector is that of the project
    overview = window.findChild(OverviewPage)
    qtbot.waitUntil(overview.isVisible)
    assert "Model page" in overview.hint.text() and not overview.ends.isVisible()
    window.sheet.apply(
        "Add a layer",
        add(window.sheet.project, window.catalog.now, "nn.Linear", (0.0, 0.0))[0],
    )
    assert (
        window.document.project is project
        and window.notifier.title == "There is no drawing"
    )


def test_a_project_with_a_file_stays_until_the_model_is_to_be_trained(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    window.document.new()
    window.document.save(tmp_path / "drawn.tape")
    drawn = window.document.project
    window.actions_by_key.trigger(
        "open-source", AskedModel("mine_opened.py:Net", "", ("2x1x8x8",), trust=True)
    )
    qtbot.waitUntil(
        lambda: (
            not window.findChildren(OpenModelDialog)
            and window.observed.train.isVisible()
        )
    )
    assert window.document.project is drawn and offered(window, "network")
    qtbot.mouseClick(window.observed.train, Qt.MouseButton.LeftButton)
    assert window.document.project.opened is not None and window.document.path is None
    assert window.pages.is_front("training") and not offered(window, "network")
    assert project_file.read(tmp_path / "drawn.tape") == drawn


def test_a_new_project_after_a_model_has_nothing_of_its_analysis(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key.trigger(
        "open-source", AskedModel("mine_opened.py:Net", "", ("2x1x8x8",), trust=True)
    )
    qtbot.waitUntil(window.observed.train.isVisible)
    qtbot.mouseClick(window.observed.train, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(window.live.analysis.parameters))
    window.document.undo_stack.setClean()
    window.document.new()
    qtbot.waitUntil(lambda: window.live.up_to_date)
    assert not window.live.analysis.parameters
