"""gradcheck in the window: a page of Findings, a section of the inspector, and two commands of the Autograd menu."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QScrollArea, QWidget

from app.autograd.grouping import LayerGroup
from app.autograd.tape import Tape, TapeNode
from app.engine.requests.observe import ModelCapture
from app.features.gradcheck.values import (
    GradcheckReport,
    GradcheckRequest,
    LayerCall,
    NodeOperation,
    WholeNet,
)
from app.util.formatting import (
    counted,
    scientific,
    shape_text,
    significant,
)
from app.util.language import marked, tr, trn
from app.views.autograd.findings.grad_none_section import layer_of
from app.views.feature import Action, Feature
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.tables import FiguresTable
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Divider, Glyph, announce, label
from app.views.ui.widgets.section import Section
from app.views.workspace import Workspace

if TYPE_CHECKING:
    from app.features.gradcheck.values import CheckedInput, Element
    from app.views.autograd.findings.diagnostic import Diagnostics

# --- Runs gradcheck of the network, or of what is selected in its graph, and shows the report

# --- Page "gradcheck": float64 beside float32, finite differences beside backward

INPUTS = (
    marked("Tensor"),
    marked("Shape"),
    marked("Checked"),
    marked("Worst at"),
    marked("Backward (float64)"),
    marked("Finite differences"),
    marked("Difference"),
    marked("Backward float32"),
)
TABLE = (
    "eps",
    marked("float64: finite differences"),
    marked("difference"),
    marked("float32: finite differences"),
    marked("difference"),
)


def place_of(element: Element | None) -> str:
    """Format the position of an element: "[0, 3]", or a random direction."""
    if element is None:
        return "–"
    return (
        f"[{', '.join(map(str, element.index))}]"
        if element.index
        else tr("a random direction")
    )


def input_row(checked_input: CheckedInput) -> tuple[str, ...]:
    """Return the cells of one differentiated input."""
    worst = checked_input.worst or checked_input.direction
    checked = tr(
        "{checked:,} of {total:,}",
        checked=checked_input.checked,
        total=checked_input.elements,
    )
    values = (
        ("–", "–", "–")
        if worst is None
        else (
            significant(worst.analytic, 9),
            significant(worst.numeric, 9),
            scientific(worst.relative, 1),
        )
    )
    single = (
        "–" if checked_input.single is None else scientific(checked_input.single, 1)
    )
    return (
        checked_input.name,
        shape_text(checked_input.shape, "()"),
        checked,
        place_of(worst),
        *values,
        single,
    )


def eps_rows(report: GradcheckReport) -> list[tuple[str, ...]]:
    """Return a row per step size, with both precisions."""
    both = {(row.dtype, row.eps): row for row in report.table}
    rows = []
    for eps in sorted({row.eps for row in report.table}, reverse=True):
        cells = [scientific(eps, 0)]
        for dtype in ("float64", "float32"):
            row = both.get((dtype, eps))
            cells += (
                ["–", "–"]
                if row is None
                else [significant(row.numeric, 9), scientific(row.relative, 1)]
            )
        rows.append(tuple(cells))
    return rows


class GradcheckPage(QScrollArea):
    """The result as text, the inputs, and the table over eps."""

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.report: GradcheckReport | None = None
        self._icon = Glyph("flask", "text3", 15)
        self.verdict = label("", "message", wrap=True)
        self.more = label("", "label", "text2", wrap=True)
        self.inputs = FiguresTable(
            [tr(head) for head in INPUTS], tr("Tensors that were checked"), {4, 5, 6, 7}
        )
        self.table = FiguresTable(
            [tr(head) for head in TABLE],
            tr("Finite differences over eps"),
            {0, 1, 2, 3, 4},
        )
        self._captions = (
            label(
                tr(
                    "By tensor, float64; the last column is the error of backward in float32"
                ),
                "caption",
                "text3",
            ),
            label(
                tr(
                    "Directional derivative along one random direction, for each step eps"
                ),
                "caption",
                "text3",
            ),
        )
        inside = QWidget()
        top = hbox(
            (self._icon, 0, Qt.AlignmentFlag.AlignTop), (self.verdict, 1), spacing=10
        )
        column = vbox(top, self.more, on=inside, margins=(16, 10, 16, 14), spacing=6)
        # Beside one another where there is room for both.
        self._tables = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._tables.setSpacing(18)
        for caption, table in zip(
            self._captions, (self.inputs, self.table), strict=True
        ):
            table_layout = vbox(caption, table, 1, spacing=2)
            self._tables.addLayout(table_layout)
        column.addSpacing(4)
        column.addLayout(self._tables)
        column.addStretch(1)
        self.setWidget(inside)
        self.show_report(None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        wide = (
            self.viewport().width()
            >= sum(table.whole_width for table in (self.inputs, self.table)) + 60
        )
        direction = (
            QBoxLayout.Direction.LeftToRight
            if wide
            else QBoxLayout.Direction.TopToBottom
        )
        if self._tables.direction() != direction:
            self._tables.setDirection(direction)

    def show_report(self, report: GradcheckReport | None, text: str = "") -> None:
        """Show a report, or `text` where there is none."""
        self.report = report
        for widget in (*self._captions, self.inputs, self.table):
            widget.setVisible(report is not None)
        if report is None:
            self._icon.set("flask", "text3")
            self.verdict.setText(
                text or tr("Select a backward node or a layer and run gradcheck there.")
            )
            self.more.setText("")
            self.more.hide()
            return
        first, *rest = report.sentences
        if report.note:
            first, rest = rest[0], [report.note, *rest[1:]]
        self._icon.set(
            "check" if report.passed else "error", "run" if report.passed else "error"
        )
        self.verdict.setText(first)
        rest.append(
            trn("{count} forward pass.", "{count} forward passes.", report.evaluations)
        )
        self.more.setText(" ".join(rest))
        self.more.show()
        self.inputs.set_rows(
            [(*input_row(of), "" if of.fine else "error") for of in report.inputs]
        )
        best = report.best("float64")
        nearest = scientific(best.eps, 0) if best else ""
        self.table.set_rows(
            [(*row, "run" if row[0] == nearest else "") for row in eps_rows(report)]
        )
        for table in (self.inputs, self.table):
            table.fit_height()
        self._fit()


GRADCHECK = "gradcheck"


class GradcheckControl:
    """The `Diagnostic` of Findings: `report` is of the node or group with the key `checked`, of the net for None."""

    key = title = GRADCHECK
    command = marked("Check the whole network")
    hint = marked(
        "The gradient of backward is compared with finite differences, in float64 and in float32."
    )
    page: GradcheckPage
    _findings: Diagnostics

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.report: GradcheckReport | None = None
        self._checked: object = None

    def make_page(self) -> GradcheckPage:
        """Return the page of the report."""
        self.page = GradcheckPage()
        return self.page

    def follow(self, findings: Diagnostics) -> None:
        """Run what is asked for beside the other diagnostics."""
        self._findings = findings

    def run(self) -> None:
        """Check the whole network."""
        self._check(None, tr("the whole network"), WholeNet())

    def check_selected(self) -> None:
        """Check the selection in the graph, or ask for one."""
        item = self._findings.selected
        if item is None or isinstance(item, TapeNode) and item.is_leaf:
            self._workspace.notifier.say(
                "Nothing to check is selected",
                "Click a backward node or a layer of the graph first.",
            )
        else:
            self.check(item)

    def check(self, item: TapeNode | LayerGroup) -> None:
        """Check a backward node or a layer."""
        tape = present(self._findings.tape)
        if isinstance(item, TapeNode):
            self._check_node(item.id, item.id, item.name, tape)
            return
        path = layer_of(tape, item)
        if path:
            first = tape.nodes[item.nodes[0]]
            call = max(first.call, 1) if first.layer == path else 1
            self._check(item.key, item.title, LayerCall(path, call))
            return
        number = next(node for node in item.nodes if not tape.nodes[node].is_leaf)
        self._check_node(item.key, number, item.title, tape)

    def _check_node(self, key: object, number: int, title: str, tape: Tape) -> None:
        names = tuple(node.name for node in tape.nodes)
        self._check(key, title, NodeOperation(number, names))

    def _check(
        self, key: object, title: str, target: WholeNet | LayerCall | NodeOperation
    ) -> None:
        findings = self._findings
        findings.show(self.key)
        batch, tape = findings.batch(), findings.tape
        if batch is None:
            return
        self.report, self._checked = None, key
        self.page.show_report(
            None, tr("Checking {what} with finite differences…", what=title)
        )
        if tape is not None:
            whole_model = isinstance(batch, ModelCapture)
            batch = batch.of_samples(samples(tape, whole_model)[0])
        findings.begin(GradcheckRequest(batch, target, title), self._show)

    def _show(self, report: GradcheckReport) -> None:
        self.report = report
        self.page.show_report(report)
        announce(self.page, report.sentences[0])
        passed = {GRADCHECK: float(report.passed)}
        self._workspace.activity.measured.emit(GRADCHECK, passed)
        self._findings.inspect_again()

    def clear(self) -> None:
        """Forget the report."""
        self.report, self._checked = None, None
        self.page.show_report(None)

    def show_failure(self, message: str) -> None:
        """Say why there is no report."""
        self.page.show_report(None, message)

    def sections(self, tape: Tape, item: TapeNode | LayerGroup) -> Iterable[QWidget]:
        """Return the section of the inspector that checks a node or a layer."""
        key, kind = (
            (item.id, "op") if isinstance(item, TapeNode) else (item.key, "layer")
        )
        checked, sample_count = samples(
            tape, isinstance(self._findings.batch(), ModelCapture)
        )
        section = Section("gradcheck")
        button = Button("Run gradcheck", "primary", "flask")
        button.setObjectName("gradcheck")
        button.clicked.connect(lambda: self.check(item))
        section.body_layout.addWidget(button)
        explanation = label(
            f"Compares this {kind} with finite differences in float64 on {checked} of "
            f"{counted(sample_count, 'sample')}. Training state is untouched.",
            "caption",
            "text3",
            wrap=True,
        )
        explanation.setMinimumWidth(1)
        section.body_layout.addWidget(explanation)
        report = self.report
        if report is not None and self._checked == key:
            section.body_layout.addWidget(Divider())
            verdict = report.sentences[1 if report.note else 0]
            tone = "run" if report.passed else "error"
            section.body_layout.addWidget(label(verdict, "label", tone, wrap=True))
            link = Button("Show the report", "link")
            link.clicked.connect(lambda: self._findings.show(self.key))
            section.body_layout.addWidget(link)
        yield section


def samples(tape: Tape, whole_model: bool) -> tuple[int, int]:
    """Return how many samples a check takes, and how many the batch has: a batch norm in train mode needs two.

    The inputs of a model from code have the sizes that were asked for, and are taken whole.
    """
    sizes = [shape[0] for shape in tape.input_shapes if shape]
    if whole_model:
        return (sizes[0], sizes[0]) if sizes else (1, 1)
    batch_size = (
        tape.input_shapes[0][0] if tape.input_shapes and tape.input_shapes[0] else 1
    )
    norms = tape.train and any("BatchNorm" in node.name for node in tape.nodes)
    return min(2 if norms else 1, batch_size), batch_size


class GradcheckFeature(Feature):
    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.control = GradcheckControl(workspace)
        workspace.diagnostics.append(self.control)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "gradcheck-net",
                "Run gradcheck on the &whole network",
                self._check_net,
                menu="autograd.reports",
            ),
            Action(
                "gradcheck-here",
                "Run gradcheck on the &selection",
                self._check_selected,
                menu="autograd.reports",
            ),
        )

    def _check_net(self) -> None:
        self.workspace.pages.make("findings")
        self.control.run()

    def _check_selected(self) -> None:
        self.workspace.pages.make("findings")
        self.control.check_selected()
