"""The page "Compare": where two models part, their layers side by side, and both hierarchies in one picture."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct
from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QMenu,
    QPlainTextEdit,
    QSizePolicy,
    QSplitter,
    QStackedLayout,
    QStackedWidget,
    QTableView,
    QWidget,
)

from app.features.compare import layer_rows
from app.features.compare.layer_rows import (
    CLASS,
    COLUMNS,
    LAYER_A,
    LAYER_B,
    WEIGHTS,
    LayerRow,
    adds,
    name_of,
)
from app.features.compare.merged_tree import MergedTree
from app.features.compare.source_lines import SourceLines
from app.features.compare.structure_view import StructureView
from app.features.compare.values import Difference, First, Layer
from app.util.formatting import counted
from app.views.ui import theme
from app.views.ui.background import Background
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.scrolled import Scrolled
from app.views.ui.tables import Table
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import (
    Divider,
    Glyph,
    TextLine,
    announce,
    elided,
    label,
)
from app.views.ui.widgets.segmented import Segmented

# --- The table of matched layers: sorted by any column; those that add to the error are marked, those that inherit it
# are

LEAST_ROWS = 3  # of which the first is in sight in a small window
SAMPLED = 40  # rows that are measured for the widths of the columns
LONGEST, WIDEST = (
    260,
    92,
)  # pixels of a path and of a class, where there is no room for more
LIMITS = {LAYER_A: LONGEST, LAYER_B: LONGEST, CLASS: WIDEST}


class LayerTable(Table):
    """The rows of layers; all of them, or those that add to the error."""

    def __init__(self) -> None:
        super().__init__(COLUMNS, "Matched layers")
        self.sort_by_header(SAMPLED)
        self._needed: dict[int, int] = {}  # px of each column; empty until measured
        theme.manager().changed.connect(self.viewport().update)

    def opens(self, row: LayerRow) -> str:
        return f"Show {name_of(row.layer.a)}"

    def minimumSizeHint(self) -> QSize:
        """Ask for whole rows below the heading: a table of none shows nothing."""
        rows = LEAST_ROWS * self.verticalHeader().defaultSectionSize()
        bar = self.horizontalScrollBar().sizeHint().height()
        return QSize(80, self.horizontalHeader().sizeHint().height() + rows + bar)

    def set_layers(self, rows: Sequence[LayerRow], only_adding: bool = False) -> None:
        """Show these layers; B's paths have a column where any differs from A's, weights where they are compared."""
        shown = [row for row in rows if adds(row.layer) or not only_adding]
        self.cells.set_rows(shown)
        same = all(row.layer.a == row.layer.b for row in rows)
        self.setColumnHidden(LAYER_B, same)
        self.setColumnHidden(WEIGHTS, all(row.moved is None for row in rows))
        self._measure()

    def _measure(self) -> None:
        """Measure the columns again, at the text size in force."""
        self._needed = {}
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            QTimer.singleShot(
                0, self, self._measure
            )  # once the heading has its font too

    def choose(self, path: str) -> bool:
        """Select the first call of a module of A; return whether it is listed."""
        for at, row in enumerate(self.rows):
            if row.layer.a == path:
                self.selectRow(at)
                self._center()
                QTimer.singleShot(0, self, self._center)  # once it has its height
                return True
        return False

    def _center(self) -> None:
        if self.currentIndex().isValid():
            self.scrollTo(
                self.currentIndex().siblingAtColumn(LAYER_A),
                QTableView.ScrollHint.PositionAtCenter,
            )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Make the columns as wide as their content; what room is left goes to the paths."""
        if not self.isVisible():
            return
        shown = [
            column for column in range(len(COLUMNS)) if not self.isColumnHidden(column)
        ]
        header = self.horizontalHeader()
        if self._needed.keys() != set(shown):
            self._needed = {
                column: max(
                    self.sizeHintForColumn(column) + 4, header.sectionSizeHint(column)
                )
                for column in shown
            }
        widths = self._needed
        if sum(widths.values()) > self.viewport().width():
            widths = {
                column: min(width, LIMITS.get(column, width))
                for column, width in widths.items()
            }
        spare = max(self.viewport().width() - sum(widths.values()), 0)
        for column in shown:
            self.setColumnWidth(column, widths[column] + spare // len(shown))


LAYERS, STRUCTURE, REPORT = "layers", "structure", "report"
TEXT, JSON = "text", "json"
HINT = (
    "Finds the first layer at which two models, runs or checkpoints differ, with its line in each, and separates the "
    "error that each layer adds from what it inherits."
)
ASK = "Compare with…"
TICK = 1000  # milliseconds
PAD = 12
NARROW = 640  # px, below which the button that compares is an icon
NAMES = 150  # px of both names, from which they are beside the controls, at the designed text size


class Compared(Struct, frozen=True, eq=False):
    """What is shown of a comparison: prepared on a worker thread."""

    found: Difference
    rows: tuple[LayerRow, ...]
    tree: MergedTree
    report: str


def sentence_of(difference: Difference) -> str:
    """Say in one sentence where two models part."""
    first = difference.first
    if first is not None:
        name = layer_rows.name_of(first.a)
        other = f" ({layer_rows.name_of(first.b)} in B)" if first.b != first.a else ""
        return f"They first differ at {name}{other}, in the {first.direction} pass in {first.mode} mode: {first.why}."
    structure = difference.structure
    if difference.ran:
        calls = counted(len(difference.layers), "layer call")
        modules = "" if structure.same else " Their modules differ: see Structure."
        return f"Nothing differs beyond rounding, forward and backward, in {calls}.{modules}"
    if not difference.differs:
        return "Nothing differs; nothing was run."
    parts = [
        f"{len(changes):,} {description}"
        for changes, description in (
            (structure.removed, "only in A"),
            (structure.added, "only in B"),
            (structure.changed, "changed"),
            (
                [distance for distance in difference.distances if distance.distance],
                "with other weights",
            ),
        )
        if changes
    ]
    return f"Differences: {', '.join(parts)}; nothing was run."


def place_of(file: str, line: int, operation: str) -> str:
    """Return where a line is, and the operation in it.

    >>> place_of("/home/me/net.py", 12, "relu"), place_of("", 0, "")
    ('net.py:12  relu', '')
    """
    if not line:
        return ""
    name = (
        "generated code"
        if file.startswith("<")
        else file.replace("\\", "/").rpartition("/")[2]
    )
    return f"{name}:{line}{f'  {operation}' if operation else ''}"


class Verdict(QWidget):
    """The sentence, and a link to the line in each model. `followed(side)` is emitted by a link, "a" or "b"."""

    followed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.glyph = Glyph("check", "run", 18)
        self.sentence = label("", "message", wrap=True)
        self.sentence.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
        )
        self.links = {side: Button("", "link") for side in ("a", "b")}
        for side, link in self.links.items():
            link.clicked.connect(lambda _=False, side=side: self.followed.emit(side))
        self._words = {"a": "", "b": ""}
        row = hbox(*self.links.values(), 1, spacing=12)
        column = vbox(self.sentence, row, spacing=2)
        hbox(
            (self.glyph, 0, Qt.AlignmentFlag.AlignTop),
            (column, 1),
            on=self,
            margins=(PAD, 8, PAD, 6),
            spacing=10,
        )

    def show_found(self, difference: Difference) -> None:
        """Show the first layer that differs, or that none does."""
        self.glyph.set(
            "warning" if difference.differs else "check",
            "warn" if difference.differs else "run",
        )
        self.sentence.setText(sentence_of(difference))
        first = difference.first or First("", "", "forward", "", "")
        self._words = {
            "a": place_of(first.file_a, first.line_a, first.operation_a),
            "b": place_of(first.file_b, first.line_b, first.operation_b),
        }
        for side, link in self.links.items():
            link.setVisible(bool(self._words[side]))
            link.setToolTip(f"Show this line of {side.upper()}: {self._words[side]}")
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        room = (self.width() - 4 * PAD - self.glyph.width()) / 2 - 40
        for side, link in self.links.items():
            link.setText(
                f"{side.upper()}   {elided(self._words[side], 'button', room).text}".replace(
                    "&", "&&"
                )
            )


class DiffPage(QWidget):
    """`askRequested` asks what to compare, `cancelRequested` to stop, `copyRequested(kind)` for the clipboard.
    `lineRequested(side, first or layer)` goes to a line on the canvas or in the picture of a model, and
    `layerChosen(layer)` wants the lines of a layer shown."""

    askRequested = Signal()
    cancelRequested = Signal()
    copyRequested = Signal(str)
    lineRequested = Signal(str, object)
    layerChosen = Signal(object)

    def __init__(self, background: Background, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.compared: Compared | None = None
        self._began = 0.0
        self._doing = ""
        self._clock = QTimer(self, interval=TICK)
        self._clock.timeout.connect(self._show_busy)
        self.banner = Banner()
        self.banner.hide()
        self._make_head()
        self.verdict = Verdict()
        self.table = LayerTable()
        self.lines = SourceLines()
        self.structure = StructureView(background)
        self.report = QPlainTextEdit()
        self.report.setReadOnly(True)
        self.report.setFont(theme.font("code"))
        self.report.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.report.setAccessibleName("Report")
        self.report.setTabChangesFocus(True)
        self._lay_out()
        self._connect()
        self._fit_head()
        self.set_busy("")

    def _make_head(self) -> None:
        self.names = label("", "label", "text2")
        self.names.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.which = Segmented(
            [(LAYERS, "Layers"), (STRUCTURE, "Structure"), (REPORT, "Report")],
            "What is shown",
        )
        self.copy = Button(icon="copy")
        self.copy.setToolTip("Copy the result")
        self.copy.setAccessibleName("Copy the result")
        menu = QMenu(self.copy)
        menu.addAction("Copy as text", lambda: self.copyRequested.emit(TEXT))
        menu.addAction("Copy as JSON", lambda: self.copyRequested.emit(JSON))
        self.copy.setMenu(menu)
        self.copy_menu = menu
        self.ask = Button(ASK, icon="compare")
        self.ask.setToolTip(ASK)
        self.ask.setAccessibleName(ASK)
        self.busy = label("", "label", "text2")
        self.cancel = Button("Cancel")
        self.cancel.setToolTip("Stop comparing, and keep what is shown (Esc)")
        self.working = QWidget()
        hbox(
            (self.busy, 1),
            self.cancel,
            on=self.working,
            margins=(PAD, 5, 10, 5),
            spacing=8,
        )
        self.filter = Segmented(
            [("all", "All layers"), ("adding", "Adding error")], "Which layers"
        )
        self.facts = label("", "caption", "text3")
        self.facts.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.note = label("", "caption", "text3", wrap=True)
        self.note.setContentsMargins(PAD, 2, PAD, 6)
        self.note.hide()

    def _lay_out(self) -> None:
        head = QWidget()
        row = FlowLayout(
            head, (PAD, 5, 10, 5), 8
        )  # the names have a row of their own where it is narrow
        row.fill(self.names)
        row.put(self.copy, self.ask, self.which)
        listed = QWidget()
        filters = hbox(
            self.filter, (self.facts, 1), margins=(PAD, 5, 10, 5), spacing=PAD
        )
        vbox(filters, (self.table, 1), on=listed, margins=0, spacing=0)
        self.split = QSplitter(Qt.Orientation.Vertical)
        self.split.addWidget(listed)
        self.split.addWidget(self.lines)
        self.split.setChildrenCollapsible(False)
        self.split.setHandleWidth(1)
        self.split.setSizes([300, 150])
        self._views = QStackedWidget()
        for view in (Scrolled(self.split), self.structure, self.report):
            self._views.addWidget(view)
        shown = QWidget()
        vbox(
            head,
            Divider(),
            self.verdict,
            self.note,
            Divider(),
            (self._views, 1),
            on=shown,
            margins=0,
            spacing=0,
        )
        self.empty = EmptyState("compare", "Nothing compared yet", HINT, ASK)
        body = QWidget()
        self._stack = QStackedLayout(body)
        self._stack.addWidget(self.empty)
        self._stack.addWidget(shown)
        vbox(self.banner, self.working, (body, 1), on=self, margins=0, spacing=0)

    def _connect(self) -> None:
        self.empty.acted.connect(self.askRequested)
        self.ask.clicked.connect(self.askRequested)
        self.cancel.clicked.connect(self.cancelRequested)
        self.which.changed.connect(self._show_view)
        self.filter.changed.connect(lambda _key: self._show_layers())
        self.verdict.followed.connect(self._follow_first)
        self.table.chosen.connect(lambda row: self._layer_chosen(row.layer))
        self.structure.chosen.connect(self._module_chosen)
        self.table.opened.connect(lambda row: self.lineRequested.emit("a", row.layer))
        theme.manager().changed.connect(self._fit_head)

    @property
    def home(self) -> QWidget:
        """The widget that the keys are for."""
        if self._doing:
            return self.cancel
        if self.compared is None:
            return self.empty.button
        return {
            LAYERS: self.table,
            STRUCTURE: self.structure.view,
            REPORT: self.report,
        }[self.which.value()]

    # -- what is under way

    def set_busy(self, status: str) -> None:
        """Show what is being done, "" for nothing."""
        if status and not self._doing:
            self._began = time.monotonic()
            self._clock.start()
        self._doing = status
        self.working.setVisible(bool(status))
        self.ask.setEnabled(not status)
        self.empty.button.setEnabled(not status)
        if status:
            self._show_busy()
        else:
            self._clock.stop()

    def _show_busy(self) -> None:
        self.busy.setText(f"{self._doing}…  {time.monotonic() - self._began:.0f} s")

    @property
    def working_on(self) -> str:
        return self._doing

    def refuse(self, title: str, reason: str) -> None:
        """Say why there is no result; one that is shown stays."""
        self.banner.set("error", title, reason)
        self.banner.show()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._doing:
            self.cancelRequested.emit()
        else:
            super().keyPressEvent(event)

    # -- the result

    def show_compared(self, compared: Compared) -> None:
        """Show a comparison in place of the last one."""
        self.compared, difference = compared, compared.found
        self.banner.hide()
        self._show_names()
        self.verdict.show_found(difference)
        self.set_note("")
        self.report.setPlainText(compared.report)
        adding = sum(layer_rows.adds(row.layer) for row in compared.rows)
        calls = counted(len(difference.layers), "layer call")
        self.facts.setText(
            f"{adding:,} of {calls} {'add' if adding > 1 else 'adds'} more than rounding explains; grey ones inherit"
            if adding
            else f"None of {calls} adds more than rounding explains"
        )
        self.which.set_option_enabled(
            LAYERS, bool(difference.layers), "Nothing was run, so no layer has numbers"
        )
        self.filter.set_option_enabled(
            "adding", bool(adding), "No layer adds more than rounding explains"
        )
        if not adding:
            self.filter.set_value("all")
        self.structure.set_tree(compared.tree)
        self._show_layers()
        if not difference.layers and self.which.value() == LAYERS:
            self.which.set_value(STRUCTURE if not difference.structure.same else REPORT)
        self._stack.setCurrentIndex(1)
        self._show_view()
        if difference.first is not None:
            self.table.choose(difference.first.a)
        elif difference.layers:
            self.table.selectRow(0)
        announce(self, sentence_of(difference))

    def set_note(self, message: str) -> None:
        """Say what has changed since, "" for nothing."""
        self.note.setText(message)
        self.note.setVisible(bool(message))

    def _show_layers(self) -> None:
        if self.compared is None:
            return
        chosen = self.table.current
        self.table.set_layers(self.compared.rows, self.filter.value() == "adding")
        if chosen is not None:
            self.table.choose(chosen.layer.a)

    def _show_view(self, _key: str = "") -> None:
        self._views.setCurrentIndex(
            (LAYERS, STRUCTURE, REPORT).index(self.which.value())
        )

    def _show_names(self) -> None:
        if self.compared is None:
            return
        difference = self.compared.found
        bare = TextLine("A      B  ", "label").width
        a, b = difference.name_a, difference.name_b
        if (
            bare + TextLine(f"{a}{b}", "label").width > self.names.width()
        ):  # each gets half
            half = (self.names.width() - bare) / 2
            a, b = (
                elided(name, "label", half, middle=True).text for name in (a, b)
            )  # they differ at their ends
        self.names.setText(f"A  {a}    B  {b}")
        self.names.setToolTip(f"A: {difference.name_a}\nB: {difference.name_b}")

    def _fit_head(self) -> None:
        self.ask.setText(ASK if self.width() >= NARROW else "")
        self.names.setMinimumWidth(round(NAMES * theme.manager().scale))
        QTimer.singleShot(0, self, self._show_names)  # once the head has its new size

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_head()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(
            event, QKeyEvent
        ):
            if event.key() == Qt.Key.Key_Escape and self._doing:
                event.accept()
                return True
        return super().event(event)

    def _follow_first(self, side: str) -> None:
        if self.compared is not None and self.compared.found.first is not None:
            self.lineRequested.emit(side, self.compared.found.first)

    def show_layer(self, layer: First | Layer) -> None:
        """Select the row of a layer, which shows its lines."""
        self.which.set_value(LAYERS)
        self.table.choose(layer.a)
        self.layerChosen.emit(layer)

    def _layer_chosen(self, layer: Layer) -> None:
        """Have its lines shown, and select it in the picture of both."""
        self.layerChosen.emit(layer)
        if self.structure.scene.current_key() != f"a:{layer.a}":
            self.structure.reveal(f"a:{layer.a}")

    def _module_chosen(self, key: str) -> None:
        """Select the row of a module that was selected in the picture."""
        row = self.table.current
        if key.startswith("a:") and (row is None or row.layer.a != key[2:]):
            self.table.choose(key[2:])
