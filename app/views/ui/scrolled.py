"""Content that keeps its least size where there is less room for it, and is scrolled there."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.views.ui.present import present

CHANGES = (
    QEvent.Type.LayoutRequest,
    QEvent.Type.FontChange,
    QEvent.Type.StyleChange,
    QEvent.Type.Show,
)


class Scrolled(QScrollArea):
    """Fills its room with a widget, down to the least size of that widget."""

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidget(content)

    def sizeHint(self) -> QSize:
        return present(self.widget()).sizeHint()

    def minimumSizeHint(self) -> QSize:
        return QSize(80, 40)


class Pages(QWidget):
    """Holds pages below a row of controls, and takes what that leaves: a page with wrapped text in it, though it is not
    shown, would ask for its height first."""

    def hasHeightForWidth(self) -> bool:
        return False


class Column(QScrollArea):
    """A column of words that is as wide as they need, and scrolled where it is too low for all."""

    def __init__(self, content: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidget(content)
        content.installEventFilter(self)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in CHANGES:
            self._fit()
        return super().eventFilter(watched, event)

    def _fit(self) -> None:
        self.setMinimumWidth(
            present(self.widget()).minimumSizeHint().width()
            + self.verticalScrollBar().sizeHint().width()
        )
