"""An empty page that offers a capture: of a batch, or of the next step of a script."""

from __future__ import annotations

from app.views.ui.widgets.empty import EmptyState

NO_STEP = "A step of a script can be captured while it runs and is watched."


class CaptureOffer(EmptyState):
    """Offers a batch, with the hint `of_batch`, until a script is shown."""

    def __init__(self, title: str, of_batch: str, of_step: str) -> None:
        super().__init__("autograd", title, of_batch, "Capture one batch")
        self._of_batch, self._of_step = of_batch, of_step

    def offer_step(self, step: bool, ended: bool) -> None:
        """Offer the next step of a script in place of a batch; nothing of a script that has ended."""
        of_script = NO_STEP if ended else self._of_step
        self.set_text(self.title(), of_script if step or ended else self._of_batch)
        self.button.setText("Capture step" if step else "Capture one batch")
        self.button.setVisible(not ended)
