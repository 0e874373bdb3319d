"""Theme, text size, thick wires and the preset for a projector, in the whole window."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QRect, Qt, QTimer
from PySide6.QtGui import QFontInfo
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QPushButton,
    QWidget,
)

from app.views.fields.line_edits import NotesField
from app.views.settings import Settings
from app.views.shell import appearance
from app.views.shell.feature import ShellFeature
from app.views.ui import theme


def shown(window: QWidget, *kinds: type[QWidget]) -> list[QWidget]:
    return [
        widget
        for kind in kinds
        for widget in window.findChildren(kind)
        if widget.isVisible()
    ]


def area(widget: QWidget) -> QRect:
    return QRect(widget.mapToGlobal(QPoint(0, 0)), widget.size())


def test_larger_text_is_everywhere_at_once_and_nothing_is_cut_or_overlaps(
    window, qtbot
) -> None:
    window.pages.show("training")
    before = {
        label: QFontInfo(label.font()).pixelSize()
        for label in shown(window, QLabel)
        if label.text()
    }
    window.canvas.view.zoom_to(1.0)
    zoom = window.canvas.view.zoom
    window.actions_by_key["text-size.1.5"].trigger()
    QApplication.processEvents()
    assert window.settings.font_scale == 1.5 and window.canvas.view.unit == 1.5
    assert window.canvas.view.zoom > zoom  # texts on the canvas are larger too
    labels = [label for label in before if label.isVisible()]
    assert labels and not [
        one.text()
        for one in labels
        if QFontInfo(one.font()).pixelSize() < 1.3 * before[one]
    ]
    fields = shown(window, QLabel, QPushButton, QLineEdit, QComboBox, QAbstractSpinBox)
    cut = [
        one
        for one in fields
        if one.height() < one.fontMetrics().height() and getattr(one, "text", str)()
    ]
    assert not [
        (one.text(), one.height(), one.fontMetrics().height(), one.parent())
        for one in cut
    ]
    parts = [
        area(part)
        for part in (
            window.toolbar.project,
            window.toolbar.deck,
            window.toolbar.device,
            window.toolbar.export,
        )
    ]
    assert all(
        not one.intersects(other)
        for i, one in enumerate(parts)
        for other in parts[i + 1 :]
    )
    counter = window.toolbar.deck.counter
    qtbot.waitUntil(
        lambda: (
            counter.height() > 50 and area(window.toolbar.deck).contains(area(counter))
        )
    )
    assert all(
        area(window.toolbar).contains(part)
        for part in (*parts, area(window.toolbar.deck))
    )

    window.actions_by_key["text-size.1.0"].trigger()
    QApplication.processEvents()
    assert {label: QFontInfo(label.font()).pixelSize() for label in before} == before
    assert (
        window.canvas.view.zoom == pytest.approx(zoom, rel=0.02)
        and counter.height() == 38
    )
    # Beside the tabs again, however short the text was larger.
    qtbot.waitUntil(lambda: window.bottom.pane.bar.isAncestorOf(window.curves.controls))


def test_the_name_in_the_menu_bar_is_in_its_middle_at_any_text_size(
    window, qtbot
) -> None:
    bar = window.menuBar()
    for size in ("1.5", "1.0"):
        with qtbot.waitSignal(theme.manager().styled):
            QTimer.singleShot(0, window.actions_by_key[f"text-size.{size}"].trigger)
        corners = [
            bar.cornerWidget(each)
            for each in (Qt.Corner.TopLeftCorner, Qt.Corner.TopRightCorner)
        ]
        middle = bar.rect().center().y()
        assert not [
            each for each in corners if abs(each.geometry().center().y() - middle) > 3
        ], size


def test_the_projector_preset_is_put_on_and_taken_back_in_one_step(window) -> None:
    window.settings.theme, window.settings.font_scale = "light", 1.1
    window.findChild(ShellFeature).appearance.take_settings()
    action = window.actions_by_key["projector"]
    assert "classroom" in action.data()  # found in the list of commands
    action.trigger()
    manager = theme.manager()
    assert theme.current().name == "contrast-light" and theme.current().contrast
    assert manager.scale == 1.5 and manager.strokes > 1.5 and manager.reduced_motion
    assert (
        window.actions_by_key["theme.contrast-light"].isChecked() and action.isChecked()
    )

    again = Settings()  # the look outlives the program, and so does the way back
    again._store = window.settings._store
    assert again.before_projector and again.theme == "contrast-light"
    action.trigger()
    assert theme.current().name == "light" and manager.scale == 1.1
    assert (
        manager.strokes == 1.0 and not manager.reduced_motion and not action.isChecked()
    )
    assert (
        window.actions_by_key["text-size.1.1"].isChecked()
        and not window.settings.before_projector
    )


def test_a_damaged_way_back_is_ignored_where_it_is_damaged(qapp) -> None:
    settings = Settings()
    settings.before_projector = (
        '{"theme": "mauve", "font_scale": 40, "thick_wires": false}'
    )
    look = appearance.Appearance(settings, qapp)
    look.set_projector(False)
    assert (
        settings.theme == "dark"
        and settings.font_scale == 1.0
        and not settings.before_projector
    )
    look.deleteLater()


def test_a_stored_look_is_put_on_when_the_program_starts(qapp, window) -> None:
    window.settings.theme, window.settings.font_scale = "dark", 1.25
    appearance.apply(qapp, window.settings)
    assert theme.manager().scale == 1.25 and theme.font("body").pixelSize() != 13
    assert theme.scene_font("body").pixelSize() == 13  # a graph is enlarged as a whole


def test_notes_have_the_text_size_in_force_and_not_the_one_of_before(
    qapp, window
) -> None:
    notes = window.findChildren(NotesField)
    assert notes
    try:
        for scale in (1.5, 1.0, 1.5):
            theme.apply(qapp, "dark", scale)
            QApplication.processEvents()
            assert all(
                one.document().defaultFont() == theme.font("body") for one in notes
            )
    finally:
        theme.apply(qapp, "dark", 1.0)
