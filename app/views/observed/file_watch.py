"""Notice that the file of an opened model changes on disk."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer, Signal

SETTLED = 150  # ms of debounce: programs may save a file in several steps


class ModelFileWatch(QObject):
    """`changed` tells that a file may have other contents, may have gone, or may be there again."""

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._path: Path | None = None
        self._watcher = QFileSystemWatcher(self)
        self._settle = QTimer(self, singleShot=True, interval=SETTLED)
        self._settle.timeout.connect(self._settled)
        self._watcher.fileChanged.connect(lambda _path: self._settle.start())
        self._watcher.directoryChanged.connect(lambda _path: self._settle.start())

    def follow(self, path: Path | None) -> None:
        """Watch this file in place of the one before, with its folder: many editors replace a file by a new one."""
        self._path = path
        wanted = {str(one) for one in (path, path.parent) if one.exists()} if path is not None else set[str]()
        known = {*self._watcher.files(), *self._watcher.directories()}
        if gone := known - wanted:
            self._watcher.removePaths(sorted(gone))
        if new := wanted - known:
            self._watcher.addPaths(sorted(new))

    def _settled(self) -> None:
        self.follow(self._path)
        self.changed.emit()
