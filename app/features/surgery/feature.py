"""Edits of the drawing applied to a paused run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QCheckBox, QHeaderView, QWidget

from app.features.surgery.values import PlanSurgery, SurgeryPlan
from app.project.project import Project
from app.training.surgery.values import Fate, Outcome
from app.util.columns import Column
from app.util.formatting import figure, plural, significant
from app.views.feature import Action, Feature
from app.views.ui.deferred_answer import when_done
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label
from app.views.workspace import Workspace

if TYPE_CHECKING:
    from app.views.run.session import Run
    from app.views.ui.background import WorkerFailure

# --- What becomes of each layer in a surgery, as rows of a table and as a sentence

PRESERVED = 1e-6  # relative: what rounding makes of an equal function in float32
WORDS = {
    "kept": "Kept",
    "changed": "Settings changed",
    "widened": "Widened",
    "narrowed": "Narrowed",
    "resized": "Resized",
    "copied": "Copied",
    "tied": "Tied",
    "identity": "New, identity",
    "zero": "New, zero",
    "initialised": "Initialised",
    "new": "New, no weights",
    "removed": "Removed",
    "frozen": "Frozen",
    "unfrozen": "Unfrozen",
}
MEANINGS = {
    "kept": "Weights and optimizer moments unchanged.",
    "widened": "Old units stay; the outputs of new ones are multiplied by zero weights at first.",
    "identity": "Initialised as the identity: the function is unchanged.",
    "zero": "Initialised with zeros, so the sum that it is added to is unchanged.",
    "initialised": "Random weights, by the default initialisation of PyTorch.",
    "removed": "Its weights and moments are discarded.",
}
COLORS = {
    "removed": "error",
    "initialised": "warn",
    "narrowed": "warn",
    "resized": "warn",
    "kept": "text3",
}


def layer_of(fate: Fate) -> str:
    """Return the path of a layer, or both if it was moved.

    >>> layer_of(Fate("conv1", "stem.conv1", "kept")), layer_of(Fate("", "fc3", "identity"))
    ('conv1 → stem.conv1', 'fc3')
    """
    if fate.before and fate.after and fate.before != fate.after:
        return f"{fate.before} → {fate.after}"
    return fate.after or fate.before


def why(fate: Fate) -> str:
    """Return the reason for what becomes of a layer, else what it means."""
    meaning = MEANINGS.get(fate.what, "")
    return (
        f"{fate.reason} {meaning}"
        if fate.what == "widened" and fate.reason
        else fate.reason or meaning
    )


def _quiet(fate: Fate) -> str:
    return "text3" if fate.what == "kept" else ""


LAYERS = (
    Column("Layer", layer_of, color=_quiet),
    Column(
        "What happens",
        lambda fate: WORDS.get(fate.what, fate.what),
        color=lambda fate: COLORS.get(fate.what, "text"),
    ),
    Column("Why", why, color=_quiet),
)


def summary(fates: Sequence[Fate]) -> str:
    """Return how many layers there are of each kind.

    >>> summary([Fate("a", "a", "kept"), Fate("b", "b", "kept"), Fate("", "c", "identity")])
    '2 layers keep their weights and moments. New, identity: 1.'
    """
    counts = Counter(fate.what for fate in fates)
    preserved = counts.pop("kept", 0)
    first = (
        f"{preserved} {plural(preserved, 'layer')} "
        f"{'keeps its' if preserved == 1 else 'keep their'} weights and moments."
    )
    others = ", ".join(
        f"{WORDS.get(fate_name, fate_name)}: {count}"
        for fate_name, count in counts.items()
    )
    return f"{first} {others}." if others else first


def function_words(outcome: Outcome, where: str) -> str:
    """Return whether the function is preserved, by what was measured `where`.

    >>> function_words(Outcome((), 0.25), "on random inputs")
    'The function changes: outputs differ by 25.0 % of the largest on random inputs, in eval mode.'
    >>> function_words(Outcome((), 0.0), "on random inputs")
    'The function is preserved: outputs are equal on random inputs, in eval mode.'
    """
    difference = outcome.difference
    if difference is None:
        return f"Whether the function is preserved was not measured. {outcome.note}".strip()
    if difference <= PRESERVED:
        comparison = (
            "outputs are equal"
            if not difference
            else f"outputs differ by {significant(difference, 1)} of the largest"
        )
        return f"The function is preserved: {comparison} {where}, in eval mode."
    return f"The function changes: outputs differ by {figure(100 * difference)} % of the largest {where}, in eval mode."


# --- Edits of the drawing applied to the run: planned by the engine, shown, then performed by the run

# --- What applying the edits to a run does, before it is done: a row for each layer

WHERE = "on random inputs with new weights"
RULES = (
    "Remaining layers keep their weights, moments and learning rates. Data, loss, schedule and random numbers of the "
    "run do not change; train.py reproduces the run including this edit."
)


class SurgeryDialog(Dialog):
    """`applied` is emitted with the button “Apply edits”; the dialog stays open until it gets the result."""

    applied = Signal()

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(f"Apply edits to {title}", parent)
        self.plan: SurgeryPlan | None = None
        self.summary = label(
            "Comparing the canvas with the network of the run…",
            "label",
            "text",
            wrap=True,
        )
        self.function = label("", "label", "text2", wrap=True)
        self.table = Table(LAYERS, "Layers")
        self.every = QCheckBox("Show &unchanged layers")
        self.every.toggled.connect(self._show_rows)
        for widget in (self.summary, self.function):
            self.body.addWidget(widget)
        self.body.addWidget(self.table, 1)
        self.body.addWidget(self.every)
        self.body.addWidget(label(RULES, "caption", "text3", wrap=True))
        self.add_button("Cancel").clicked.connect(self.reject)
        self.button = self.add_button("Apply edits", "primary", default=True)
        self.button.clicked.connect(self._apply)
        self.button.setEnabled(False)
        self.every.setEnabled(False)
        self.resize(760, 520)

    def show_plan(self, plan: SurgeryPlan) -> None:
        """Show what will happen, which can be applied from now on."""
        self.plan = plan
        self.summary.setText(
            f"{plan.surgery.description}. {summary(plan.outcome.fates)}"
        )
        self.function.setText(function_words(plan.outcome, WHERE))
        self.every.setEnabled(True)
        self._show_rows()
        self.button.setEnabled(True)
        self.button.setFocus()

    def _show_rows(self) -> None:
        if self.plan is None:
            return
        fates = self.plan.outcome.fates
        shown = [
            fate
            for fate in fates
            if self.every.isChecked()
            or fate.what != "kept"
            or fate.before != fate.after
        ]
        self.table.cells.set_rows(shown)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)

    def _apply(self) -> None:
        """Emit `applied` once; the run answers when its step has ended."""
        if self.plan is not None and self.button.isEnabled():
            self.button.setEnabled(False)
            self.function.setText(
                "Applying: trying the edited network on a batch of the run first…"
            )
            self.applied.emit()


NOT_NOW = "The edits cannot be applied"
PAUSE_FIRST = "Pause the run first"
NOTHING = (
    "The network on the canvas is the one of the run, so there is nothing to apply. Layers that reach no output are "
    "not part of it."
)


class SurgeryControl(QObject):
    """Plans, shows and applies; `refusal` says why that is not possible."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self._waiting = False  # for the run to pause
        self.dialog: SurgeryDialog | None = None
        workspace.session.stateChanged.connect(self._state_changed)
        workspace.live.analysed.connect(
            lambda _analysis: workspace.notifier.withdraw(NOT_NOW)
        )

    @property
    def refusal(self) -> str:
        """Why edits cannot be applied, "" if they can once the run is paused."""
        workspace, session = self._workspace, self._workspace.session
        run, thread = session.current, session.training_thread
        if (
            run is None
            or thread is None
            or not session.active
            or session.state == "stopping"
        ):
            return "No run is in progress. The next run uses the edited network."
        if session.watched_last:
            return "This run executes elsewhere: its network is constructed by the code that started it."
        if thread.place.processes > 1:
            return "A run on several processes has several copies of the network. Start a run in one process."
        before = workspace.run_control.drawn(run)
        if (
            before is None
            or before.opened is not None
            or workspace.document.project.opened is not None
        ):
            return "An opened model is defined by its own code. Redraw it to edit it during a run."
        if not differ(before, workspace.document.project):
            return NOTHING
        if errors := workspace.live.errors:
            return f"The network has errors: {errors[0].message}. Fix them first."
        return ""

    def open(self) -> None:
        """Plan the surgery and show it; of a run that is not paused, offer to pause it."""
        workspace, session = self._workspace, self._workspace.session
        if self.dialog is not None:
            self.dialog.raise_()
            return
        if not workspace.live.up_to_date and session.active:
            workspace.live.when_checked("surgery", self.open, self._refuse)
            return
        if refusal := self.refusal:
            self._refuse(refusal)
            return
        if session.state != "paused":
            why = "Edits are applied between two steps. The run continues when you resume it."
            workspace.notifier.show(
                "info", PAUSE_FIRST, why, "Pause and continue", self._pause
            )
            return
        run = session.current
        assert run is not None
        self._plan(run, workspace.document.project)

    def _refuse(self, reason: str) -> None:
        self._workspace.notifier.show("info", NOT_NOW, reason)

    def _pause(self) -> None:
        self._workspace.notifier.withdraw(PAUSE_FIRST)
        if self._workspace.session.state == "paused":
            self.open()
            return
        self._waiting = True
        self._workspace.session.pause()

    def _state_changed(self, state: str) -> None:
        if state == "paused" and self._waiting:
            self._waiting = False
            self.open()
        elif not self._workspace.session.active:
            self._waiting = False
            for title in (PAUSE_FIRST, NOT_NOW):
                self._workspace.notifier.withdraw(title)
            if self.dialog is not None:
                self.dialog.reject()

    def _plan(self, run: Run, project: Project) -> None:
        workspace = self._workspace
        before = workspace.run_control.drawn(run)
        assert before is not None
        dialog = self.dialog = SurgeryDialog(
            f"Run {run.display_number}", workspace.window
        )
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.finished.connect(self._closed)
        dialog.applied.connect(lambda: self._apply(dialog, run, project))
        dialog.open()

        def planned(plan: SurgeryPlan) -> None:
            if self.dialog is not dialog:
                return
            if plan.same:
                dialog.reject()
                workspace.notifier.show("info", NOT_NOW, NOTHING)
            else:
                dialog.show_plan(plan)

        def failed(failure: WorkerFailure) -> None:
            if self.dialog is dialog:
                dialog.reject()
                workspace.notifier.refuse(NOT_NOW, failure.message)

        workspace.engine.ask(
            "surgery", PlanSurgery(before, project), on_answer=planned, on_error=failed
        )

    def _closed(self, _result: int) -> None:
        self.dialog = None

    def _apply(self, dialog: SurgeryDialog, run: Run, project: Project) -> None:
        """Ask the run to perform it between two steps."""
        thread, plan = self._workspace.session.training_thread, dialog.plan
        if thread is None or plan is None or not run.active:
            dialog.reject()
            return
        when_done(
            thread.operate(plan.surgery, project),
            self,
            lambda outcome: self._applied(run, project, plan, outcome),
            self._failed,
        )

    def _applied(
        self, run: Run, project: Project, plan: SurgeryPlan, outcome: Outcome
    ) -> None:
        workspace = self._workspace
        if self.dialog is not None:
            self.dialog.accept()
        workspace.run_control.set_drawn(run, project)
        message = (
            f"{plan.surgery.description}. "
            f"{function_words(outcome, 'on a batch of the run')} Resume continues with it."
        )
        workspace.notifier.say(f"Edits applied to Run {run.display_number}", message)
        workspace.session.note(
            f"{plan.surgery.description}. {function_words(outcome, 'on a batch of the run')}"
        )

    def _failed(self, error: BaseException) -> None:
        if self.dialog is not None:
            self.dialog.reject()
        self._workspace.notifier.refuse(
            "The edits were not applied; the run is unchanged", str(error)
        )


def differ(before: Project, after: Project) -> bool:
    """Return whether two projects may have different nets, or groups of parameters."""
    options = [
        (project.training.groups, project.training.recompute)
        for project in (before, after)
    ]
    return (
        before.graph != after.graph
        or before.blocks != after.blocks
        or options[0] != options[1]
    )


TIP = "Insert, remove, widen or freeze layers of a paused run; weights and moments of the others stay"


class SurgeryFeature(Feature):
    rank = 158

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.surgery_control = SurgeryControl(workspace)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "apply-edits",
                "Apply e&dits to the run…",
                self.surgery_control.open,
                tip=TIP,
                menu="run.control",
                after="continue",
            ),
        )
