"""A run that failed: what, where and the cure; the traceback is one click away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.training.events import Failed
    from app.views.workspace import Workspace


def show_failure(workspace: Workspace, failed: Failed, title: str = "Training stopped") -> None:
    """Show a failure in the banner, with a button to the failed layer or the full report."""
    node = workspace.document.project.graph.nodes.get(failed.node or "")

    def act() -> None:
        if failed.node is not None and failed.node in workspace.document.project.graph.nodes:
            workspace.jump_to(failed.node)
        else:
            workspace.notifier.show_details(failed.message, failed.cure, failed.traceback)

    where = f"Show {node.name}" if node else "Details"
    step, shown = failed.step + 1, workspace.shown_run.figures
    further: dict[str, Callable[[], object]] = {}
    if failed.kind == "not finite" and shown is not None and shown.folder is not None:
        further[f"Debug step {step:,}"] = lambda: workspace.commands.trigger("debug-this-step", step)
    workspace.notifier.show("error", f"{title}: {failed.message}", failed.cure, where, act, further)
