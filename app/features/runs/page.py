"""The page "Runs": the project's runs and actions on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import Any

from PySide6.QtCore import QPoint, Qt, QTimer, Signal, SignalInstance, Slot
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QMenu,
    QSizePolicy,
    QSplitter,
    QStackedLayout,
    QWidget,
)

from app.features.runs.selection import (
    RunsCompare,
    disk_text,
    fork_refusal,
    resume_refusal,
    selection_text,
)
from app.features.runs.table_model import (
    KEYS,
    NAME,
    RunRow,
    RunsModel,
)
from app.runs.checkpoint_files import Checkpoint, DiskUse, checkpoints
from app.runs.compare import Setting
from app.runs.list_columns import BY_KEY
from app.runs.record import RunError
from app.runs.store import Kept
from app.util.formatting import bytes_text
from app.views.run.session import Run, RunSession
from app.views.ui.docks import beside_text
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import Table
from app.views.ui.theme import manager
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import label, set_property
from app.views.ui.widgets.search import SearchField

MOST = 5  # runs that are compared
READABLE = 0.25  # seconds between two figures
MOST_WIDE, NAME_WIDE = (
    220,
    400,
)  # px of a column, as of a long note, and of that of the names
SEARCH = 150, 230  # px, the least and the greatest width
FILTER_HINT = (
    "Search words and comparisons: lr>0.001 tags:baseline best_accuracy>=95% "
    f"adam\nColumns: {', '.join(BY_KEY)}"
)
FOLLOWING = 3000  # milliseconds between two looks at runs that other processes train
FITTING = 30  # milliseconds in which several changes of the rows become one


class RunsTable(Table):
    """The list, whose menu has what can be done with the selected runs before the copies."""

    fill_run_menu: Callable[[QMenu], None]

    def fill_menu(self, menu: QMenu, row: Any) -> None:
        self.fill_run_menu(menu)
        menu.addSeparator()
        super().fill_menu(menu, row)


class RunPanel(QWidget):
    """The table of runs with buttons.

    `runChosen(run)` is emitted for a run of this window, `keptChosen(kept)` for a stored one, to show its curves;
    `compared(rows)` when several are selected; `modelsCompared(older, newer)` asks where the models of two part;
    `measured(kept)` what checkpoints the selected run has, see `show_disk`, and `keptDeleted(kept)` to delete those
    that are kept for revisiting. The other signals request the action in their name.

    Selected runs that the filter hides stay selected: nothing is done to them while they are out of sight.
    """

    runChosen = Signal(object)
    keptChosen = Signal(object)
    compared = Signal(object)
    modelsCompared = Signal(object, object)
    runRequested = Signal()
    annotated = Signal(
        object, str, str
    )  # the run, what of it ("name", "note" or "tags"), and the text
    columnsHidden = Signal(object)  # the keys of the columns that are not shown
    continued = Signal(object)
    forked = Signal(object, object)
    restored = Signal(object)
    opened = Signal(object)
    exported = Signal(object)
    deleted = Signal(object)
    measured = Signal(object)
    keptDeleted = Signal(object)
    curvesRequested = Signal()
    panelsRequested = Signal()
    listRequested = Signal()  # that the stored runs be read again
    eventFilesChanged = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.can_compare_models = True
        self._session: RunSession | None = None
        self._refreshed = 0.0
        self._disk: tuple[Path, DiskUse] | None = (
            None  # of the selected run, once it is measured
        )
        self._fitting = QTimer(self, singleShot=True, interval=FITTING)
        self._fitting.timeout.connect(self._fit_columns)
        manager().changed.connect(self._fitting.start)  # the size of the text
        self._following = QTimer(self, interval=FOLLOWING)
        self._following.timeout.connect(self._follow)
        self.model = RunsModel(self)
        self.model.annotated.connect(self.annotated)
        self._before: tuple[
            object, ...
        ] = ()  # the keys of the rows that were selected before a reset
        self._hidden: tuple[object, ...] = ()  # of those that the filter hides
        self._refused = ""  # why the filter cannot be read
        self.table = self._create_table()
        self.model.modelAboutToBeReset.connect(self._remember_selection)
        self.compare = RunsCompare()
        self.compare.hide()
        hint = "Runs are saved beside the project with their settings, curves and checkpoints, and listed here."
        self.empty = EmptyState("runs", "No run yet", hint, "Run")
        self.empty.acted.connect(self.runRequested)
        self._lay_out()
        self.table.selectionModel().selectionChanged.connect(
            lambda *_: self._selection_changed()
        )
        self.model.modelReset.connect(self._restore_selection)
        self._enable()

    def _create_table(self) -> Table:
        table = RunsTable(self.model, "Runs", 26, room=0)
        table.fill_run_menu = self._fill_menu
        table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        table.setEditTriggers(
            QAbstractItemView.EditTrigger.EditKeyPressed
            | QAbstractItemView.EditTrigger.DoubleClicked
        )
        header = table.horizontalHeader()
        header.setStretchLastSection(True)
        header.setSectionsMovable(True)
        header.setSortIndicatorClearable(True)
        header.setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
        table.setSortingEnabled(True)
        header.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        header.customContextMenuRequested.connect(
            lambda spot: self._show_columns_menu(header.mapToGlobal(spot))
        )
        delete = QShortcut(QKeySequence(Qt.Key.Key_Delete), table)
        delete.setContext(Qt.ShortcutContext.WidgetShortcut)
        delete.activated.connect(self._delete)
        return table

    def _lay_out(self) -> None:
        self.go_on = Button("Continue", icon="run")
        self.go_on.clicked.connect(lambda: self._emit_for_selected(self.continued))
        self.fork = Button("Fork from checkpoint", icon="fork")
        self.fork_menu = QMenu(self.fork)
        self.fork_menu.aboutToShow.connect(self._fill_fork_menu)
        self.fork.setMenu(self.fork_menu)
        self.restore = Button("Restore project", icon="undo")
        self.restore.setToolTip(
            "Replace the open project by this run's project (can be undone)"
        )
        self.restore.clicked.connect(lambda: self._emit_for_selected(self.restored))
        self.curves = Button("Curves", icon="curves")
        self.curves.setToolTip("Show the curves of the selected runs")
        self.curves.clicked.connect(self.curvesRequested)
        self.panels = Button("Panels", icon="compare")
        self.panels.setToolTip(
            "Show metrics and samples of the selected runs beside one another"
        )
        self.panels.clicked.connect(self.panelsRequested)
        self.more = Button("More")
        self.menu = QMenu(self.more)
        self.menu.aboutToShow.connect(lambda: self._fill_menu(self.menu))
        self.more.setMenu(self.menu)
        self._hint = label("", "caption", "text3")
        self._hint.setMinimumWidth(0)
        self._hint.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.search = SearchField("Filter runs")
        self.search.setMinimumWidth(SEARCH[0])
        self.search.setMaximumWidth(SEARCH[1])
        self.search.setToolTip(FILTER_HINT)
        self.search.textChanged.connect(self._filter)
        tools = QWidget()
        row = FlowLayout(tools, (12, 6, 8, 2), 8)
        row.put(
            self.go_on,
            self.fork,
            self.restore,
            self.curves,
            self.panels,
            self.more,
        )
        row.push(self.search)
        self._tools = row
        hint_row = hbox((self._hint, 1), margins=(12, 2, 8, 4))
        self._event_files = False
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.addWidget(self.table)
        self.splitter.addWidget(self.compare)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(1)
        self.splitter.setSizes([560, 420])
        listed = QWidget()
        self._column = vbox(
            tools, hint_row, (self.splitter, 1), on=listed, margins=0, spacing=0
        )
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self.empty)
        self._stack.addWidget(listed)

    def add_tool(self, button: QWidget) -> None:
        """Add a button of another feature after those of the page."""
        self._tools.removeWidget(self.search)
        self._tools.put(button)
        self._tools.push(self.search)

    def add_strip(self, strip: QWidget) -> None:
        """Add a widget below the buttons."""
        self._column.insertWidget(1, strip)

    # -- content ------------------------------------------------------------------------------------------------------

    def set_session(self, session: RunSession) -> None:
        """List the runs of this session, those that were and those to come."""
        self._session = session
        for run in session.runs:
            self._add(run)
        session.runStarted.connect(self._add)
        session.stateChanged.connect(self._on_state)

    def set_stored(self, runs: list[Kept]) -> None:
        """Set the stored runs, newest first; the selection stays."""
        self.model.set_stored(
            runs, self._session.runs if self._session is not None else []
        )
        self._stack.setCurrentIndex(1 if self.model.count else 0)
        self._fitting.start()
        self._enable()
        if not self.model.elsewhere:
            self._following.stop()
        elif not self._following.isActive():
            self._following.start()

    def _follow(self) -> None:
        """Have the runs listed again, of which other processes train some."""
        if (
            self.isVisible()
            and self.table.state() != QAbstractItemView.State.EditingState
        ):
            self.listRequested.emit()

    def _remember_selection(self) -> None:
        self._before = (*(row.key for row in self.selected_rows), *self._hidden)

    def _restore_selection(self) -> None:
        selection = self.table.selectionModel()
        selection.blockSignals(True)
        flags = selection.SelectionFlag.Select | selection.SelectionFlag.Rows
        for index, row in enumerate(self.model.rows):
            if row.key in self._before:
                selection.select(self.model.index(index, 0), flags)
        selection.blockSignals(False)
        self._hidden = tuple(set(self._before) - {row.key for row in self.model.rows})
        self.table.viewport().update()
        self._enable()

    def clear_selection(self) -> None:
        """Select no run, not even one that the filter hides."""
        self._hidden = ()
        self.table.clearSelection()
        self._enable()

    @property
    def hidden_rows(self) -> list[RunRow]:
        """The selected rows that the filter hides."""
        return [row for row in self.model.newest_first if row.key in self._hidden]

    @Slot(str)
    def _filter(self, text: str) -> None:
        """Show the runs that the text takes; while it cannot be read, those of before."""
        try:
            self.model.set_filter(text)
            self._refused = ""
        except RunError as error:
            self._refused = str(error)
        set_property(self.search, "invalid", bool(self._refused))
        self._tell()

    def set_hidden_columns(self, keys: Iterable[str]) -> None:
        """Hide the columns of these keys, and show the others."""
        hidden = set(keys)
        for at, key in enumerate(KEYS):
            self.table.setColumnHidden(at, key in hidden and at != NAME)

    def _show_columns_menu(self, spot: QPoint) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.fill_columns_menu(menu)
        menu.popup(spot)

    def fill_columns_menu(self, menu: QMenu) -> None:
        """List the columns, checked where they are shown."""
        for at, column in enumerate(self.model.columns):
            if at != NAME:
                action = menu.addAction(column.title)
                action.setCheckable(True)
                action.setChecked(not self.table.isColumnHidden(at))
                action.toggled.connect(
                    lambda shown, at=at: self._show_column(at, shown)
                )

    def _show_column(self, at: int, shown: bool) -> None:
        self.table.setColumnHidden(at, not shown)
        self.columnsHidden.emit(
            [key for at, key in enumerate(KEYS) if self.table.isColumnHidden(at)]
        )

    @property
    def selected_rows(self) -> list[RunRow]:
        """The selected rows, from top to bottom."""
        return self.table.selected

    def _select(self, index: int) -> None:
        """Select one row, whatever keys are held: `selectRow` would toggle it with Ctrl."""
        selection = self.table.selectionModel()
        flags = selection.SelectionFlag.ClearAndSelect | selection.SelectionFlag.Rows
        selection.setCurrentIndex(self.model.index(index, NAME), flags)

    def show_runs(self, text: str, column: str) -> None:
        """Filter the runs, and sort them by the column of a key."""
        self.search.setText(text)
        order = Qt.SortOrder.AscendingOrder
        self.table.sortByColumn(KEYS.index(column), order)

    def choose(self, stored_run: Kept) -> None:
        """Select the row of a run."""
        for index, row in enumerate(self.model.rows):
            if row.kept is not None and row.kept.folder == stored_run.folder:
                self._select(index)

    def mark(self, folders: Iterable[Path | None]) -> None:
        """Select the runs in these folders if none is selected, without asking for their curves again."""
        if not self.selected_rows and not self._hidden:
            shown = set(folders)
            self._before = tuple(
                row.key
                for row in self.model.newest_first
                if row.kept is not None and row.kept.folder in shown
            )
            self._restore_selection()

    def set_settings(self, rows: list[RunRow], lines: tuple[Setting, ...]) -> None:
        """Show the settings of the chosen runs side by side; an answer to other rows is dropped."""
        selected = self.selected_rows[:MOST]
        if [row.key for row in rows] == [
            row.key for row in selected
        ]:  # the same runs, possibly listed again
            self.compare.set_settings([row.title for row in selected], lines)
            self.compare.show()

    def set_checkpoints(self, checkpoints: list[Checkpoint]) -> None:
        """Set the checkpoints of the selected run for its menu."""
        self.fork_menu.clear()
        for checkpoint in checkpoints:
            action = self.fork_menu.addAction(
                f"{checkpoint.label[:1].upper()}{checkpoint.label[1:]}"
            )
            action.triggered.connect(
                lambda _=False, chosen=checkpoint: self._fork(chosen)
            )
        if not checkpoints:
            self.fork_menu.addAction("It has no checkpoint").setEnabled(False)

    @Slot()
    def refresh(self) -> None:
        """Update the row of the newest run, throttled."""
        now = monotonic()
        if self.isVisible() and now - self._refreshed > READABLE:
            self._refreshed = now
            self.model.refresh(
                self._session.current if self._session is not None else None
            )

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.listRequested.emit()  # another window may have begun one
        self.refresh()
        self._fitting.start()

    @Slot(object)
    def _add(self, run: Run) -> None:
        """List a run, and select it unless it follows in a sweep while others are selected."""
        runs = self._session.runs if self._session is not None else []
        before = runs[-2] if len(runs) > 1 and run is runs[-1] else None
        follows = run.series is not None and run.series.number > 1
        self.model.add(run)
        self._stack.setCurrentIndex(1)
        if not follows or [row.run for row in self.selected_rows] == [before]:
            self._select(self.model.place_of(run) or 0)
        self._fitting.start()

    @Slot(str)
    def _on_state(self, _state: str) -> None:
        self.model.refresh(self._session.current if self._session is not None else None)
        self._fitting.start()
        self._enable()

    def _fit_columns(self) -> None:
        """Fit the columns to their content: when rows are added or end, not at every update, and only if visible."""
        if self.table.isVisible():
            header = self.table.horizontalHeader()
            for at in range(len(KEYS)):
                width = max(
                    self.table.sizeHintForColumn(at), header.sectionSizeHint(at)
                )
                header.resizeSection(
                    at, min(width, beside_text(NAME_WIDE if at == NAME else MOST_WIDE))
                )

    # -- what can be done ---------------------------------------------------------------------------------------------

    def _selection_changed(self) -> None:
        rows = self.selected_rows
        self._hidden = ()
        self._enable()
        if len(rows) < 2:
            self.compare.hide()
        self.show_selected()

    def show_selected(self) -> None:
        """Ask for the curves of the selected runs."""
        rows = self.selected_rows
        if len(rows) == 1 and rows[0].run is not None:
            self.runChosen.emit(rows[0].run)
        elif len(rows) == 1:
            self.keptChosen.emit(rows[0].kept)
        elif rows:
            self.compared.emit(rows[:MOST])

    @property
    def _one(self) -> Kept | None:
        """The stored run, if exactly one is selected."""
        rows = self.selected_rows
        return rows[0].kept if len(rows) == 1 else None

    @property
    def _two(self) -> tuple[Kept, Kept] | None:
        """The older and the newer stored run, if exactly two are selected."""
        stored_runs = [row.kept for row in self.selected_rows if row.kept is not None]
        return (
            (stored_runs[1], stored_runs[0])
            if len(stored_runs) == len(self.selected_rows) == 2
            else None
        )

    def _compare_models(self) -> None:
        if self._two is not None:
            self.modelsCompared.emit(*self._two)

    def _enable(self) -> None:
        rows, single, hidden = self.selected_rows, self._one, self.hidden_rows
        if single is None or (
            self._disk is not None and self._disk[0] != single.folder
        ):
            self._disk = None
        about = rows[0] if single is not None else None, hidden, self._going, self._use
        same = "Resume this run from its newest checkpoint, as if it had not stopped"
        new = "Start a new run with the open project's settings from the weights of a checkpoint"
        for button, why, tip in (
            (self.go_on, resume_refusal(*about), same),
            (self.fork, fork_refusal(*about), new),
        ):
            button.setEnabled(not why)
            button.setToolTip(why or tip)
        self.restore.setEnabled(single is not None)
        self.curves.setEnabled(bool(rows or hidden))
        self.panels.setEnabled(bool(rows or hidden))
        if single is not None:
            self.measured.emit(single)
        self._tell()

    @property
    def _going(self) -> bool:
        return self._session is not None and self._session.active

    @property
    def _use(self) -> DiskUse | None:
        """What checkpoints the selected run has; None before that is measured."""
        return self._disk[1] if self._disk is not None else None

    def _tell(self) -> None:
        """Say what is selected, how the run ended, and what its checkpoints for revisiting take."""
        shown, count = len(self.model.rows), self.model.count
        resumable = self._use.any if self._use is not None and not self._going else None
        selection = self._refused or selection_text(
            self.selected_rows, self.hidden_rows, shown, count, resumable
        )
        hint = " ".join(filter(None, (selection, disk_text(self._use))))
        self._hint.setText(hint)
        self._hint.setToolTip(hint)
        set_property(self._hint, "tone", "error" if self._refused else "text3")

    def show_disk(self, stored_run: Kept, use: DiskUse) -> None:
        """Show what checkpoints a run has, as measured."""
        measured_use = stored_run.folder, use
        if (
            self._one is not None
            and self._one.folder == stored_run.folder
            and measured_use != self._disk
        ):
            self._disk = measured_use
            self._enable()

    def _emit_for_selected(self, signal: SignalInstance) -> None:
        if self._one is not None:
            signal.emit(self._one)

    def _fork(self, checkpoint: Checkpoint) -> None:
        if self._one is not None:
            self.forked.emit(self._one, checkpoint)

    def _delete(self) -> None:
        stored_runs = [row.kept for row in self.selected_rows if row.kept is not None]
        if stored_runs:
            self.deleted.emit(stored_runs)

    def _edit(self, column: int) -> None:
        indexes = self.table.selectionModel().selectedRows(column)
        if len(indexes) == 1:
            self.table.setColumnHidden(column, False)
            self.table.scrollTo(indexes[0])
            self.table.edit(indexes[0])

    def _fill_fork_menu(self) -> None:
        self.set_checkpoints(checkpoints(self._one) if self._one is not None else [])

    def _delete_kept_text(self) -> str:
        use = self._use
        of = (
            f" ({use.to_revisit:,}, {bytes_text(use.bytes)})"
            if use is not None and use.to_revisit
            else ""
        )
        return f"Delete checkpoints for revisiting{of}…"

    def _fill_menu(self, menu: QMenu) -> None:
        menu.clear()
        single, any_kept = (
            self._one is not None,
            any(row.kept is not None for row in self.selected_rows),
        )
        for text, act, able in (
            ("Rename", lambda: self._edit(NAME), single),
            ("Edit notes", lambda: self._edit(KEYS.index("note")), single),
            ("Edit tags", lambda: self._edit(KEYS.index("tags")), single),
            (
                "Compare models of these runs",
                self._compare_models,
                self._two is not None and self.can_compare_models,
            ),
            ("Open folder", lambda: self._emit_for_selected(self.opened), single),
            (
                "Export as TensorBoard…",
                lambda: self._emit_for_selected(self.exported),
                single,
            ),
            (
                self._delete_kept_text(),
                lambda: self._emit_for_selected(self.keptDeleted),
                bool(disk_text(self._use)),
            ),
            ("Delete…", self._delete, any_kept),
        ):
            action = menu.addAction(text)
            action.triggered.connect(lambda _=False, act=act: act())
            action.setEnabled(able)
            if text == "Rename":
                action.setShortcut(QKeySequence(Qt.Key.Key_F2))
        menu.addSeparator()
        self.fill_columns_menu(menu.addMenu("Columns"))
        while_running = menu.addAction("Write TensorBoard files during runs")
        while_running.setCheckable(True)
        while_running.setChecked(self._event_files)
        while_running.toggled.connect(self._choose_event_files)

    def set_event_files(self, enabled: bool) -> None:
        """Set whether the menu says that runs write TensorBoard files; `eventFilesChanged` is not emitted."""
        self._event_files = enabled

    def _choose_event_files(self, enabled: bool) -> None:
        self._event_files = enabled
        self.eventFilesChanged.emit(enabled)
