"""Feature "torch_setup": what to do where PyTorch is missing, from the banner that says so."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.torch_setup.dialog import TorchDialog
from app.views.feature import Action, Feature


class TorchSetupFeature(Feature):
    rank = 900

    def actions(self) -> Iterable[Action]:
        yield Action("get-torch", "", self.ask)

    def ask(self, reason: str) -> None:
        """Show what can be done about a PyTorch that could not be loaded, and why it could not."""
        workspace = self.workspace
        dialog = TorchDialog(reason, workspace.commands.has("places"), workspace.window)
        dialog.installed.connect(workspace.live.start)
        dialog.placesRequested.connect(lambda: workspace.commands.trigger("places"))
        workspace.live.torch_loaded.connect(dialog.accept)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
