"""Settings of the user that persist between starts, typed."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QByteArray, QObject, QSettings, QStandardPaths, Signal

from app.util.language import names
from app.util.user_folders import default_root
from app.views.ui.theme import CHOICES, LEAST_SCALE, MOST_SCALE

RECENT_FILES = 10
MOST_PROCESSES = 64
HIDDEN_RUN_COLUMNS = ("loss",)
AUTOSAVE_SECONDS, MOST_AUTOSAVE_SECONDS = 3, 600


V = TypeVar("V")


class Stored(Generic[V]):
    """A property of `Settings`: its key in the file, its default, how a stored text is read, and how one is written.

    `read(stored, default)` returns the default for what it cannot read. Where `expects` says what a value is, setting
    another raises ValueError.
    """

    def __init__(
        self,
        key: str,
        default: V,
        read: Callable[[Any, V], V],
        write: Callable[[V], object] = str,
        expects: str = "",
    ) -> None:
        self._key, self._default = key, default
        self._read, self._write, self._expects = read, write, expects

    def __get__(self, settings: Settings, _owner: type) -> V:
        stored = settings.stored(self._key)
        return self._default if stored is None else self._read(stored, self._default)

    def __set__(self, settings: Settings, value: V) -> None:
        text = self._write(value)
        if self._expects and self._read(text, self._default) != value:
            raise ValueError(f"expected {self._expects}, not {value!r}")
        settings.put(self._key, text)


def text(key: str) -> Stored[str]:
    return Stored(key, "", lambda stored, _default: str(stored or ""))


def switch(key: str, default: bool = False) -> Stored[bool]:
    def read(stored: Any, _default: bool) -> bool:
        return str(stored).lower() == "true"

    return Stored(key, default, read, lambda value: str(value).lower())


def _split_text(stored: Any, _default: Sequence[str]) -> Sequence[str]:
    return tuple(str(stored).split())


def _bytes(stored: Any, _default: QByteArray | None) -> QByteArray | None:
    usable = isinstance(stored, QByteArray) and not stored.isEmpty()
    return stored if usable else None


def _same(value: QByteArray | None) -> object:
    return value


def _table(stored: Any, _default: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        table = json.loads(str(stored))
    except ValueError:
        return {}
    return table if isinstance(table, dict) else {}


def _table_of(kind: type[V]) -> Callable[[Any, dict[str, V]], dict[str, V]]:
    def read(stored: Any, _default: dict[str, V]) -> dict[str, V]:
        table = _table(stored)
        return {key: value for key, value in table.items() if isinstance(value, kind)}

    return read


def _one_of(names: Container[str]) -> Callable[[Any, str], str]:
    return lambda stored, default: stored if stored in names else default


def _within(least: Any, most: Any) -> Callable[[Any, V], V]:
    def read(stored: Any, default: V) -> V:
        try:
            number: Any = type(default)(str(stored))  # type: ignore[call-arg]
        except ValueError:
            return default
        return min(max(number, least), most) if number == number else default

    return read


def _own_folder(name: str) -> Path:
    """Return a folder of the program among the data of the user."""
    location = QStandardPaths.StandardLocation.GenericDataLocation
    return Path(QStandardPaths.writableLocation(location)) / "Tapedeck" / name


class Settings(QObject):
    """Properties over a `QSettings`. Another organisation or application name has separate settings.

    A missing or unreadable value is the default. The name of a property is the last part of its key; `changed(name)` is
    emitted when it gets another value, and dependants follow it, wherever it was changed.
    """

    changed = Signal(str)

    # The window's place and size, and its docks and bars, as Qt saved them.
    geometry = Stored[QByteArray | None]("window/geometry", None, _bytes, _same)
    state = Stored[QByteArray | None]("window/state", None, _bytes, _same)
    # The page in front of each dock; which sections were opened or folded, by title.
    pages = Stored[dict[str, str]]("window/pages", {}, _table_of(str), json.dumps)
    folds = Stored[dict[str, bool]]("window/folds", {}, _table_of(bool), json.dumps)
    overlay = text("window/overlay")  # of the canvas, "" for the first
    theme = Stored(
        "look/theme",
        "dark",
        _one_of(CHOICES),
        expects=f"one of {', '.join(CHOICES)} as theme",
    )
    reduced_motion = switch("look/reduced_motion")
    font_scale = Stored[float](
        "look/font_scale",
        1.0,
        _within(LEAST_SCALE, MOST_SCALE),
        expects=f"a text size from {LEAST_SCALE:g} to {MOST_SCALE:g} times the usual",
    )
    thick_wires = switch("look/thick_wires")
    projector = switch("look/projector")
    # Of lessons, the coach, findings and hints; "" for that of the system.
    language = Stored(
        "look/language",
        "",
        lambda stored, default: stored if stored in names() else default,
    )
    # The look that the projector preset replaced, as text; "" while it is off.
    before_projector = text("look/before_projector")
    # Whether the project opened last is opened at the start.
    reopen = switch("files/reopen", default=False)
    autosave_seconds = Stored[int](
        "files/autosave_seconds", AUTOSAVE_SECONDS, _within(1, MOST_AUTOSAVE_SECONDS)
    )
    snippet = text("autograd/snippet")  # the text of the Snippet page
    # Whether a run also writes TensorBoard event files.
    event_files = switch("runs/event_files")
    # The keys of the columns of the list of runs that are not shown.
    hidden_run_columns = Stored[Sequence[str]](
        "runs/hidden_columns", HIDDEN_RUN_COLUMNS, _split_text, " ".join
    )
    # Where runs pause by themselves, as `app.training.monitoring.watch_points` reads it.
    watch_points = text("runs/watch_points")
    target = text("runs/target")  # where runs execute, "" on this machine
    processes = Stored[int]("runs/processes", 1, _within(1, MOST_PROCESSES))  # of a run
    # Whether runs in other processes wait for every CUDA kernel.
    launch_blocking = switch("runs/launch_blocking")

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

    def view_of(self, path: Path) -> dict[str, Any]:
        """Return how the canvas showed the project of a file, as `set_view_of` got it; empty if that is not known."""
        stored = self._table("files/views").get(str(path.absolute()))
        return stored if isinstance(stored, dict) else {}

    def set_view_of(self, path: Path, view: dict[str, Any]) -> None:
        """Store how the canvas shows the project of a file; those of the files used last are kept."""
        views = self._table("files/views")
        views.pop(str(path.absolute()), None)
        newest = [*views.items(), (str(path.absolute()), view)][-RECENT_FILES:]
        self.put("files/views", json.dumps(dict(newest)))

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
    def data_folder(self) -> Path:
        """The folder of downloaded data; `tapedeck train` has the same default."""
        return self._path("files/data_folder") or default_root()

    @data_folder.setter
    def data_folder(self, value: Path) -> None:
        self.put("files/data_folder", str(value))

    @property
    def library_folder(self) -> Path:
        """The folder of blocks shared between projects."""
        return self._path("files/library_folder") or _own_folder("blocks")

    @library_folder.setter
    def library_folder(self, value: Path) -> None:
        self.put("files/library_folder", str(value))

    @property
    def runs_folder(self) -> Path:
        """Return the folder for runs of projects that have no file, or whose folder is not writable."""
        return _own_folder("runs")

    @property
    def journal_folder(self) -> Path:
        """The folder of journals of unsaved work, for recovery after a crash."""
        return _own_folder("journal")

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
        self.put("runs/panels", json.dumps(dict(newest)))

    @property
    def export_folder(self) -> Path:
        """Where something was exported last; the home folder at first, or when that folder has gone."""
        folder = self._path("files/export_folder")
        return folder if folder and folder.is_dir() else Path.home()

    @export_folder.setter
    def export_folder(self, value: Path) -> None:
        self.put("files/export_folder", str(value))

    def export_folder_of(self, project: Path | None) -> Path:
        """Return where to export first: the last folder, else that of the project's file, else the home folder."""
        if project is None or self._path("files/export_folder") is not None:
            return self.export_folder
        return project.parent

    def stored(self, key: str) -> Any:
        """Return what the file has at a key; None for nothing."""
        return self._store.value(key)

    def put(self, key: str, value: object) -> None:
        """Write a value, and emit `changed` if it is another."""
        if self._store.value(key) != value:
            self._store.setValue(key, value)
            self.changed.emit(key.rpartition("/")[2])

    def _table(self, key: str) -> dict[str, Any]:
        return _table(self._store.value(key, "{}"))

    def _path(self, key: str) -> Path | None:
        stored = self._store.value(key, "")
        return Path(stored) if isinstance(stored, str) and stored else None
