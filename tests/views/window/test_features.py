"""What a feature declares stands in the window, and nothing else has to be told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.views import feature
from app.views.feature import Action, Feature, Page
from app.views.training.charts.feature import ChartsFeature
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow
from tests.support.windows import shown


class Counting(Feature):
    """Counts nodes: a page, commands, an overlay, and files that it takes."""

    rank = 500
    follows = True

    def pages(self) -> Iterable[Page]:
        yield Page(
            "count",
            "Count",
            "flask",
            "bottom",
            self._make,
            after="curves",
            words="Co&unt",
            controls=lambda: self.tools,
            home=lambda: self.label,
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "count-nodes",
            "Count &nodes",
            self.count,
            "Ctrl+Alt+J",
            "flask",
            late=True,
            menu="run.weights",
        )
        yield Action("forget-count", "", self.forget)

    def overlays(self) -> Iterable[str]:
        return ("Counts",)

    def _make(self) -> QLabel:
        self.label, self.tools = QLabel(""), QLabel("beside the tabs")
        return self.label

    def finish(self) -> None:
        self.workspace.hearers.add(self.count, later=True)

    def count(self) -> None:
        self.label.setText(f"{len(self.workspace.document.project.graph.nodes)} nodes")

    def forget(self, words: str) -> None:
        self.label.setText(words)

    def drop(self, data: QMimeData):
        return (
            (lambda: self.forget("dropped"))
            if data.hasUrls() and data.urls()[0].path().endswith(".count")
            else None
        )

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def window(
    qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WholeWindow]:
    found = feature.feature_classes()
    monkeypatch.setattr(feature, "feature_classes", lambda: [*found, Counting])
    with shown(qapp, "features") as made:
        yield made


def texts(window: WholeWindow, menu: str) -> list[str]:
    top = next(action for action in window.menuBar().actions() if action.text() == menu)
    return [action.text() for action in top.menu().actions()]


def test_a_page_is_made_late_and_stands_where_its_feature_says(
    qtbot: QtBot, window: WholeWindow
) -> None:
    keys = [
        window.bottom.pane.tabs.tabText(at)
        for at in range(window.bottom.pane.tabs.count())
    ]
    counting = window.findChild(Counting)
    assert not hasattr(counting, "label"), "made after the first painting"
    assert keys[keys.index("Curves") + 1] == "Count"
    window.furnish(counting)
    height = window.bottom.height()
    assert (
        window.bottom.pane.widget_of("count") is counting.label
        and not counting.tools.isVisible()
    )
    window.actions_by_key["show.count"].trigger()
    assert (
        window.bottom.pane.page == "count"
        and counting.label.isVisible()
        and counting.tools.isVisible()
    )
    QApplication.processEvents()
    assert window.bottom.height() == height, "no dock has another size for another page"
    window.pages.show("problems")
    assert not counting.tools.isVisible()


def test_a_command_has_the_pages_made_and_one_without_words_stands_nowhere(
    window: WholeWindow,
) -> None:
    assert texts(window, "&Run")[-1] == "Count &nodes" and "Co&unt" in texts(
        window, "&View"
    )
    QTest.keyClick(
        window,
        Qt.Key.Key_J,
        Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier,
    )
    counting = window.findChild(Counting)
    assert counting.label.text() == f"{len(window.document.project.graph.nodes)} nodes"
    window.actions_by_key.trigger("forget-count", "none")
    assert counting.label.text() == "none"
    assert "forget-count" not in {
        action.objectName() for action in window.actions_by_key.all()
    }


@needs("outline")
def test_a_page_is_made_when_it_is_wanted_and_no_other(window: WholeWindow) -> None:
    counting = window.findChild(Counting)
    window.pages.show("count")
    assert counting.label.isVisible() and not window.furnished
    assert not any(
        hasattr(each, name) for each in window.features for name in ("curves", "room")
    )
    window.actions_by_key["find"].trigger()
    assert window.left.pane.page == "outline" and not any(
        hasattr(each, "curves") for each in window.features
    )


def test_a_page_that_cannot_be_made_keeps_no_other_from_being_made(
    qtbot: QtBot, window: WholeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window.live, "start", lambda: None)
    counting = window.findChild(Counting)
    monkeypatch.setattr(counting, "finish", lambda: 1 / 0)
    with qtbot.captureExceptions() as said:
        window.start()
        qtbot.waitUntil(lambda: window.furnished and not window.background.busy)
    assert [kind for kind, *_ in said] == [ZeroDivisionError]
    assert window.training_form.isAncestorOf(window.training_form.data)
    assert counting.label.text() == ""


def test_an_overlay_is_offered_beside_the_others(window: WholeWindow) -> None:
    heard: list[str] = []
    window.overlays.changed.connect(heard.append)
    window.overlay.set_value("Counts")
    window.overlays.choose("Shapes")
    assert heard == ["Counts", "Shapes"] and window.overlay.value() == "Shapes"


def test_a_feature_takes_what_is_let_go_and_hears_that_the_window_closes(
    window: WholeWindow,
) -> None:
    data, counting = QMimeData(), window.findChild(Counting)
    window.furnish(counting)
    data.setUrls([QUrl.fromLocalFile("/of/nobody.count")])
    spot, copies, left = (
        QWidget.rect(window).center(),
        Qt.DropAction.CopyAction,
        Qt.MouseButton.LeftButton,
    )
    window.dropEvent(
        QDropEvent(spot, copies, data, left, Qt.KeyboardModifier.NoModifier)
    )
    assert counting.label.text() == "dropped"
    window.close()
    assert counting.closed


class Beside(QObject):
    """Counts the controls beside the tabs whenever some are shown."""

    def __init__(self, controls: list[QWidget]) -> None:
        super().__init__()
        self.controls, self.most = controls, 0
        for each in controls:
            each.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show:
            self.most = max(self.most, sum(each.isVisible() for each in self.controls))
        return False


def test_the_controls_of_two_pages_never_stand_beside_the_tabs_at_once(
    window: WholeWindow,
) -> None:
    """Not even for a moment: the tabs would scroll for want of room."""
    window.furnish(*map(window.findChild, (Counting, ChartsFeature)))
    beside = Beside(
        [
            window.findChild(Counting).tools,
            window.curves.controls,
        ]
    )
    for key in ("count", "curves", "count", "curves"):
        window.pages.show(key)
    assert beside.most == 1
