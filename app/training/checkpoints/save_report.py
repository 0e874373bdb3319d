"""User messages about failing checkpoints: the first failure, the recovery, and the count at the end."""

from __future__ import annotations

from app.training.events import Saved
from app.util.formatting import counted


class SaveReport:
    """Consume the `Saved` events of a run. `failing` is True if the newest checkpoint could not be written."""

    def __init__(self) -> None:
        self.failing = False
        self.failed = 0
        self._newest = 0  # the step of the newest that was written
        self.unkept = ""  # why the record of the run could not be written

    def message_for(self, event: Saved) -> str:
        """Return the message for an event; "" for none."""
        if not event.problem:
            self._newest = max(self._newest, event.step)
            if not self.failing:
                return ""
            self.failing = False
            return f"Checkpoints are being saved again: the newest is from step {event.step:,}."
        if not event.step:  # of the whole record of the run
            self.unkept = event.problem
            return event.problem
        self.failed += 1
        again, self.failing = self.failing, True
        return "" if again else event.problem

    def at_end(self) -> str:
        """Return the message at the end of a run; "" if every checkpoint was written."""
        sentences = [self.unkept] if self.unkept else []
        if self.failed:
            failures = f"{counted(self.failed, 'checkpoint')} could not be saved"
            have = (
                f"the newest saved one is from step {self._newest:,}"
                if self._newest
                else "none has been saved"
            )
            sentences.append(f"{failures}; {have}.")
        return " ".join(sentences)
