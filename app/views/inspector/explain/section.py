"""The section "Explain shape": input and output shapes, and how each output dimension is computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout

from app.builder.catalog.catalog import Catalog
from app.builder.dimensions.dimensions import (
    CLASH,
    Aligned,
    ChainStep,
    DimensionSource,
    DimensionStory,
    aligned,
    explain_output,
    upstream,
)
from app.builder.graph import Graph
from app.util.language import tr, trn
from app.views.inspector.explain.parts import (
    AlignedShapes,
    DimensionChip,
    FormulaBox,
    UpstreamRow,
)
from app.views.inspector.sections import PortShape, ShapeSection, emptied, shape_chip
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Button, ShapeChip
from app.views.ui.widgets.painting import announce, label

if TYPE_CHECKING:
    from app.builder.results import Analysis

FEW = 5  # steps upstream shown before "more"

Chips = tuple[tuple[PortShape, ...], tuple[PortShape, ...]]


class ExplainedNode(Struct, frozen=True):
    """The node to explain, with its graph and analysis."""

    graph: Graph
    catalog: Catalog
    analysis: Analysis
    node: str


class ExplainSection(ShapeSection):
    """Explains one selectable dimension of an output; a plain `ShapeSection` where there is no explanation.

    `select_requested(node)` requests to select a node upstream, where the dimension it contributed is explained next.
    """

    select_requested = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.set_title("Explain shape")
        self._subject: ExplainedNode | None = None
        self._chips: Chips = ((), ())
        self._stories: tuple[tuple[DimensionStory, ...], ...] = ()
        self._shown: object = None
        self._output, self._dimension = 0, 0
        self._asked: tuple[str, int, int] | None = None
        self._focus_next = False
        self._all_steps = False
        self.chips: dict[int, DimensionChip] = {}
        self.formula: FormulaBox | None = None
        self.rows: list[UpstreamRow] = []
        self.alignment: AlignedShapes | None = None

    @property
    def story(self) -> DimensionStory | None:
        """The explanation in view."""
        stories = (
            self._stories[self._output] if self._output < len(self._stories) else ()
        )
        return stories[self._dimension] if self._dimension < len(stories) else None

    def show_shapes(
        self,
        inputs: Sequence[PortShape],
        outputs: Sequence[PortShape],
        message: str,
        tone: str,
    ) -> None:
        self._shown, self._subject = None, None
        self._stories, self.chips, self.formula, self.rows, self.alignment = (
            (),
            {},
            None,
            [],
            None,
        )
        super().show_shapes(inputs, outputs, message, tone)

    def explain(
        self,
        subject: ExplainedNode,
        inputs: Sequence[PortShape],
        outputs: Sequence[PortShape],
    ) -> bool:
        """Explain the outputs of a node, `outputs` being their chips; return False if there is no explanation."""
        explained, chips = self._subject, (tuple(inputs), tuple(outputs))
        if (
            explained is not None
            and (explained.node, chips) == (subject.node, self._chips)
            and explained.analysis is subject.analysis
        ):
            return True  # the analysis of an edit is pending, and this is the old one
        stories = tuple(
            explain_output(
                subject.graph, subject.catalog, subject.analysis, subject.node, number
            )
            for number in range(max(len(outputs), 1))
        )
        if not any(stories):
            return False
        other = self._subject is None or self._subject.node != subject.node
        self._subject, self._chips, self._stories = subject, chips, stories
        if other or self.story is None:
            self._start_with(subject.node)
        self._show()
        return True

    def show_clash(self, subject: ExplainedNode) -> bool:
        """Show two shapes that do not broadcast; return False if the problem is another one."""
        grid = aligned(subject.graph, subject.catalog, subject.analysis, subject.node)
        if not any(state == CLASH for row in grid for _, state in row.cells):
            return False
        if self._last != grid:
            self._shown, self._subject, self._last = None, None, grid
            self._stories, self.chips, self.formula, self.rows = (), {}, None, []
            column = emptied(self)
            self.alignment = AlignedShapes(grid)
            column.addWidget(self.alignment)
            hint = tr(
                "Aligned from the right. Red dimensions must be equal, or one of them 1. See Problems."
            )
            column.addWidget(label(hint, "caption", "text3", wrap=True))
        return True

    def _start_with(self, node: str) -> None:
        """Select the requested dimension, else the first that is computed from several numbers."""
        self._all_steps = False
        if self._asked is not None and self._asked[0] == node:
            _, self._output, self._dimension = self._asked
        else:
            self._focus_next = False
            self._output = next(i for i, stories in enumerate(self._stories) if stories)
            stories = self._stories[self._output]
            worked = (
                s.dimension for s in stories if s.formula and len(s.formula.symbols) > 1
            )
            self._dimension = next(worked, 1 if len(stories) > 1 else 0)
        self._asked = None
        if self.story is None:
            self._output, self._dimension = next(
                (i, 0) for i, stories in enumerate(self._stories) if stories
            )

    def choose(self, output: int, dimension: int) -> None:
        """Explain another dimension."""
        self._output, self._dimension, self._all_steps = output, dimension, False
        self._show()
        if self.story is not None:
            value = tr(
                "{name} is {size}.", name=self.story.name, size=self.story.result
            )
            announce(self, f"{value} {self.story.words}")

    # --- Showing

    def _show(self) -> None:
        subject = self._subject
        assert subject is not None
        spot = DimensionSource(subject.node, self._output, self._dimension)
        way = upstream(subject.graph, subject.catalog, subject.analysis, spot)
        steps = tuple(way if self._all_steps else islice(way, FEW + 3))[1:]
        grid = aligned(subject.graph, subject.catalog, subject.analysis, subject.node)
        names = tuple(subject.graph.nodes[step.node].name for step in steps)
        state = (
            subject.node,
            self._chips,
            self._stories,
            self._output,
            self._dimension,
            steps,
            names,
            grid,
            self._all_steps,
        )
        if state == self._shown:
            return
        had_focus = self._focus_next or any(
            chip.hasFocus() for chip in self.chips.values()
        )
        self._shown, self._last, self._focus_next = state, None, False
        if (old := self.body_layout.itemAt(0)) is not None and (
            widget := old.widget()
        ) is not None:
            widget.hide()  # it is deleted a turn later
        column = emptied(self)
        self._show_chips(column, grid)
        self._show_story(column)
        self._show_steps(column, steps)
        if had_focus and self._output in self.chips:
            self.chips[self._output].setFocus(Qt.FocusReason.TabFocusReason)

    def _show_chips(self, column: QVBoxLayout, grid: tuple[Aligned, ...]) -> None:
        inputs, outputs = self._chips
        self.chips, self.alignment = {}, None
        output_chips = [
            self._output_chip(number, shown) for number, shown in enumerate(outputs)
        ]
        if not outputs:  # an Output of the net passes its input through
            output_chips, inputs, outputs = (
                [self._output_chip(0, inputs[0])],
                (),
                inputs[:1],
            )
        if grid:
            self.alignment = AlignedShapes(grid)
            column.addWidget(self.alignment)
            if any(state != "same" for row in grid for _, state in row.cells):
                hint = tr(
                    "Aligned from the right. Dashed dimensions are broadcast: a 1 or a missing one (–) is repeated."
                )
                column.addWidget(label(hint, "caption", "text3", wrap=True))
            inputs = ()
        self._lay_chips(column, inputs, outputs, output_chips, bool(grid))

    def _output_chip(self, number: int, shown: PortShape) -> ShapeChip:
        stories = self._stories[number] if number < len(self._stories) else ()
        if not stories:
            return shape_chip(shown)
        chip = DimensionChip(shown.port, shown.text, stories)
        chip.show_dimension(self._dimension if number == self._output else -1)
        chip.chosen.connect(lambda dimension: self.choose(number, dimension))
        self.chips[number] = chip
        return chip

    def _show_story(self, column: QVBoxLayout) -> None:
        story = self.story
        assert story is not None
        self.formula = None
        if story.formula is not None:
            self.formula = FormulaBox(story.formula.lines(story.name), self._same_as())
            column.addWidget(self.formula)
            if len(story.formula.symbols) > 1:
                meanings = ", ".join(
                    tr("{letter} is {what}", letter=symbol.letter, what=symbol.meaning)
                    for symbol in story.formula.symbols
                )
                column.addWidget(label(meanings, "caption", "text3", wrap=True))
        column.addWidget(label(story.words, "label", "text2", wrap=True))

    def _same_as(self) -> str:
        """`W is the same`, if other dimensions come about by the same formula from the same numbers."""
        story = self.story
        if story is None or story.formula is None or len(story.formula.symbols) < 2:
            return ""
        numbers = (
            story.formula.text,
            [symbol.value for symbol in story.formula.symbols],
        )
        others = [
            other.name
            for other in self._stories[self._output]
            if other is not story
            and other.formula
            and (other.formula.text, [symbol.value for symbol in other.formula.symbols])
            == numbers
        ]
        return (
            trn(
                "{names} is the same",
                "{names} are the same",
                len(others),
                names=f" {tr('and')} ".join(others),
            )
            if others
            else ""
        )

    def _show_steps(self, column: QVBoxLayout, steps: tuple[ChainStep, ...]) -> None:
        self.rows = []
        if not steps:
            return
        column.addSpacing(2)
        column.addWidget(label(tr("Where it comes from"), "caption", "text3"))
        box = vbox(spacing=0)
        shown = steps if self._all_steps or len(steps) <= FEW + 1 else steps[:FEW]
        for step in shown:
            row = self._row(step)
            self.rows.append(row)
            box.addWidget(row)
        column.addLayout(box)
        if len(shown) < len(steps):
            more = Button(tr("Show the full derivation"), "link")
            more.clicked.connect(self._show_all_steps)
            column.addWidget(more, 0, Qt.AlignmentFlag.AlignLeft)

    def _row(self, step: ChainStep) -> UpstreamRow:
        assert self._subject is not None
        graph, node = self._subject.graph, self._subject.graph.nodes[step.node]
        spec = self._subject.catalog.spec_of(graph, node)
        row = UpstreamRow(
            spec.category, node.name, step.words, step.full, str(step.size)
        )
        row.clicked.connect(lambda: self._select(step))
        return row

    def _show_all_steps(self) -> None:
        self._all_steps = True
        self._show()
        if len(self.rows) > FEW:
            self.rows[FEW].setFocus(Qt.FocusReason.TabFocusReason)

    def _select(self, step: ChainStep) -> None:
        self._asked = (step.node, step.output, step.dimension)
        self._focus_next = any(row.hasFocus() and row.shows_ring() for row in self.rows)
        self.select_requested.emit(step.node)
