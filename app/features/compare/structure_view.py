"""Both hierarchies of modules in one picture, and what differs as a list; a choice in one is made in the other."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QItemSelectionModel, QPointF, QRectF, Qt, Signal
from PySide6.QtWidgets import QSplitter, QWidget

from app.diagram.diagram import Drawing
from app.diagram.layout import pack
from app.features.compare.merged_tree import Change, MergedTree
from app.util.columns import Column
from app.views.autograd.graph.faces import MARKS
from app.views.autograd.graph.parts import DrawnParts
from app.views.autograd.graph.scene import ArrangedDrawing
from app.views.autograd.graph.view import TapeView
from app.views.ui.background import Background
from app.views.ui.layouts import vbox
from app.views.ui.tables import Table

KEY = "structure of two models"
EDGE = 12.0  # around the picture
WORDS = {
    "added": "Only in B",
    "removed": "Only in A",
    "moved": "Moved",
    "changed": "Changed",
}
ICONS = {"added": "add", "removed": "remove", "moved": "redo", "changed": "warning"}
ROWS = "*"  # after a module's key: its equal modules are drawn one by one


def laid_out(tree: MergedTree, opened: frozenset[str], width: float) -> ArrangedDrawing:
    """Draw the modules with these parts open, in rows of a width; usable on any thread."""
    parts = DrawnParts(tree.drawing(opened))
    layout = pack(parts.drawing, parts.sizes(), width)
    return ArrangedDrawing.indexed(layout, parts, (width, 0.0))


CHANGES = (
    Column(
        "Difference",
        lambda change: WORDS[change.mark],
        icon=lambda change: (ICONS[change.mark], MARKS[change.mark]),
    ),
    Column("In A", lambda change: change.a),
    Column("In B", lambda change: change.b),
    Column("What", lambda change: change.what, color=lambda _change: "text2"),
)


class StructureView(QSplitter):
    """`chosen(key)` tells which module is selected."""

    chosen = Signal(str)

    def __init__(self, background: Background) -> None:
        super().__init__(Qt.Orientation.Vertical)
        self._background = background
        self.tree: MergedTree | None = None
        self._opened: frozenset[str] = frozenset()
        self._outdated = False
        self._wanted = ""  # what is selected once the picture is laid out
        self.view = TapeView(
            "Modules of both models",
            "Arrow keys move, Enter folds and unfolds, ] and [ unfold and fold one level everywhere",
        )
        self.scene = self.view.graph
        self.table = Table(CHANGES, "Differences of the structure")
        self.table.horizontalHeader().setStretchLastSection(True)
        picture = QWidget()
        vbox((self.view, 1), on=picture, margins=0, spacing=0)
        self.addWidget(picture)
        self.addWidget(self.table)
        self.setStretchFactor(0, 3)
        self.setStretchFactor(1, 1)
        self.setChildrenCollapsible(False)
        self.setHandleWidth(1)
        self.setSizes([320, 130])
        self.view.folded.connect(self.toggle)
        self.view.leveled.connect(self._level)
        self.scene.chosen.connect(self._box_chosen)
        self.table.chosen.connect(self._row_chosen)

    def set_tree(self, tree: MergedTree | None) -> None:
        """Show another pair of models, opened to what differs."""
        self.tree, self._wanted = tree, ""
        self.scene.choose("")
        self.table.cells.set_rows(tree.changes() if tree is not None else [])
        self.table.setVisible(bool(self.table.rows))
        self._fit_columns()
        self.scene.empty()
        if tree is not None:
            self._redraw(tree.opened())

    def drawing(self) -> Drawing | None:
        """Return the picture as it is folded."""
        return self.scene.drawing

    def reveal(self, key: str) -> None:
        """Select a module and scroll to it; its parents are unfolded."""
        if self.tree is None or key not in self.tree.by_key:
            return
        around = self.tree.around(key)
        rows = frozenset(f"{outer_key}{ROWS}" for outer_key in around)
        if not self.isVisible():
            self._wanted = key
        elif key in self.scene.boxes or key in self.scene.groups:
            self._choose(key)
        else:
            self._redraw(self._opened | around | rows, key)

    def toggle(self, key: str) -> None:
        """Open or close a module, or a row of equal ones."""
        if self.tree is None:
            return
        if key not in self.tree.by_key:  # a row of equal modules
            box = (
                next(
                    (
                        candidate
                        for candidate in self.scene.drawing.boxes
                        if candidate.id == key
                    ),
                    None,
                )
                if self.scene.drawing
                else None
            )
            if box is not None and box.group is not None:
                self._redraw(
                    self._opened | {f"{box.group}{ROWS}"}, key.rpartition(ROWS)[0]
                )
        elif self.tree.by_key[key].children:
            self._redraw((self._opened ^ {key}) - {f"{key}{ROWS}"}, key)

    def _level(self, by: int) -> None:
        if self.tree is None:
            return
        modules = frozenset(key for key in self._opened if not key.endswith(ROWS))
        leveled = self.tree.leveled(modules, by)
        rows = self._opened - modules
        if by > 0 and leveled == modules:
            rows = frozenset(f"{key}{ROWS}" for key in modules)
        elif by < 0:
            leveled, rows = (modules, frozenset()) if rows else (leveled, frozenset())
        self._redraw(leveled | rows, self.scene.current_key())

    def _redraw(self, opened: frozenset[str], key: str = "") -> None:
        self._opened = opened
        if not self.isVisible():
            self._outdated = True
            return
        self._outdated = False
        tree, width = self.tree, max(self.view.viewport().width() - 2 * EDGE - 8, 320.0)

        def show(done: ArrangedDrawing) -> None:
            if tree is not self.tree:
                return
            first = self.scene.drawing is None
            self.scene.show_arranged(done)
            if first or not key:
                self.view.show_corner(
                    self.scene.content_rect().topLeft(), QPointF(EDGE, EDGE), 1.0
                )
            if key and (key in self.scene.boxes or key in self.scene.groups):
                self._choose(key)

        self._background.ask(KEY, laid_out, tree, opened, width, on_answer=show)

    def showEvent(self, event: Any) -> None:
        super().showEvent(event)
        key, self._wanted = self._wanted, ""
        if self._outdated and self.tree is not None:
            around = self.tree.around(key) if key else frozenset()
            self._redraw(self._opened | around, key)
        elif key:
            self.reveal(key)
        self._fit_columns()

    def _choose(self, key: str) -> None:
        self.scene.choose(key)
        rect = self.scene.rect_of(key)
        if rect is not None:
            head = QRectF(rect.x, rect.y, rect.width, min(rect.height, 120.0))
            self.view.show_near(head)

    def _box_chosen(self, key: str) -> None:
        row = next(
            (at for at, change in enumerate(self.table.rows) if change.key == key), -1
        )
        selection = self.table.selectionModel()
        if row >= 0 and row != self.table.currentIndex().row():
            flags = (
                QItemSelectionModel.SelectionFlag.ClearAndSelect
                | QItemSelectionModel.SelectionFlag.Rows
            )
            selection.setCurrentIndex(self.table.cells.index(row, 0), flags)
        elif row < 0:
            selection.clear()
        self.chosen.emit(key)

    def _row_chosen(self, change: Change) -> None:
        if change.key != self.scene.current_key():
            self.reveal(change.key)

    def _fit_columns(self) -> None:
        if self.isVisible():
            self.table.resizeColumnsToContents()
