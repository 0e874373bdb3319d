"""Output of a run: JSON lines for programs, a progress bar and one line per epoch for people."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from app.cli import console
from app.training import events
from app.training.events import to_json
from app.training.surgery.values import Fate, Outcome
from app.util.formatting import counted, parameters_text

if TYPE_CHECKING:
    from app.training.events import Cut, EpochDone, Event, Finished, StepDone


_UNSAID = ("kept", "new")  # fates of layers
SAID = 6  # layers of a surgery that are named
CLEARED = "\r\033[K"  # of a terminal: back to the beginning of an empty line


class RunOutput(Protocol):
    """Shows the events of a run as they come."""

    def show(self, event: Event) -> None: ...


class JsonLines:
    """One JSON object per line on stdout."""

    def show(self, event: Event) -> None:
        line = to_json(event)
        if line is not None:
            print(line, flush=True)


class ProgressBar:
    """A progress bar on a terminal, and one line per epoch."""

    WIDTH = 24

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs
        self._steps = 1
        self._begun = 0  # the step before this epoch
        self._terminal = sys.stderr.isatty()
        self._full, self._empty = "━─" if _takes("━─") else "#-"

    def show(self, event: Event) -> None:
        match event:
            case events.Started():
                self._steps = event.steps_per_epoch
                self._begun = event.resumed_at - event.resumed_at % max(
                    event.steps_per_epoch, 1
                )
                count = parameters_text(event.parameters + event.frozen, event.frozen)
                print(
                    f"training on {event.device}: {count}, {counted(event.train_count, 'sample')}"
                )
                if event.device_note:
                    print(event.device_note)
                if event.loss:
                    print(console.printable(event.loss))
                if event.stand_in:
                    print(event.stand_in)
            case events.StepDone() if self._terminal:
                self._bar(event)
            case events.EpochDone():
                self._begun = event.step
                self._epoch(event)
            case events.Cut():
                self._cut(event)
            case events.Finished():
                self._finished(event)

    def _finished(self, event: Finished) -> None:
        if self._terminal:
            print(CLEARED, end="", file=sys.stderr)
        word = (
            "stopped"
            if event.reason == "stopped"
            else "ended early"
            if event.epoch < self._epochs
            else "done"
        )
        why = f": {event.reason_text}" if event.reason_text else ""
        print(console.printable(f"{word} after {counted(event.steps, 'step')}{why}"))

    def _cut(self, event: Cut) -> None:
        if self._terminal:
            print(CLEARED, end="", file=sys.stderr)
        output, *layers = outcome_text(event.outcome)
        print(
            console.printable(
                f"after step {event.step}: {event.description.rstrip('.')}. {output}"
            )
        )
        for line in layers:
            print(console.printable(f"    {line}"))
        sys.stdout.flush()

    def _bar(self, event: StepDone) -> None:
        done = min(event.step - self._begun, self._steps)
        filled = self.WIDTH * done // self._steps
        bar = self._full * filled + self._empty * (self.WIDTH - filled)
        line = f"\repoch {event.epoch}/{self._epochs} {bar} {done}/{self._steps}  loss {event.loss:.4f} "
        print(line, end="", file=sys.stderr, flush=True)

    def _epoch(self, event: EpochDone) -> None:
        if self._terminal:
            print(CLEARED, end="", file=sys.stderr)
        validation = ""
        if event.val_loss is not None:
            scores = "".join(f", {name} {value:.4f}" for name, value in event.metrics)
            validation = (
                f", validation {event.val_loss:.4f}{_share(event.val_accuracy)}{scores}"
            )
        training = f"training {event.train_loss:.4f}{_share(event.train_accuracy)}"
        print(f"epoch {event.epoch}/{self._epochs}: {training}{validation}", flush=True)


def _takes(letters: str) -> bool:
    """Return whether stderr can encode the letters."""
    try:
        letters.encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _share(accuracy: float | None) -> str:
    """Format an accuracy in brackets; empty without classes."""
    return "" if accuracy is None else f" ({accuracy:.2%})"


def outcome_text(outcome: Outcome) -> tuple[str, ...]:
    """Describe how much the output changed, and the layers that were not simply kept.

    >>> outcome_text(Outcome((Fate("fc1", "fc1", "widened", "(64,) → (80,)."), Fate("", "fc3", "identity")), 3.1e-7))
    ('The output differs by 3.1e-07 of its largest value.', 'fc1 widened: (64,) → (80,).', 'fc3 identity')
    """
    lines = [_fate(fate) for fate in outcome.fates if fate.what not in _UNSAID]
    more = (f"and {len(lines) - SAID} layers more",) if len(lines) > SAID else ()
    if outcome.difference is None:
        output = outcome.note or "The output has another shape."
    elif outcome.difference == 0:
        output = "The output is the same."
    else:
        output = f"The output differs by {outcome.difference:.2g} of its largest value."
    return output, *lines[:SAID], *more


def _fate(fate: Fate) -> str:
    name = fate.after or fate.before
    if fate.before and fate.after and fate.before != fate.after:
        name = f"{fate.before} (now {fate.after})"
    return f"{name} {fate.what}" + (f": {fate.reason}" if fate.reason else "")
