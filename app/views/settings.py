"""Settings of the user that persist between starts, typed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QObject, QSettings, QStandardPaths, Signal

from app.util.user_folders import default_root
from app.views.ui.theme import CHOICES, LEAST_SCALE, MOST_SCALE

RECENT_FILES = 10
MOST_PROCESSES = 64
HIDDEN_RUN_COLUMNS = "loss"
AUTOSAVE_SECONDS, MOST_AUTOSAVE_SECONDS = 3, 600


class Settings(QObject):
    """Properties over a `QSettings`. Another organisation or application name has separate settings.

    A missing or unreadable value is the default. The name of a property is the last part of its key; `changed(name)` is
    emitted when it gets another value, and dependants follow it, wherever it was changed.
    """

    changed = Signal(str)

    def __init__(
        self, organisation: str = "Tapedeck", application: str = "Tapedeck"
    ) -> None:
        super().__init__()
        self._store = QSettings(
            QSettings.Format.IniFormat,
            QSettings.Scope.UserScope,
            organisation,
            application,
        )

    @property
    def file(self) -> Path:
        """The path of the settings file."""
        return Path(self._store.fileName())

    def reset(self, name: str) -> None:
        """Return a property to its default."""
        for key in self._store.allKeys():
            if key.rpartition("/")[2] == name:
                self._store.remove(key)
                self.changed.emit(name)

    @property
    def writable(self) -> bool:
        """Whether the settings file can be written."""
        return self._store.isWritable()

    def sync(self) -> None:
        """Write pending changes now."""
        self._store.sync()

    @property
    def geometry(self) -> QByteArray | None:
        """The window's place and size, as `saveGeometry` gave it."""
        return self._bytes("window/geometry")

    @geometry.setter
    def geometry(self, value: QByteArray) -> None:
        self._store.setValue("window/geometry", value)

    @property
    def state(self) -> QByteArray | None:
        """The docks and bars, as `saveState` gave them."""
        return self._bytes("window/state")

    @state.setter
    def state(self, value: QByteArray) -> None:
        self._store.setValue("window/state", value)

    @property
    def pages(self) -> dict[str, str]:
        """The page in front of each dock."""
        return {
            key: value
            for key, value in self._table("window/pages").items()
            if isinstance(value, str)
        }

    @pages.setter
    def pages(self, value: dict[str, str]) -> None:
        self._put("window/pages", json.dumps(value))

    @property
    def overlay(self) -> str:
        """The overlay of the canvas, "" for the first."""
        return str(self._store.value("window/overlay", ""))

    @overlay.setter
    def overlay(self, value: str) -> None:
        self._put("window/overlay", value)

    @property
    def folds(self) -> dict[str, bool]:
        """Which sections of panels were opened or folded, by title."""
        return {
            key: value
            for key, value in self._table("window/folds").items()
            if isinstance(value, bool)
        }

    @folds.setter
    def folds(self, value: dict[str, bool]) -> None:
        self._put("window/folds", json.dumps(value))

    def view_of(self, path: Path) -> dict[str, Any]:
        """Return how the canvas showed the project of a file, as `set_view_of` got it; empty if that is not known."""
        stored = self._table("files/views").get(str(path.absolute()))
        return stored if isinstance(stored, dict) else {}

    def set_view_of(self, path: Path, view: dict[str, Any]) -> None:
        """Store how the canvas shows the project of a file; those of the files used last are kept."""
        views = self._table("files/views")
        views.pop(str(path.absolute()), None)
        newest = [*views.items(), (str(path.absolute()), view)][-RECENT_FILES:]
        self._put("files/views", json.dumps(dict(newest)))

    @property
    def theme(self) -> str:
        """The chosen theme, one of `CHOICES`."""
        stored = self._store.value("look/theme", "dark")
        return stored if stored in CHOICES else "dark"

    @theme.setter
    def theme(self, value: str) -> None:
        if value not in CHOICES:
            raise ValueError(f"a theme is one of {', '.join(CHOICES)}, not {value!r}")
        self._put("look/theme", value)

    @property
    def reduced_motion(self) -> bool:
        """Return whether animations are off."""
        return self._switch("look/reduced_motion")

    @reduced_motion.setter
    def reduced_motion(self, value: bool) -> None:
        self._put("look/reduced_motion", "true" if value else "false")

    @property
    def font_scale(self) -> float:
        """The text size, 1 to 2 times the design's."""
        try:
            scale = float(str(self._store.value("look/font_scale", 1.0)))
        except ValueError:
            return LEAST_SCALE
        return (
            min(max(scale, LEAST_SCALE), MOST_SCALE) if scale == scale else LEAST_SCALE
        )

    @font_scale.setter
    def font_scale(self, value: float) -> None:
        if not LEAST_SCALE <= value <= MOST_SCALE:
            raise ValueError(
                f"a text size is from {LEAST_SCALE:g} to {MOST_SCALE:g} times the usual, not {value:g}"
            )
        self._put("look/font_scale", str(value))

    @property
    def thick_wires(self) -> bool:
        """Return whether wires and curves are drawn thicker than designed."""
        return self._switch("look/thick_wires")

    @thick_wires.setter
    def thick_wires(self, value: bool) -> None:
        self._put("look/thick_wires", "true" if value else "false")

    @property
    def before_projector(self) -> str:
        """The look that the projector preset replaced, as text; "" while it is off."""
        return str(self._store.value("look/before_projector", "") or "")

    @before_projector.setter
    def before_projector(self, value: str) -> None:
        self._put("look/before_projector", value)

    @property
    def recent_files(self) -> tuple[Path, ...]:
        """The projects opened last, newest first; a file that has gone stays until it is forgotten."""
        stored = self._store.value("files/recent", [])
        # A list of one comes back from the file as a plain text.
        texts = (
            [stored]
            if isinstance(stored, str)
            else stored
            if isinstance(stored, list | tuple)
            else []
        )
        return tuple(Path(str(text)) for text in texts if text)[:RECENT_FILES]

    def add_recent(self, path: Path) -> None:
        """Put a project at the head of the list."""
        path = path.absolute()
        self._set_recent(
            [path, *(other for other in self.recent_files if other != path)]
        )

    def forget_recent(self, path: Path) -> None:
        """Take a project off the list."""
        self._set_recent(
            [
                other
                for other in self.recent_files
                if other not in (path, path.absolute())
            ]
        )

    def _set_recent(self, paths: list[Path]) -> None:
        self._store.setValue(
            "files/recent", [str(path) for path in paths[:RECENT_FILES]]
        )

    @property
    def reopen(self) -> bool:
        """Return whether the project opened last is opened at the start."""
        return self._switch("files/reopen", True)

    @reopen.setter
    def reopen(self, value: bool) -> None:
        self._put("files/reopen", "true" if value else "false")

    @property
    def autosave_seconds(self) -> int:
        """Return after how many seconds unsaved edits are written to the journal."""
        return self._number(
            "files/autosave_seconds", AUTOSAVE_SECONDS, MOST_AUTOSAVE_SECONDS
        )

    @autosave_seconds.setter
    def autosave_seconds(self, value: int) -> None:
        self._put("files/autosave_seconds", str(value))

    @property
    def snippet(self) -> str:
        """The user's text in the Snippet page; "" for none."""
        return str(self._store.value("autograd/snippet", "") or "")

    @snippet.setter
    def snippet(self, value: str) -> None:
        self._put("autograd/snippet", value)

    @property
    def data_folder(self) -> Path:
        """The folder of downloaded data; `tapedeck train` has the same default."""
        return self._path("files/data_folder") or default_root()

    @data_folder.setter
    def data_folder(self, value: Path) -> None:
        self._put("files/data_folder", str(value))

    @property
    def library_folder(self) -> Path:
        """The folder of blocks shared between projects."""
        data = QStandardPaths.writableLocation(
            QStandardPaths.StandardLocation.GenericDataLocation
        )
        return self._path("files/library_folder") or Path(data) / "Tapedeck" / "blocks"

    @library_folder.setter
    def library_folder(self, value: Path) -> None:
        self._put("files/library_folder", str(value))

    @property
    def runs_folder(self) -> Path:
        """Return the folder for runs of projects that have no file, or whose folder is not writable."""
        data = QStandardPaths.writableLocation(
            QStandardPaths.StandardLocation.GenericDataLocation
        )
        return Path(data) / "Tapedeck" / "runs"

    @property
    def journal_folder(self) -> Path:
        """The folder of journals of unsaved work, for recovery after a crash."""
        data = QStandardPaths.writableLocation(
            QStandardPaths.StandardLocation.GenericDataLocation
        )
        return Path(data) / "Tapedeck" / "journal"

    @property
    def event_files(self) -> bool:
        """Return whether a run also writes TensorBoard event files."""
        return self._switch("runs/event_files")

    @event_files.setter
    def event_files(self, value: bool) -> None:
        self._put("runs/event_files", "true" if value else "false")

    @property
    def hidden_run_columns(self) -> tuple[str, ...]:
        """The keys of the columns of the list of runs that are not shown."""
        return tuple(
            str(self._store.value("runs/hidden_columns", HIDDEN_RUN_COLUMNS)).split()
        )

    @hidden_run_columns.setter
    def hidden_run_columns(self, value: Iterable[str]) -> None:
        self._put("runs/hidden_columns", " ".join(value))

    def panels_of(self, project: Path | None) -> tuple[str, list[Any]]:
        """Return the view and the panels of the page "Panels" as a project was left with, those of the project before
        for one without; "" and an empty list if there are none."""
        table = self._table("runs/panels")
        stored = table.get(
            str(project.absolute()) if project else "",
            next(reversed(table.values()), None),
        )
        if not isinstance(stored, dict) or not isinstance(stored.get("panels"), list):
            return "", []
        return str(stored.get("view", "")), stored["panels"]

    def set_panels_of(self, project: Path | None, view: str, panels: list[Any]) -> None:
        """Store the view and the panels of a project; those of the projects used last are kept."""
        table, key = (
            self._table("runs/panels"),
            str(project.absolute()) if project else "",
        )
        table.pop(key, None)
        newest = [*table.items(), (key, {"view": view, "panels": panels})][
            -RECENT_FILES:
        ]
        self._put("runs/panels", json.dumps(dict(newest)))

    @property
    def watch_points(self) -> str:
        """Where runs pause by themselves, as text (see `app.training.monitoring.watch_points`)."""
        return str(self._store.value("runs/watch_points", ""))

    @watch_points.setter
    def watch_points(self, value: str) -> None:
        self._put("runs/watch_points", value)

    @property
    def processes(self) -> int:
        """The number of processes of a run, 1 by default."""
        return self._number("runs/processes", 1, MOST_PROCESSES)

    @processes.setter
    def processes(self, value: int) -> None:
        self._put("runs/processes", str(value))

    @property
    def launch_blocking(self) -> bool:
        """Return whether runs in other processes wait for every CUDA kernel."""
        return self._switch("runs/launch_blocking")

    @launch_blocking.setter
    def launch_blocking(self, value: bool) -> None:
        self._put("runs/launch_blocking", "true" if value else "false")

    @property
    def export_folder(self) -> Path:
        """Where something was exported last; the home folder at first, or when that folder has gone."""
        folder = self._path("files/export_folder")
        return folder if folder and folder.is_dir() else Path.home()

    @export_folder.setter
    def export_folder(self, value: Path) -> None:
        self._put("files/export_folder", str(value))

    def export_folder_of(self, project: Path | None) -> Path:
        """Return where to export first: the last folder, else that of the project's file, else the home folder."""
        if project is None or self._path("files/export_folder") is not None:
            return self.export_folder
        return project.parent

    def _put(self, key: str, value: object) -> None:
        if self._store.value(key) != value:
            self._store.setValue(key, value)
            self.changed.emit(key.rpartition("/")[2])

    def _table(self, key: str) -> dict[str, Any]:
        try:
            stored = json.loads(str(self._store.value(key, "{}")))
        except ValueError:
            return {}
        return stored if isinstance(stored, dict) else {}

    def _switch(self, key: str, default: bool = False) -> bool:
        return str(self._store.value(key, str(default))).lower() == "true"

    def _number(self, key: str, default: int, most: int) -> int:
        stored = str(self._store.value(key, default))
        return min(max(int(stored), 1), most) if stored.isdecimal() else default

    def _bytes(self, key: str) -> QByteArray | None:
        stored = self._store.value(key)
        return (
            stored if isinstance(stored, QByteArray) and not stored.isEmpty() else None
        )

    def _path(self, key: str) -> Path | None:
        stored = self._store.value(key, "")
        return Path(stored) if isinstance(stored, str) and stored else None
