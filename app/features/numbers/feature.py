"""Feature "numbers": the command that reads a file with a number for each layer, the overlay "Numbers", and its end."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QFileDialog

from app.builder.blocks import Block, block_of
from app.builder.catalog.catalog import Catalog
from app.builder.diagram import drawn_paths, node_paths
from app.diagram.numbers import Numbers, read
from app.project.project import Project
from app.views.feature import Action, Feature
from app.views.ui.background import WorkerFailure
from app.views.workspace import Workspace

OVERLAY = "Numbers"
KINDS = "Numbers of layers (*.csv *.tsv *.txt *.json);;All files (*)"
MODEL = "observed"  # the page of an opened model


class NumbersFeature(Feature):
    rank = 153  # its overlay comes after the costs

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._drawn: Numbers | None = None  # on the canvas
        self._of_model: Numbers | None = None

    def actions(self) -> Iterable[Action]:
        yield Action(
            "numbers",
            "Numbers from a file…",
            self._choose,
            icon="folder",
            tip="Colour the layers by the numbers of a CSV or JSON file",
            menu="view.centre",
        )
        yield Action(
            "numbers-off",
            "Remove the numbers",
            self._remove,
            tip="Take the numbers of a file off the layers",
            enabled=False,
            menu="view.centre",
            after="numbers",
        )

    def overlays(self) -> Iterable[str]:
        return (OVERLAY,)

    def begin(self) -> None:
        workspace = self.workspace
        workspace.overlays.offer(OVERLAY, False)
        workspace.overlays.changed.connect(lambda _name: self._paint())
        workspace.overlays.numbers_drawn.connect(self._drawn_on_model)
        workspace.place.changed.connect(lambda _before, _after: self._paint())
        workspace.document.changed.connect(lambda _before, _after: self._paint())
        workspace.document.replaced.connect(lambda _project: self._draw(None))
        workspace.pages.shown.connect(lambda _key: self._offer_removal())

    def _choose(self) -> None:
        folder = self.workspace.settings.export_folder
        name, _ = QFileDialog.getOpenFileName(
            self.workspace.window, "Numbers from a file", str(folder), KINDS
        )
        if name:
            self.show_file(Path(name))

    def show_file(self, file: Path) -> None:
        """Draw the numbers of a file on what is in front: the opened model, or else the canvas."""
        workspace = self.workspace
        on_model = self._model_in_front
        workspace.background.ask(
            "numbers",
            partial(read, known=workspace.overlays.model_paths)
            if on_model
            else partial(_read, workspace.document.project, workspace.catalog.now),
            file,
            on_answer=workspace.overlays.draw_numbers if on_model else self._draw,
            on_error=partial(self._failed, file),
        )

    def _failed(self, file: Path, failure: WorkerFailure) -> None:
        self.workspace.notifier.refuse(
            f"The numbers of {file.name} cannot be shown", failure.message
        )

    def _draw(self, numbers: Numbers | None) -> None:
        """Draw other numbers on the canvas; None takes them away."""
        self._drawn = numbers
        self.workspace.overlays.offer(OVERLAY, numbers is not None)
        if numbers is not None:
            self.workspace.pages.show("network")
            self.workspace.overlays.choose(OVERLAY)
        self._paint()
        self._offer_removal()

    def _drawn_on_model(self, numbers: Numbers | None) -> None:
        self._of_model = numbers
        self._offer_removal()

    def _remove(self) -> None:
        if self._model_in_front:
            self.workspace.overlays.draw_numbers(None)
        else:
            self._draw(None)

    @property
    def _model_in_front(self) -> bool:
        return self.workspace.pages.is_front(MODEL)

    def _offer_removal(self) -> None:
        shown = self._of_model if self._model_in_front else self._drawn
        self.workspace.commands["numbers-off"].setEnabled(shown is not None)

    def _paint(self) -> None:
        """Paint a strip on each node of the sheet in view that has a number, with the number as text."""
        numbers, overlays = self._drawn, self.workspace.overlays
        if numbers is None:
            overlays.draw_heat(OVERLAY, {}, {}, ("", ""), "")
            return
        heat: dict[str, float] = {}
        texts: dict[str, str] = {}
        prefixes = _prefixes(self.workspace)
        graph = self.workspace.sheet.project.graph
        for node in graph.nodes.values():
            if (shown := numbers.shown(node_paths(graph, node, prefixes))) is not None:
                heat[node.id], texts[node.id] = shown
        scale = numbers.scale
        overlays.draw_heat(OVERLAY, heat, texts, (scale.low, scale.high), scale.caption)


def _prefixes(workspace: Workspace) -> tuple[str, ...]:
    """Return what the paths of the nodes of the sheet in view begin with: inside a repeated block those of the
    repetition in view, and those of them all."""
    project = workspace.document.project
    sheet: Project | Block = project
    prefixes: tuple[str, ...] = ("",)
    for id, turn in workspace.place.path:
        node = sheet.graph.nodes[id]
        names = [f"{node.name}."]
        if sheet.graph.owner(id).repeat > 1:
            names.append(f"{node.name}.{turn}.")
        prefixes = tuple(f"{prefix}{name}" for prefix in prefixes for name in names)
        sheet = project.blocks[block_of(node.op)]
    return prefixes


def _read(project: Project, catalog: Catalog, file: Path) -> Numbers:
    return read(file, drawn_paths(project, catalog))
