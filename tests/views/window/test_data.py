"""Own data in the real window: a table is chosen, what does not fit is mended by clicks, and a run learns from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QApplication, QLabel, QScrollArea
from pytestqt.qtbot import QtBot

from app.builder.catalog.custom import read_file
from app.data.config import DataConfig
from app.views.fields.form import ParamForm
from app.views.trust_dialog import DatasetTrustDialog
from app.views.ui.cut_texts import ARROW
from app.views.ui.widgets.section import Section
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

ROWS = "".join(
    f"{50 + i * 3},{1 + i % 6},{('Kiel', 'Ulm')[i % 2]},{70 * i + 10 * (i % 6)}\n"
    for i in range(80)
)


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.resize(1600, 1000)
    window.files.open_example("MLP on digits.tape")
    ready(qtbot, window)
    return window


def settled(qtbot: QtBot, window: WholeWindow) -> None:
    qtbot.waitUntil(
        lambda: window.live.up_to_date and not window.training_form.data.reader.busy,
    )
    QApplication.processEvents()


def test_a_table_is_chosen_mended_and_learnt_from(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    (tmp_path / "houses.csv").write_text("area,rooms,town,price\n" + ROWS + "12,3\n")
    form = window.training_form
    form.data.source.edited.emit("file.csv")
    assert "Fix 1 error to run" in window.run_control.blocked
    form.data.set_path(str(tmp_path / "houses.csv"))
    settled(qtbot, window)
    assert "row 82: 2 fields instead of 4" in form.data.state.text()
    (skip,) = (
        cure
        for problem in window.live.errors
        for cure in problem.cures
        if "bad" in cure.data
    )
    window.cures.apply_to_network(skip)
    assert (
        window.document.project.data.bad == "skip"
        and window.document.undo_stack.undoText() == "Skip them"
    )
    for _ in range(6):
        settled(qtbot, window)
        errors = [problem for problem in window.live.errors if problem.cures]
        if not errors:
            break
        # What is beside the data mends the shapes; the loss is mended among the problems.
        if form.data.fit.buttons:
            qtbot.mouseClick(form.data.fit.buttons[0], Qt.MouseButton.LeftButton)
        else:
            window.cures.apply_to_network(errors[0].cures[0])
    settled(qtbot, window)
    assert (
        window.run_control.blocked == "" and form.data.fit.words.text() == "They match."
    )
    assert window.document.project.training.loss.name == "MSELoss"
    form.numbers.edited.emit("epochs", 2, None)
    window.run_control.run()
    qtbot.waitUntil(lambda: window.session.state in ("done", "failed"))
    assert window.session.state == "done", window.session.current.failed
    assert window.session.history is not None
    started = window.session.history.started
    assert (started.train_count, started.validation_count) == (64, 16)


OWN = """
import torch
from torch.utils.data import TensorDataset


class Own(TensorDataset):
    def __init__(self):
        super().__init__(torch.rand(30, 1, 8, 8), torch.arange(30) % 10)
"""


def test_a_file_with_a_dataset_class_is_trusted_by_mouse(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    data = window.training_form.data
    data.source.edited.emit("file.dataset")
    data.set_path(str(tmp_path / "own.py"))
    qtbot.waitUntil(lambda: not data.trust.isHidden())
    data.trust.click()
    dialog = window.findChild(DatasetTrustDialog)
    assert dialog.contents() == "Classes: Own" and dialog.trust_button.isEnabled()
    qtbot.mouseClick(dialog.trust_button, Qt.MouseButton.LeftButton)
    settled(qtbot, window)
    assert "30 samples of 1×8×8 float32, 10 classes" in data.state.text()


def test_a_file_without_a_class_says_why_it_cannot_be_trusted(
    qtbot: QtBot, tmp_path: Path
) -> None:
    for text, words in (
        ("x = 1\n", "It defines no class"),
        ("class\n", "It cannot be read as Python"),
    ):
        (tmp_path / "own.py").write_text(text)
        dialog = DatasetTrustDialog(replace(read_file(tmp_path / "own.py"), problem=""))
        qtbot.addWidget(dialog)
        assert not dialog.trust_button.isEnabled()
        assert any(words in label.text() for label in dialog.findChildren(QLabel))


class Squeezed(QObject):
    """Notes the forms and sections that have less height than their rows need while the settings are painted."""

    def __init__(self, window: WholeWindow) -> None:
        super().__init__()
        self.paints, self.names, self._form = 0, set[str](), window.training_form

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and watched is self._form:
            self.paints += 1
            parts = self._form.findChildren(ParamForm) + self._form.findChildren(
                Section
            )
            self.names |= {
                f"{type(part).__name__}: {part.height()} of {part.minimumSizeHint().height()}"
                for part in parts
                if part.isVisible() and part.height() < part.minimumSizeHint().height()
            }
        return False


def test_rows_of_data_are_painted_once_they_have_their_height(
    qtbot: QtBot, qapp: QApplication, window: WholeWindow, tmp_path: Path
) -> None:
    (tmp_path / "houses.csv").write_text("area,rooms,town,price\n" + ROWS)
    window.pages.show("training")
    settled(qtbot, window)
    squeezed = Squeezed(window)
    window.training_form.installEventFilter(squeezed)
    data = DataConfig("file.csv", path=str(tmp_path / "houses.csv"))
    project = replace(window.document.project, data=data)
    window.document.apply("Choose houses", project)
    settled(qtbot, window)
    qtbot.waitUntil(lambda: squeezed.paints > 2)
    assert window.training_form.data.columns.isVisible()
    assert not squeezed.names


def test_the_columns_of_a_table_have_room_in_the_settings(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    heads = ["living_area_in_square_metres", "rooms", "town_or_municipality", "price"]
    (tmp_path / "houses.csv").write_text(",".join(heads) + "\n" + ROWS)
    window.resize(1280, 800)
    window.pages.show("training")
    data = DataConfig("file.csv", path=str(tmp_path / "houses.csv"))
    window.document.apply("Houses", replace(window.document.project, data=data))
    settled(qtbot, window)
    table = window.training_form.data.columns
    qtbot.waitUntil(lambda: table.isVisible() and set(table.kinds) == set(heads))
    QApplication.processEvents()
    assert table.kinds["rooms"].currentText() == "auto: number"
    for name in heads:
        kind = table.kinds[name]
        text = kind.fontMetrics().horizontalAdvance(kind.currentText())
        assert text + ARROW <= kind.width()
        assert kind.visibleRegion().boundingRect().width() in (0, kind.width())
        assert kind.geometry().right() <= table.width()
    assert table.width() <= window.training_form.width()
    assert (
        not window.training_form.findChild(QScrollArea).horizontalScrollBar().maximum()
    )
