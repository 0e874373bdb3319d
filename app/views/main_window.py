"""The window: models and services, and docks, tabs and menus built from what features declare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QCoreApplication, QMimeData, QSize, Qt, QTimer, Slot
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDropEvent,
    QKeyEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QMainWindow, QWidget

from app.builder.catalog.catalog import catalog
from app.project import journal
from app.project.document import Document
from app.project.project import Project
from app.sources.spec import AskedModel
from app.util import shelf
from app.util.language import tr
from app.views import feature
from app.views.actions import Actions
from app.views.activity import Activity
from app.views.analysis_service import AnalysisService, Hearers
from app.views.cure_control import CureControl
from app.views.drawing import CanvasFacade
from app.views.engine_service import EngineService
from app.views.feature import Action, Adopted, Feature, Page, Submenu
from app.views.files import FileMenu
from app.views.layers_control import LayersControl
from app.views.menus import build_menus, fit_corners
from app.views.navigation import Navigation, SheetDocument
from app.views.notifier import Notifier
from app.views.overlays import Overlays
from app.views.pages import Pages
from app.views.project_catalog import ProjectCatalog
from app.views.run.keeper import RunsKeeper
from app.views.run.newest_weights import NewestWeightsSource
from app.views.run.run_control import RunControl
from app.views.run.run_guard import RunGuard
from app.views.run.session import RunSession
from app.views.selection import NetworkSelection, Selection
from app.views.settings import Settings
from app.views.shown_run import ShownRun
from app.views.status import StatusLine
from app.views.toolbar import Toolbar
from app.views.ui import theme
from app.views.ui.background import Background
from app.views.ui.cut_texts import ShowsCutTexts
from app.views.ui.docks import TabbedDock, TabbedPane, beside_text
from app.views.ui.free_place import free_place
from app.views.ui.gc_housekeeping import Housekeeping
from app.views.ui.layouts import PaintedLaidOut, hbox, vbox
from app.views.ui.scaling import FRAME
from app.views.ui.turns import Turns
from app.views.ui.widgets import section
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.focus import FocusHome, take_typed
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented
from app.views.ui.widgets.toast import ToastStack
from app.views.workspace import Workspace
from tapedeck import frames

EXAMPLE = "digits.tape"
LINES = ".jsonl"  # the ending of a file with the lines of a run
# Of the bottom dock at first: the same for all pages, so that the tabs stay where they are.
BOTTOM_SHARE, BOTTOM_LEAST, BOTTOM_MOST = 0.34, 190, 338
NARROW_SHARE, NARROW_HIGH = 0.45, 348  # while a page beside it takes its width
LISTS = ("problems",)  # pages of the bottom dock that can be low
BOTTOM_CONTROLS = 402  # px beside its tabs, of the widest controls: those of the curves


def bottom_height(height: int) -> int:
    """Return the height of the bottom dock in a window of this height: at most a share of it, more for larger text."""
    return round(
        min(max(height * BOTTOM_SHARE, BOTTOM_LEAST), beside_text(BOTTOM_MOST))
    )


class MainWindow(ShowsCutTexts, PaintedLaidOut, QMainWindow):
    """One window on one project. `start` has an engine load torch; before that the window draws and names already.

    The pages that are not in front are made by `furnish` when they are first shown, or follow the project.
    """

    def __init__(
        self, settings: Settings | None = None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("window")
        self.setAcceptDrops(True)
        self.resize(1280, 800)
        self.setMinimumSize(960, 600)
        self.settings = settings or Settings()
        section.set_folds(self.settings.folds)
        self._make_models()
        self._make_services()
        self.features = [*feature.made(self.workspace)]
        self.workspace.searched.extend(owner.searched for owner in self.features)
        self.workspace.beginnings.extend(owner.beginnings for owner in self.features)
        self._pages_of = [(owner, tuple(owner.pages())) for owner in self.features]
        self._pages = [page for _, pages in self._pages_of for page in pages]
        self._owners = {
            page.key: owner for owner, pages in self._pages_of for page in pages
        }
        self._unmade = set(self.features)
        self._said_broken: set[str] = set()
        self._followers = [owner for owner in self.features if owner.follows]
        steps = [partial(self.furnish, owner) for owner in self._followers]
        self._starting = Turns(self, *steps, self._say_broken, self.live.start)
        self._closed = False
        self._narrow_left = 0  # the width of the left dock while a wide page is in it
        self._low_bottom = 0  # the height of the dock below meanwhile
        self.overlay = Segmented(
            [name for owner in self.features for name in owner.overlays()], "Overlay"
        )
        self._make_menus()
        self._lay_out()
        self._follow()
        for owner in self.features:
            with feature.guarded(type(owner)):
                owner.begin()
        self._restore()

    def _make_models(self) -> None:
        self.document = Document(parent=self)
        self.catalog = ProjectCatalog(catalog(), self.document)
        self.place = Navigation(self.document)
        self.background = Background(self)
        self.engine = EngineService(self)
        # Before the sheet, whose views draw an edit: the engine works on its shapes meanwhile.
        self.live = AnalysisService(
            self.document, self.background, self.engine, self.catalog, self.place, self
        )
        self.sheet = SheetDocument(self.document, self.place, self.catalog)
        self.selection = Selection(self)
        self.network_selection = NetworkSelection(self.selection, self.place, self)
        self.hearers = Hearers(self.live, self)
        self.session = RunSession(self)
        self.overlays, self.shown_run = Overlays(self), ShownRun(self)

    def _make_services(self) -> None:
        self.middle = QWidget(self)
        self.status = StatusLine(self)
        self.banner = Banner(parent=self)
        self.toasts = ToastStack(self.middle, free_place)
        self.notifier = Notifier(self.banner, self.toasts, self)
        self.actions_by_key = Actions(self, self.menuBar())
        self.pages = Pages(lambda key: self.furnish(self._owners[key]), self)
        self.drawing = CanvasFacade()
        self.files = FileMenu(
            self.document,
            self.settings,
            RunGuard(self.session, self),
            self.notifier,
            self,
        )
        self.layers = LayersControl(
            self.document, self.catalog, self.engine, self.settings, self
        )
        self.cures = CureControl(
            self.sheet, self.catalog, self.layers, self.drawing, self.actions_by_key
        )
        self.run_control = RunControl(
            self.document, self.live, self.session, self.settings, self
        )
        self.runs_keeper = self.run_control.keep_with(
            RunsKeeper(self.document, self.background, self.settings, self)
        )
        self.newest_weights = NewestWeightsSource(
            self.document, self.session, self.runs_keeper, self
        )
        self.workspace = Workspace(
            window=self,
            settings=self.settings,
            document=self.document,
            catalog=self.catalog,
            place=self.place,
            sheet=self.sheet,
            selection=self.selection,
            network_selection=self.network_selection,
            background=self.background,
            engine=self.engine,
            live=self.live,
            hearers=self.hearers,
            files=self.files,
            layers=self.layers,
            cures=self.cures,
            session=self.session,
            run_control=self.run_control,
            runs_keeper=self.runs_keeper,
            newest_weights=self.newest_weights,
            shown_run=self.shown_run,
            diagnostics=[],
            graph_subjects=[],
            searched=[],
            beginnings=[],
            activity=Activity(self),
            drawing=self.drawing,
            overlays=self.overlays,
            pages=self.pages,
            commands=self.actions_by_key,
            notifier=self.notifier,
            status=self.status,
        )
        self.housekeeping = Housekeeping(self)

    # -- menus, docks and tabs ----------------------------------------------------------------------------------------

    def _make_menus(self) -> None:
        declared = [
            self._after_pages(owner, action)
            for owner in self.features
            for action in owner.actions()
        ]
        declared += [self._show_action(page) for page in self._pages if page.words]
        declared += [
            Submenu(
                "docks",
                "&Docks",
                lambda _actions, _menu: None,
                menu="view.window",
            )
        ]
        menus = build_menus(self.menuBar(), self.actions_by_key, declared)
        self.dock_menu = menus["docks"]
        self.toolbar = Toolbar(
            self.actions_by_key["undo"], self.actions_by_key["redo"], self
        )
        self.toolbar.set_project_menu(menus["file"])

    def _show_action(self, page: Page) -> Action:
        icon = page.icon if page.dock == "centre" else ""
        return Action(
            f"show.{page.key}",
            page.words,
            partial(self._show_page, page),
            page.shortcut,
            icon,
            menu="view.centre" if page.dock == "centre" else "view.pages",
            after=f"show.{page.after}",
        )

    def _show_page(self, page: Page) -> None:
        """Show a page; in the centre its home gets a focus that Qt gives to the button that was used there last."""
        self.pages.show(page.key)
        focus = self.focusWidget()
        moved = focus is not None and self.pages.widget(page.key).isAncestorOf(focus)
        if moved and page.dock == "centre":
            self._focus.go_home()

    def _after_pages(
        self, owner: Feature, action: Action | Adopted | Submenu
    ) -> Action | Adopted | Submenu:
        """Wrap a command that needs the pages of its feature so that they are created first."""
        if not isinstance(action, Action) or not action.late:
            return action
        does = action.does

        def do() -> None:
            self.furnish(owner)
            does()

        return replace(action, does=do)

    def _lay_out(self) -> None:
        # From the outside in: reparenting a widget restyles all widgets in it.
        self.setCentralWidget(self.middle)
        self.centre = TabbedPane(self.middle, central=True)
        vbox(self.centre, on=self.middle, margins=0, spacing=0)
        self.pages.add_dock("centre", self.centre, None)
        self._add_pages("centre", self.centre)
        overlays = QWidget()
        hbox(
            label("Overlay", "tab", "text3"),
            self.overlay,
            on=overlays,
            margins=0,
            spacing=8,
        )
        self.centre.add_controls("network", overlays)
        self._make_docks()
        bar = self.addToolBar("Deck")
        bar.setObjectName("deck")
        bar.setMovable(False)
        bar.setFloatable(False)
        bar.toggleViewAction().setEnabled(False)
        bar.setContentsMargins(0, 0, 0, 0)
        bar.addWidget(self.toolbar)
        self.setStatusBar(self.status)

    def _make_docks(self) -> None:
        self.left = self._make_dock("left", "Layers", QSize(220, 600), 200)
        self.right = self._make_dock("right", "Inspector", QSize(304, 700), 304)
        size = QSize(800, BOTTOM_LEAST)
        self.bottom = self._make_dock(
            "bottom", "Problems and curves", size, 400, BOTTOM_CONTROLS
        )
        self.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, self.left)
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.right)
        self.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self.bottom)
        for dock in (self.left, self.right, self.bottom):
            self.dock_menu.addAction(dock.toggleViewAction())
        # The right dock runs full height; the bottom dock spans left and centre.
        self.setCorner(
            Qt.Corner.BottomRightCorner, Qt.DockWidgetArea.RightDockWidgetArea
        )
        self._set_left_height(whole=False)
        self.pages.shown.connect(self._fit_left)
        self.resizeDocks(
            [self.left, self.right],
            [beside_text(220), beside_text(304)],
            Qt.Orientation.Horizontal,
        )

    def _set_left_height(self, *, whole: bool) -> None:
        area = Qt.DockWidgetArea
        corner = area.LeftDockWidgetArea if whole else area.BottomDockWidgetArea
        self.setCorner(Qt.Corner.BottomLeftCorner, corner)

    def _fit_left(self, key: str) -> None:
        """Give a page of the left dock the width that it wants, and the dock the height of the window meanwhile."""
        page = next((page for page in self._pages if page.key == key), None)
        if page is not None and page.dock == "bottom":
            self._fit_bottom(narrow=self._narrow_left > 0)
        if page is None or page.dock != "left":
            return
        self._set_left_height(whole=page.width > 0)
        before, self._narrow_left = self._narrow_left, 0
        wanted = beside_text(page.width) if page.width else before
        if page.width:
            self._narrow_left = before or self.left.width()
        if wanted and (not page.width or self.left.width() < wanted):
            self.resizeDocks([self.left], [wanted], Qt.Orientation.Horizontal)
        self._fit_bottom(narrow=page.width > 0)

    def _fit_bottom(self, *, narrow: bool) -> None:
        """Make the dock below higher while it is narrow, where its controls have a row of their own, and as it was; a
        list is short enough as it is, and leaves the net its room."""
        high = narrow and self.pages.front("bottom") not in LISTS
        before = self._low_bottom
        if high == bool(before):
            return
        self._low_bottom = self.bottom.height() if high else 0
        wanted = before
        if high:
            wanted = round(min(NARROW_SHARE * self.height(), beside_text(NARROW_HIGH)))
        if not high or self.bottom.height() < wanted:
            self.resizeDocks([self.bottom], [wanted], Qt.Orientation.Vertical)

    def _make_dock(
        self, name: str, title: str, size: QSize, least: int, reserve: int = 0
    ) -> TabbedDock:
        dock = TabbedDock(name, title, size, least, self, reserve=reserve)
        self.pages.add_dock(name, dock.pane, dock)
        self._add_pages(name, dock.pane)
        return dock

    def _add_pages(self, dock: str, pane: TabbedPane) -> None:
        for page in self._pages:
            if page.dock == dock:
                widget = page.make() if page.early else None
                self.pages.add_page(page.key, dock, widget)
                pane.add(
                    page.key,
                    page.title,
                    page.icon,
                    widget,
                    page.edge,
                    after=page.after,
                    counts=page.counts,
                )

    def _follow(self) -> None:
        """Connect the window's title, toolbar, overlay and keyboard focus."""
        # A window notifies every widget in it when it is modified, which can wait until an edit has been painted.
        self._title = QTimer(self, singleShot=True, interval=0)
        self._title.timeout.connect(self._show_title)
        self.document.changed.connect(self._project_changed)
        self.document.path_changed.connect(self._title.start)
        self.document.dirty_changed.connect(lambda _dirty: self._title.start())
        self._show_title()
        self.toolbar.follow(self.workspace)
        self.overlay.changed.connect(self.overlays.choose)
        self.overlays.changed.connect(self.overlay.set_value)
        self.overlays.offered.connect(self._offer_overlay)
        self.overlays.choose(self.overlay.value())
        self.centre.shown.connect(lambda _page: self.toasts.place_again())
        self.pages.shown.connect(self.pages.make)
        self._focus = FocusHome(self, self._home)
        theme.manager().changed.connect(self._fit_docks)
        theme.manager().styled.connect(self._fit_corners)
        self._text_size = theme.manager().scale
        self._height_before = 0  # of the dock below, before the preset for a projector
        self.settings.changed.connect(self._setting_changed)

    def _fit_corners(self) -> None:
        fit_corners(self.menuBar())

    def _fit_docks(self) -> None:
        """Make room at the sides for larger text."""
        scale = theme.manager().scale
        if scale != self._text_size:
            share = beside_text(1000) / 1000 * 2 / (1 + self._text_size)
            widths = [round(dock.width() * share) for dock in (self.left, self.right)]
            self._text_size = scale
            for dock in (self.left, self.right):
                dock.set_least()
            self.resizeDocks([self.left, self.right], widths, Qt.Orientation.Horizontal)

    def _setting_changed(self, name: str) -> None:
        """Show a class the charts in half of the window and the whole net above them, and go back."""
        if name == "projector":
            QTimer.singleShot(0, self, self._share_height)

    def _share_height(self) -> None:
        if self.settings.projector:
            self._height_before = self.bottom.height()
            height = (self.centre.height() + self.bottom.height()) // 2
        else:
            height = self._height_before or bottom_height(self.height())
        self.resizeDocks([self.bottom], [height], Qt.Orientation.Vertical)
        QTimer.singleShot(
            0, self, lambda: self.actions_by_key.trigger("canvas.frame_all")
        )

    def _project_changed(self, before: Project, after: Project) -> None:
        if before.name != after.name:
            self._title.start()

    def _show_title(self) -> None:
        name, dirty = self.document.title, self.document.dirty
        name = f"{name} (read-only)" if self.document.read_only else name
        self.toolbar.set_project(
            name, dirty, str(self.document.path or "Not saved to a file yet.")
        )
        self.setWindowTitle(f"{name}[*] – Tapedeck")
        self.setWindowModified(dirty)

    def _home(self) -> QWidget | None:
        """Return the widget that gets the focus when the focused one is gone: that of the page in the centre."""
        page = next(page for page in self._pages if page.key == self.centre.page)
        exists = page.early or self._owners[page.key] not in self._unmade
        return page.home() if page.home is not None and exists else self.centre.tabs

    def bound_to(self, available: QSize) -> None:
        """Be no larger than a screen shows beside the frame of a window manager: the status is at the bottom."""
        self.resize(
            self.size().boundedTo(QSize(available.width(), available.height() - FRAME))
        )

    def _restore(self) -> None:
        """Restore size, position, docks, the pages in front and the overlay."""
        if self.settings.geometry is not None:
            self.restoreGeometry(self.settings.geometry)
        if self.settings.state is not None:
            self.restoreState(self.settings.state)
        for dock, key in self.settings.pages.items():
            if key in self._owners and self.pages.is_offered(dock, key):
                self.pages.put_in_front(dock, key)
        if self.overlay.is_offered(self.settings.overlay):
            self.overlay.set_value(self.settings.overlay)

    def _offer_overlay(self, name: str, on: bool) -> None:
        if not on and self.overlay.value() == name:
            self.overlay.set_value(self.overlay.keys()[0])
        self.overlay.set_option_offered(name, on)

    # -- what the program asks of the window --------------------------------------------------------------------------

    def start(self) -> None:
        """Make the pages in front and those that follow the project, a feature in each turn, then load torch."""
        self.status.set_torch("Loading PyTorch…")
        self.housekeeping.begin()
        for dock in self.pages.docks:
            self.pages.shown.emit(self.pages.front(dock))
        self._starting.begin()

    @property
    def furnished(self) -> bool:
        """Whether all pages exist that follow the project."""
        return not any(each.follows for each in self._unmade)

    def furnish(self, *features: Feature) -> None:
        """Make the pages of these features, of all if none is named, that are not there yet."""
        for owner, pages in self._pages_of:
            if owner in self._unmade and (not features or owner in features):
                self._unmade.remove(owner)
                with feature.guarded(type(owner)):
                    for page in pages:
                        if not page.early:
                            self.pages.fill(page.key, page.make(), page.controls)
                    owner.finish()
                self._say_broken()

    def _say_broken(self) -> None:
        """Name the packages whose features have failed, if there is one more."""
        broken = shelf.broken()
        if broken.keys() - self._said_broken:
            self._said_broken = {*broken}
            errors = (f"{name}: {error.rstrip('.')}." for name, error in broken.items())
            advice = tr("All else works; TAPEDECK_PLUGINS=none starts without plugins.")
            self.notifier.warn(
                tr("A plugin does not work"), " ".join((*errors, advice))
            )

    def open_on(self, file: str | None, model: AskedModel | None) -> None:
        """Show what the program was started with, and nothing else: a model, a script, a project or journal; without
        one, the page to start from.
        """
        trigger = self.actions_by_key.trigger
        if model is not None:
            self.document.new(
                Project(Path(model.source).name)
            )  # until the model takes its place, if it runs
            QTimer.singleShot(0, self, lambda: trigger("open-source", model))
        elif file is None:
            self.open_first()
        elif file.endswith(journal.JOURNAL):
            QTimer.singleShot(0, self, lambda: trigger("restore-journal", Path(file)))
        elif file.endswith(LINES):
            self.document.new(Project(frames.script_of(Path(file))))
            self.pages.show("autograd")  # a captured step is drawn there
            QTimer.singleShot(0, self, partial(self.furnish, *self._followers))
            QTimer.singleShot(0, self, lambda: trigger("watch-file", Path(file)))
        else:
            QTimer.singleShot(0, self, lambda: self.files.open(Path(file)))

    def open_first(self) -> None:
        """Open the project opened last if the settings say so, else show the page to start from, or without it the
        example that trains in seconds."""
        recent = (
            [path for path in self.settings.recent_files if path.is_file()]
            if self.settings.reopen
            else []
        )
        if recent:
            self.files.open(recent[0])
        elif self.actions_by_key.has("start-page"):
            self.actions_by_key.trigger("start-page")
        else:
            self.files.open_example(EXAMPLE)

    # -- the window itself --------------------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Return to where the user works at an Esc that nothing else took."""
        if event.key() == Qt.Key.Key_Escape and self._focus.go_back():
            event.accept()
        else:
            super().keyPressEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        """Give the bottom dock its share of the window, unless it comes back as it was left, and the centre the focus,
        which Qt would give to the first button.
        """
        super().showEvent(event)
        if not event.spontaneous() and self.focusWidget() is None:
            self._focus.go_back()
        if self.settings.state is None and not event.spontaneous():
            self.resizeDocks(
                [self.bottom], [bottom_height(self.height())], Qt.Orientation.Vertical
            )

    def closeEvent(self, event: QCloseEvent) -> None:
        """Ask if a run is active or work is unsaved; then stop everything."""
        if not self.files.may_leave(quits=True):
            event.ignore()
            return
        self._stop_all()
        event.accept()

    def end(self) -> None:
        """End the program without a question: unsaved work is offered at the next start, an active run is stopped and
        saved first.
        """
        take_typed(self)
        self.actions_by_key.trigger("leave-unsaved")
        self.session.runEnded.connect(self._end_now)
        self.session.leave()
        if not self.session.active:
            self._end_now()

    @Slot()
    def _end_now(self) -> None:
        self._stop_all()
        QCoreApplication.exit(0)  # the loop of an open dialog too

    def _stop_all(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.pages.enlarged.put_back()
        self.settings.geometry = self.saveGeometry()
        self.settings.state = self.saveState()
        self.settings.pages = {
            dock: self.pages.front(dock) for dock in self.pages.docks
        }
        self.settings.overlay = self.overlay.value()
        self.settings.folds = section.folds()
        for owner in self.features:
            owner.close()
        self.settings.sync()
        self.background.close()
        self.engine.close()
        self.housekeeping.end()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if self._takers(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        takers = self._takers(event.mimeData())
        if takers:
            event.acceptProposedAction()
            takers[0]()

    def _takers(self, data: QMimeData) -> list[Callable[[], object]]:
        return [
            take for owner in self.features if (take := owner.drop(data)) is not None
        ]
