"""Notice that the file of an opened model changes on disk."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer, Signal

SETTLED = 150  # ms of debounce: programs may save a file in several steps


class ModelFileWatch(QObject):
    """`changed` tells that one of its files may have other contents, may have gone, or may be there again."""

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._paths: tuple[Path, ...] = ()
        self._watcher = QFileSystemWatcher(self)
        self._settle = QTimer(self, singleShot=True, interval=SETTLED)
        self._settle.timeout.connect(self._settled)
        self._watcher.fileChanged.connect(lambda _path: self._settle.start())
        self._watcher.directoryChanged.connect(lambda _path: self._settle.start())

    def follow(self, paths: tuple[Path, ...]) -> None:
        """Watch these files in place of those before, with their folders: many editors replace a file by a new one."""
        self._paths = paths
        wanted = {str(one) for path in paths for one in (path, path.parent) if one.exists()}
        known = {*self._watcher.files(), *self._watcher.directories()}
        if gone := known - wanted:
            self._watcher.removePaths(sorted(gone))
        if new := wanted - known:
            self._watcher.addPaths(sorted(new))

    def _settled(self) -> None:
        self.follow(self._paths)
        self.changed.emit()
