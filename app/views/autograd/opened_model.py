"""The process of an opened model: started beside the window when it is first captured, and ended with a time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.autograd.grouping import LayerGroup, module_link
from app.autograd.tape import Tape, TapeNode
from app.engine import observe_process
from app.engine.client import Question
from app.engine.observe_process import (
    PATIENCE,
    ObserveTimeoutError,
    death_words,
    timeout_words,
)
from app.engine.protocol import EngineDiedError
from app.engine.requests.observe import CapturedModel, ModelCapture, Observe
from app.observe.observation import CallPlace
from app.sources.finding import digest_of
from app.sources.spec import SourceError
from app.views.engine_service import OwnEngineService
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.engine.own_engine import OwnEngine
    from app.views.autograd.page import AutogradPage
    from app.views.ui.background import Background

CAPTURE, START = "capture", "engine of a model"  # keys of questions


class OpenedModel(QObject):
    """Captures one opened model. Its engine runs no other code, so that what a model does ends with it."""

    def __init__(
        self, model: Observe, background: Background, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.model = model
        self._digest = digest_of(model.source, model.folder)
        self._background = background
        self.service: OwnEngineService | None = None
        self._patience = QTimer(self, interval=int(PATIENCE * 1000), singleShot=True)
        self._patience.timeout.connect(self._stop)
        self._late = False

    def capture(
        self,
        request: ModelCapture,
        answered: Callable[[CapturedModel], None],
        failed: Callable[[WorkerFailure], None],
        tell: Callable[[str], None],
    ) -> None:
        """Run a capture; the answer, or why there is none, arrives on this thread."""
        ask = partial(self._ask, request, answered, failed, tell)
        if self.service is not None and self.service.pid is not None:
            ask()
            return
        self.close()
        if (
            digest_of(self.model.source, self.model.folder) != self._digest
        ):  # its present content is not trusted
            failed(
                WorkerFailure(
                    SourceError(
                        f"{self.model.source} has changed since it was opened; open it again"
                    ),
                    "",
                )
            )
            return
        start = partial(observe_process.engine_of, self.model)
        self._background.ask(
            START, start, on_answer=partial(self._started, ask), on_error=failed
        )

    def _started(self, ask: Callable[[], None], engine: OwnEngine) -> None:
        self.service = OwnEngineService(self, engine)
        ask()

    def _ask(
        self,
        request: ModelCapture,
        answered: Callable[[CapturedModel], None],
        failed: Callable[[WorkerFailure], None],
        tell: Callable[[str], None],
    ) -> None:
        service = self.service
        assert service is not None
        service.forget(CAPTURE)
        self._patience.stop()
        self._late = False

        def answer(captured: CapturedModel) -> None:
            self._patience.stop()
            answered(captured)

        def fail(failure: WorkerFailure) -> None:
            self._patience.stop()
            error = failure.error
            if isinstance(error, EngineDiedError):
                error = (
                    ObserveTimeoutError(timeout_words(self.model, PATIENCE))
                    if self._late
                    else SourceError(death_words(self.model, service.engine))
                )
            failed(WorkerFailure(error, failure.traceback))

        question: Question[CapturedModel] | None = service.ask(
            CAPTURE, request, on_answer=answer, on_error=fail, on_progress=tell
        )
        if question is not None:
            self._patience.start()

    def cancel(self) -> None:
        """End the capture under way, or the start of the process for it."""
        self._patience.stop()
        self._background.forget(START)
        if self.service is not None:
            self.service.forget(CAPTURE)

    def _stop(self) -> None:
        self._late = True
        if self.service is not None:
            self.service.engine.kill()

    def close(self) -> None:
        """End the process, and what it holds."""
        self._patience.stop()
        self._background.forget(START)
        service, self.service = self.service, None
        if service is not None:
            service.close()


def place_of(tape: Tape, item: TapeNode | LayerGroup) -> CallPlace:
    """Return where the operation of a backward node, or the module of a group, was called."""
    if isinstance(item, TapeNode):
        return CallPlace(item.layer, item.call, item.file, item.line or 0)
    path = (item.link or "").removeprefix(module_link(""))
    first = tape.nodes[item.nodes[0]]
    return CallPlace(path, first.call if first.layer == path else 0)


def select_calls(page: AutogradPage, call_locations: Iterable[CallPlace]) -> None:
    """Outline the backward nodes of these calls: the nodes that are drawn, else the groups of their modules, or what
    those lie in."""
    tape, calls = page.tape, tuple(call_locations)
    if tape is None:
        return
    paths = {location.path for location in calls}
    page.select_nodes(frozenset(map(module_link, paths)))
    while (
        paths
        and paths != {""}
        and not (page.scene.linked_parts() or page.scene.current_key())
    ):
        paths = {path.rpartition(".")[0] for path in paths}
        page.select_nodes(frozenset(map(module_link, paths)))
    lines = {
        (location.path, location.file, location.line)
        for location in calls
        if location.line
    }
    drawn = (
        str(node.id)
        for node in tape.nodes
        if (node.layer, node.file, node.line) in lines and not node.is_leaf
    )
    if key := next((box_key for box_key in drawn if box_key in page.scene.boxes), ""):
        page.choose_quietly(key)
