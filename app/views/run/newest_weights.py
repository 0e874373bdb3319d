"""The newest weights of the open project: of its run in this window, else of the newest stored run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from PySide6.QtCore import QObject

from app.engine.requests.capture import (
    NewestWeights,
    WeightsChoice,
    WeightsFile,
)
from app.project.document import Document
from app.source.generated import Source
from app.training.control import NoWeightsError
from app.views.run.keeper import RunsKeeper
from app.views.run.session import Run, RunSession

if TYPE_CHECKING:
    from app.runs.store import Kept
    from app.training_thread import TrainingThread


class NewestWeightsSource(QObject):
    """Finds the newest weights of the open project: of a run in this window, or stored."""

    def __init__(
        self,
        document: Document,
        session: RunSession,
        keeper: RunsKeeper,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._session, self._keeper = session, keeper
        self._before: Run | None = (
            None  # the last run of the project that was open before
        )
        self.stored: Kept | None = None  # the newest stored run
        document.replaced.connect(self._replaced)
        keeper.listed.connect(self._listed)

    def _replaced(self, _project: object) -> None:
        self._before, self.stored = self._session.current, None

    def _listed(self, runs: list[Kept]) -> None:
        self.stored = runs[0] if runs else None

    @property
    def title(self) -> str:
        """The name of the newest run of the open project, in this window or stored; "" if there is none."""
        if self.run is not None:
            return f"Run {self.run.display_number}"
        return self.stored.record.title if self.stored is not None else ""

    @property
    def run(self) -> Run | None:
        """Return the newest run of the open project in this window, running or ended."""
        run = self._session.current
        return run if run is not self._before else None

    def of_this_window(self, source: Source) -> bool:
        """Return whether a run in this window has the newest weights, so that obtaining them takes a while."""
        run = self.run
        if (
            run is None
            or self._session.training_thread is None
            or run.state in ("starting", "waiting")
        ):
            return False
        return run.job.source.same_net(source)

    def best(self) -> WeightsChoice:
        """Return those with the smallest validation loss of the newest run: one in this window has stored its own."""
        return NewestWeights(str(self._keeper.folder), best=True)

    def choice(self, source: Source, folder: Path) -> Callable[[], WeightsChoice]:
        """Return a function, for a worker thread, that names the newest weights of a net in a request to the engine.

        It writes those of a run in this window to a file in `folder`, so that later requests see the same weights
        although the run continues. It raises OSError.
        """
        run, thread = self.run, self._session.training_thread
        if run is None or thread is None or not self.of_this_window(source):
            return partial(NewestWeights, str(self._keeper.folder))
        return partial(_written, run, thread, self._keeper.folder, folder)


def _written(
    run: Run, thread: TrainingThread, run_folder: Path, folder: Path
) -> WeightsChoice:
    """Have the run write its current weights to a new file in `folder`."""

    before, recorder = thread.result, run.recorder
    gone = recorder is not None and not run.active and not recorder.kept.folder.exists()
    path = folder / f"{uuid4().hex}.pt"
    try:
        if gone:
            raise NoWeightsError
        thread.write_weights(path)
        result = thread.result
        if (
            before is None and result is not None
        ):  # it ended meanwhile, a step later perhaps
            thread.write_weights(path)
    except NoWeightsError:
        return NewestWeights(str(run_folder))
    progress = "under way" if result is None else f"at step {result.step:,}"
    return WeightsFile(
        str(path),
        f"of Run {run.display_number}{', ' if result is None else ' '}{progress}",
        False,
    )
