"""The run whose figures are shown: the active run or a stored one, alone or compared with others."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QObject, Signal

from app.runs.record import TAGGED
from app.util.formatting import grouped_digits

if TYPE_CHECKING:
    from app.engine.protocol import Handle
    from app.source.generated import Source
    from app.training.history import History


class ComparedRun(Struct, frozen=True):
    """One of the runs that are shown: its name with its tags, its history, and where it is stored, if it is."""

    label: str
    history: History
    folder: Path | None

    @property
    def title(self) -> str:
        """The name alone."""
        return self.label.split(TAGGED)[0]


class Figures(Struct, frozen=True):
    """A run's history and title; `source` maps its layers to nodes, None if its net is not open.

    `beside` are the labels and histories of runs compared with it, `folder` is where the run is stored, None if it is
    not, and `beside_folders` are those of the others. `label` is the title with the tags of the run, for legends; "" if
    it has none.
    """

    history: History
    title: str
    source: Source | None = None
    loss: str = ""
    beside: tuple[tuple[str, History], ...] = ()
    folder: Path | None = None
    label: str = ""
    beside_folders: tuple[Path, ...] = ()

    @property
    def runs(self) -> list[ComparedRun]:
        """The run and those beside it."""
        folders = [self.folder, *self.beside_folders, *[None] * len(self.beside)]
        histories = [self.history, *(history for _, history in self.beside)]
        return [
            ComparedRun(*row)
            for row in zip(self.names, histories, folders, strict=False)
        ]

    @property
    def names(self) -> list[str]:
        """The labels of the run and those beside it."""
        return [self.label or self.title, *(label for label, _ in self.beside)]

    def same(self, other: Figures) -> bool:
        """Return whether these are the figures of the same runs under the same names."""
        mine, its = (
            [figures.history, *(history for _, history in figures.beside)]
            for figures in (self, other)
        )
        named = self.names == other.names
        return (
            named
            and self.folder == other.folder
            and len(mine) == len(its)
            and all(map(is_, mine, its))
            and self.source is other.source
        )


class RecomputedStep(Struct, frozen=True):
    """A step of a run as the engine computed it again, and holds it under `handle`; the `batch`-th of its epoch."""

    handle: Handle
    run: str
    step: int
    epoch: int
    batch: int

    @property
    def label(self) -> str:
        """Return the step as text.

        >>> RecomputedStep(None, "Run 2", 4321, 5, 17).label
        'Step 4,321 of Run 2, recomputed'
        """
        return f"Step {grouped_digits(self.step)} of {self.run}, recomputed"


class ShownRun(QObject):
    """`changed(Figures or None)` is emitted when another run is shown, `layer_chosen(path)` when a layer is clicked,
    `stepped(step or None)` when the pages show another step of the run; None is the newest.
    `past_changed(RecomputedStep or None)` follows where what the engine holds of that step is to be shown, or no
    longer."""

    changed = Signal(object)
    layer_chosen = Signal(str)
    stepped = Signal(object)
    past_changed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.figures: Figures | None = None
        self.step: int | None = None
        self._recomputed: RecomputedStep | None = None
        self.selected: frozenset[str] = (
            frozenset()
        )  # layers of the nodes that are selected

    def show(self, figures: Figures | None) -> None:
        """Show a run, or none. The one that is shown already stays at its step, also under another name."""
        before = self.figures
        if figures is not None and before is not None and figures.same(before):
            return
        self.figures = figures
        if figures is None or before is None or figures.history is not before.history:
            self.show_recomputed(None)
            self.choose_step(None)
        self.changed.emit(figures)
        if self.step is not None:
            self.stepped.emit(self.step)  # who hears of a run shows its newest

    def choose_step(self, step: int | None) -> None:
        """Show what was recorded of a step; None for the newest."""
        if step != self.step:
            before, self.step = self.past, step
            self.stepped.emit(step)
            self._tell_past(before)

    @property
    def past(self) -> RecomputedStep | None:
        """Return the chosen step as it was recomputed; None if another one was, or none."""
        recomputed = self._recomputed
        return (
            recomputed
            if recomputed is not None and recomputed.step == self.step
            else None
        )

    def show_recomputed(self, recomputed: RecomputedStep | None) -> None:
        """Note what the engine holds of a step, which is shown while that step is chosen."""
        before, self._recomputed = self.past, recomputed
        self._tell_past(before)

    def _tell_past(self, before: RecomputedStep | None) -> None:
        if self.past is not before:
            self.past_changed.emit(self.past)

    def choose_layer(self, path: str) -> None:
        """Select the nodes of a layer."""
        self.layer_chosen.emit(path)

    def select(self, layers: Iterable[str]) -> None:
        """Note which layers the selected nodes belong to."""
        self.selected = frozenset(layers)
