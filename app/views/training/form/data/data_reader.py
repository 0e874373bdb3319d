"""Read data in the engine; a new request cancels the previous one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.data.config import DataConfig
from app.data.own_files import cache
from app.data.spec import ReadingCancelledError
from app.engine.requests.data import Read, ReadData, ReadProgress
from app.training.config import TrainingConfig
from app.views.engine_service import EngineService
from app.views.ui.background import WorkerFailure

KEY = "data.read"


class DataReader(QObject):
    """`read(config, Preview | Failure)` answers the newest question; `progress(done, total, name)` comes meanwhile."""

    read = Signal(object, object)
    progress = Signal(int, int, str)

    def __init__(self, engine: EngineService, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._config: DataConfig | None = None  # that is being read

    @property
    def busy(self) -> bool:
        return self._config is not None

    def request(self, config: DataConfig, root: Path, training: TrainingConfig) -> None:
        """Read data and the first batch of a run with these settings; cancels a running request."""
        self._config = config
        request = ReadData(
            config, root, training.batch_size, training.seed, training.one_batch
        )
        self._engine.ask(
            KEY,
            request,
            on_answer=partial(self._finish, config),
            on_error=partial(self._emit_read, config),
            on_progress=self._report_progress,
        )

    def stop(self) -> None:
        """Cancel the running request."""
        config = self._config
        self._engine.forget(KEY)
        if config is not None:
            self._emit_read(config, WorkerFailure(ReadingCancelledError(), ""))

    def _report_progress(self, reading: ReadProgress) -> None:
        self.progress.emit(reading.done, reading.total, reading.name)

    def _finish(self, config: DataConfig, answer: Read) -> None:
        cache.learn(answer.fact)
        self._emit_read(
            config,
            answer.preview if answer.error is None else WorkerFailure(answer.error, ""),
        )

    def _emit_read(self, config: DataConfig, answer: object) -> None:
        self._config = None
        self.read.emit(config, answer)
