"""Where a layer of the open model is shown: its node on the canvas, or its call in the picture of an opened one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.observe.observation import CallPlace
from app.source.node_location import node_location

if TYPE_CHECKING:
    from app.views.workspace import Workspace


def show_layer(workspace: Workspace, path: str, file: str = "", line: int = 0) -> bool:
    """Select the node of a module, or of a line of the generated net; False if there is none."""
    if workspace.document.project.opened is not None:
        workspace.pages.show("observed")
        workspace.commands.trigger("show-call", CallPlace(path, 1, file, line))
        return True
    analysis = workspace.live.analysis
    if analysis is None:
        return False
    location = node_location(analysis.source, path, line)
    if location is None:
        return False
    way, node = location
    workspace.pages.show("network")
    workspace.place.go_to(way)
    workspace.show_node(node)
    return True
