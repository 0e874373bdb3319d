"""The page "Model": what one forward pass of a model called, folded by module and by equal layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QWidget

from app.diagram.diagram import Drawing
from app.observe.figures import ModuleFigures
from app.observe.folding import Part, Tree
from app.observe.observation import Call, CallPlace, Observation
from app.observe.picture import heading, summary, to_drawing
from app.util import gc_pause
from app.views.autograd.graph.scene import ArrangedDrawing, TapeScene, arranged
from app.views.autograd.graph.view import TapeView
from app.views.ui.background import WorkerFailure
from app.views.ui.graphview.minimap import Minimap
from app.views.ui.layouts import hbox, vbox
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import Divider, label

EMPTY, GRAPH = range(2)
PAGE_MARGIN = 110  # around the graph
AT_ONCE = 400  # calls whose picture is laid out on the window's own thread


Arrangement = tuple[frozenset[str], ArrangedDrawing]


def _arranged(
    tree: Tree, opened: frozenset[str] | None, figures: Mapping[str, ModuleFigures], page: tuple[float, float],
    row: float | None,
) -> Arrangement:  # fmt: skip
    opened = tree.opened() if opened is None else opened
    drawing = to_drawing(tree.observation, opened, tree, figures)
    return opened, arranged(drawing, page, row, indexed=True)


class ObservedPage(QWidget):
    """Shows an `Observation`. `detail(observation, part)` tells what is selected (None for nothing),
    `chosen(places)` where the calls are that a person selected, `captureRequested` asks for its backward graph,
    `openRequested` for another model, `exportRequested` for a file of the picture."""

    detail = Signal(object, object)
    chosen = Signal(object)
    captureRequested = Signal()
    openRequested = Signal()
    exportRequested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.observation: Observation | None = None
        self._tree: Tree | None = None
        self._opened: frozenset[str] | None = None  # until the first picture is laid out
        self._words, self._source = "", ""
        self._work: BackgroundTask | None = None
        self._row: float | None = None
        self.figures: dict[str, ModuleFigures] = {}
        self._quiet = False
        self.scene = TapeScene(self)
        self.view = TapeView(self.scene)
        self.view.setAccessibleName("Calls of the model")
        self.view.setAccessibleDescription(
            "Arrow keys follow the wires, Enter folds and unfolds, ] and [ a level of everything, Home shows all"
        )
        self.minimap = Minimap(self.view, self.scene, self.view, only_hidden_parts=True)
        self.banner = Banner()
        self.banner.hide()
        self.summary = label("", "label", "text2")
        self.summary.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.fold_all = Button("Fold all")
        self.capture = Button("Capture", icon="autograd")
        self.capture.setToolTip("Run it forward and keep its autograd graph, to play backward and to measure modules")
        self.another = Button("Open another…")
        self.export = icon_button("export", "Export this picture")
        self.frame = icon_button("frame", "Show everything (Home)")
        head, graph = QWidget(), QWidget()
        hbox((self.summary, 1), self.fold_all, self.capture, self.another, self.export, self.frame, on=head,
             margins=(12, 5, 10, 5), spacing=8)  # fmt: skip
        vbox(head, Divider(), (self.view, 1), on=graph, margins=0, spacing=0)
        self._empty = EmptyState(
            "layers",
            "No model opened",
            "Anything that runs is drawn: a class, a file, a configuration.",
            "Open a model",
        )
        self._pages = QStackedWidget()
        self._pages.addWidget(self._empty)
        self._pages.addWidget(graph)
        vbox(self.banner, (self._pages, 1), on=self, margins=0, spacing=0)
        self._empty.acted.connect(self.openRequested)
        self.another.clicked.connect(self.openRequested)
        self.capture.clicked.connect(self.captureRequested)
        self.export.clicked.connect(self.exportRequested)
        self.frame.clicked.connect(self.view.frame_all)
        self.fold_all.clicked.connect(self._fold_all)
        self.view.folded.connect(self.toggle)
        self.view.leveled.connect(self._level)
        self.scene.chosen.connect(self._selected)

    def set_observation(self, found: Observation, source: str) -> None:
        """Show another model; of one that raised, the call that did is selected."""
        self.observation, self._tree, self.figures = found, Tree(found), {}
        self.capture.setEnabled(found.failed is None)
        self._opened, self._row = None, None
        self._words, self._source = heading(found), source
        self.summary.setToolTip(summary(found))
        self._pages.setCurrentIndex(GRAPH)
        self.banner.hide()
        self.scene.choose("")  # keys name other parts from now on
        self.detail.emit(None, None)
        self._redraw(then=self._show_whole)

    def _show_whole(self) -> None:
        found = self.observation
        assert found is not None
        self.view.frame_all()
        if found.failed is not None:
            call = found.calls[found.failed]
            self.banner.set("error", f"{self._source} raised in {call.path or call.name or found.name}", found.error)
            self.banner.show()
            self.reveal(found.failed)
        elif found.remarks:
            self.banner.set("info", self._source, " ".join(found.remarks))
            self.banner.show()

    def set_figures(self, figures: Iterable[ModuleFigures]) -> None:
        """Show what a capture measured in the modules; the selection stays."""
        self.figures = {one.path: one for one in figures}
        if self._opened is None:  # the first picture is being laid out
            if self.observation is not None:
                self._redraw(then=self._show_whole)
            return
        key = self.scene.current_key()

        def choose_again() -> None:
            self._quiet = True
            self.scene.choose(key)
            self._selected(key)
            self._quiet = False

        self._redraw(self._opened, same_rows=True, then=choose_again)

    def show_call(self, place: CallPlace) -> None:
        """Select what was called at a place, as if another view had done it."""
        if self.observation is None:
            return
        calls = [call for call in self.observation.calls if call.path == place.path]
        at_line = [call for call in calls if place.line and (call.file, call.line) == (place.file, place.line)]
        modules = [call for call in calls if call.kind == "module"]
        wanted = [call for call in modules if call.call == place.call]
        found = next(iter([call for call in at_line if call.kind == "operation"] or wanted or modules or calls), None)
        if found is not None:
            self._quiet = True
            self.reveal(found.id)
            self._quiet = False

    def places_of(self, part: Part) -> tuple[CallPlace, ...]:
        """Return where a part, and all modules in it, were called."""
        assert self.observation is not None
        calls, todo = list[Call](), list(part.every)
        while todo:
            call = self.observation.calls[todo.pop()]
            if call.kind in ("module", "operation"):
                calls.append(call)
            if call.kind == "module":
                inside = self.observation.children.get(call.id, ())
                todo += [one for one in inside if self.observation.calls[one].kind == "module"]
        return tuple(
            CallPlace(call.path, call.call, *((call.file, call.line) if call.kind == "operation" else ()))
            for call in calls
        )

    def drawing(self) -> Drawing | None:
        """Return the picture as it is folded."""
        return self.scene.drawing

    def toggle(self, key: str) -> None:
        """Open or close a part; its corner stays where it is, under the pointer that clicked it."""
        if self._tree is None or self._opened is None or key not in self._tree.by_key:
            return
        before = self.scene.rect_of(key)
        at = self.view.mapFromScene(before.x, before.y) if before is not None else None

        def keep_place() -> None:
            after = self.scene.rect_of(key)
            if at is not None and after is not None:
                now = self.view.mapFromScene(after.x, after.y)
                self.view.pan(at.x() - now.x(), at.y() - now.y())
            self.scene.choose(key)
            self.view.setFocus()

        self._redraw(self._opened ^ {key}, same_rows=True, then=keep_place)

    def unfold_all(self) -> None:
        """Open every part, however many there are."""
        if self._tree is not None:
            self._redraw(frozenset(self._tree.by_key), then=self.view.frame_all)

    def _level(self, by: int) -> None:
        """Open a level more everywhere, or close one."""
        if self._tree is not None and self._opened is not None:
            opened = self._tree.leveled(self._opened, by)
            if opened != self._opened:
                self._redraw(opened, then=self.view.frame_all)

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
        found, at = [], call
        while True:
            found += [key for key, part in self._tree.by_key.items() if at in part.calls]
            parent = self.observation.calls[at].parent
            if parent is None:
                return found
            at = parent

    def _fold_all(self) -> None:
        if self._tree is None or self._opened is None:
            return
        root = {part.key for part in self._tree.parts if part.parts}
        opened = self._tree.opened() if self._opened <= root else frozenset(root)
        self._redraw(opened, then=self.view.frame_all)

    def _redraw(
        self, opened: frozenset[str] | None = None, *, same_rows: bool = False, then: Callable[[], object]
    ) -> None:
        """Lay the picture out with these parts open (None: as many as fit); of many calls on another thread."""
        assert self.observation is not None and self._tree is not None
        room = self.view.viewport().size()
        page = (min(max(room.width() - PAGE_MARGIN, 640), 1500), max(room.height() - PAGE_MARGIN, 360))
        if self._work is not None:
            self._work.abandon()
            self._work = None
        work = partial(_arranged, self._tree, opened, self.figures, page, self._row if same_rows else None)
        if len(self.observation.calls) <= AT_ONCE:
            self._show_arranged(work(), then)
            return
        task = self._work = BackgroundTask(lambda _tell, _cancelled: work())
        task.ended.connect(lambda answer: self._laid_out(task, answer, then), Qt.ConnectionType.QueuedConnection)
        task.begin()
        self.fold_all.setEnabled(False)
        self.summary.setText(f"{self._words} · laying out …")

    def _laid_out(self, task: BackgroundTask, answer: Arrangement | WorkerFailure, then: Callable[[], object]) -> None:
        if task is not self._work:  # another picture was asked for when this one was on its way
            return
        self._work = None
        if isinstance(answer, WorkerFailure):
            raise answer.error
        self._show_arranged(answer, then)

    def _show_arranged(self, answer: Arrangement, then: Callable[[], object]) -> None:
        self._opened, done = answer
        with gc_pause.put_off():
            self._row = self.scene.show_arranged(done)
        self.fold_all.setText("Fold all" if len(self._opened) > 1 else "Unfold")
        self.fold_all.setEnabled(True)
        self.summary.setText(self._words)
        self.minimap.rebuild()
        then()

    def _selected(self, key: str) -> None:
        part: Part | None = self._tree.by_key.get(key) if self._tree is not None else None
        self.detail.emit(self.observation, part)
        if part is not None and not self._quiet:
            self.chosen.emit(self.places_of(part))
