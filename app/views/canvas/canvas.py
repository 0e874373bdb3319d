"""The canvas: the view of the drawing and its overlays, connected to the document and the selection."""

# A whole, which its parts import for type checkers alone: what the canvas is put together from acts on it.
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF, QRectF, QSizeF, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QPixmapCache, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from app.builder.catalog.catalog import Catalog
from app.builder.params import NONE, Params
from app.builder.sheet import Sheet
from app.preflight import starting_net
from app.util.formatting import grouped_digits, significant
from app.util.language import marked, tr
from app.views.canvas.accessible import CanvasAccess
from app.views.canvas.actions import CanvasActions
from app.views.canvas.breadcrumb import Breadcrumb
from app.views.canvas.callouts import Callouts
from app.views.canvas.commands import Commands
from app.views.canvas.connect import Connector
from app.views.canvas.finder import Finder
from app.views.canvas.folding import Folding
from app.views.canvas.gestures.autoscroll import AutoScroll
from app.views.canvas.gestures.gesture import Hit
from app.views.canvas.items import node_item, node_shapes
from app.views.canvas.items.animation import Glide
from app.views.canvas.items.painter import forget_fonts
from app.views.canvas.keyboard_actions import KeyboardActions
from app.views.canvas.menus import menu_for
from app.views.canvas.note_field import NoteEditor, RenameField
from app.views.canvas.overlays import (
    EDGE,
    Callout,
    FocusRing,
    PortLegend,
    Scales,
    Word,
    ZoomControl,
    arrange_overlays,
    overlays_below,
    pads_beside_overlays,
)
from app.views.canvas.scene import CanvasScene
from app.views.canvas.view import CanvasView
from app.views.navigation import SheetDocument
from app.views.selection import Selection
from app.views.ui import theme
from app.views.ui.graphview.minimap import Minimap
from app.views.ui.graphview.spatial import bounds
from app.views.ui.layouts import vbox
from app.views.ui.pick_box import PickBox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.views.ui.graphview.accessible import GraphAccess

SAID_FOR = 6000
TITLE_REACH = 160.0  # of a frame, px
CACHE_KILOBYTES = 64 * 1024
DRAWN = (
    "graph",
    "positions",
    "comments",
    "bends",
    "unfolded",
)  # fields of a project that the canvas shows
NEWEST = "Gradient norm, oldest to newest"
EMPTY_HINT = marked(
    "Drop your own data here: a table, a folder of images, a text. Or drag a layer, press Tab to search, or paste "
    "PyTorch code."
)
START_NET = marked("Start with a net for these data")
# A line of nodes is offered rows if it fits the width at less than this zoom, and then takes less of the height.
LONG_LINE, LOW_LINE = 0.6, 0.35


class Canvas(QWidget):
    """The network as a drawing that can be edited. Every edit goes through the document."""

    cureRequested = Signal(object)  # Cure
    editRequested = Signal(str)  # node id: Enter or a double click
    renameRequested = Signal(
        str, str
    )  # node id, name; the canvas handles its own renames
    exampleRequested = Signal()
    netRequested = Signal()  # one that fits the data
    findRequested = Signal()
    insideRequested = Signal(
        str, object
    )  # node, path from it to a node inside: a double click there
    leaveRequested = Signal()  # Esc with nothing to cancel: out of the block
    said = Signal(str)  # why something was not done
    legendShown = Signal()  # one that messages may cover

    def __init__(
        self,
        document: SheetDocument,
        selection: Selection,
        catalog: Catalog,
    ) -> None:
        super().__init__()
        QPixmapCache.setCacheLimit(max(QPixmapCache.cacheLimit(), CACHE_KILOBYTES))
        self.document, self.selection, self.catalog = document, selection, catalog
        self.scene = CanvasScene(catalog, self)
        self.commands = Commands(document, selection, catalog, self.scene, self)
        self.view = CanvasView(self.scene, self.commands, selection, self)
        self.view.make_access = self._make_access
        self.autoscroll = AutoScroll(self.view)
        self.glide = Glide(self.scene, self)
        self.hand = KeyboardActions(self)
        self.folding = Folding(self)
        if isinstance(document, SheetDocument):
            document.make_room_with(self.folding.make_room)
        self.more_actions: Callable[[], list[QAction]] = (
            list  # of the window, for the menu of a node
        )
        self._framed = False
        self._offer = ""  # what the data are, and which net fits them
        self.restores: Callable[[], bool] = lambda: (
            False
        )  # shows a project that is opened as it was left, if it was
        self._running = False
        self._gradient_bounds: tuple[str, str] | None = None
        self._gradient_caption = NEWEST
        self._heat: tuple[tuple[str, str], str] | None = None
        vbox(self.view, on=self, margins=0)
        self.view.find_pads = partial(pads_beside_overlays, self)
        self.setFocusProxy(self.view)
        self.setAccessibleName("Network")
        self._make_overlays()
        self._actions = CanvasActions(self)
        self.actions_by_key = self._actions.by_key
        self.action_rows = self._actions.rows
        self._connect()
        self.scene.show_project(document.project)
        self._refresh()

    def _make_overlays(self) -> None:
        self.breadcrumb = Breadcrumb(self)
        self.legend = PortLegend(self)
        self.scales = Scales(self)
        self.zoom_control = ZoomControl(self)
        self.minimap = Minimap(self.view, self.scene, self)
        self.callout = Callout(self)
        self.search = PickBox("Add a layer", "Layers found", 320, self)
        self.connect_box = PickBox("Connect", "Ports found", 360, self)
        self.rename_field = RenameField(self)
        self.word = Word(self)
        self.ring = FocusRing(self)
        self.callouts = Callouts(self)
        self.finder = Finder(self)
        self.writing = NoteEditor(self)
        self.connector = Connector(self)
        # A child of the viewport, so that a layer can be dropped on it.
        ground = self.view.viewport()
        self.empty = EmptyState(
            "add",
            tr("Nothing on the canvas yet"),
            tr(EMPTY_HINT),
            tr("Choose an example…"),
            ground,
        )
        self.start_net = Button(tr(START_NET), "primary", parent=self)
        self.start_net.hide()

    def _connect(self) -> None:
        self.document.changed.connect(self._changed)
        self.document.replaced.connect(self._replaced)
        self.selection.changed.connect(self._selected)
        self.selection.hovered.connect(self._hovered)
        theme.manager().changed.connect(self._retheme)
        self.commands.said.connect(lambda text: self.say(text))
        self.commands.refused.connect(self._refused)
        self.commands.said.connect(self.said)
        self.commands.refused.connect(self.said)
        self.commands.marked.connect(self._enable)
        view = self.view
        view.zoomed.connect(lambda zoom: self.zoom_control.set_zoom(zoom / view.unit))
        view.moved.connect(self._moved)
        view.refusal.connect(self._refuse)
        view.hint.connect(self._hint)
        view.search_wanted.connect(self.finder.search_at)
        view.loose_end.connect(self.finder.for_loose_end)
        view.open_wanted.connect(self.editRequested)
        view.inside_wanted.connect(self.insideRequested)
        view.fold_wanted.connect(self.folding.toggle_at)
        view.note_wanted.connect(self.writing.edit)
        view.parameter_wanted.connect(self.connector.to_parameter)
        view.pressed.connect(self.glide.finish)
        self.glide.moving.connect(self._dragging)
        view.menu_wanted.connect(self.open_menu)
        view.menu_key.connect(self.hand.open_menu)
        view.dragging.connect(self._dragging)
        view.focus_ring.connect(self.ring.setVisible)
        self.zoom_control.out.clicked.connect(lambda: view.zoom_by(0.8))
        self.zoom_control.into.clicked.connect(lambda: view.zoom_by(1.25))
        self.zoom_control.percent.clicked.connect(lambda: view.zoom_to(view.unit))
        self.zoom_control.all.clicked.connect(self.frame_all)
        self.zoom_control.wrap.clicked.connect(self._wrap)
        self.scene.redrawn.connect(self.minimap.refresh)
        self.callout.cure_wanted.connect(self.cureRequested)
        self.search.closed.connect(self._back_to_view)
        self.connect_box.closed.connect(self._back_to_view)
        self.rename_field.renamed.connect(self.renameRequested)
        self.rename_field.closed.connect(self._back_to_view)
        self.renameRequested.connect(self.commands.rename)
        self.empty.acted.connect(self.exampleRequested)
        self.empty.first_acted.connect(self.netRequested)
        self.start_net.clicked.connect(self.netRequested)

    def _make_access(self) -> GraphAccess:
        return CanvasAccess(self)

    # --- What others ask of it

    def set_analysis(self, analysis: Analysis) -> None:
        """Show shapes, parameter counts and problems."""
        self.set_shapes(analysis)
        self.callouts.show()

    def set_shapes(self, analysis: Analysis) -> None:
        """Show what `set_analysis` does but for the callout, which is placed once shapes are painted."""
        self.scene.set_analysis(analysis)
        if self._running:
            self._show_widths()

    def set_gradients(
        self,
        norms: Mapping[str, Sequence[float]],
        low: float,
        high: float,
        step: int | None = None,
    ) -> None:
        """Show gradient norms on the nodes, oldest first, coloured on a log scale from `low` to `high`.

        An empty mapping takes the strips away. `step` is the last one in them, None for the newest.
        """
        self.scene.set_gradients(norms, low, high)
        bounds = (significant(low, 2), significant(high, 2)) if norms else None
        caption = (
            NEWEST
            if step is None
            else f"Gradient norm until step {grouped_digits(step)}"
        )
        if (bounds, caption) != (self._gradient_bounds, self._gradient_caption):
            self._gradient_bounds, self._gradient_caption = bounds, caption
            self._show_heat()

    def set_heat(
        self,
        heat: Mapping[str, float],
        texts: Mapping[str, str],
        bounds: tuple[str, str],
        caption: str,
    ) -> None:
        """Colour nodes by their place on the ramp, from 0 to 1; `texts` are shown on them.

        An empty mapping removes the strips.
        """
        self.scene.set_heat(heat, texts)
        self._heat = (bounds, caption) if heat else None
        self._show_heat()

    def _show_heat(self) -> None:
        if self._gradient_bounds is not None:
            self.scales.show_heat(self._gradient_bounds, self._gradient_caption)
        elif self._heat is not None:
            self.scales.show_heat(*self._heat)
        else:
            self.scales.hide_heat()
        self._arrange()

    def set_offer(self, offer: str) -> None:
        """Offer a net for the data, which `offer` describes, while nothing but an Input is drawn; none for ""."""
        hint = f"{offer} {tr(EMPTY_HINT)}".strip()
        self.empty.set_text(self.empty.title(), hint)
        self.empty.set_first(tr(START_NET) if offer else "")
        self.start_net.setToolTip(offer)
        self._offer = offer
        self._show_offer()

    def _show_offer(self) -> None:
        some = bool(self.scene.nodes) and starting_net.is_bare(
            self.document.project.graph
        )
        self.start_net.setVisible(bool(self._offer) and some)

    def set_running(self, running: bool) -> None:
        """Show wire widths by activation size per sample while a run is active. Editing stays possible."""
        self._running = running
        self.scene.set_widths(running)
        self._show_widths()

    def _show_widths(self) -> None:
        self.scales.show_widths(self.scene.largest_count() if self._running else None)
        self._arrange()

    def _arrange(self) -> None:
        before = self.scales.isVisibleTo(self)
        arrange_overlays(self)
        if self.scales.isVisibleTo(self) and not before:
            self.legendShown.emit()

    def add_op(self, op: str, params: Params = NONE) -> str | None:
        """Add a node behind the selected node, else in the middle of the viewport. Returns its id."""
        single = self.selection.single
        if single in self.scene.nodes:
            new = self.commands.add_behind(op, single, params)
        else:
            new = self.commands.add_at(
                op,
                self.scene.free_spot(op, self.view.visible_area().center()),
                params,
            )
        if new is not None:
            self.reveal([new])
        return new

    def with_positions(self, project: Sheet) -> Sheet:
        """Return a project with a position for each node that has none (as after a cure): on its wire, with room made
        for it."""
        return self.commands.with_positions(project)

    def frame_all(self) -> None:
        """Show everything, and no node under an overlay where there is room for all."""
        self.view.frame(self.scene.content_rect())

    def frame_selection(self) -> None:
        """Show the selected nodes, or everything."""
        area = bounds(
            [
                self.scene.rect_of(self.selection.ids),
                *self.scene.notes.bodies(self.scene.notes.selected),
            ]
        )
        self.view.frame(
            area if not area.isEmpty() else self.scene.content_rect(),
            most=max(1.0, min(self.view.zoom, 1.5)),
        )

    def reveal(self, nodes: Iterable[str]) -> None:
        """Move as little as it takes to have nodes in sight."""
        self.reveal_area(self.scene.rect_of(nodes))

    def reveal_area(self, area: QRectF) -> None:
        """Move as little as it takes to have an area of the scene in sight."""
        if area.isEmpty():
            return
        if not self.view.visible_area().adjusted(40, 56, -40, -40).contains(area):
            self.view.show_point(area.center())
        for overlay in overlays_below(self):
            rect = self.view.viewportTransform().mapRect(area)
            across, up = (
                rect.right() + EDGE - overlay.left(),
                rect.bottom() + EDGE - overlay.top(),
            )
            step = (-across, 0.0) if across < up else (0.0, -up)
            room = QRectF(self.view.viewport().rect())
            if overlay.intersects(rect) and room.contains(rect.translated(*step)):
                self.view.pan(*step)

    def reveal_title(self, frame: QRectF) -> None:
        """Have the upper left corner of a frame in sight, where its title is; what is in sight stays where it is."""
        corner = frame.topLeft() + QPointF(TITLE_REACH / 2, 0)
        if not self.view.visible_area().contains(corner):
            self.reveal_area(
                QRectF(
                    frame.topLeft(),
                    QSizeF(min(frame.width(), TITLE_REACH), TITLE_REACH),
                )
            )

    def say(self, text: str, bad: bool = False) -> None:
        """Show a short message at the bottom of the canvas; `bad` for refusals."""
        self.word.show_text(text, QPoint(EDGE, self.height() - 44), SAID_FOR, bad)

    # --- Following the document, the selection, the theme

    def _changed(self, before: Sheet, after: Sheet) -> None:
        if any(getattr(before, field) is not getattr(after, field) for field in DRAWN):
            if self.view.busy:
                self.view.cancel_gesture()
            self.connect_box.close_box()  # its wires are of the graph before
            self.glide.finish()
            self.scene.show_project(after)
            selected = self.selection.ids & frozenset(after.graph.nodes)
            if selected != self.selection.ids:
                self.selection.set(selected, self)
                self.scene.set_selected(selected)
            self._refresh()

    def _replaced(self, project: Sheet) -> None:
        """Another project: it is painted once everything is in sight."""
        self.view.cancel_gesture()
        self._framed = False
        self.view.viewport().setUpdatesEnabled(False)
        QTimer.singleShot(0, self, self._show_whole)
        self.selection.set((), self)

    def _show_whole(self) -> None:
        self._frame_once()
        self.view.viewport().setUpdatesEnabled(True)

    def _frame_once(self) -> None:
        if (
            not self._framed
            and (self.scene.nodes or self.scene.notes.items)
            and self.isVisible()
        ):
            self._framed = True
            if not self.restores():
                self.frame_all()

    def _selected(self, ids: frozenset[str], origin: object) -> None:
        self.scene.set_selected(ids)
        if origin is not self:
            self.scene.select_wires(())
            self.scene.notes.select(())
            self.scene.bends.select(None)
            self.reveal(ids)
        self.callouts.show()
        self._enable()

    def _hovered(self, node: str | None) -> None:
        if not self.view.busy:
            self.scene.set_hovered(
                node, self.scene.hovered_wire if node is None else None
            )
        self.callouts.show(node)

    def _retheme(self) -> None:
        forget_fonts()
        node_shapes.forget()
        node_item.forget()
        self.scene.retheme()
        self.legend.refont()
        self.word.restyle()
        self._moved()
        self.view.viewport().update()

    def _refresh(self) -> None:
        some = bool(self.scene.nodes or self.scene.notes.items)
        self.scene.set_zoom(
            self.view.zoom
        )  # how it is painted depends on the number of nodes, too
        self.empty.setVisible(not some)
        self._show_offer()
        self.minimap.follow()
        self.zoom_control.setVisible(some)
        self._offer_rows()
        self.callouts.show()
        self._enable()

    def _offer_rows(self) -> None:
        """Offer to wrap a line of nodes that is much wider than the window, and leaves most of its height empty."""
        area, view = self.scene.content_rect(), self.view.viewport()
        share = view.width() / max(area.width() * self.view.unit, 1.0)
        low = area.height() * self.view.unit * share < LOW_LINE * view.height()
        is_offered = share < LONG_LINE and low
        if is_offered != self.zoom_control.wrap.isVisibleTo(self.zoom_control):
            self.zoom_control.wrap.setVisible(is_offered)
            self._arrange()

    def _wrap(self) -> None:
        self.selection.set((), self)
        self.hand.lay_out()

    def _enable(self) -> None:
        """Disable actions that need a selection if there is none."""
        self._actions.enable()

    # --- Keys and menus

    def _back_to_view(self) -> None:
        self.view.setFocus()

    def open_menu(self, hit: Hit, spot: QPoint) -> None:
        """Open the context menu of what was hit, at a point of the screen."""
        menu = menu_for(self, hit, spot)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(spot)

    # --- Overlays

    def _refuse(self, text: str, position: QPoint) -> None:
        self.word.show_text(
            text, self.view.mapTo(self, position) + QPoint(16, 14), bad=True
        )

    def _hint(self, text: str, position: QPoint) -> None:
        self.word.show_text(text, self.view.mapTo(self, position) + QPoint(16, 14))

    def _refused(self, text: str) -> None:
        self.say(text, bad=True)

    def on_canvas(self, area: QRectF) -> QRectF:
        """Map an area of the scene to this widget's pixels."""
        rect = self.view.viewportTransform().mapRect(area)
        return rect.translated(QPointF(self.view.mapTo(self, QPoint(0, 0))))

    def _moved(self) -> None:
        self.callouts.update_position()
        self.writing.update_position()

    def _dragging(self, on: bool) -> None:
        if on:
            self.callout.hide()
        else:
            QTimer.singleShot(0, self, self.callouts.show)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        arrange_overlays(self)
        self._moved()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        arrange_overlays(self)
        QTimer.singleShot(0, self, self._frame_once)
