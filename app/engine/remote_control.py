"""The control of a run that other processes carry out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from app.engine.requests.train import RunCommand
from app.training.control import Control, NoWeightsError, RunEndedError
from app.util.tensors_on_disk import TensorsOnDisk

if TYPE_CHECKING:
    from torch import Tensor


class RemoteRunError(RunEndedError):
    """The callable cannot be serialised for a run in another process."""

    def __init__(
        self,
        words: str = "This run is in a separate process, where this is not available.",
    ) -> None:
        super().__init__(words)


class RemoteControl(Control):
    """Control that sends commands to a run, and queues them until it is connected.

    `stopped_at` is the time of the first stop request.
    """

    missing = "The run has no weights: it has not started, or its process has ended."

    def __init__(self) -> None:
        self._send: Callable[[Any], object] | None = None
        self._queued: list[Any] = []
        self.stopped_at: float | None = None
        super().__init__()

    def pause(self) -> None:
        super().pause()
        self._send_or_queue(RunCommand.PAUSE)

    def resume(self) -> None:
        super().resume()
        self._send_or_queue(RunCommand.RESUME)

    def step(self) -> None:
        super().step()
        self._send_or_queue(RunCommand.STEP)

    def stop(self) -> None:
        super().stop()
        self.stopped_at = self.stopped_at or monotonic()
        self._send_or_queue(RunCommand.STOP)

    def weights(self, timeout: float | None = None) -> Mapping[str, Tensor]:
        """Return the weights of the ended run. Raises NoWeightsError."""
        if self._result is None or self._result.state_dict is None:
            raise NoWeightsError(self.missing)
        return self._result.state_dict

    def write_weights(self, path: Path, timeout: float | None = None) -> None:
        """Copy the weights file of the ended run without loading it. Raises NoWeightsError, OSError."""
        weights = RemoteControl.weights(self)
        assert isinstance(weights, TensorsOnDisk)
        shutil.copyfile(weights.path, path)

    def _send_or_queue(self, command: Any) -> None:
        with self._condition:
            if self._send is not None:
                self._send(command)
            elif self._result is None:
                self._queued.append(command)
