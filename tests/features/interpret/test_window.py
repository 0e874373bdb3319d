"""The page "Attention": heads of a sample, muted by clicks and keys with the loss beside them, and attributions."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.data.config import DataConfig
from app.engine.client import shared
from app.features.interpret import task as reading
from app.features.interpret.page import ATTENTION, CHANGES, InterpretPage
from app.features.interpret.values import (
    AttentionFound,
    InterpretedNet,
    Intervention,
    MeasureEffect,
    Samples,
)
from app.preflight import preflight
from app.sources.spec import AskedModel
from app.training.evaluation.evaluator import Evaluator
from app.util import resources
from app.views.ui.dialogs.progress import ProgressDialog
from tests.support import windows
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

PATCHES = """
import torch
from torch import nn

class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 24, 2, 2)
        self.first = nn.Parameter(torch.zeros(1, 1, 24))
        self.body = nn.TransformerEncoderLayer(24, 4, 32, batch_first=True)
        self.head = nn.Linear(24, 10)

    def forward(self, pixels):
        x = self.patch(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return self.head(self.body(x)[:, 0])
"""

pytestmark = pytest.mark.usefixtures("nothing_trusted")


def test_making_the_page_shows_no_window_of_its_own(
    qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[QWidget] = []
    set_visible = QWidget.setVisible

    def shown(widget: QWidget, visible: bool) -> None:
        set_visible(widget, visible)
        if widget.isWindow() and widget.isVisible():
            seen.append(widget)

    monkeypatch.setattr(QWidget, "setVisible", shown)
    page = InterpretPage()
    assert seen == []
    page.deleteLater()


@pytest.fixture
def drawn(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("Transformer on digits.tape")
    ready(qtbot, window)
    return window


def page_of(qtbot: QtBot, window: WholeWindow) -> InterpretPage:
    """Show the page and look at its first sample."""
    window.pages.show("attention")
    page = window.interpreted
    page.empty.button.click()
    qtbot.waitUntil(lambda: page.reading is not None and page.reading.maps is not None)
    return page


def here(window: WholeWindow) -> Evaluator:
    """The net of the window in this process."""
    return Evaluator(preflight.job(window.document.project, window.live.analysis))


def test_heads_are_muted_by_a_click_and_by_keys_with_the_loss_beside_them(
    qtbot: QtBot, drawn: WholeWindow
) -> None:
    page = page_of(qtbot, drawn)
    tiles = page.heads.tiles
    assert (
        tiles.count == 4
        and "to rounding" in page.facts.text()
        and not page.unmute.isEnabled()
    )
    page.list.setFocus()
    qtbot.keyClick(page.list, Qt.Key.Key_Down)
    qtbot.waitUntil(
        lambda: page.reading.path == "encoder.1.attn" and page.reading.maps is not None
    )
    qtbot.mouseClick(
        tiles, Qt.MouseButton.LeftButton, pos=tiles.box(1).center().toPoint()
    )
    qtbot.keyClick(tiles, Qt.Key.Key_Right)
    qtbot.keyClick(tiles, Qt.Key.Key_Space)
    assert tiles.muted == {1, 2} and tiles.current == 2
    qtbot.waitUntil(lambda: page.effect.text().startswith("2 heads muted"))
    changes = tuple(Intervention("encoder.1.attn", 1, head) for head in (1, 2))
    effect = reading.effect(here(drawn), MeasureEffect(None, changes, Samples()))
    assert f"({effect.change:+.3g})" in page.effect.text()
    page.rank.click()
    qtbot.waitUntil(
        lambda: (
            page.rank.isEnabled()
            and "muting it changes the loss" in tiles.description(3)
        )
    )
    page.unmute.click()
    assert not tiles.muted and page.effect.text().startswith("Click a head")


def test_a_layer_is_muted_and_a_channel_taken_from_another_sample(
    qtbot: QtBot, drawn: WholeWindow
) -> None:
    page = page_of(qtbot, drawn)
    page.view.set_value(CHANGES)
    view = page.changes
    assert not view.add.isEnabled() and "encoder.1.fc1" in page.net.layers
    view.layer.setFocus()
    qtbot.keyClicks(view.layer, "encoder.1.fc1")
    view.layer.completer().popup().hide()
    qtbot.mouseClick(view.add, Qt.MouseButton.LeftButton)
    view.part.set_value("channel")
    view.what.set_value("other")
    view.source.set_value(7)
    view.layer.selectAll()
    qtbot.keyClicks(view.layer, "embed")
    view.layer.completer().popup().hide()
    qtbot.keyClick(view.layer, Qt.Key.Key_Return)
    view.samples.set_value("first")
    qtbot.waitUntil(lambda: len(view.each.rows) == 64)
    changes = (
        Intervention("encoder.1.fc1"),
        Intervention("embed", channel=0, source=7),
    )
    assert view.table.rows == list(changes)
    effect = reading.effect(
        here(drawn), MeasureEffect(None, changes, Samples(tuple(range(64))))
    )
    assert (
        f"({effect.change:+.3g})" in view.effect.text()
        and "2 parts changed" in view.effect.text()
    )
    assert [row[0] for row in view.each.rows] == list(
        range(64)
    ) and "channels are axis" in view.remarks.text()
    view.table.setFocus()
    view.table.selectRow(0)
    qtbot.keyClick(view.table, Qt.Key.Key_Delete)
    assert view.table.rows == [changes[1]]
    view.layer.selectAll()
    qtbot.keyClicks(view.layer, "no_such")
    qtbot.keyClick(view.layer, Qt.Key.Key_Return)
    qtbot.waitUntil(page.banner.isVisible)
    assert (
        "has no module no_such" in page.banner.reason()
        and view.effect.text() == "It was not measured."
    )
    # one of the worst samples is chosen to look at
    view.clear.click()
    page.view.set_value(ATTENTION)
    page.worst.click()
    qtbot.waitUntil(page.worst_menu.isVisible)
    page.worst_menu.actions()[1].trigger()
    page.worst_menu.hide()
    worst = here(drawn).evaluate().worst()[1]
    qtbot.waitUntil(
        lambda: (
            page.attention_answer.sample.number == worst
            and page.reading.maps is not None
        )
    )
    weights = page.reading.maps[0, page.heads.tiles.current]
    assert page.scale.ends[1].startswith(f"{weights.max():.3g}")


def test_another_sample_is_looked_at_when_its_number_is_typed(
    qtbot: QtBot, drawn: WholeWindow
) -> None:
    page = page_of(qtbot, drawn)
    assert page.attention_answer.sample.number == 0 and page.count.text() == "of 359"
    page.sample.setFocus()
    qtbot.keyClick(page.sample, Qt.Key.Key_Up)
    qtbot.waitUntil(
        lambda: (
            page.attention_answer.sample.number == 1 and page.reading.maps is not None
        )
    )
    page.sample.set_value(9999)
    page.look.click()
    qtbot.waitUntil(page.banner.isVisible)
    assert "359 validation samples, counted from 0" in page.banner.reason()


def test_an_engine_that_ends_is_replaced_at_the_next_look(
    qtbot: QtBot, drawn: WholeWindow
) -> None:
    page = page_of(qtbot, drawn)
    killed = shared().pid
    os.kill(killed, signal.SIGKILL)
    qtbot.waitUntil(lambda: shared().pid != killed)
    tiles = page.heads.tiles
    qtbot.mouseClick(
        tiles, Qt.MouseButton.LeftButton, pos=tiles.box(0).center().toPoint()
    )
    qtbot.waitUntil(
        lambda: (
            page.look.isVisible()
            and page.attention_answer is not None
            and not tiles.muted
        )
    )
    qtbot.waitUntil(lambda: page.reading is not None and page.reading.maps is not None)


@pytest.fixture
def opened(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, monkeypatch
) -> Iterator[WholeWindow]:
    (tmp_path / "patches_opened.py").write_text(PATCHES)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    window.actions_by_key.trigger(
        "open-source",
        AskedModel("patches_opened.py:Patches", "", ("2x1x8x8",), trust=True),
    )
    qtbot.waitUntil(lambda: window.document.project.opened is not None)
    qtbot.waitUntil(lambda: not window.findChildren(ProgressDialog))
    window.document.apply(
        "Choose data", replace(window.document.project, data=DataConfig())
    )
    ready(qtbot, window)
    yield window
    sys.path[:] = before
    sys.modules.pop("patches_opened", None)


@needs("opened")
def test_what_a_query_of_an_opened_model_looks_at_lies_over_the_picture(
    qtbot: QtBot, opened: WholeWindow
) -> None:
    page = page_of(qtbot, opened)
    assert page.reading.path == "body.self_attn" and page.reading.grid == (1, 4, 4)
    assert (
        page.overlay.washed and "a token before the patches" in page.query_words.text()
    )
    page.map.setFocus()
    for _ in range(6):
        qtbot.keyClick(page.map, Qt.Key.Key_Down)
    assert page.map.query == 6 and "query 6, patch 1, 1" in page.query_words.text()


def test_without_attention_the_page_leads_to_attribution(qtbot: QtBot) -> None:
    page = InterpretPage()
    qtbot.addWidget(page)
    page.show()
    page.set_net(
        InterpretedNet(
            net=None, counts=(("validation", 9),), classes=(), words="", layers=()
        )
    )
    page.set_found(AttentionFound(sample=None, attentions=()))
    assert page.empty.isVisible() and page.look.isVisible()
    page.empty.button.click()
    assert page.attributions.isVisible() and not page.look.isVisible()


def test_samples_of_another_project_are_chosen_anew(qtbot: QtBot) -> None:
    page = InterpretPage()
    qtbot.addWidget(page)
    page.set_net(
        InterpretedNet(
            net=None,
            counts=(("train", 9), ("validation", 9)),
            classes=(),
            words="",
            layers=(),
        )
    )
    page.set_busy("")
    page.part.set_value("train")
    page.sample.set_value(8)
    assert page.worst.isEnabled()
    page.forget()
    assert (page.part.choices(), page.part.value(), page.sample.value()) == (
        ("validation",),
        "validation",
        0,
    )
    assert not page.worst.isEnabled(), "there is no net to find them with"


def test_integrated_gradients_of_the_worst_samples_are_shown(
    qtbot: QtBot, drawn: WholeWindow
) -> None:
    pytest.importorskip("captum", reason="attributions are an extra")
    page = page_of(qtbot, drawn)
    page.view.setFocus()
    page.view.set_value("attribution")
    page.which.set_value("worst")
    page.explain.click()
    qtbot.waitUntil(lambda: len(page.attributions.attributions) == 6)
    found = page.attributions.attributions
    worst = here(drawn).evaluate().worst()[:6].tolist()
    assert [one.sample.number for one in found] == worst and all(
        one.complete for one in found
    )


def test_what_is_asked_while_torch_is_loading_is_done_when_it_is_there(
    qtbot, qapp
) -> None:
    with windows.shown(qapp, "asked early") as window:
        window.files.open(resources.path("examples", "digits.tape"))
        window.pages.show("attention")
        qtbot.waitUntil(lambda: hasattr(window, "interpreted"))
        qtbot.mouseClick(window.interpreted.empty.button, Qt.MouseButton.LeftButton)
        assert window.interpreted.net is None
        window.start()
        qtbot.waitUntil(lambda: window.interpreted.net is not None)
