"""The page "Model": what one forward pass of a model called, folded by module and by equal layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QPoint, QPointF, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QCursor, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QMenu, QSizePolicy, QStackedWidget, QWidget

from app.diagram.diagram import Drawing
from app.diagram.layout import Rect
from app.diagram.numbers import Numbers, painted
from app.features.opened.arrangement import EDGE, READABLE, Arrangement, Arranger
from app.features.opened.folding import Part, Tree
from app.features.opened.picture import heading, summary, to_drawing
from app.observe.figures import ModuleFigures
from app.observe.observation import Call, CallPlace, Observation
from app.views.autograd.graph.view import TapeView
from app.views.ui import icons
from app.views.ui.background import WorkerFailure
from app.views.ui.free_place import free_place
from app.views.ui.layouts import hbox, vbox
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.heatbar import HeatBar
from app.views.ui.widgets.painting import Divider, label
from app.views.ui.widgets.toast import ToastStack

EMPTY, GRAPH = range(2)
AT_ONCE = 100  # calls whose picture is laid out on the window's own thread
PADS = (16, 12, 16, 12)  # pixels around the whole picture: left, top, right, bottom
NEAR = 250  # pixels about the pointer in which a box to stay is looked for
INSIDE = (
    8  # pixels from its edge that the pointer is at least in a part that it was over
)
POLL_INTERVAL = 100  # milliseconds


class Anchor(NamedTuple):
    """A part whose corner was at a point of the view, and where in it the pointer was, if it was."""

    key: str
    corner: QPointF | None
    pointer: QPointF | None


def _within(rect: Rect | None, view: TapeView, point: QPointF) -> bool:
    return rect is not None and QRectF(*rect).contains(view.mapToScene(point.toPoint()))


class ObservedPage(QWidget):
    """Shows an `Observation`. `detail(observation, part)` tells what is selected (None for nothing),
    `chosen(places)` where the selected calls are, `captureRequested` asks for its backward graph,
    `trainRequested` to make it the project, `redrawRequested(path)` for a drawing of a module, "" for the whole model,
    `openRequested` for another model, `exportRequested` for a file of the picture, `numbersDropped` to take the numbers
    of a file away."""

    detail = Signal(object, object)
    chosen = Signal(object)
    captureRequested = Signal()
    trainRequested = Signal()
    redrawRequested = Signal(str)
    openRequested = Signal()
    exportRequested = Signal()
    numbersDropped = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.observation: Observation | None = None
        self._tree: Tree | None = None
        self._arranger: Arranger | None = None
        self._opened: frozenset[str] | None = (
            None  # until the first picture is laid out
        )
        self._words, self._source = "", ""
        self._work: BackgroundTask | None = None
        self._look = QTimer(self, interval=POLL_INTERVAL)
        self._look.timeout.connect(self._show_progress)
        self._row: float | None = None
        self.figures: dict[str, ModuleFigures] = {}
        self.numbers: Numbers | None = None
        self._quiet = False
        self.view = TapeView(
            "Calls of the model",
            "Arrow keys follow the wires, Enter folds and unfolds, ] and [ unfold and fold one level everywhere",
        )
        self.scene, self.minimap = self.view.graph, self.view.minimap
        self.banner = Banner()
        self.summary = label("", "label", "text2")
        self.summary.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.stop = Button("Stop")
        self.stop.setToolTip("Stop and keep the picture as it is (Esc)")
        self.stop.hide()
        self.fold_all = Button("Fold all")
        self.capture = Button("Capture", icon="autograd")
        self.capture.setToolTip(
            "Run forward and keep the autograd graph, to play backward and measure modules"
        )
        self.train = Button("Train…", icon="runs")
        self.train.hide()
        self.redraw = icon_button(
            "network", "Redraw as layers and wires that can be edited"
        )
        self.another = Button("Open another…")
        self.export = icon_button("export", "Export this picture")
        self.frame = icon_button("frame", "Show everything (Home)")
        head, graph = QWidget(), QWidget()
        hbox(
            (self.summary, 1),
            self.stop,
            self.fold_all,
            self.capture,
            self.train,
            self.another,
            self.redraw,
            self.export,
            self.frame,
            on=head,
            margins=(12, 5, 10, 5),
            spacing=8,
        )
        self.scale = HeatBar()
        self.drop_numbers = icon_button("close", "Remove the numbers")
        self.drop_numbers.clicked.connect(self.numbersDropped)
        self._legend = QWidget()
        legend = hbox(
            self.scale, self.drop_numbers, on=self._legend, margins=(12, 2, 10, 4)
        )
        legend.addStretch(1)
        self._legend.hide()
        vbox(
            head,
            self._legend,
            Divider(),
            (self.view, 1),
            on=graph,
            margins=0,
            spacing=0,
        )
        self._empty = EmptyState(
            "layers",
            "No model opened",
            "Draws any model that runs, from a class, a file or a configuration.",
            "Open a model",
        )
        self._pages = QStackedWidget()
        self._pages.addWidget(self._empty)
        self._pages.addWidget(graph)
        vbox(self._pages, on=self, margins=0, spacing=0)
        ToastStack(self, free_place).add_banner(
            self.banner
        )  # over the graph, which keeps its place
        self._empty.acted.connect(self.openRequested)
        self.train.clicked.connect(self.trainRequested)
        self.redraw.clicked.connect(lambda: self.redrawRequested.emit(""))
        self.another.clicked.connect(self.openRequested)
        self.capture.clicked.connect(self.captureRequested)
        self.export.clicked.connect(self.exportRequested)
        self.frame.clicked.connect(self.view.frame_all)
        self.fold_all.clicked.connect(self._fold_all)
        self.stop.clicked.connect(self.stop_layout)
        self._escape = QShortcut(
            QKeySequence(Qt.Key.Key_Escape), self.view, self.stop_layout
        )
        self._escape.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._escape.setEnabled(False)
        self.view.folded.connect(self.toggle)
        self.view.leveled.connect(self._level)
        self.scene.chosen.connect(self._selected)
        self.view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.view.customContextMenuRequested.connect(self._show_menu)

    def set_observation(self, observation: Observation, source: str) -> None:
        """Show another model; of one that raised, the call that did is selected."""
        self.observation, self._tree, self.figures = observation, Tree(observation), {}
        self._arranger = Arranger(self._tree)
        self.capture.setEnabled(observation.failed is None)
        self.redraw.setEnabled(observation.failed is None)
        self._opened, self._row = None, None
        self._words, self._source = heading(observation), source
        self.summary.setToolTip(summary(observation))
        self._pages.setCurrentIndex(GRAPH)
        self.banner.hide()
        self.scene.choose("")  # keys name other parts from now on
        self.detail.emit(None, None)
        self._redraw(then=self._show_first)

    def _show_first(self) -> None:
        observation = self.observation
        assert observation is not None
        self._frame()
        self.view.setFocus()
        if observation.failed is not None:
            self.reveal(
                observation.failed
            )  # before the banner, which is placed where it covers the least
            self.banner.brief = True
            self.banner.set(
                "error",
                f"{self._source} raised in {observation.failed_at}",
                observation.error,
            )
            self.banner.show()
        elif observation.remarks:
            self.banner.brief = False
            self.banner.set(
                "info",
                f"Notes on {Path(self._source).name}",
                " ".join(observation.remarks),
            )
            self.banner.show()

    def set_figures(self, figures: Iterable[ModuleFigures]) -> None:
        """Show what a capture measured in the modules; nothing moves, and the selection stays."""
        self.figures = {
            module_figures.path: module_figures for module_figures in figures
        }
        if self._opened is not None and self._work is None:
            self._show_figures()

    def set_numbers(self, numbers: Numbers | None) -> None:
        """Show the numbers of a file on the modules, with their legend; None takes them away."""
        if numbers == self.numbers:
            return
        self.numbers = numbers
        self._legend.setVisible(numbers is not None)
        if numbers is not None:
            scale = numbers.scale
            self.scale.set((scale.low, scale.high), scale.caption)
        if self._opened is not None and self._work is None:
            self._show_figures()

    def _show_figures(self) -> None:
        assert self.observation is not None and self._opened is not None
        drawing = to_drawing(self.observation, self._opened, self._tree, self.figures)
        self.scene.redraw_in_place(
            painted(drawing, self.numbers) if self.numbers is not None else drawing
        )
        self._quiet = True
        self._selected(self.scene.current_key())
        self._quiet = False

    def show_call(self, location: CallPlace) -> None:
        """Select what was called at a place, as if another view had done it."""
        if self.observation is None:
            return
        calls = [call for call in self.observation.calls if call.path == location.path]
        at_line = [
            call
            for call in calls
            if location.line
            and (call.file, call.line) == (location.file, location.line)
        ]
        modules = [call for call in calls if call.kind == "module"]
        same_call = [call for call in modules if call.call == location.call]
        target = next(
            iter(
                [call for call in at_line if call.kind == "operation"]
                or same_call
                or modules
                or calls
            ),
            None,
        )
        if target is not None:
            self._quiet = True
            self.reveal(target.id)
            self._quiet = False

    def places_of(self, piece: Part) -> tuple[CallPlace, ...]:
        """Return where a part, and all modules in it, were called."""
        assert self.observation is not None
        calls, todo = list[Call](), list(piece.every)
        while todo:
            call = self.observation.calls[todo.pop()]
            if call.kind in ("module", "operation"):
                calls.append(call)
            if call.kind == "module":
                inside = self.observation.children.get(call.id, ())
                todo += [
                    child
                    for child in inside
                    if self.observation.calls[child].kind == "module"
                ]
        return tuple(
            CallPlace(
                call.path,
                call.call,
                *((call.file, call.line) if call.kind == "operation" else ()),
            )
            for call in calls
        )

    def drawing(self) -> Drawing | None:
        """Return the picture as it is folded."""
        return self.scene.drawing

    def toggle(self, key: str) -> None:
        """Open or close a part; its corner stays where it is, or as much of it as is under the pointer."""
        if self._tree is None or self._opened is None or key not in self._tree.by_key:
            return
        anchor = self._anchor(key)

        def keep_place() -> None:
            self._put_back(anchor)
            self.scene.choose(key)
            self.view.setFocus()

        self._redraw(self._opened ^ {key}, same_rows=True, then=keep_place)

    def _anchor(self, key: str) -> Anchor:
        rect = self.scene.rect_of(key)
        corner = (
            QPointF(self.view.mapFromScene(rect.x, rect.y))
            if rect is not None
            else None
        )
        pointer = QPointF(self.view.viewport().mapFromGlobal(QCursor.pos()))
        if (
            corner is None
            or not self.view.viewport().underMouse()
            or not _within(rect, self.view, pointer)
        ):
            return Anchor(key, corner, None)
        return Anchor(key, corner, pointer)

    def _put_back(self, anchor: Anchor) -> None:
        """Scroll so that a part is where it was, and still under the pointer that was over it."""
        assert self._tree is not None and self._opened is not None
        key = self._tree.shown_for(anchor.key, self._opened)
        rect = self.scene.rect_of(key)
        if rect is None or anchor.corner is None:
            return
        corner, size, pointer = (
            anchor.corner,
            QPointF(rect.width, rect.height) * self.view.zoom,
            anchor.pointer,
        )
        if pointer is not None:
            corner = QPointF(
                min(
                    max(corner.x(), pointer.x() - size.x() + INSIDE),
                    pointer.x() - INSIDE,
                ),
                min(
                    max(corner.y(), pointer.y() - size.y() + INSIDE),
                    pointer.y() - INSIDE,
                ),
            )
        now = self.view.mapFromScene(rect.x, rect.y)
        self.view.pan(corner.x() - now.x(), corner.y() - now.y())
        if not self.view.visible_area().intersects(QRectF(*rect)):
            self.view.ensure_seen(QRectF(*rect))

    def unfold_all(self) -> None:
        """Open every part, however many there are."""
        if self._tree is not None:
            self._redraw(frozenset(self._tree.by_key), then=self._frame)

    def _level(self, by: int) -> None:
        """Open a level more everywhere, or close one; what is under the pointer, or else selected, stays where it
        is."""
        if self._tree is not None and self._opened is not None:
            opened = self._tree.leveled(self._opened, by)
            if opened != self._opened:
                anchor = self._anchor(self._key_to_keep())
                self._redraw(opened, then=lambda: self._put_back(anchor))

    def _key_to_keep(self) -> str:
        """Return the box under the pointer, or nearest to it; without a pointer the selected part if it is in sight,
        else the box nearest to the middle; if there is none, the group around."""
        viewport, visible, current = (
            self.view.viewport(),
            self.view.visible_area(),
            self.scene.current_key(),
        )
        rect = self.scene.rect_of(current) if current else None
        over = viewport.underMouse()
        if not over and rect is not None and visible.intersects(QRectF(*rect)):
            return current
        spot = (
            viewport.mapFromGlobal(QCursor.pos()) if over else viewport.rect().center()
        )
        at, reach = self.view.mapToScene(spot), NEAR / self.view.zoom
        near = QRectF(at.x() - reach, at.y() - reach, 2 * reach, 2 * reach).intersected(
            visible
        )
        return self.scene.nearest_box(at, near) or self.scene.innermost_at(at)

    def _frame(self) -> None:
        """Show everything, or its beginning where names would be too small to read."""
        layout, room = self.scene.layout_, self._room()
        area = QRectF(0, 0, layout.width, layout.height).adjusted(
            -EDGE, -EDGE, EDGE, EDGE
        )
        scale = min(room[0] / area.width(), room[1] / area.height())
        if scale >= READABLE:
            self.view.frame(area, pads=PADS)
        else:
            self.view.show_corner(area.topLeft(), QPointF(*PADS[:2]), READABLE)

    def _room(self) -> tuple[float, float]:
        """Return the size of the view that a picture can fill."""
        size = self.view.viewport().size()
        return max(size.width() - PADS[0] - PADS[2], 320), max(
            size.height() - PADS[1] - PADS[3], 240
        )

    @property
    def busy(self) -> bool:
        """Return whether a drawing is being laid out."""
        return self._work is not None

    def reveal(self, call: int) -> None:
        """Select the box of a call and scroll to it."""
        key = next((key for key in self._keys_of(call) if key in self.scene.boxes), "")
        if key:
            self.scene.choose(key)
            self.view.show_near(self.scene.area_of_boxes([key]))

    def _keys_of(self, call: int) -> list[str]:
        """Return the keys of the parts that contain a call, innermost first."""
        assert self._tree is not None and self.observation is not None
        piece_keys, at = [], call
        while True:
            piece_keys += [
                key for key, piece in self._tree.by_key.items() if at in piece.calls
            ]
            parent = self.observation.calls[at].parent
            if parent is None:
                return piece_keys
            at = parent

    def _fold_all(self) -> None:
        if self._tree is None or self._opened is None:
            return
        if len(self._opened) > 1:
            root = frozenset(piece.key for piece in self._tree.parts if piece.parts)
            self._redraw(root, then=self._frame)
        else:
            self._redraw(self._tree.leveled(self._opened, 1), then=self._frame)

    def _redraw(
        self,
        opened: frozenset[str] | None = None,
        *,
        same_rows: bool = False,
        then: Callable[[], object],
    ) -> None:
        """Lay the picture out with these parts open (None: as many as are readable); of many calls on another
        thread."""
        assert self.observation is not None and self._arranger is not None
        room, row = self._room(), self._row if same_rows else None
        if self._work is not None:
            self._work.abandon()
            self._work = None
        work = (
            partial(self._arranger.fit, self.figures, room)
            if opened is None
            else partial(self._arranger.arrange, opened, self.figures, room, row)
        )
        if len(self.observation.calls) <= AT_ONCE:
            self._show_arranged(work(), then)
            return
        task = self._work = BackgroundTask(
            lambda tell, cancelled: work(tell=tell, cancelled=cancelled), 0.0
        )
        task.ended.connect(
            lambda answer: self._laid_out(task, answer, then),
            Qt.ConnectionType.QueuedConnection,
        )
        task.begin()
        self.fold_all.setEnabled(False)
        self.stop.setVisible(self._opened is not None)
        self._escape.setEnabled(self._opened is not None)
        self._show_progress()
        self._look.start()

    def _show_progress(self) -> None:
        if self._work is None:
            self._look.stop()
            return
        done = f" {100 * self._work.progress:.0f} %" if self._work.progress else ""
        self.summary.setText(f"Laying out{done}…")

    # -- menu ----------------------------------------------------------------------------------------------------------

    def _show_menu(self, at: QPoint) -> None:
        menu = self.menu(self.view.mapToScene(at))
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(self.view.viewport().mapToGlobal(at))

    def menu(self, at: QPointF) -> QMenu:
        """Return the menu of the part at a point of the scene."""
        menu = QMenu(self)
        piece = (
            self._tree.by_key.get(self.scene.innermost_at(at))
            if self._tree is not None
            else None
        )
        if piece is not None:
            key = piece.key
            if piece.parts:
                opened = self._opened is not None and key in self._opened
                menu.addAction("Fold" if opened else "Unfold", lambda: self.toggle(key))
            if path := self.path_of(piece):
                menu.addAction(
                    icons.icon("network"),
                    f"Redraw {path}…",
                    lambda: self.redrawRequested.emit(path),
                )
            menu.addSeparator()
        menu.addAction(
            icons.icon("network"), "Redraw the whole model…", self.redraw.click
        ).setEnabled(self.redraw.isEnabled())
        menu.addAction(
            icons.icon("autograd"), "Capture", self.capture.click
        ).setEnabled(self.capture.isEnabled())
        return menu

    def path_of(self, piece: Part) -> str:
        """Return the path of the module that a part is, or that an operation is called in; "" for the model itself, and
        where it cannot be redrawn."""
        if self.observation is None or not self.redraw.isEnabled():
            return ""
        call = self.observation.calls[piece.first]
        return call.path if call.kind in ("module", "operation", "read") else ""

    def stop_layout(self) -> None:
        """Give up the layout that is on its way, and keep the picture that is shown."""
        if self._work is not None and self._opened is not None:
            self._work.abandon()
            self._at_rest()

    def _at_rest(self) -> None:
        self._work = None
        self._look.stop()
        self.stop.hide()
        self._escape.setEnabled(False)
        if self._opened is not None:
            self._offer_folding()
        self._show_words()
        QTimer.singleShot(
            0, self, self._show_words
        )  # once the head has the room of what was hidden

    def _show_words(self) -> None:
        """Show what the model called; where there is no room for it, the name alone, and the rest in the tooltip."""
        room, metrics = self.summary.width(), self.summary.fontMetrics()
        fits = metrics.horizontalAdvance(self._words) <= room
        name = metrics.elidedText(
            self._words.partition(" · ")[0], Qt.TextElideMode.ElideRight, room
        )
        self.summary.setText(self._words if fits else name)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._work is None:
            QTimer.singleShot(
                0, self, self._show_words
            )  # once the head has its new size

    def _laid_out(
        self,
        task: BackgroundTask,
        answer: Arrangement | WorkerFailure,
        then: Callable[[], object],
    ) -> None:
        if (
            task is not self._work
        ):  # another picture was asked for when this one was on its way
            return
        if isinstance(answer, WorkerFailure):
            self._at_rest()
            raise answer.error
        self._show_arranged(answer, then)

    def _show_arranged(self, answer: Arrangement, then: Callable[[], object]) -> None:
        outdated = self._work is not None and answer.figures != self.figures
        self._opened = answer.opened
        self._at_rest()
        self._row = self.scene.show_arranged(answer.done)
        self._row = answer.row or self._row
        then()
        if outdated or self.numbers is not None:
            self._show_figures()

    def _offer_folding(self) -> None:
        """Have the button fold all, or else unfold a level if there is one."""
        assert self._tree is not None and self._opened is not None
        folds = len(self._opened) > 1
        self.fold_all.setText("Fold all" if folds else "Unfold")
        self.fold_all.setToolTip(
            "Fold to the outermost modules"
            if folds
            else "Unfold one level everywhere (])"
        )
        self.fold_all.setEnabled(
            folds or self._tree.leveled(self._opened, 1) != self._opened
        )

    def _selected(self, key: str) -> None:
        piece: Part | None = (
            self._tree.by_key.get(key) if self._tree is not None else None
        )
        self.detail.emit(self.observation, piece)
        if piece is not None and not self._quiet:
            self.chosen.emit(self.places_of(piece))
