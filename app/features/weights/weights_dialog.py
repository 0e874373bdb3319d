"""Load weights: compare a file's state_dict with the net's, and choose keys. Nothing changes before Load."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCheckBox, QFrame, QHeaderView, QVBoxLayout, QWidget

from app.engine.protocol import Request
from app.features.weights.values import KeepWeights, ReadWeights, WeightsBeside
from app.project.weights.state_dict_diff import (
    DTYPE,
    MISSING,
    SAME,
    SHAPE,
    UNEXPECTED,
    Diff,
    Infos,
    KeyRow,
    diff,
)
from app.source.generated import Source
from app.training.config import StartWeights
from app.training.setup.weights_header import TensorInfo
from app.util.columns import Column
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.tables import Index, RowsModel, Table
from app.views.ui.widgets import Button, ChoiceField, SearchField, Segmented
from app.views.ui.widgets.painting import announce, label, set_property

# --- The table that compares a state_dict with the net: a row per key, how it fits, and whether it is loaded

KEY, STATE = 0, 3
# Each state by icon, colour and text: never by colour alone.
STATES = {
    SAME: ("check", "run", "Fits"),
    DTYPE: ("check", "warn", "Fits, converted"),
    SHAPE: ("error", "error", "Another shape"),
    MISSING: ("remove", "warn", "Not in the file"),
    UNEXPECTED: ("add", "text3", "Not in the network"),
}


def sizes(info: TensorInfo) -> str:
    """Format a shape.

    >>> sizes(TensorInfo((3, 2), "float32", 24))
    '3×2'
    """
    return shape_text(info.shape, "one number")


def _code(title: str, text: Callable[[KeyRow], str], **more: Any) -> Column:
    def color(row: KeyRow) -> str:
        return "text2" if row.fits else "text3"

    return Column(title, text, font=lambda _row: "code", **{"color": color, **more})


def _renamed(row: KeyRow) -> bool:
    return row.source not in ("", row.key)


def _info(info: TensorInfo | None) -> str:
    return "–" if info is None else str(info)


def _theirs(row: KeyRow) -> TensorInfo:
    return row.theirs or TensorInfo((), "", 0)


COMPARED = (
    _code(
        "Key",
        lambda row: f"{row.key}  ←  {row.source}" if _renamed(row) else row.key,
        color=lambda row: "text" if row.fits else "text3",
        tip=lambda row: f"{row.source} in the file" if _renamed(row) else "",
    ),
    _code("In the file", lambda row: _info(row.theirs)),
    _code("In the network", lambda row: _info(row.ours)),
    Column(
        "",
        lambda row: STATES[row.kind][2],
        color=lambda row: STATES[row.kind][1],
        icon=lambda row: STATES[row.kind][:2],
    ),
)
ALONE = (
    _code("Key", lambda row: row.key, color=lambda _row: "text"),
    _code("Shape", lambda row: sizes(_theirs(row))),
    _code("dtype", lambda row: _theirs(row).dtype),
    _code("Bytes", lambda row: f"{_theirs(row).bytes:,}"),
)


class WeightsModel(RowsModel):
    """Rows of a difference, or of a file alone, filtered. `taken` are the keys that are ticked."""

    ticked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(COMPARED, parent=parent)
        self.found = Diff(())
        self.taken: set[str] = set()
        self.alone = False

    def set_diff(self, difference: Diff) -> None:
        """Show a difference; all that fits is ticked."""
        self._reset(difference, set(difference.fitting), False)

    def set_infos(self, infos: Infos) -> None:
        """Show a file without comparing it."""
        rows = tuple(
            KeyRow(key, UNEXPECTED, None, info, key) for key, info in infos.items()
        )
        self._reset(Diff(rows), set(), True)

    def _reset(self, difference: Diff, ticked: set[str], alone: bool) -> None:
        self.found, self.taken, self.alone = difference, ticked, alone
        self.set_rows(difference.rows, ALONE if alone else COMPARED)
        self.ticked.emit()

    def show_only(self, terms: list[str], kind: str) -> None:
        """Filter the rows: keys that contain all words, of one kind or of all ("")."""
        kinds = (SAME, DTYPE) if kind == SAME else (kind,)
        self.set_rows(
            [
                row
                for row in self.found.rows
                if (not kind or row.kind in kinds)
                and all(word in f"{row.key} {row.source}".casefold() for word in terms)
            ]
        )

    def tick(self, rows: list[KeyRow], on: bool) -> None:
        """Take rows, or leave them, as far as they fit."""
        keys = {row.key for row in rows if row.fits}
        self.taken = self.taken | keys if on else self.taken - keys
        self.rows_changed(0, len(self.rows) - 1)
        self.ticked.emit()

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        if self._can_be_ticked(index):
            flags |= Qt.ItemFlag.ItemIsUserCheckable
        return flags

    def _can_be_ticked(self, index: Index) -> bool:
        compared = not self.alone and index.isValid() and index.column() == KEY
        return compared and self.rows[index.row()].fits

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.CheckStateRole and self._can_be_ticked(index):
            ticked = self.rows[index.row()].key in self.taken
            return Qt.CheckState.Checked if ticked else Qt.CheckState.Unchecked
        return super().data(index, role)

    def setData(
        self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole
    ) -> bool:
        if role != Qt.ItemDataRole.CheckStateRole or not index.isValid():
            return False
        self.tick(
            [self.rows[index.row()]], Qt.CheckState(value) == Qt.CheckState.Checked
        )
        return True


class WeightsTable(Table):
    """The table. Space ticks the rows that are selected, or takes the ticks away."""

    def __init__(self, model: WeightsModel) -> None:
        super().__init__(model, "Tensors of the file and of the network")
        self.weights = model
        self.setFrameShape(QFrame.Shape.StyledPanel)
        header = self.horizontalHeader()
        header.setResizeContentsPrecision(200)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)

    def fit(self) -> None:
        """Fit the columns to their content; the key column takes the remaining width."""
        widths = [
            max(
                self.sizeHintForColumn(column) + 18,
                self.horizontalHeader().sectionSizeHint(column) + 12,
            )
            for column in range(len(COMPARED))
        ]
        bar = self.verticalScrollBar().sizeHint().width()
        room = self.width() - 2 * self.frameWidth() - bar - sum(widths[1:])
        for column, width in enumerate((max(widths[0], room), *widths[1:])):
            self.setColumnWidth(column, width)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        chosen = self.selected
        if event.key() == Qt.Key.Key_Space and chosen and not self.weights.alone:
            fitting = [row for row in chosen if row.fits]
            ticked = all(row.key in self.weights.taken for row in fitting)
            self.weights.tick(fitting, not ticked)
        else:
            super().keyPressEvent(event)


POLL_INTERVAL = 100  # ms between two polls of the progress
FILTERS = {
    "": "All",
    SAME: "Fit",
    SHAPE: "Another shape",
    MISSING: "Not in the file",
    UNEXPECTED: "Not in the network",
}


class WeightsDialog(Dialog):
    """Reads `path`, compares it with the net of `source`, and passes the chosen keys to `load`.

    `trouble` says why there is no net to load into, "" if there is one.
    """

    def __init__(
        self,
        engine: EngineService,
        path: Path,
        source: Source | None,
        load: Callable[[StartWeights], None],
        trouble: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(f"Load weights of {path.name}", parent)
        self._path, self._source, self._load, self._trouble = (
            path,
            source,
            load,
            trouble,
        )
        self._file = path
        self._engine, self._key = engine, f"weights {id(self)}"
        self._progress: str | None = None  # None while idle
        self._began = 0.0
        self.held: WeightsBeside | None = None
        self.model = WeightsModel(self)
        self.table = WeightsTable(self.model)
        self.notes = label("", "label", "text3", wrap=True)
        self.part = ChoiceField([("", "")], pairs=True)
        self.part.setAccessibleName("State_dict of the file")
        self.part.hide()
        self.search = SearchField("Type to filter keys")
        self.filters: Segmented | None = None
        self.follow = [QCheckBox(), QCheckBox()]
        self.state = label("", "label", "text3", wrap=True)
        self._lay_out()
        self._connect()
        room = parent.size() if parent is not None else None
        self.setMinimumSize(620, 420)
        self.resize(
            min(940, room.width() - 60) if room else 940,
            min(640, room.height() - 60) if room else 640,
        )
        self._timer = QTimer(self, interval=POLL_INTERVAL)
        self._timer.timeout.connect(self._show_progress)
        self._run(ReadWeights(path, source), self._read)

    def _lay_out(self) -> None:
        self._place = QVBoxLayout()
        self.search.setMinimumWidth(200)
        top = hbox(self._place, 1, self.search, spacing=8)
        self.all_button, self.none_button = (
            Button("Select all shown", "link"),
            Button("Deselect all shown", "link"),
        )
        self.count = label("", "label", "text2")
        below = hbox((self.count, 1), self.all_button, self.none_button, spacing=6)
        self.body.addWidget(self.notes)
        self.body.addWidget(self.part, 0, Qt.AlignmentFlag.AlignLeft)
        for box in self.follow:
            box.hide()
            self.body.addWidget(box)
        self.body.addLayout(top)
        self.body.addWidget(self.table, 1)
        self.body.addLayout(below)
        self.body.addWidget(self.state)
        self.cancel_button = self.add_button("Cancel")
        self.some_button = self.add_button("Load matching tensors")
        self.load_button = self.add_button("Load", "primary", default=True)
        self._busy(True)

    def _connect(self) -> None:
        self.cancel_button.clicked.connect(self.reject)
        self.part.edited.connect(self._choose_part)
        self.load_button.clicked.connect(self.load_all)
        self.some_button.clicked.connect(self.load_some)
        self.all_button.clicked.connect(lambda: self.model.tick(self.model.rows, True))
        self.none_button.clicked.connect(
            lambda: self.model.tick(self.model.rows, False)
        )
        self.search.textChanged.connect(lambda _text: self._filter())
        self.model.ticked.connect(self._update_buttons)
        for number, box in enumerate(self.follow):
            box.toggled.connect(lambda on, number=number: self._followed(number, on))
        self.finished.connect(lambda _result: self._forget())

    # --- Reading

    def _run(self, request: Request[Any], done: Callable[[Any], None]) -> None:
        """Send a request to the engine; its answer is dropped if the dialog is closed before."""
        self._began, self._progress = time.monotonic(), ""
        self._busy(True)
        self._timer.start()
        self._show_progress()
        self._engine.ask(
            self._key,
            request,
            on_progress=self._set_progress,
            on_answer=lambda answer: self._finish(partial(done, answer)),
            on_error=lambda failure: self._finish(partial(self._refuse, failure)),
        )

    def _set_progress(self, message: str) -> None:
        self._progress = message

    def _finish(self, then: Callable[[], None]) -> None:
        self._progress = None
        self._timer.stop()
        self._busy(False)
        self._show_state("")
        then()

    @property
    def running(self) -> bool:
        return self._progress is not None

    def _busy(self, on: bool) -> None:
        for widget in (
            self.part,
            self.table,
            self.search,
            self.all_button,
            self.none_button,
            *self.follow,
        ):
            widget.setEnabled(not on)
        if on:
            self.load_button.setEnabled(False)
            self.some_button.setEnabled(False)

    def _show_progress(self) -> None:
        if self.running:
            self._show_state(
                f"{self._progress or 'Starting'}…  {time.monotonic() - self._began:.0f} s",
                "text2",
            )

    def _forget(self) -> None:
        self._engine.forget(self._key)
        self._progress = None
        self._timer.stop()

    def _refuse(self, failure: WorkerFailure) -> None:
        message = failure.message.strip() or type(failure.error).__name__
        self.state.setToolTip(failure.traceback)
        self._show_state(
            f"{message if message.endswith('.') else message + '.'} Nothing was changed.",
            "error",
        )
        announce(self, message)
        self._update_buttons()

    def _show_state(self, message: str, tone: str = "text3") -> None:
        self.state.setText(message)
        self.state.setVisible(bool(message))
        set_property(self.state, "tone", tone)

    # --- Content

    def _choose_part(self, name: str) -> None:
        """Read another state_dict of the file."""
        self._path = Path(f"{self._file}:{name}")
        for box in self.follow:
            box.setChecked(False)
            box.hide()
        self._run(ReadWeights(self._path, self._source), self._read)

    def _offer_parts(self, parts: tuple[str, ...]) -> None:
        """Offer the state_dicts of a file that has several, at first."""
        if len(parts) > 1 and self.part.isHidden():
            self.part.clear_choices()
            for name in parts:
                self.part.add_choice(name, name or "Tensors at the top of the file")
            self.part.set_value(parts[0])
            self.part.show()

    def _read(self, weights: WeightsBeside) -> None:
        self.held = weights
        self._offer_parts(weights.parts)
        total = sum(info.bytes for info in weights.infos.values())
        summary = (
            f"{len(weights.infos):,} tensors, {total:,} bytes, in {self._file.parent}."
        )
        self.notes.setText(" ".join((summary, *weights.notes)))
        for box, offer in zip(self.follow, weights.offers, strict=False):
            box.setText(f"Suggestion: {offer.text}")
            box.show()
        self._compare()

    def _followed(self, number: int, on: bool) -> None:
        """Keep two suggestions consistent: the second includes the first."""
        other = self.follow[1 - number]
        if on and other.isChecked() and number == 0:
            other.setChecked(False)
        elif on and not other.isHidden() and number == 1:
            other.blockSignals(True)
            other.setChecked(True)
            other.blockSignals(False)
        elif not on and number == 0 and other.isChecked():
            other.setChecked(False)
        self._compare()

    def _compare(self) -> None:
        """Show the file beside the net, by the names that are followed."""
        weights = self.held
        if weights is None:
            return
        if weights.ours is None:
            self.model.set_infos(weights.infos)
            self._show_state(self._trouble, "warn")
        else:
            self.model.set_diff(diff(weights.infos, weights.ours, self._names()))
        self._make_filters()
        self._filter()
        self.table.fit()

    def _names(self) -> FrozenMap[str, str]:
        """Return the accepted suggestions: keys of the net by keys of the file."""
        assert self.held is not None
        offers = zip(self.follow, self.held.offers, strict=False)
        names = [offer.names for box, offer in offers if box.isChecked()]
        return FrozenMap(names[-1] if names else {})

    def _make_filters(self) -> None:
        """Create a filter for each kind of row, with its count."""
        if self.filters is not None:
            self._place.removeWidget(self.filters)
            self.filters.hide()
            self.filters.deleteLater()
            self.filters = None
        if self.model.alone:
            return
        counts = self.model.found.counts
        counts[SAME] += counts[DTYPE]
        options = [("", f"{FILTERS['']}  {len(self.model.found.rows):,}")]
        options += [
            (kind, f"{FILTERS[kind]}  {counts[kind]:,}")
            for kind in FILTERS
            if kind and counts[kind]
        ]
        self.filters = Segmented(options, "Keys to show")
        self.filters.changed.connect(lambda _kind: self._filter())
        self._place.addWidget(self.filters)

    def _filter(self) -> None:
        kind = self.filters.value() if self.filters is not None else ""
        self.model.show_only(self.search.text().casefold().split(), kind)

    # --- Loading

    def _update_buttons(self) -> None:
        """Enable the buttons and state what they would do."""
        difference, count = self.model.found, len(self.model.taken)
        ready = (
            self.held is not None and self.held.ours is not None and not self.running
        )
        for widget in (self.all_button, self.none_button):
            widget.setVisible(ready)
        for widget in (self.some_button, self.load_button):
            widget.setVisible(self.held is None or self.held.ours is not None)
        complete = difference.strict and count == len(difference.fitting)
        self.load_button.setEnabled(ready and complete)
        fits = (
            "All keys match."
            if difference.strict
            else "Load requires all keys to match."
        )
        self.load_button.setToolTip(fits)
        self.some_button.setEnabled(ready and count > 0 and not complete)
        every = count == len(difference.fitting)
        self.some_button.setText(
            "Load matching tensors"
            if every
            else f"Load {count:,} of {len(difference.fitting):,}"
        )
        total = len(self.held.ours) if self.held and self.held.ours is not None else 0
        rest = total - count
        summary = f"{count:,} of the network's {total:,} tensors are loaded"
        summary += f", {rest:,} are initialised from the seed." if rest else "."
        self.count.setText(summary if ready and not self.model.alone else "")

    def load_all(self) -> None:
        if self.load_button.isEnabled():
            self._keep()

    def load_some(self) -> None:
        if self.some_button.isEnabled():
            self._keep()

    def _keep(self) -> None:
        assert self._source is not None
        keys = tuple(key for key in self.model.found.fitting if key in self.model.taken)
        self._run(
            KeepWeights(self._path, self._source, keys, self._names()),
            self._accept_weights,
        )

    def _accept_weights(self, start: StartWeights) -> None:
        self.accept()
        self._load(start)
