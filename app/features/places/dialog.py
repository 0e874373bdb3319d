"""The dialog of the places: what there are, whether one can be reached, and new ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QGridLayout, QWidget

from app import __version__
from app.features.places import values
from app.features.places.line import Line, state_of
from app.features.places.values import Place, PlaceError
from app.util.formatting import bytes_text
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Column, Table
from app.views.ui.widgets import TextField
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import announce, label

WORDS = (
    "A place is a machine that ssh reaches without a question, and a command that gives a Python with torch there. The "
    "device box lists them: a run there goes on when this window is closed. With a template for sbatch, runs are jobs "
    "of the queue of SLURM there, or of this machine without ssh; a template that is not there yet is made."
)
COLUMNS = (
    Column("Name", lambda place: place.name),
    Column("ssh", lambda place: place.ssh),
    Column("Python", lambda place: place.python),
    Column("Queue", lambda place: place.slurm),
)


class PlacesDialog(Dialog):
    """`changed` is emitted when a place was added or removed."""

    changed = Signal()
    _checked = Signal(str, str)  # the name of a place, and what it has or lacks

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Places", parent, icon="chip")
        self.setMinimumWidth(620)
        self.table = Table(COLUMNS, "Places")
        self.table.setMinimumHeight(120)
        self.table.horizontalHeader().setStretchLastSection(True)
        self.name, self.ssh = TextField(), TextField()
        self.python, self.slurm = TextField("python3"), TextField()
        self.answer = label("", "body", "text2", wrap=True)
        self.body.addWidget(label(WORDS, "body", "text2", wrap=True))
        self.body.addWidget(self.table, 1)
        fields = (
            ("Name", self.name, "gpubox"),
            ("ssh", self.ssh, "a Host of ~/.ssh/config, or user@host"),
            ("Python", self.python, "a command for the shell there"),
            ("Queue", self.slurm, "a template for sbatch, or empty"),
        )
        grid = QGridLayout()
        for number, (title, field, hint) in enumerate(fields):
            field.setAccessibleName(title)
            field.setPlaceholderText(hint)
            field.setToolTip(hint)
            line, column = divmod(number, 2)
            grid.addWidget(label(title, "label", "text2"), line, 2 * column)
            grid.addWidget(field, line, 2 * column + 1)
        self.add = Button("Add", "secondary")
        grid.addWidget(self.add, 1, 4)
        self.body.addLayout(grid)
        self.body.addWidget(self.answer)
        self.remove = self.add_button("Remove", left=True)
        self.check = self.add_button("Check")
        self.add_button("Close", default=True).clicked.connect(self.accept)
        self.add.clicked.connect(self._add)
        self.remove.clicked.connect(self._remove)
        self.check.clicked.connect(self._check)
        self._checked.connect(self._say_checked)
        self.table.selectionModel().selectionChanged.connect(self._enable)
        self._show()

    def _places(self) -> dict[str, Place]:
        try:
            return values.places()
        except PlaceError as error:
            self.answer.setText(str(error))
            return {}

    def _show(self) -> None:
        self.table.cells.set_rows(tuple(self._places().values()))
        self.table.fit_columns()
        self._enable()

    def _enable(self, *_selection: object) -> None:
        chosen = self._chosen() is not None
        self.remove.setEnabled(chosen)
        self.check.setEnabled(chosen)

    def _chosen(self) -> Place | None:
        return next(iter(self.table.selected), None)

    def _add(self) -> None:
        """Add the place that the fields describe, in place of one of that name."""
        template = values.template_path(self.slurm.text())
        python = self.python.text() or "python3"
        place = Place(self.name.text(), self.ssh.text(), python, template)
        try:
            note = values.make_template(values.checked(place))
            place.request()
        except (PlaceError, OSError) as error:
            self.answer.setText(str(error))
            return
        if self._save(lambda stored: {**stored, place.name: place}):
            self.answer.setText(note)

    def _remove(self) -> None:
        place = self._chosen()
        if place is not None:
            self._save(
                lambda stored: {k: v for k, v in stored.items() if k != place.name}
            )

    def _save(self, change: Callable[[dict[str, Place]], dict[str, Place]]) -> bool:
        """Write the changed places, and show them; return whether it could be done."""
        try:
            values.save(change(values.places()))
        except (PlaceError, OSError) as error:
            self.answer.setText(str(error))
            return False
        self.answer.clear()
        self._show()
        self.changed.emit()
        return True

    def _check(self) -> None:
        """Reach the chosen place on a thread of its own: it may not answer."""
        place = self._chosen()
        if place is None:
            return
        self.answer.setText(f"Reaching {place.name}…")
        threading.Thread(target=self._reach, args=(place,), daemon=True).start()

    def _reach(self, place: Place) -> None:
        try:
            with closing(Line(place)) as line:
                text = _described(
                    line.ask("check", version=__version__, **place.request())
                )
        except PlaceError as error:
            text = str(error)
        with suppress(RuntimeError):  # the dialog is gone
            self._checked.emit(place.name, text)

    @Slot(str, str)
    def _say_checked(self, name: str, text: str) -> None:
        self.answer.setText(f"{name}: {text}")
        announce(self.answer, self.answer.text())


def _described(facts: dict[str, Any]) -> str:
    """Return the result of a check as text: host, torch and devices, or the state of the job in the queue."""
    if "host" not in facts:
        return f"{state_of(facts['job'])} {facts.get('problem', '')}".strip()
    torch = (
        f"torch {facts['torch']}"
        if facts["torch"]
        else f"no torch ({facts['problem']})"
    )
    devices = ", ".join(("cpu", *facts["devices"]))
    free = bytes_text(facts["free"])
    return f"{facts['host']}, Python {facts['python']}, {torch}, devices {devices}, {free} free"
