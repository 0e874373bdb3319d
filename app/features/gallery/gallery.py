"""The gallery: a card for each bundled example, with a thumbnail and a description."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QWidget

from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.features.gallery.cards import (
    LEAST,
    PICTURE,
    CardDelegate,
    CardModel,
    GalleryCard,
    card_height,
)
from app.features.gallery.values import DescribeExample, Example, Facts, read
from app.features.gallery.values import paths as example_paths
from app.views.engine_service import EngineService
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.thumbnails import ThumbnailRequest, Thumbnails
from app.views.ui.widgets import SearchField
from app.views.ui.widgets.painting import label

BLANK = "Blank project"
KEY = "gallery"
MOST_COLUMNS = 4
ROUND = QSize(
    62, 160
)  # around the cards: margins and scroll bar; title, field and buttons


class Cards(QListView):
    """Cards in as many columns as there is room for, each as wide as its share."""

    def __init__(self, model: CardModel) -> None:
        super().__init__()
        self.setModel(model)
        self.setViewMode(QListView.ViewMode.IconMode)
        self.setMovement(QListView.Movement.Static)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setUniformItemSizes(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setMouseTracking(True)
        self.setAccessibleName("Examples")
        self.setItemDelegate(CardDelegate(model))
        self.setFrameShape(QListView.Shape.NoFrame)

    def resizeEvent(self, event: QResizeEvent) -> None:
        width = (self.viewport().width() - 1) // self.columns
        self.setGridSize(QSize(width, card_height(width)))
        super().resizeEvent(event)

    @property
    def columns(self) -> int:
        return columns_in(self.viewport().width())


def columns_in(width: int) -> int:
    """Return how many cards fit side by side."""
    return max((width - 1) // LEAST, 1)


class GalleryDialog(Dialog):
    """Choose an example, or a blank project. `chosen(path)` comes after it has closed; None is the blank one."""

    chosen = Signal(object)

    def __init__(
        self,
        engine: EngineService,
        data_root: Path,
        parent: QWidget | None = None,
        *,
        paths: Sequence[Path] | None = None,
    ) -> None:
        super().__init__("New from example", parent)
        self._engine, self._data_root = engine, data_root
        self._unread = list(example_paths() if paths is None else paths)
        self._unasked: list[Example] = []
        self.thumbnails = Thumbnails(PICTURE, self)
        self.model = CardModel([GalleryCard(None, BLANK, "An empty canvas.")], self)
        self.view = Cards(self.model)
        self.field = SearchField("Type to filter")
        self.none = label("No example matches.", "label", "text3")
        self.none.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.none.hide()
        for widget in (self.field, self.view, self.none):
            self.body.addWidget(widget, 0 if widget is self.field else 1)
        cancel = self.add_button("Cancel")
        self.open_button = self.add_button("Open a copy", "primary", default=True)
        self._connect()
        cancel.clicked.connect(self.reject)
        self.setMinimumSize(LEAST + 90, 480)
        self.resize(_fitting(parent, len(self._unread) + 1))
        self.field.setFocus()
        self._filter("")
        QTimer.singleShot(0, self, self._read_one)

    def _connect(self) -> None:
        self.field.textChanged.connect(self._filter)
        self.field.installEventFilter(self)
        self.view.installEventFilter(self)
        self.view.doubleClicked.connect(lambda index: self._choose())
        self.view.selectionModel().currentChanged.connect(
            lambda now, before: self._name_button()
        )
        self.open_button.clicked.connect(self._choose)
        self.thumbnails.ready.connect(self._painted)
        theme.manager().changed.connect(self._repaint)
        self.finished.connect(self._leave)

    # --- Filling the cards, one piece of work a turn of the event loop

    def _read_one(self) -> None:
        if not self._unread:
            self._ask_one()
            return
        example = read(self._unread.pop(0))
        self.model.add(
            GalleryCard(example.path, example.project.name, example.words, example)
        )
        if not self.view.currentIndex().isValid():
            self._filter(self.field.text())
        self._unasked.append(example)
        self._paint(example, None)
        QTimer.singleShot(0, self, self._read_one)

    def _ask_one(self) -> None:
        """Request one card at a time, so that requests of the open project need not wait for all."""
        if self._unasked and self.isVisible():
            example = self._unasked.pop(0)
            self._engine.ask(
                KEY,
                DescribeExample(example.project, self._data_root),
                on_answer=lambda facts: self._learned(example, facts),
                on_error=lambda failure: self._ask_one(),
            )

    def _learned(self, example: Example, facts: Facts) -> None:
        self.model.learn(example.path, facts)
        self._paint(example, facts)
        self._ask_one()

    def _paint(self, example: Example, facts: Facts | None) -> None:
        ops = with_blocks(catalog(), example.project.blocks)
        key = (example.path, example.path.stat().st_mtime_ns)
        self.thumbnails.request(
            ThumbnailRequest(
                key, example.project, ops, facts.analysis if facts else None
            )
        )

    def _painted(self, key: tuple[Path, int], picture: QPixmap) -> None:
        self.model.show_picture(key[0], picture)

    def _repaint(self) -> None:
        """Paint the thumbnails again after a change of the theme."""
        for card in self.model.cards:
            if card.example is not None:
                self._paint(card.example, card.facts)

    # --- Choosing

    def _filter(self, query: str) -> None:
        self.model.set_query(query)
        self.view.setCurrentIndex(self.model.index(0))
        some = self.model.rowCount() > 0
        self.none.setVisible(not some)
        self.view.setVisible(some)
        self._name_button()

    def _name_button(self) -> None:
        card = self.model.card(self.view.currentIndex())
        self.open_button.setEnabled(card is not None)
        self.open_button.setText(
            "New project" if card is not None and card.path is None else "Open a copy"
        )

    def _choose(self) -> None:
        card = self.model.card(self.view.currentIndex())
        if card is not None:
            self.accept()
            self.chosen.emit(card.path)

    def _leave(self) -> None:
        self._engine.forget(KEY)
        self.thumbnails.forget()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let arrow keys select cards from the search field, and typed letters search wherever the focus is."""
        if event.type() != QEvent.Type.KeyPress or not isinstance(event, QKeyEvent):
            return super().eventFilter(watched, event)
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose()
            return True
        if watched is self.field:
            return self._walk(event.key())
        if (
            event.text().strip()
            and not event.modifiers() & Qt.KeyboardModifier.ControlModifier
        ):
            self.field.setFocus()
            self.field.insert(event.text())
            return True
        return super().eventFilter(watched, event)

    def _walk(self, key: int) -> bool:
        steps = {Qt.Key.Key_Down: self.view.columns, Qt.Key.Key_Up: -self.view.columns}
        if not self.field.text():
            steps |= {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}
        if key not in steps or not self.model.rowCount():
            return False
        row = self.view.currentIndex().row() + steps[Qt.Key(key)]
        if 0 <= row < self.model.rowCount():
            self.view.setCurrentIndex(self.model.index(row))
        return True


def _fitting(parent: QWidget | None, cards: int) -> QSize:
    """Return a size with as many columns as fit the window, and the rows that result."""
    room = parent.size() if parent is not None else QSize(1280, 800)
    width = min(room.width() - 120, MOST_COLUMNS * 320 + ROUND.width())
    columns = columns_in(width - ROUND.width())
    height = (
        -(-cards // columns) * card_height((width - ROUND.width()) / columns)
        + ROUND.height()
    )
    return QSize(width, min(height, room.height() - 60))
