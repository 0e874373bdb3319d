"""An opened model is captured from its page, played in its own process, and both pictures point to each other."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.engine.tasks.observe import batch_of_model
from app.features.opened.page import ObservedPage
from app.sources.spec import AskedModel
from tests.support.opened_models import NETS
from tests.support.whole_window import WholeWindow

pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.fixture
def opened(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObservedPage:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "window_kinds.py").write_text(NETS)
    asked = AskedModel(
        "window_kinds.py:Masked", inputs=("x=2x4", "mask=2x8"), trust=True
    )
    window.actions_by_key.trigger("open-source", asked)
    page = window.findChild(ObservedPage)
    qtbot.waitUntil(lambda: page.isVisible() and page.observation is not None)
    return page


def captured(qtbot: QtBot, window: WholeWindow, page: ObservedPage) -> None:
    qtbot.mouseClick(page.capture, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(
        lambda: (
            window.room.tape is not None
            and bool(window.room.tape.codes)
            and bool(page.figures)
        )
    )


def test_a_model_is_captured_played_diagnosed_and_linked(
    qtbot: QtBot, window: WholeWindow, opened: ObservedPage
) -> None:
    captured(qtbot, window, opened)
    room, control = window.room, window.autograd_control
    assert (
        room.isVisible()
        and window.graphs.toggle.value() == "model"
        and "window_kinds" not in sys.modules
    )
    assert room.head.mode.value() == "eval" and {
        node.layer for node in room.tape.nodes
    } >= {"first", "last"}
    # what is played is bit for bit what torch computes
    player = window.tape_control.player
    player.set_speed(None)
    window.actions_by_key["play-backward"].trigger()
    qtbot.waitUntil(lambda: player.position == len(player) > 0)
    batch = batch_of_model(control.diagnosed)
    with batch.hold() as graph:
        torch.autograd.backward(
            [e for e in graph.ends if e.requires_grad],
            [torch.ones_like(e) for e in graph.ends if e.requires_grad],
        )
    sys.modules.pop("window_kinds")
    real = {name: one.grad for name, one in batch.model.named_parameters()}
    norms = {
        room.tape.nodes[record.node].parameters[0]: record.arriving[0].norm
        for record in player.records
        if room.tape.nodes[record.node].is_leaf
    }
    assert norms == {
        name: float(torch.linalg.vector_norm(one)) for name, one in real.items()
    }
    figures = opened.figures["last"]
    assert (
        figures.parameters == 27
        and figures.saved > 0
        and figures.gradient
        == pytest.approx((norms["last.weight"] ** 2 + norms["last.bias"] ** 2) ** 0.5)
    )
    # diagnostics run in the same process
    window.findings_control.run_diagnostics()
    qtbot.waitUntil(lambda: window.findings_control.findings is not None)
    # a click there selects here
    key = next(
        key for key, part in room.scene.boxes.items() if part.link == "module:last"
    )
    window.pages.show("autograd")
    room.scene.choose(key)
    part = opened._tree.by_key[opened.scene.current_key()]
    assert opened.observation.calls[part.first].path == "last"
    # and here selects there, with the way back
    box = next(key for key, one in opened._tree.by_key.items() if one.title == "first")
    window.pages.show("observed")
    opened.scene.choose(box)
    assert {part.link for part in room.scene.linked_parts()} == {"module:first"}
    texts = [
        one
        for one in window.call_inspector.findChildren(QPushButton)
        if one.text() == "Show backward nodes"
    ]
    qtbot.mouseClick(texts[0], Qt.MouseButton.LeftButton)
    assert room.isVisible()
    drawn = opened.drawing()
    assert any(
        "parameters" in tag
        for one in drawn.boxes
        if one.title == "first"
        for tag in one.tags
    )


def test_the_net_and_the_model_take_turns_and_a_process_that_ends_is_said(
    qtbot: QtBot, window: WholeWindow, opened: ObservedPage, tmp_path: Path
) -> None:
    captured(qtbot, window, opened)
    model, room, control = window.room.tape, window.room, window.autograd_control
    assert (
        not window.options_control.batch.isVisible()
    )  # it is called with the inputs it was opened with
    window.graphs.show("net")
    assert room.tape is None and control.engine is None
    window.graphs.show("model")
    assert room.tape is model and room.drawing() is not None
    os.kill(control.engine.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: control.engine.pid is None)
    window.tape_control.player.step()
    qtbot.waitUntil(room.banner.isVisible)
    assert "graph was freed" in room.banner.title()
    window.actions_by_key[
        "capture-eval"
    ].trigger()  # it is in front, so that is captured
    qtbot.waitUntil(lambda: room.tape is not model)
    assert (
        room.tape == model
        and control.engine.pid is not None
        and not room.banner.isVisible()
    )
    # in train mode dropout is in the graph
    room.head.mode.set_value("train")
    qtbot.waitUntil(lambda: room.tape.train)
    assert any(node.layer == "drop" for node in room.tape.nodes)
    # an edited file waits until it is opened, and trusted, again
    (tmp_path / "window_kinds.py").write_text("raise SystemExit")
    os.kill(control.engine.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: control.engine.pid is None)
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: "has changed since it was opened" in room.banner.reason())
