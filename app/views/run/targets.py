"""Where else than on this machine the runs of a project may execute, and which of it is chosen for the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from PySide6.QtCore import QObject, Signal

from app.engine.placement import RunPlacement
from app.runs.recorder import Recorder
from app.training.job import Job
from app.views.settings import Settings


class RunTarget(Struct, frozen=True):
    """`begin` has a job run there, from a checkpoint if one is given, and returns at once how it is watched. `key` is
    the name of no device.
    """

    key: str
    title: str
    begin: Callable[[Job, Recorder | None, Path | None], RunPlacement]


class RunTargets(QObject):
    """What features offer beside this machine. `changed` is emitted when there are others, or another is chosen."""

    changed = Signal()

    def __init__(self, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self._settings = settings
        self._targets: dict[str, RunTarget] = {}
        settings.changed.connect(self._setting_changed)

    def _setting_changed(self, name: str) -> None:
        if name == "target":
            self.changed.emit()

    @property
    def all(self) -> tuple[RunTarget, ...]:
        return tuple(self._targets.values())

    @property
    def chosen(self) -> RunTarget | None:
        """The target of the next run, None for this machine."""
        return self._targets.get(self._settings.target)

    def offers(self, key: str) -> bool:
        return key in self._targets

    def offer(self, targets: Iterable[RunTarget]) -> None:
        """Replace what is offered."""
        self._targets = {target.key: target for target in targets}
        self.changed.emit()

    def choose(self, key: str) -> None:
        """Have the next run execute there; "" is this machine."""
        self._settings.target = key
