"""A run that failed: what, where and the cure; the traceback is one click away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from app.builder.diagnostics.problems import Cure
from app.preflight.setting_checks import memory_cures
from app.runs.store import CHECKPOINTS

if TYPE_CHECKING:
    from app.training.events import Failed
    from app.views.workspace import Workspace


def show_failure(
    workspace: Workspace,
    failed: Failed,
    title: str = "Training stopped",
    *,
    stored: bool = False,
) -> None:
    """Show a failure in the banner, with a button to the failed layer or the full report.

    Of a `stored` run with a checkpoint another button resumes it, and one debugs the step of a NaN.
    """
    node = workspace.document.project.graph.nodes.get(failed.node or "")

    def act() -> None:
        if (
            failed.node is not None
            and failed.node in workspace.document.project.graph.nodes
        ):
            workspace.jump_to(failed.node)
        else:
            workspace.notifier.show_details(
                failed.message, failed.cure, failed.traceback
            )

    details = (
        "Details" if failed.traceback else ""
    )  # that of a script is in its terminal
    where = f"Show {node.name}" if node else details
    step, shown = failed.step + 1, workspace.shown_run.figures
    further: dict[str, Callable[[], object]] = {}
    if failed.kind == "memory":
        project, analysis = workspace.document.project, workspace.live.analysis
        for cure in memory_cures(project, analysis):
            further[cure.label] = partial(_mend, workspace, cure)
    folder = shown.folder if stored and shown is not None else None
    debug = "debug-this-step"
    if folder is not None and failed.kind == "not finite":
        if workspace.commands.has(debug):
            further[f"Debug step {step:,}"] = lambda: workspace.commands.trigger(
                debug, step
            )
    elif folder is not None and any(
        (folder / CHECKPOINTS).glob("*.pt")
    ):  # a NaN would come again
        further["Resume run"] = lambda: workspace.commands.trigger("continue")
    workspace.notifier.show(
        "error", f"{title}: {failed.message}", failed.cure, where, act, further
    )


def _mend(workspace: Workspace, cure: Cure) -> None:
    """Change the settings, and say that the next run has them."""
    workspace.cures.apply(cure)
    workspace.notifier.clear()
    workspace.notifier.say(cure.label, "The next run has it.")
