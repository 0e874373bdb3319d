"""What is known of the open drawing at this moment: its analysis, and what stands between it and a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app import preflight
from app.background import Background, Failure
from app.builder.graph import Graph
from app.builder.problems import Problem
from app.document import Document
from app.project import Project

if TYPE_CHECKING:
    from app.builder.analysis import Analysis


@dataclass(frozen=True)
class Torch:
    """The torch that was loaded, and the devices that it found."""

    version: str
    devices: tuple[object, ...]


def _load_torch() -> Torch:
    """Import torch and run one call on meta tensors, whose first use imports a good deal more."""
    import torch

    from app.builder import analysis  # noqa: F401
    from app.training.devices import devices

    with torch.device("meta"):
        torch.nn.Conv2d(1, 1, 1)(torch.zeros(1, 1, 1, 1))
        torch.nn.BatchNorm1d(1)(torch.zeros(2, 1))
    return Torch(torch.__version__, devices())


def _analyse(graph: Graph) -> Analysis:
    from app.builder.analysis import analyse

    return analyse(graph)


class Live(QObject):
    """Asks for an analysis whenever the graph changes and tells when it is there.

    `analysed(analysis)` comes for the graph that is open, and again when its data or training change: its problems are
    all that stand between the project and a run. Until torch is loaded there is no analysis, and the window can draw,
    connect and name already.
    """

    torch_loaded = Signal(object)
    torch_failed = Signal(object)
    analysed = Signal(object)
    analysis_failed = Signal(object)

    def __init__(self, document: Document, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._document = document
        self._background = background
        self.torch: Torch | None = None
        self.analysis: Analysis | None = None
        self._bare: Analysis | None = None
        document.changed.connect(self._changed)

    def start(self) -> None:
        """Load torch behind the window, then answer."""
        self._background.ask("torch", _load_torch, on_answer=self._loaded, on_error=self._not_loaded)

    @property
    def up_to_date(self) -> bool:
        """Whether `analysis` is of the graph that is open."""
        return self.analysis is not None and self.analysis.graph is self._document.project.graph

    @property
    def errors(self) -> tuple[Problem, ...]:
        return self.analysis.errors if self.analysis else ()

    def _loaded(self, torch: Torch) -> None:
        self.torch = torch
        self.torch_loaded.emit(torch)
        self._ask()

    def _not_loaded(self, failure: Failure) -> None:
        self.torch_failed.emit(failure)

    def _changed(self, before: Project, after: Project) -> None:
        if before.graph is not after.graph:
            self._ask()
        elif before.data != after.data or before.training != after.training:
            self._tell()

    def _ask(self) -> None:
        if self.torch is not None and not self.up_to_date:
            graph = self._document.project.graph
            self._background.ask(
                "analysis", _analyse, graph, on_answer=self._answered, on_error=self.analysis_failed.emit
            )

    def _answered(self, analysis: Analysis) -> None:
        if analysis.graph is self._document.project.graph:
            self._bare = analysis
            self._tell()

    def _tell(self) -> None:
        """The analysis, with what the data and the loss have against the net once it is sound in itself."""
        bare = self._bare
        if bare is None or bare.graph is not self._document.project.graph:
            return
        more = preflight.problems(self._document.project, bare) if bare.runnable else ()
        self.analysis = replace(bare, problems=(*bare.problems, *more))
        self.analysed.emit(self.analysis)
