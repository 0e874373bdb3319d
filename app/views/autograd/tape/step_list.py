"""Page "Steps": all steps of the backward pass by layer, in execution order."""

from __future__ import annotations

from bisect import bisect_right

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QListView,
    QStackedWidget,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.autograd.playback.memory_timeline import Stretch, released_by_step, stretches
from app.autograd.tape import Tape, TapeNode
from app.util.formatting import MINUS, bytes_text
from app.views.autograd.tape.player import Player
from app.views.ui import icons, theme
from app.views.ui.layouts import vbox
from app.views.ui.op_rows import write
from app.views.ui.widgets import EmptyState, SearchField
from app.views.ui.widgets.painting import box

ROW = 21
CAPTION = 40  # px, at least, for the operation beside a parameter
Index = QModelIndex | QPersistentModelIndex


class StepModel(QAbstractListModel):
    """Headings and steps as one list: a row is the number of a step, or −1 minus the number of a heading's segment.

    `position` and `breaks` are for the delegate.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.tape: Tape | None = None
        self.pieces: tuple[Stretch, ...] = ()
        self.position = 0
        self.breaks: frozenset[int] = frozenset()
        self._released: list[int] = []
        self._rows: list[int] = []
        self._firsts: list[
            int
        ] = []  # of the steps that are shown, in order, and their rows
        self._places: list[int] = []
        self._said: list[str] = []
        self._query = ""

    def set_tape(self, tape: Tape | None) -> None:
        self.tape, self.position = tape, 0
        self.pieces = stretches(tape) if tape is not None else ()
        self._released = released_by_step(tape) if tape is not None else []
        self._said = []
        self._refill()

    def set_query(self, query: str) -> None:
        """Show the steps whose operation, layer or parameter has all words of the query."""
        self._query = query.casefold()
        self._refill()

    def _refill(self) -> None:
        self.beginResetModel()
        terms, self._rows = self._query.split(), []
        if terms and not self._said and self.tape is not None:
            self._said = [
                self._search_text(step) for step in range(len(self.tape.order))
            ]
        for number, piece in enumerate(self.pieces):
            steps: list[int] | range = range(piece.first, piece.end)
            if terms:
                steps = [
                    step
                    for step in steps
                    if all(word in self._said[step] for word in terms)
                ]
            if steps:
                self._rows.append(-1 - number)
                self._rows.extend(steps)
        self._firsts = [step for step in self._rows if step >= 0]
        self._places = [row for row, step in enumerate(self._rows) if step >= 0]
        self.endResetModel()

    def _search_text(self, step: int) -> str:
        node = self.node(step)
        assert self.tape is not None
        return " ".join(
            (node.name, self.tape.title_of(node), *node.parameters)
        ).casefold()

    def node(self, step: int) -> TapeNode:
        assert self.tape is not None
        return self.tape.nodes[self.tape.order[step]]

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def step_of(self, index: Index) -> int | None:
        """Return the step of a row; for a heading, the first of its layer."""
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        return row if row >= 0 else self.pieces[-1 - row].first

    def heading(self, index: Index) -> Stretch | None:
        row = self._rows[index.row()]
        return self.pieces[-1 - row] if row < 0 else None

    def row_of(self, step: int) -> int | None:
        """Return the row of a step, or of the last visible one before it."""
        index = bisect_right(self._firsts, step) - 1
        return self._places[index] if index >= 0 else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if (
            role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)
            or not index.isValid()
        ):
            return None
        piece = self.heading(index)
        if piece is not None:
            return (
                f"{piece.title}, frees {bytes_text(piece.released)}"
                if piece.released
                else piece.title
            )
        step = self._rows[index.row()]
        node = self.node(step)
        assert self.tape is not None
        named = node.parameters or (
            (self.tape.title_of(node),) if "." in node.layer else ()
        )
        text = f"{step + 1:,} {' '.join((node.name, *named))}"
        return (
            f"{text}, frees {bytes_text(self._released[step])}"
            if self._released[step]
            else text
        )


class _Rows(QStyledItemDelegate):
    """Paints a heading or a step: tick, play head or break point, number, name, and the parameter at right."""

    def __init__(self, model: StepModel) -> None:
        super().__init__()
        self._model = model
        self.height = max(QFontMetrics(theme.font("label")).height() + 4, ROW)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(60, self.height)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: Index
    ) -> None:
        model, colors, area = self._model, theme.current(), option.rect
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        piece, step = model.heading(index), model.step_of(index)
        assert step is not None
        runs_next = piece is None and step == model.position
        ground = QRectF(area.adjusted(5, 0, -5, 0))
        if runs_next:
            box(painter, ground, 5, colors.backBg, colors.outline(colors.back))
        elif option.state & QStyle.StateFlag.State_MouseOver:
            box(painter, ground, 5, colors.hover)
        if (
            option.state & QStyle.StateFlag.State_HasFocus
            and option.widget is not None
            and option.widget.hasFocus()
        ):
            box(painter, ground, 5, line=colors.accent)
        if piece is not None:
            self._paint_heading(painter, option, piece)
        else:
            self._paint_step(painter, option, step, runs_next)
        painter.restore()

    def _paint_heading(
        self, painter: QPainter, option: QStyleOptionViewItem, piece: Stretch
    ) -> None:
        colors, area = theme.current(), option.rect
        over = piece.end <= self._model.position
        middle = area.center().y()
        icons.draw(
            painter, piece.category, piece.category, area.left() + 12, middle - 6, 13
        )
        freed = f"{MINUS}{bytes_text(piece.released)}" if piece.released else ""
        room = area.adjusted(32, 0, -12, 0)
        used = write(
            painter, room, freed, theme.font("caption"), colors.text3, right=True
        )
        room.setRight(room.right() - used - 6)
        used = write(
            painter,
            room,
            piece.title,
            theme.font("section"),
            colors.text3 if over else colors.text,
        )
        if over:
            icons.draw(painter, "check", "run", room.left() + used + 6, middle - 5, 11)

    def _paint_step(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        step: int,
        runs_next: bool,
    ) -> None:
        model, colors, area = self._model, theme.current(), option.rect
        node, ran, middle = (
            model.node(step),
            step < model.position,
            option.rect.center().y(),
        )
        if step in model.breaks:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colors.error)
            painter.drawEllipse(QRectF(area.left() + 9, middle - 3.5, 8, 8))
        elif runs_next:
            icons.draw(painter, "run", "back", area.left() + 8, middle - 5, 11)
        elif ran:
            icons.draw(painter, "check", "text3", area.left() + 8, middle - 5, 11)
        tone = colors.back if runs_next else colors.text3 if ran else colors.text2
        metrics = QFontMetrics(theme.font("label"))
        wide = metrics.horizontalAdvance("0") * len(
            f"{len(model.tape.order) if model.tape else 0:,}"
        )
        number = area.adjusted(22, 0, 0, 0)
        number.setWidth(wide + 6)
        write(painter, number, f"{step + 1:,}", theme.font("label"), tone, right=True)
        room = area.adjusted(22 + wide + 14, 0, -12, 0)
        name, ink = node.name, colors.text if runs_next else tone
        path = (
            node.parameters[0]
            if node.parameters
            else node.layer
            if "." in node.layer
            else ""
        )
        if (
            node.is_leaf and path
        ):  # which parameter it is matters more than that its gradient is added up
            used = write(
                painter,
                room,
                _fitting(path, "label", room.width()),
                theme.font("label"),
                ink,
            )
            room.setLeft(room.left() + used + 6)
            if room.width() >= CAPTION:
                write(
                    painter, room, name, theme.font("caption"), colors.text3, right=True
                )
            return
        short = _fitting(path, "caption", room.width() * 0.45)
        used = write(
            painter, room, short, theme.font("caption"), colors.text3, right=True
        )
        room.setRight(room.right() - used - 6)
        write(painter, room, name, theme.font("label"), ink)


def _fitting(path: str, role: str, width: float) -> str:
    """Return a path that is cut at its front, as its end tells it from others."""
    return QFontMetrics(theme.font(role)).elidedText(
        path, Qt.TextElideMode.ElideLeft, int(width)
    )


class _List(QListView):
    """A click, or Enter, goes to a step; a double click, or B, sets a break point there."""

    sought = Signal(QModelIndex)
    broken = Signal(QModelIndex)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.sought.emit(self.currentIndex())
        elif event.key() == Qt.Key.Key_B and not event.modifiers():
            self.broken.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)


class StepList(QWidget):
    """Follows a `Player`, and seeks on a click."""

    def __init__(self, player: Player) -> None:
        super().__init__()
        self.player = player
        self.field = SearchField("Filter steps")
        self.model = StepModel(self)
        self.view = _List()
        self.view.setModel(self.model)
        self._delegate = _Rows(self.model)
        self.view.setItemDelegate(self._delegate)
        self.view.setUniformItemSizes(True)
        self.view.setMouseTracking(True)
        self.view.setFrameShape(QListView.Shape.NoFrame)
        self.view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.view.setAccessibleName("Steps of the backward pass")
        self.view.setAccessibleDescription(
            "Enter goes to a step, B sets a break point before it"
        )
        self._empty = EmptyState(
            "autograd", "No steps yet", "Capture a graph in the Autograd tab."
        )
        self._pages = QStackedWidget()
        self._pages.addWidget(self.view)
        self._pages.addWidget(self._empty)
        top = vbox(self.field, margins=(10, 0, 10, 0))
        vbox(top, (self._pages, 1), on=self, margins=(0, 10, 0, 0), spacing=8)
        self._connect()
        self._tape_changed()

    def _connect(self) -> None:
        player = self.player
        self.field.textChanged.connect(self._filter)
        self.view.clicked.connect(self._seek)
        self.view.sought.connect(self._seek)
        self.view.doubleClicked.connect(self._break)
        self.view.broken.connect(self._break)
        player.tape_changed.connect(self._tape_changed)
        player.moved.connect(self._moved)
        player.changed.connect(self._show_breaks)
        theme.manager().changed.connect(self.view.viewport().update)

    def _filter(self, query: str) -> None:
        self.model.set_query(query)
        self._show_page()

    def _show_page(self) -> None:
        if self.player.tape is None:
            self._empty.set_text("No steps yet", "Capture a graph in the Autograd tab.")
        else:
            self._empty.set_text(
                "No match", "No step matches by operation, layer or parameter."
            )
        self._pages.setCurrentIndex(0 if self.model.rowCount() else 1)

    def _tape_changed(self) -> None:
        tape = self.player.tape
        self.model.set_tape(tape)
        self.field.setPlaceholderText(
            f"Filter {len(tape.order):,} steps" if tape is not None else "Filter steps"
        )
        self._show_breaks()
        self._show_page()

    def _show_breaks(self) -> None:
        steps = self.player.tape.steps if self.player.tape is not None else {}
        self.model.breaks = frozenset(
            steps[node] for node in self.player.breaks if node in steps
        )
        self.view.viewport().update()

    def _moved(self, _before: int, now: int) -> None:
        # Only the position has changed; `dataChanged` would make the view measure all rows.
        self.model.position = now
        self.view.viewport().update()
        row = self.model.row_of(now)
        if row is not None and not self.view.underMouse():
            self._show_row(row)

    def _show_row(self, row: int) -> None:
        """Scroll to a row; `scrollTo` would measure all rows."""
        bar, height = self.view.verticalScrollBar(), self._delegate.height
        top, page = row * height, self.view.viewport().height()
        if top < bar.value():
            bar.setValue(top)
        elif top + height > bar.value() + page:
            bar.setValue(top + height - page + page // 3)

    def _seek(self, index: QModelIndex) -> None:
        step = self.model.step_of(index)
        if step is not None:
            self.player.seek(step)

    def _break(self, index: QModelIndex) -> None:
        step = self.model.step_of(index)
        if step is not None and self.player.tape is not None:
            self.player.toggle_break(self.player.tape.order[step])
