"""A row of controls wraps where it has no room, also after what is in it has changed."""

from __future__ import annotations

from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.views.ui.flow import FlowLayout


def test_a_row_wraps_anew_when_a_control_grows_goes_or_comes(qtbot: QtBot) -> None:
    row = QWidget()
    qtbot.addWidget(row)
    first, second, third = QWidget(), QWidget(), QWidget()
    for each in (first, second):
        each.setFixedSize(100, 30)
    layout = FlowLayout(row, (0, 0, 0, 0), 10)
    layout.put(first, second)
    row.resize(220, 100)
    row.show()

    def heights() -> tuple[int, int]:
        QApplication.processEvents()
        return layout.heightForWidth(row.width()), layout.minimumSize().width()

    assert heights() == (30, 100)
    second.setFixedWidth(150)
    assert heights() == (70, 150)
    first.hide()
    assert heights() == (30, 150)
    first.show()
    assert heights() == (70, 150)
    row.resize(270, 100)
    assert heights() == (30, 150)
    layout.put(third)
    third.setFixedSize(40, 50)
    assert heights() == (90, 150)
