"""Controller of the diagnostics: when they run, their results, and where a click on one leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QWidget

from app.autograd.diagnostics.results import WhatIf, first_nodes, looked_for
from app.autograd.grouping import LayerGroup
from app.autograd.node_notes import notes_of
from app.autograd.tape import Tape, TapeNode
from app.engine.requests.findings import (
    CheckpointRequest,
    FindingsRequest,
    StopEarly,
)
from app.engine.requests.observe import ModelCapture
from app.util.language import marked, tr, trn
from app.views.autograd.capture_control import SCRIPT
from app.views.autograd.findings.findings_page import (
    CHECKPOINT,
    FINDINGS,
    GAIN,
    FindingsPage,
)
from app.views.autograd.findings.grad_none_section import (
    layer_of,
    notes_section,
    why_section,
)
from app.views.ui.background import WorkerFailure
from app.views.ui.widgets.painting import announce

if TYPE_CHECKING:
    from app.autograd.diagnostics.results import Finding, Findings
    from app.engine.client import Question
    from app.engine.protocol import Request
    from app.engine.requests.observe import AnyCapture
    from app.project.project import Project
    from app.views.autograd.capture_control import AutogradControl
    from app.views.autograd.page import AutogradPage
    from app.views.ui.inspector import TapeInspector
    from app.views.workspace import Workspace

WORK = "findings"  # the key of the question
OF_RUN = marked(
    "Diagnostics run the batch again, with the newest weights. A step of a run can only be inspected and played."
)
OF_SCRIPT = marked(
    "Diagnostics run the batch again, which a step of a script cannot do. "
    "A captured step can be inspected and played."
)


class FindingsControl(QObject):
    """Runs one diagnostic at a time in the engine: a new one, or another batch, cancels the last.

    Results stay until another batch is captured or another project is opened.
    """

    def __init__(
        self,
        workspace: Workspace,
        room: AutogradPage,
        inspector: TapeInspector,
        capture: AutogradControl,
        page: FindingsPage,
    ) -> None:
        super().__init__(workspace.window)
        self._workspace, self._room, self._inspector, self._capture = (
            workspace,
            room,
            inspector,
            capture,
        )
        self.findings: Findings | None = None
        self._work: Question[Any] | None = None
        self._asks = workspace.engine  # of the running diagnostics
        self._stopping = False
        self._rows: list[WhatIf] = []
        self.page = page
        self._diagnostics = {entry.key: entry for entry in workspace.diagnostics}
        workspace.pages.shown.connect(
            lambda key: self._shown() if key == "findings" else None
        )
        page.captureRequested.connect(lambda: workspace.commands.trigger("capture"))
        page.asked.connect(self.ask)
        page.stopped.connect(self.stop)
        page.turned.connect(lambda _page: self._shown())
        page.list.opened.connect(self.go_to)
        page.chart.chosen.connect(self._choose_layer)
        page.steps.layerChosen.connect(workspace.shown_run.choose_layer)
        workspace.network_selection.changed.connect(
            lambda *_: QTimer.singleShot(0, self, self._show_steps)
        )
        page.steps.runRequested.connect(lambda: workspace.run_control.run())
        workspace.session.progressed.connect(self._show_steps)
        page.checkpoint.selected.connect(self._choose_path)
        page.checkpoint.wanted.connect(self._checkpoint)
        capture.captured.connect(lambda *_: self._captured())
        capture.failed.connect(lambda _failure: self._captured())
        workspace.document.replaced.connect(lambda _project: self._forget())
        capture.turned.connect(lambda _subject: self._cleared())
        workspace.document.changed.connect(self._project_changed)
        inspector.above.append(self._above)
        inspector.below.append(self._below)
        for diagnostic in workspace.diagnostics:
            diagnostic.follow(self)

    # -- commands ------------------------------------------------------------------------------------------------------

    def show(self, page: str = FINDINGS) -> None:
        """Bring a page to the front."""
        self._workspace.pages.show("findings")
        self.page.turn_to(page)

    def ask(self, page: str) -> None:
        """Recompute the results of a page."""
        if page == CHECKPOINT:
            self.measure_blocks()
        elif page in self._diagnostics:
            self._diagnostics[page].run()
        else:
            self.run_diagnostics()

    def run_diagnostics(self) -> None:
        """Run all diagnostics on the newest batch."""
        if (batch := self.batch()) is not None:
            self.begin(FindingsRequest(batch), self._show_findings)

    def show_reason(self) -> None:
        """Show what can be diagnosed of what the window shows now."""
        self.batch()

    def batch(self) -> AnyCapture | None:
        """Return the newest batch; None without one, and the page shows what to do."""
        batch = self._capture.diagnosed
        self.page.set_captured(batch is not None, why=self._why_not())
        return batch

    def _why_not(self) -> str:
        """Say why what is shown cannot be diagnosed, "" if a capture is missing."""
        if self._workspace.run_control.shows_script:
            return OF_SCRIPT
        if not self._capture.shows_step or self._room.tape is None:
            return ""
        return tr(OF_SCRIPT if self._capture.subject == SCRIPT else OF_RUN)

    def measure_blocks(self) -> None:
        """Checkpoint each block in turn and measure the memory saved."""
        if (batch := self.batch()) is None:
            return
        self._rows = []
        self._show_rows()
        self.begin(CheckpointRequest(batch), lambda _rows: self._show_rows())

    def stop(self) -> None:
        """Stop the running diagnostics; findings so far are shown."""
        if self._work is not None:
            self._work.send(StopEarly())
            self._stopping = True
            self.page.set_working(tr("Stopping…"))

    # -- work ----------------------------------------------------------------------------------------------------------

    @property
    def tape(self) -> Tape | None:
        """The graph in front."""
        return self._room.tape

    @property
    def selected(self) -> TapeNode | LayerGroup | None:
        """What is selected in that graph."""
        return self._room.item_of(self._room.scene.current_key())

    @property
    def working(self) -> bool:
        return self._work is not None

    def begin(self, request: Request[Any], answered: Callable[[Any], None]) -> None:
        """Ask for a diagnostic, in place of the running one; `answered` is called with its results."""
        self._drop()
        self._stopping = False
        self._asks = self._capture.asks
        self._work = self._asks.ask(
            WORK,
            request,
            on_answer=partial(self._ended, answered),
            on_error=partial(self._ended, self._failed),
            on_progress=self._progressed,
        )
        self.page.set_working(tr("Running the batch…"))

    def _drop(self) -> None:
        """Cancel the running diagnostics and discard their results."""
        self._asks.forget(WORK)
        self._work = None
        self.page.set_working(None)

    def _ended(self, answered: Callable[[Any], None], answer: Any) -> None:
        self._work = None
        self.page.set_working(None)
        answered(answer)

    def _failed(self, failure: WorkerFailure) -> None:
        message = failure.message
        if self.page.page in self._diagnostics:
            self._diagnostics[self.page.page].show_failure(message)
        elif self.page.page == CHECKPOINT:
            self._show_rows(message)
        else:
            self.page.list.show_findings(
                (),
                tr("The diagnostics could not run: {error}", error=message),
                fine=False,
            )
            self.page.rule.setText(message)
        self.page.status.setText(tr("Failed"))

    def _progressed(self, progress: str | WhatIf) -> None:
        if isinstance(progress, WhatIf):
            self._rows.append(progress)
            if self.page.page == CHECKPOINT:
                self._show_rows()
        elif not self._stopping:
            self.page.set_working(progress)

    # -- what happened -------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._capture.forget()
        self._cleared()

    def _cleared(self) -> None:
        self._clear()
        self.page.set_captured(False, why=self._why_not())

    def _clear(self) -> None:
        self._drop()
        self.findings, self._rows = None, []
        self.page.list.show_findings((), "", fine=False)
        self.page.chart.set_ladder(None)
        for diagnostic in self._diagnostics.values():
            diagnostic.clear()
        self._show_rows()

    def _captured(self) -> None:
        self._clear()
        self.page.set_captured(
            self._capture.diagnosed is not None, self._capture.left_out, self._why_not()
        )
        self.inspect_again()
        self._shown()

    def came_back(self) -> None:
        """Show the net's results again, after those of an added subject stood in their place."""
        self._shown()

    def _shown(self) -> None:
        """Run the cheap diagnostics automatically when the page comes to the front."""
        due = (
            self.page.page in (FINDINGS, GAIN)
            and self.page.isVisible()
            and not self.page.over_run
        )
        self._update_status()
        self._show_steps()
        if due and self.findings is None and self._work is None:
            self.run_diagnostics()

    def _show_steps(self) -> None:
        """Show the gain ladder over the steps of the shown run."""
        if self.page.over_run and self.page.isVisible():
            shown = self._workspace.shown_run
            self.page.steps.set_history(
                shown.figures.history if shown.figures is not None else None
            )
            self.page.steps.set_selected(shown.selected)

    def _show_findings(self, findings: Findings) -> None:
        self.findings = findings
        self._workspace.activity.diagnosed.emit(findings)
        status = show_results(self.page, findings, marked("on this batch"))
        self._update_status()
        announce(self.page, status)
        self.inspect_again()

    def _update_status(self) -> None:
        """Show the number of findings on the pages that list them."""
        if self._work is None:
            findings = self.findings.found if self.findings is not None else None
            status = "" if findings is None else _counted(findings)
            shown = self.page.page in (FINDINGS, GAIN) and not self.page.over_run
            self.page.status.setText(status if shown else "")

    def inspect_again(self) -> None:
        """Recreate the inspector's sections that depend on the results."""
        self._inspector.refresh(below=True)

    def _project_changed(self, before: Project, after: Project) -> None:
        if before.training.recompute != after.training.recompute:
            self._show_rows()

    def _show_rows(self, hint: str = "") -> None:
        chosen = self._workspace.document.project.training.recompute
        if not self._rows and not hint:
            hint = tr(
                "Each block is checkpointed in turn on this batch; peak memory, step time and gradients are compared "
                "with a step without checkpointing."
            )
            if self.working:
                hint = ""
        self.page.checkpoint.show_rows(tuple(self._rows), chosen, hint)

    # -- where a click leads -------------------------------------------------------------------------------------------

    def _same_tape(self) -> Tape | None:
        """Return the page's tape if its nodes match those of the findings, else None."""
        ours, theirs = (
            self._room.tape,
            self.findings.tape if self.findings is not None else None,
        )
        if ours is None or theirs is None or len(ours.nodes) != len(theirs.nodes):
            return None
        return (
            ours
            if all(
                a.name == b.name for a, b in zip(ours.nodes, theirs.nodes, strict=True)
            )
            else None
        )

    def go_to(self, finding: Finding) -> None:
        """Select the location of a finding in all views."""
        workspace = self._workspace
        if finding.tape_node is not None and self._same_tape() is not None:
            self._room.reveal(finding.tape_node)
        node = finding.node
        if node is not None and node in workspace.document.project.graph.nodes:
            workspace.network_selection.set(
                [node], self._room if finding.tape_node is not None else self
            )

    def _choose_layer(self, key: str) -> None:
        tape = self._same_tape()
        if tape is not None and (node := first_nodes(tape).get(key)) is not None:
            self._room.reveal(node)

    def _choose_path(self, path: str) -> None:
        tape = self._room.tape
        inside = (
            []
            if tape is None
            else [
                node
                for node in tape.nodes
                if node.layer == path or node.layer.startswith(f"{path}.")
            ]
        )
        if inside:
            self._room.reveal(inside[-1].id)

    def _checkpoint(self, path: str) -> None:
        """Toggle activation checkpointing of a module in training, as one undo step, and show it."""
        workspace = self._workspace
        captured, project = self._capture.diagnosed, workspace.document.project
        if isinstance(captured, ModelCapture) and (
            project.opened is None or project.opened.source != captured.model.source
        ):
            workspace.notifier.say(
                tr("This model is not the open project"),
                tr("Use it as the project first: choose Train… on the Model page."),
            )
            return
        inside = path in project.training.recompute
        others = tuple(other for other in project.training.recompute if other != path)
        training = replace(
            project.training, recompute=others if inside else (*others, path)
        )
        workspace.document.apply(
            f"{'Keep' if inside else 'Checkpoint'} {path}",
            replace(project, training=training),
        )
        workspace.pages.show("training")
        workspace.notifier.say(
            f"{path} is {'kept' if inside else 'checkpointed'} in training",
            "recompute under Training",
        )

    # -- the inspector -------------------------------------------------------------------------------------------------

    def _above(self, tape: Tape, item: TapeNode | LayerGroup) -> Iterator[QWidget]:
        if tape is not self.tape:
            return
        diagnosed = self._capture.diagnosed is not None
        if isinstance(item, TapeNode) and (notes := notes_of(tape, item)):
            yield notes_section(notes)
        ready = self.findings is not None and self.findings.paths is not None
        paths = self.findings.paths if self.findings is not None else None
        if isinstance(item, TapeNode):
            names = item.parameters[:1]
            if names and diagnosed:
                answers = (
                    [paths.answers[name] for name in names if name in paths.answers]
                    if paths
                    else None
                )
                yield why_section(answers if ready else None, self._ask_why, ".grad")
        elif diagnosed and (layer := layer_of(tape, item)):
            answers = (
                list(self.findings.of_layer(layer))
                if ready and self.findings is not None
                else None
            )
            if answers is None or answers:
                yield why_section(answers, self._ask_why, ".grad of its parameters")

    def _below(self, tape: Tape, item: TapeNode | LayerGroup) -> Iterable[QWidget]:
        leaf = isinstance(item, TapeNode) and item.is_leaf
        if tape is not self.tape or leaf or self._capture.diagnosed is None:
            return
        for diagnostic in self._diagnostics.values():
            yield from diagnostic.sections(tape, item)

    def _ask_why(self) -> None:
        self.show(FINDINGS)
        if self._work is None:
            self.run_diagnostics()


def show_results(page: FindingsPage, findings: Findings, where: str) -> str:
    """Fill the pages of findings and gains; return how many findings there are in words."""
    listed = ", ".join(map(tr, looked_for()))
    note = looked = tr("Checked {where}: {list}.", where=tr(where), list=listed)
    if not findings.found:
        note = f"{tr('Nothing found.')} {looked}"
    if findings.cancelled:
        note = f"{tr('Stopped: findings so far.')} {looked}"
    page.list.show_findings(
        findings.found, note, fine=not findings.found and not findings.cancelled
    )
    page.chart.set_ladder(findings.ladder)
    page.rule.setText(_rule(findings))
    status = _counted(findings.found)
    page.status.setText(status)
    return status


def _counted(findings: Sequence[Finding]) -> str:
    if not findings:
        return tr("Nothing found")
    return trn("{count} finding", "{count} findings", len(findings))


def _rule(findings: Findings) -> str:
    if findings.ladder is None:
        return (
            tr("backward() raised, so there are no gains.")
            if not findings.cancelled
            else tr("Stopped.")
        )
    if not findings.ladder.lost:
        return tr(
            "No gradient vanishes or explodes: every norm is 0.001 to 1,000 times that at the last layer."
        )
    texts = {
        "non_finite": marked("Not finite first at {layer}: {rule}."),
        "vanishes": marked("Vanishes first at {layer}: {rule}."),
        "explodes": marked("Explodes first at {layer}: {rule}."),
    }
    return " ".join(
        tr(texts[lost.kind], layer=lost.title, rule=lost.rule)
        for lost in findings.ladder.lost
    )
