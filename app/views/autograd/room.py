"""The Autograd tab: head line, graph, and what it says while there is no graph."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLayout, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from app.autograd.drawing import draw, summary
from app.autograd.grouping import LayerGroup, fold, group_by_layer, opened
from app.autograd.tape import Tape, TapeNode
from app.drawing import Drawing
from app.views.autograd.faces import CHIP_HEIGHT
from app.views.autograd.minimap import Minimap
from app.views.autograd.scene import TapeScene
from app.views.autograd.view import TapeView
from app.views.theme import current, faded, manager
from app.views.widgets.banner import Banner
from app.views.widgets.button import Button, icon_button
from app.views.widgets.empty import EmptyState
from app.views.widgets.painting import Line, TextLine, at_least, box, label, start
from app.views.widgets.segmented import Segmented

EMPTY, BUSY, GRAPH = range(3)
# A small graph is laid out to fill the window as it is now, less what surrounds it.
PAGE_MARGIN = 110
BUSY_HINT = "torch builds the graph while the net computes."


class AutogradRoom(QWidget):
    """Shows a `Tape` folded by layer.

    `nodeSelected` tells the node of the canvas that a click selected (or None), `nodeHovered` the one under the
    pointer; `detail` the `TapeNode` or `LayerGroup` that the inspector shows (or None). `captureRequested(train)` asks
    for a tape, `exportRequested` for a file of the picture as it stands.
    """

    nodeSelected = Signal(object)
    nodeHovered = Signal(object)
    detail = Signal(object)
    captureRequested = Signal(bool)
    exportRequested = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tape: Tape | None = None
        self._groups: tuple[LayerGroup, ...] = ()
        self._unfolded: frozenset[str] = frozenset()
        self._quiet = False
        self._row: float | None = None
        self.scene = TapeScene(self)
        self.view = TapeView(self.scene)
        self.minimap = Minimap(self.view)
        self.head = _Head()
        self.banner = Banner()
        self.banner.hide()
        self._empty = EmptyState(
            "autograd",
            "No graph captured yet",
            "Run one batch forward: every operation leaves a backward node, with the tensors that it keeps.",
            "Capture one batch",
        )
        self._busy = EmptyState("autograd", "Running one batch forward…", BUSY_HINT)
        graph = QWidget()
        inside = QVBoxLayout(graph)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.setSpacing(0)
        inside.addWidget(self.head)
        inside.addWidget(Line())
        inside.addWidget(self.view, 1)
        self._pages = QStackedWidget()
        for page in (self._empty, self._busy, graph):
            self._pages.addWidget(page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.banner)
        layout.addWidget(self._pages, 1)
        self._connect()

    def _connect(self) -> None:
        self._empty.acted.connect(self._ask)
        self.banner.acted.connect(self._ask)
        self.head.capture.clicked.connect(self._ask)
        self.head.mode.changed.connect(self._ask)
        self.head.grouping.changed.connect(self._regroup)
        self.head.export.clicked.connect(self._export)
        self.head.frame.clicked.connect(self.view.frame_all)
        self.head.fold_all.clicked.connect(self._fold_all)
        self.view.folded.connect(self.toggle)
        self.scene.chosen.connect(self._chosen)
        self.scene.hovered.connect(self.nodeHovered)

    # -- what is shown -------------------------------------------------------------------------------------------------

    @property
    def tape(self) -> Tape | None:
        return self._tape

    @property
    def unfolded(self) -> frozenset[str]:
        """Keys of the groups that stand open."""
        return self._unfolded

    def set_tape(self, tape: Tape | None) -> None:
        """Show another tape; groups that were open in the last one stay open. None empties the tab."""
        first = self._tape is None
        known = {group.key for group in self._groups}
        self._tape = tape
        self.banner.hide()
        if tape is None:
            self._groups, self._unfolded = (), frozenset()
            self.scene.empty()
            self.minimap.rebuild()
            self._pages.setCurrentIndex(EMPTY)
            self.detail.emit(None)
            return
        self._groups = group_by_layer(tape)
        wanted = opened(self._groups)
        fresh = {group.key for group in self._groups} - known
        self._unfolded = wanted if first else (self._unfolded & {g.key for g in self._groups}) | (wanted & fresh)
        self.head.set_summary(summary(tape), tape)
        self._pages.setCurrentIndex(GRAPH)
        self._redraw()
        self.view.frame_all()
        self._chosen(self.scene.current_key())

    def show_busy(self, text: str = "Running one batch forward…") -> None:
        """Say that a batch is under way; an old graph stays in sight."""
        self.head.set_busy(True)
        if self._tape is None:
            self._busy.set_text(text, BUSY_HINT)
            self._pages.setCurrentIndex(BUSY)

    def show_error(self, title: str, reason: str) -> None:
        """Say why there is no new graph; an old one stays in sight."""
        self.head.set_busy(False)
        self.banner.set("error", title, reason, "Try again")
        self.banner.show()
        if self._tape is None:
            self._pages.setCurrentIndex(EMPTY)

    def set_source_text(self, text: str) -> None:
        """The net's text as it is now: a graph of another text is marked as such, and offers a new capture."""
        stale = self._tape is not None and bool(self._tape.text) and self._tape.text != text
        if stale and not self.banner.isVisibleTo(self):
            self.banner.set("info", "The net has changed since this batch ran", "", "Capture again")
            self.banner.show()
        elif not stale and self.banner.kind() == "info":
            self.banner.hide()

    def drawing(self) -> Drawing | None:
        """The `Drawing` as it stands, or None."""
        return self.scene.drawing if self._tape is not None else None

    def _redraw(self, same_rows: bool = False) -> None:
        """Draw the tape as it is folded; with `same_rows` boxes stay near where they were."""
        assert self._tape is not None
        grouped = self.head.grouping.value() == "layer"
        unfolded = self._unfolded if grouped else frozenset(group.key for group in self._groups)
        self.head.set_busy(False)
        self.head.fold_all.setEnabled(grouped)
        self.head.set_folded(not self._unfolded)
        drawing = draw(self._tape, fold(self._tape, self._groups, unfolded), grouped=grouped)
        room = self.view.viewport().size()
        page = (min(max(room.width() - PAGE_MARGIN, 640), 1500), max(room.height() - PAGE_MARGIN, 360))
        self._row = self.scene.show_drawing(drawing, page, self._row if same_rows else None)
        self.minimap.rebuild()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        painter.fillRect(self.rect(), current().canvas)
        painter.end()

    # -- gestures ------------------------------------------------------------------------------------------------------

    def toggle(self, key: str) -> None:
        """Open or close a group; its header stays where it was in the window, as far as all else stays in sight."""
        if self._tape is None or self.head.grouping.value() != "layer":
            return
        before = self._corner(key)
        self._unfolded = self._unfolded ^ {key}
        self._quiet = True
        self._redraw(same_rows=True)
        self._quiet = False
        after = self._corner(key)
        if before is not None and after is not None:
            self.view.pan(before.x() - after.x(), before.y() - after.y())
        self.view.show_if_it_fits()
        self.scene.choose(key if key in self.scene.groups else f"fold:{key}")
        self.view.setFocus()

    def _corner(self, key: str) -> QPoint | None:
        part = self.scene.part(key)
        return None if part is None else self.view.mapFromScene(part.pos())

    def _fold_all(self) -> None:
        self._unfolded = frozenset() if self._unfolded else frozenset(group.key for group in self._groups)
        self._redraw()
        self.view.frame_all()

    def _regroup(self) -> None:
        if self._tape is not None:
            self._redraw()
            self.view.frame_all()

    def _ask(self) -> None:
        self.captureRequested.emit(self.head.mode.value() == "train")

    def _export(self) -> None:
        if self.drawing() is not None:
            self.exportRequested.emit(self.drawing())

    # -- selection -----------------------------------------------------------------------------------------------------

    def select_nodes(self, ids: frozenset[str]) -> None:
        """Outline the layers of these canvas nodes, and bring them into sight if none of them is."""
        self.scene.set_linked(frozenset(ids))
        key = self.scene.current_key()
        part = self.scene.part(key) if key else None
        if part is not None and part.link not in ids:
            self._quiet = True
            self.scene.choose("")
            self._quiet = False
        parts = self.scene.linked_parts()
        if parts and part is None:
            self.view.ensure_seen(self.scene.area_of(parts))

    def _chosen(self, key: str) -> None:
        item = self.item_of(key)
        self.detail.emit(item)
        if not self._quiet:
            part = self.scene.part(key) if key else None
            self.nodeSelected.emit(part.link if part is not None else None)

    def item_of(self, key: str) -> TapeNode | LayerGroup | None:
        """The `TapeNode` or `LayerGroup` behind a box or a group of the scene; None for ""."""
        if self._tape is None or not key:
            return None
        name = key.removeprefix("fold:")
        group = next((group for group in self._groups if group.key == name), None)
        if group is not None:
            return group
        return self._tape.nodes[int(key)] if key.isdecimal() and int(key) < len(self._tape.nodes) else None


class _Head(QWidget):
    """The line above the graph: what it is, what the chips mean, and what can be done."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setMinimumHeight(38)
        self.root = label("loss.grad_fn", "section")
        self.summary = label("", "label", "text2")
        self.mode = Segmented([("train", "train()"), ("eval", "eval()")], "Mode of the net")
        self.mode.setToolTip("Dropout and BatchNorm behave differently in train() and eval()")
        self.grouping = Segmented([("layer", "Layer"), ("none", "None")], "Group by")
        self.capture = Button("Capture again")
        self.fold_all = Button("Fold all")
        self.export = icon_button("export", "Export this picture")
        self.frame = icon_button("frame", "Show everything (Home)")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(12, 5, 10, 5)
        layout.setSpacing(8)
        layout.addWidget(self.root)
        layout.addWidget(self.summary, 1)
        legend, group_by = Legend(), label("Group by", "label", "text3")
        layout.addWidget(legend)
        layout.addWidget(group_by)
        layout.addWidget(self.grouping)
        layout.addWidget(self.fold_all)
        layout.addWidget(self.mode)
        layout.addWidget(self.capture)
        layout.addWidget(self.export)
        layout.addWidget(self.frame)
        # The window may be narrower than all of this: the least important goes first, the summary is cut.
        layout.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        self.setMinimumWidth(1)
        self.summary.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._text = ""
        self._spare = (legend, group_by, self.root, self.fold_all, self.mode)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Hide what there is no room for."""
        metrics = self.summary.fontMetrics()
        layout = self.layout()
        widgets = [layout.itemAt(place).widget() for place in range(layout.count())]
        others = [widget for widget in widgets if widget is not None and widget is not self.summary]
        hidden: set[QWidget] = set()
        wanted = metrics.horizontalAdvance(self._text) + 8

        def needed() -> int:
            shown = [widget.sizeHint().width() for widget in others if widget not in hidden]
            return sum(shown) + layout.spacing() * (len(shown) + 1) + 22 + wanted

        for widget in self._spare:
            if needed() <= self.width():
                break
            hidden.add(widget)
        for widget in self._spare:
            widget.setVisible(widget not in hidden)
        room = self.width() - needed() + wanted - 4
        self.summary.setText(metrics.elidedText(self._text, Qt.TextElideMode.ElideRight, max(room, 0)))
        layout.activate()

    def set_summary(self, text: str, tape: Tape) -> None:
        self.root.setText("loss.grad_fn" if tape.loss is not None else "output.grad_fn")
        self._text = text
        self.summary.setToolTip(text)
        self.setAccessibleName(text)
        self._fit()

    def set_busy(self, busy: bool) -> None:
        self.capture.setEnabled(not busy)
        self.capture.setText("Running…" if busy else "Capture again")

    def set_folded(self, folded: bool) -> None:
        """Whether every group is closed, so that the button opens them."""
        self.fold_all.setText("Unfold all" if folded else "Fold all")


class Legend(QWidget):
    """What the chips' looks mean."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._held, self._kept = TextLine("held", "caption"), TextLine("kept anyway", "caption")
        self.setToolTip(
            "held: memory that only backward still needs\nkept anyway: parameters, buffers and the batch itself"
        )
        manager().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return at_least(self._held.width + self._kept.width + 2 * 24 + 18, 20)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        x = 0.0
        area = QRectF(self.rect())
        for line, fill, border in (
            (self._held, faded(theme.series[0], 0.20), faded(theme.series[0], 0.55)),
            (self._kept, None, theme.line3),
        ):
            swatch = QRectF(x, area.center().y() - CHIP_HEIGHT / 2 + 2, 18, CHIP_HEIGHT - 4)
            box(painter, swatch, 3, fill, border)
            line.draw_in(painter, x + 24, area, theme.text2)
            x += 24 + line.width + 16
        painter.end()
