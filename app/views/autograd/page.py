"""The Autograd tab: header, graph, and the empty state."""

from __future__ import annotations

import math

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QPaintEvent, QShortcut
from PySide6.QtWidgets import QStackedWidget, QWidget

from app.autograd.blocks import group_by_block
from app.autograd.grouping import (
    Folded,
    LayerGroup,
    deeper,
    fold,
    group_by_layer,
    opened,
    shallower,
)
from app.autograd.pictures.diagram import draw, summary
from app.autograd.tape import Tape, TapeNode
from app.diagram.diagram import Drawing
from app.views.autograd.capture_offer import CaptureOffer
from app.views.autograd.graph.bars import PathHighlight, TapeFinder
from app.views.autograd.graph.scene import ArrangedDrawing, arranged
from app.views.autograd.graph.view import TapeView
from app.views.autograd.header import AutogradHeader
from app.views.ui.free_place import free_place
from app.views.ui.layouts import vbox
from app.views.ui.theme import current
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.focus import focus_in
from app.views.ui.widgets.painting import Divider, start
from app.views.ui.widgets.toast import ToastStack

EMPTY, BUSY, GRAPH = range(3)
# A small graph is laid out to fill the window as it is now, less what surrounds it.
PAGE_MARGIN = 110
FEW = 60  # boxes of a picture that is laid out in several ways, and again for a view of another size
SCALES = (1.0, 0.75, 0.55, 0.4)  # at which such a picture is tried to fit the view
LEAST = 80  # pixels of a view that a picture is laid out for
OTHER = 0.2  # log of the ratio of two proportions that differ
SETTLED = 120  # milliseconds after the last change of size
RANDOM = "Capture with random inputs"
BATCH_HINT = "Run one batch forward: each operation records a backward node and the tensors it saves."
STEP_HINT = "Pause the script before its next backward to see each operation and the tensors it saves."
BUSY_HINT = "PyTorch builds the graph during the forward pass."


class AutogradPage(QWidget):
    """Shows a `Tape` grouped by layer or by block.

    `nodeSelected` carries the canvas node of a click (or None), `nodeHovered` that under the pointer, and `detail` the
    `TapeNode` or `LayerGroup` for the inspector (or None). `captureRequested(train)` requests a tape,
    `randomRequested` one of random inputs, `cancelled` that the one under way is not wanted, `placeRequested(node)` to
    see the node of the canvas that cannot run, `exportRequested` a file of the drawing.
    """

    nodeSelected = Signal(object)
    nodeHovered = Signal(object)
    detail = Signal(object)
    captureRequested = Signal(bool)
    randomRequested = Signal()
    cancelled = Signal()
    placeRequested = Signal(str)
    exportRequested = Signal(object)
    redrawn = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tape: Tape | None = None
        self._groups: tuple[LayerGroup, ...] = ()
        self._by_key: dict[str, LayerGroup] = {}
        self._folded: Folded | None = None
        self._unfolded: frozenset[str] = frozenset()
        # The unfolded groups of the grouping that is not shown.
        self._kept: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._grouping = "layer"
        self._searched: frozenset[str] = (
            frozenset()
        )  # groups that are open for what was found last
        self._quiet = False
        self._row: float | None = None
        self.view = TapeView(
            "Autograd graph",
            "Arrow keys follow the gradients, Enter folds and unfolds, ] and [ unfold and fold one level everywhere, "
            "Shift+click marks the path from the selection",
        )
        self.scene, self.minimap = self.view.graph, self.view.minimap
        self._page = (0, 0)
        self._resized = QTimer(self, singleShot=True, interval=SETTLED)
        self._resized.timeout.connect(self._fit)
        self.head = AutogradHeader()
        self.banner = Banner()
        self.standing = (
            Banner()
        )  # of a script that is paused while its step is inspected
        self.standing.set_closable(False)
        messages = ToastStack(self, free_place)  # over the graph, which keeps its place
        self.finder = TapeFinder()
        self.way = PathHighlight(self.scene, self.view, self.item_of)
        self.offer = CaptureOffer("No graph captured yet", BATCH_HINT, STEP_HINT)
        self._busy = EmptyState(
            "autograd", "Running the forward pass…", BUSY_HINT, "Cancel"
        )
        self._busy.button.set_kind("secondary")
        self._covered = False  # whether the banner was hidden for a capture under way
        self._at_fault = (
            "",
            "",
        )  # the node that cannot run, and the text of the action that shows it
        graph = QWidget()
        vbox(
            self.head,
            self.head.below,
            Divider(),
            self.finder,
            self.way,
            (self.view, 1),
            on=graph,
            margins=0,
            spacing=0,
        )
        self._pages = QStackedWidget()
        for page in (self.offer, self._busy, graph):
            self._pages.addWidget(page)
        vbox(self._pages, on=self, margins=0, spacing=0)
        for banner in (self.standing, self.banner):
            messages.add_banner(banner)
        self._connect()

    def _connect(self) -> None:
        self.offer.acted.connect(self._request_capture)
        self._busy.acted.connect(self.cancelled)
        self._escape = QShortcut(
            QKeySequence(Qt.Key.Key_Escape), self, self.cancelled.emit
        )
        self._escape.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._escape.setEnabled(False)
        self.banner.chosen.connect(self._banner_chosen)
        self.head.capture.clicked.connect(self._capture_or_cancel)
        self.head.mode.changed.connect(self._request_capture)
        self.head.grouping.changed.connect(self._regroup)
        self.head.export.clicked.connect(self._export)
        self.head.frame.clicked.connect(self.view.frame_all)
        self.head.fold_all.clicked.connect(self._fold_all)
        self.head.search.clicked.connect(lambda: self.find_nodes())
        self.finder.found.connect(self._show_found)
        self.finder.closed.connect(self._end_search)
        self.view.resized.connect(self._resized.start)
        self.view.folded.connect(self.toggle)
        self.view.led.connect(self.way.mark)
        self.view.escaped.connect(self.way.end)
        self.view.leveled.connect(self._level)
        find = QShortcut(QKeySequence.StandardKey.Find, self, lambda: self.find_nodes())
        find.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.scene.chosen.connect(self._selected)
        self.scene.hovered.connect(self.nodeHovered)

    # -- content -------------------------------------------------------------------------------------------------------

    @property
    def tape(self) -> Tape | None:
        return self._tape

    @property
    def unfolded(self) -> frozenset[str]:
        """Keys of the unfolded groups."""
        return self._unfolded

    def set_tape(self, tape: Tape | None) -> None:
        """Show another tape; groups that were open in the last one stay open. None empties the tab."""
        first = self._tape is None
        self._tape = tape
        self.banner.hide()
        self.finder.set_tape(tape)
        if tape is None:
            self._set_busy(False)
            self._groups, self._by_key, self._unfolded, self._kept = (
                (),
                {},
                frozenset(),
                {},
            )
            self._folded = None
            self.way.clear()
            self.scene.empty()
            self._pages.setCurrentIndex(EMPTY)
            self.detail.emit(None)
            return
        self.way.clear()
        if first:
            self._choose_grouping(tape)
        self._group(keep=not first)
        self.head.set_summary(summary(tape), tape)
        waiting = (
            self._pages.currentIndex() != GRAPH and focus_in(self._pages) is not None
        )
        self._pages.setCurrentIndex(GRAPH)
        if waiting:  # Qt would choose the first button of the header
            self.view.setFocus()
        self._redraw()
        self.view.frame_all()
        self._selected(self.scene.current_key())

    def _choose_grouping(self, tape: Tape) -> None:
        """Group by block if there are blocks, unless the user chose no grouping."""
        if self._grouping != "none":
            self._grouping = (
                "block"
                if any(group.parent for group in group_by_block(tape))
                else "layer"
            )
            self.head.grouping.blockSignals(True)
            self.head.grouping.set_value(self._grouping)
            self.head.grouping.blockSignals(False)

    def _group(self, keep: bool) -> None:
        """Group the tape; with `keep` groups that were open stay open."""
        assert self._tape is not None
        old_keys = {group.key for group in self._groups}
        self._groups = (
            group_by_block(self._tape)
            if self._grouping == "block"
            else group_by_layer(self._tape)
        )
        self._by_key = {group.key: group for group in self._groups}
        opened_keys = opened(self._groups)
        self._unfolded = (
            (self._unfolded & self._by_key.keys()) | (opened_keys - old_keys)
            if keep
            else opened_keys
        )

    def show_busy(
        self, text: str = "Running the forward pass…", hint: str = BUSY_HINT
    ) -> None:
        """Show that a capture is running, and can be cancelled; the old graph stays visible."""
        if not self.busy:
            self._covered = self.banner.isVisibleTo(self)
        self._set_busy(True, text)
        self.banner.hide()
        if self._tape is None:
            self._busy.set_text(text, hint)
            self._pages.setCurrentIndex(BUSY)

    @property
    def busy(self) -> bool:
        """Return whether a capture is shown to be under way."""
        return self._escape.isEnabled()

    def _set_busy(self, busy: bool, status: str = "") -> None:
        self._escape.setEnabled(busy)
        self.head.set_busy(busy, status)

    def show_idle(self) -> None:
        """Show that nothing is captured any more: all is as before."""
        if self.busy:
            self.banner.setVisible(self._covered)
        self._set_busy(False)
        if self._tape is not None:
            self.head.set_mode(self._tape.train)
        if self._tape is None:
            self._pages.setCurrentIndex(EMPTY)

    def show_standing(self, kind: str, title: str, reason: str, *actions: str) -> None:
        """Show that a script is paused or has continued."""
        self.standing.set(kind, title, reason, *actions)
        self.standing.show()

    def clear_error(self, title: str) -> None:
        """Take an error away that is over, if it is the one in sight."""
        if self.banner.title() == title:
            self.banner.hide()

    def show_error(
        self,
        title: str,
        reason: str,
        random: bool = False,
        node: str = "",
        name: str = "",
    ) -> None:
        """Show why there is no new graph; an old one stays visible. With `random` offer random inputs, with a `node` of
        the canvas to show it under its `name`."""
        self._set_busy(False)
        self._at_fault = node, f"Show {name}" if node else ""
        offers = [RANDOM] if random else []
        self.banner.set(
            "error",
            title,
            reason,
            *offers,
            *filter(None, [self._at_fault[1]]),
            "Try again",
        )
        self.banner.show()
        if self._tape is None:
            self._pages.setCurrentIndex(EMPTY)

    def set_source_text(self, text: str) -> None:
        """Set the current source of the net: a graph of another source is marked, with the offer of a new capture."""
        stale = (
            self._tape is not None and bool(self._tape.text) and self._tape.text != text
        )
        if stale and not self.banner.isVisibleTo(self):
            self.banner.set(
                "info",
                "The network has changed since this batch ran",
                "",
                "Capture again",
            )
            self.banner.show()
        elif not stale and self.banner.kind() == "info":
            self.banner.hide()

    def set_weights(self, description: str) -> None:
        """Show which weights the net has in the next graph."""
        self.head.weights = description

    def drawing(self) -> Drawing | None:
        """Return the current `Drawing`, or None."""
        return self.scene.drawing if self._tape is not None else None

    def _redraw(self, same_rows: bool = False) -> None:
        """Draw the tape as it is folded; with `same_rows` boxes stay near where they were."""
        assert self._tape is not None
        grouped = self._grouping != "none"
        self._set_busy(False)
        self.head.fold_all.setEnabled(grouped)
        self.head.set_folded(
            not any(
                group.key in self._unfolded
                for group in self._groups
                if group.parent is None
            )
        )
        page = self._page = self._page_size()
        self._folded = fold(
            self._tape,
            self._groups,
            self._unfolded if grouped else frozenset(self._by_key),
        )
        drawing = draw(self._tape, self._folded, grouped=grouped)
        if same_rows or len(drawing.boxes) > FEW:
            self._row = self.scene.show_drawing(
                drawing, page, self._row if same_rows else None
            )
        else:
            self._row = self.scene.show_arranged(self._largest(drawing))
        self.way.show_in(self._folded.place)
        self.redrawn.emit()

    def _largest(self, drawing: Drawing) -> ArrangedDrawing:
        """Lay a small graph out in rows of several widths, and return that which is the largest in the view."""
        left, top, right, bottom = self.view.PADS
        width, height = (
            self.view.viewport().width() - left - right,
            self.view.viewport().height() - top - bottom,
        )
        width, height = max(width, LEAST), max(height, LEAST)

        def scale(done: ArrangedDrawing) -> float:
            return min(done.scale_in((width, height)), 1.0)

        tries = [arranged(drawing, self._page_size(), None)]
        for factor in SCALES:
            if scale(tries[-1]) >= 1.0:
                break
            tries.append(arranged(drawing, (width / factor, height / factor), None))
        return max(tries, key=scale)

    def _page_size(self) -> tuple[int, int]:
        """Return the size of a picture that fills the view."""
        room = self.view.viewport().size()
        return min(max(room.width() - PAGE_MARGIN, 640), 1500), max(
            room.height() - PAGE_MARGIN, 360
        )

    def _fit(self) -> None:
        """Lay a small picture out again, if all of it is framed and the view has other proportions than it was laid out
        for, such as beside a panel that was opened."""
        if self._tape is None or not self.view.whole or len(self.scene.boxes) > FEW:
            return
        (width, height), (before, below) = self._page_size(), self._page
        if abs(math.log(width / height * below / before)) > OTHER:
            self._redraw_quietly(same_rows=False)
            self.view.frame_all()

    @property
    def folded(self) -> Folded | None:
        """The folded tape in view; `redrawn` reports a change."""
        return self._folded

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        painter.fillRect(self.rect(), current().canvas)
        painter.end()

    # -- gestures ------------------------------------------------------------------------------------------------------

    def toggle(self, key: str) -> None:
        """Open or close a group; its header stays where it was in the window, unless half of that were empty then."""
        if self._tape is None or self._grouping == "none":
            return
        before = self._corner(key)
        self._unfolded = self._unfolded ^ {key}
        self._redraw_quietly()
        after = self._corner(key)
        if before is not None and after is not None:
            self.view.pan(before.x() - after.x(), before.y() - after.y())
        self.view.fill_view()
        self.scene.choose(key if key in self.scene.groups else f"fold:{key}")
        self.view.setFocus()

    def _redraw_quietly(self, same_rows: bool = True) -> None:
        self._quiet = True
        self._redraw(same_rows)
        self._quiet = False

    def _corner(self, key: str) -> QPoint | None:
        box_or_group = self.scene.part(key)
        return (
            None
            if box_or_group is None
            else self.view.mapFromScene(box_or_group.extent.topLeft())
        )

    def _fold_all(self) -> None:
        everything = frozenset(self._by_key)
        folded = not any(
            group.key in self._unfolded
            for group in self._groups
            if group.parent is None
        )
        self._unfolded = everything if folded else frozenset()
        self._redraw()
        self.view.frame_all()

    def _level(self, step: int) -> None:
        """Open (1) or close (−1) one level of groups everywhere."""
        if self._tape is None or self._grouping == "none":
            return
        self._unfolded = (deeper if step > 0 else shallower)(
            self._groups, self._unfolded
        )
        self._redraw()
        self.view.frame_all()

    def _regroup(self) -> None:
        before, self._grouping = self._grouping, self.head.grouping.value()
        if self._tape is None or before == self._grouping:
            return
        if self._grouping != "none":
            if before != "none":
                self._kept[before] = self._unfolded, frozenset(self._by_key)
            unfolded, group_keys = self._kept.get(
                self._grouping, (frozenset(), frozenset())
            )
            self._group(keep=False)
            self._unfolded = (unfolded & self._by_key.keys()) | (
                self._unfolded - group_keys
            )
        self._redraw()
        self.view.frame_all()

    # -- finding -------------------------------------------------------------------------------------------------------

    def find_nodes(self, query: str = "") -> None:
        """Open the row for finding nodes."""
        if self._tape is not None:
            self.finder.open_bar(query)

    def reveal(self, node: int) -> None:
        """Unfold the groups around a backward node, select it, and scroll to it."""
        if self._tape is None or not 0 <= node < len(self._tape.nodes):
            return
        if str(node) not in self.scene.boxes:
            self._unfolded |= self._around(node)
            self._redraw_quietly()
        self.scene.choose(str(node))
        self.view.show_near(self.scene.area_of_boxes([str(node)]))

    def _show_found(self, node: int) -> None:
        """Reveal a node that was found; groups that were opened for the one before it close again."""
        unfolded = self._unfolded - self._searched
        if closing := self._searched - self._around(node):
            self._unfolded -= closing
            self._redraw_quietly()
        self.reveal(node)
        self._searched = self._unfolded - unfolded

    def _end_search(self) -> None:
        self._searched = frozenset()
        self.view.setFocus()

    def _around(self, node: int) -> frozenset[str]:
        """Return the keys of the groups that contain a node."""
        group = next((group for group in self._groups if node in group.own), None)
        group_keys = set()
        while group is not None:
            group_keys.add(group.key)
            group = self._by_key.get(group.parent) if group.parent is not None else None
        return frozenset(group_keys)

    def _banner_chosen(self, text: str) -> None:
        node, show = self._at_fault
        if text == RANDOM:
            self.randomRequested.emit()
        elif show and text == show:
            self.placeRequested.emit(node)
        else:
            self._request_capture()

    def _capture_or_cancel(self) -> None:
        if self.busy:
            self.cancelled.emit()
        else:
            self._request_capture()

    def _request_capture(self) -> None:
        self.captureRequested.emit(self.head.train)

    def _export(self) -> None:
        if self.drawing() is not None:
            self.exportRequested.emit(self.drawing())

    # -- selection -----------------------------------------------------------------------------------------------------

    def select_nodes(self, ids: frozenset[str]) -> None:
        """Outline the layers of these canvas nodes, and scroll to them if none is visible. The layer of the
        selected graph node is left out, as the selection already outlines it."""
        key = self.scene.current_key()
        box_or_group = self.scene.part(key) if key else None
        self.scene.set_linked(
            frozenset(ids) - {box_or_group.link if box_or_group is not None else None}
        )
        if box_or_group is not None and box_or_group.link not in ids:
            self.choose_quietly("")
        parts = self.scene.linked_parts()
        if parts and box_or_group is None:
            self.view.ensure_seen(self.scene.area_of(parts))

    def choose_quietly(self, key: str) -> None:
        """Select a box as if another view had done it."""
        self._quiet = True
        self.scene.choose(key)
        self._quiet = False

    def _selected(self, key: str) -> None:
        item = self.item_of(key)
        self.detail.emit(item)
        if not self._quiet:
            box_or_group = self.scene.part(key) if key else None
            self.scene.set_linked(frozenset())
            self.nodeSelected.emit(
                box_or_group.link if box_or_group is not None else None
            )

    def item_of(self, key: str) -> TapeNode | LayerGroup | None:
        """Return the `TapeNode` or `LayerGroup` of a box or group of the scene; None for ""."""
        if self._tape is None or not key:
            return None
        group = self._by_key.get(key.removeprefix("fold:"))
        if group is not None:
            return group
        return (
            self._tape.nodes[int(key)]
            if key.isdecimal() and int(key) < len(self._tape.nodes)
            else None
        )
