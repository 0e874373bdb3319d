"""Runs gradcheck of the network, or of what is selected in its graph, and shows the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from app.autograd.grouping import LayerGroup
from app.autograd.tape import Tape, TapeNode
from app.engine.requests.observe import ModelCapture
from app.features.gradcheck.page import GradcheckPage
from app.features.gradcheck.values import (
    GradcheckReport,
    GradcheckRequest,
    LayerCall,
    NodeOperation,
    WholeNet,
)
from app.util.formatting import counted
from app.util.language import marked
from app.views.autograd.findings.grad_none_section import layer_of
from app.views.ui.present import present
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Divider, announce, label
from app.views.ui.widgets.section import Section

if TYPE_CHECKING:
    from app.views.autograd.findings.diagnostic import Diagnostics
    from app.views.workspace import Workspace

GRADCHECK = "gradcheck"


class GradcheckControl:
    """The `Diagnostic` of Findings: `report` is of the node or group with the key `checked`, of the net for None."""

    key = title = GRADCHECK
    command = "Check the whole network"
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
        self._check(None, "the whole network", WholeNet())

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
        self.page.show_report(None, f"Checking {title} with finite differences…")
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
