"""Sections of the inspector below the parameters: shape, cost and problems of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from app.builder.diagnostics.problems import Problem
from app.util.formatting import bytes_text, flop_text, grouped_digits, share
from app.util.language import tr
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, Section, ShapeChip
from app.views.ui.widgets.painting import Glyph, TextLine, box, in_lines, label, start

if TYPE_CHECKING:
    from app.builder.shapes.network_cost import NetworkCost, NodeCost


_CURE_MOST = 200  # width of the words on the button of a cure, px


def emptied(section: Section) -> QVBoxLayout:
    """Replace the body of a section by an empty one and return its layout."""
    fresh = QWidget()
    column = vbox(on=fresh, margins=0, spacing=6)
    section.set_body(fresh)
    return column


class PortShape(Struct, frozen=True):
    """A value on a wire as a chip: port, text, the chip's state, and the dtype unless it is float32."""

    port: str
    text: str
    state: str = "normal"
    dtype: str = ""


class ShapeSection(Section):
    """What arrives and what leaves."""

    def __init__(self) -> None:
        super().__init__("Shape")
        self._last: object = None

    def show_shapes(
        self,
        inputs: Sequence[PortShape],
        outputs: Sequence[PortShape],
        message: str,
        tone: str,
    ) -> None:
        """Show chips of the inputs and of the outputs, and a sentence if there is one."""
        if (state := (tuple(inputs), tuple(outputs), message, tone)) == self._last:
            return
        self._last = state
        column = emptied(self)
        self._lay_chips(
            column, inputs, outputs, [shape_chip(shape) for shape in outputs]
        )
        if message:
            column.addWidget(label(message, "label", tone, wrap=True))

    @staticmethod
    def _lay_chips(
        column: QVBoxLayout,
        inputs: Sequence[PortShape],
        outputs: Sequence[PortShape],
        chips: Sequence[ShapeChip],
        arrow: bool = False,
    ) -> None:
        """Put the shapes into a row where they are few and short, else below one another; `chips` are those of the
        outputs. In a row there is an `arrow` without inputs too."""
        short = sum(len(shape.text) for shape in (*inputs, *outputs)) <= 30
        if len(inputs) <= 1 and len(outputs) <= 1 and short:
            row = hbox(spacing=8)
            for shape in inputs:
                row.addWidget(shape_chip(shape))
            if outputs and (inputs or arrow):
                row.addWidget(Glyph("chevron-right", "text3", 12))
            for chip in chips:
                row.addWidget(chip)
            dtypes = dict.fromkeys(shape.dtype for shape in (*inputs, *outputs))
            row.addWidget(label(" → ".join(filter(None, dtypes)), "caption", "text3"))
            row.addStretch(1)
            column.addLayout(row)
            return
        table = QGridLayout()
        table.setHorizontalSpacing(10)
        table.setVerticalSpacing(5)
        table.setColumnStretch(2, 1)
        lines = [(shape.port, shape_chip(shape), shape.dtype) for shape in inputs]
        lines += [
            (f"→ {shape.port}", chip, shape.dtype)
            for shape, chip in zip(outputs, chips, strict=True)
        ]
        for line, (port, chip, dtype) in enumerate(lines):
            table.addWidget(label(port, "formula", "text2"), line, 0)
            table.addWidget(chip, line, 1)
            table.addWidget(label(dtype, "caption", "text3"), line, 2)
        column.addLayout(table)


def shape_chip(shape: PortShape) -> ShapeChip:
    """Return the chip of a value on a wire."""
    chip = ShapeChip(shape.text, shape.state)
    chip.setAccessibleName(
        f"{shape.port}: {shape.text}"
        + (f", {shape.state}" if shape.state in ("error", "assumed") else "")
    )
    return chip


class CostBar(QWidget):
    """A name, a number, its percentage, and the percentage as a bar."""

    def __init__(
        self, name: str, value: str, part: float | None, percent: str, category: str
    ) -> None:
        super().__init__()
        self._part, self._category = part, category
        self._name, self._value = TextLine(name, "label"), TextLine(value, "tab")
        self._percent = TextLine(percent, "label")
        self.setAccessibleName(f"{name}: {value} {percent}".strip())
        self.setFixedHeight(
            int(max(self._name.height, 15)) + (10 if part is not None else 4)
        )

    def set_value(self, value: str) -> None:
        """Show another number."""
        if value != self._value.text:
            self._value = TextLine(value, "tab")
            self.setAccessibleName(
                f"{self._name.text}: {value} {self._percent.text}".strip()
            )
            self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(int(self._name.width + self._value.width + 80), self.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = start(self)
        text = QRectF(0, 0, self.width(), self._name.height)
        self._name.draw_in(painter, 0, text, colors.text2)
        right = self.width() - (56 if self._part is not None else 0)
        self._value.draw_in(painter, right - self._value.width, text, colors.text)
        if self._part is not None:
            self._percent.draw_in(
                painter, self.width() - self._percent.width, text, colors.text3
            )
            track = QRectF(0, text.bottom() + 4, self.width(), 3)
            box(painter, track, 1.5, colors.pressed if colors.dark else colors.line)
            if self._part > 0:
                width = max(3.0, track.width() * min(self._part, 1.0))
                box(
                    painter,
                    QRectF(track.left(), track.top(), width, 3),
                    1.5,
                    theme.category_color(self._category),
                )
        painter.end()


class CostSection(Section):
    """The cost of the node, as counted, without estimates of unknown parts."""

    def __init__(self) -> None:
        super().__init__("Cost", "share of the network")
        self._last: object = None

    def show_cost(
        self,
        parameters: int | None,
        total: int,
        values: int | None,
        category: str,
        node: str = "",
        network: NetworkCost | None = None,
    ) -> None:
        """Show parameters (None if unknown) of `total`, output values per sample, and, if the network's cost is known,
        the node's compute and output bytes."""
        cost = network.nodes.get(node) if network and parameters is not None else None
        wholes = (network.flops, network.activation) if network and cost else (None, 0)
        if (state := (parameters, total, values, category, cost, wholes)) == self._last:
            return
        self._last = state
        column = emptied(self)
        if parameters is None:
            column.addWidget(
                label(
                    "Available once the input shapes are known.",
                    "label",
                    "text3",
                    wrap=True,
                )
            )
        else:
            fraction = parameters / total if total else None
            shown = fraction if parameters else None
            percent = share(parameters, total)
            column.addWidget(
                CostBar(
                    "Parameters", grouped_digits(parameters), shown, percent, category
                )
            )
        if cost is not None:
            self._show_compute(column, cost, *wholes, category)
        if values is not None:
            column.addWidget(
                CostBar("Values per sample", grouped_digits(values), None, "", category)
            )
        sample = "N = 1" if cost is not None and cost.activation is not None else ""
        part_of = (
            "share of the network" if parameters or (cost and cost.activation) else ""
        )
        self.set_caption(", ".join(filter(None, (sample, part_of))))

    @staticmethod
    def _show_compute(
        column: QVBoxLayout,
        cost: NodeCost,
        network_flops: int | None,
        activation: int,
        category: str,
    ) -> None:
        """Show the share of the network's compute, what is not counted, and the share of its activation bytes."""
        network_flops = network_flops if cost.live else None
        if cost.flops is not None:
            fraction = cost.flops / network_flops if network_flops else None
            percent = share(cost.flops, network_flops or 0)
            column.addWidget(
                CostBar(
                    "Compute, estimated",
                    flop_text(cost.flops),
                    fraction,
                    percent,
                    category,
                )
            )
        elif cost.state:
            column.addWidget(CostBar("Compute", cost.state, None, "", category))
        if gaps := cost.gaps_text:
            column.addWidget(label(gaps, "caption", "text3", wrap=True))
        if cost.activation is not None and cost.shares:
            column.addWidget(
                CostBar("Activation", "same as its input", None, "", category)
            )
        elif cost.activation is not None:
            fraction = (
                cost.activation / activation if activation and cost.live else None
            )
            percent = share(cost.activation, activation)
            column.addWidget(
                CostBar(
                    "Activation",
                    bytes_text(cost.activation),
                    fraction,
                    percent,
                    category,
                )
            )
        if cost.receptive is not None:
            field = CostBar("Receptive field", str(cost.receptive), None, "", category)
            field.setToolTip(
                tr(
                    "Input positions that one output value depends on; the jump is the stride between those of "
                    "neighbouring values"
                )
            )
            column.addWidget(field)


class ProblemBox(QWidget):
    """One problem with its reason, PyTorch's words, and the buttons that mend it."""

    cure_requested = Signal(object)

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        error = problem.severity == "error"
        calm = problem.severity == "info"
        self._line, self._fill = (
            ("error", "errorBg")
            if error
            else ("line2", "sunken")
            if calm
            else ("warn", "warnBg")
        )
        self.setAccessibleName(f"{problem.severity}: {problem.message}")
        self.buttons: list[Button] = []
        column = vbox(label(problem.message, "message", wrap=True), spacing=3)
        if problem.reason:
            column.addWidget(label(problem.reason, "label", "text2", wrap=True))
        if problem.torch_message:
            column.addWidget(label(tr("PyTorch's error message"), "caption", "text2"))
            torch_label = label(problem.torch_message, "formula", "text2", wrap=True)
            torch_label.setTextInteractionFlags(
                Qt.TextInteractionFlag.TextSelectableByMouse
            )
            column.addWidget(torch_label)
        for i, cure in enumerate(problem.cures):
            words_on_it = in_lines(cure.label, "button", _CURE_MOST)
            button = Button(
                words_on_it.replace("&", "&&"),
                "primary" if error and i == 0 else "secondary",
            )
            button.setAccessibleName(cure.label)
            button.clicked.connect(
                lambda checked=False, cure=cure: self.cure_requested.emit(cure)
            )
            self.buttons.append(button)
            column.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        sign = Glyph(problem.severity, "text3" if calm else self._line, 15)
        hbox(
            (sign, 0, Qt.AlignmentFlag.AlignTop),
            (column, 1),
            on=self,
            margins=(10, 9, 10, 9),
            spacing=8,
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = start(self)
        box(
            painter,
            QRectF(self.rect()),
            6,
            colors.color(self._fill),
            colors.color(self._line),
        )
        painter.end()


class ProblemsSection(Section):
    """The problems of the node; hidden if there are none."""

    cure_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__("Problems")
        self.boxes: list[ProblemBox] = []
        self._last: tuple[Problem, ...] = ()
        self.hide()

    def show_problems(self, problems: tuple[Problem, ...]) -> None:
        self.setVisible(bool(problems))
        if problems == self._last:
            return
        self._last = problems
        column = emptied(self)
        self.boxes = [ProblemBox(problem) for problem in problems]
        for problem_box in self.boxes:
            problem_box.cure_requested.connect(self.cure_requested)
            column.addWidget(problem_box)
