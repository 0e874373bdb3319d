"""Events of a run as text for the console. Qt-free."""

from __future__ import annotations

from msgspec import Struct

from app.training.events import (
    Caught,
    EpochDone,
    Event,
    Failed,
    Finished,
    Noticed,
    Paused,
    RateSet,
    Resumed,
    Saved,
    Skipped,
    Started,
)
from app.training.metrics import label_of
from app.util.formatting import (
    duration,
    figure,
    grouped_digits,
    parameters_text,
    percent,
)


class ConsoleLine(Struct, frozen=True):
    """One line of the console: `tone` is a colour token, `detail` is shown on a click."""

    text: str
    tone: str = "text2"
    detail: str = ""


_ENDINGS = {
    "done": ("Done", "run"),
    "stopped": ("Stopped", "text"),
    "left": ("No longer watched", "text"),
}


def lines_of(event: Event, epochs: int = 0) -> list[ConsoleLine]:
    """Return the lines for an event; steps and measurements have none. `epochs` is the planned number."""
    match event:
        case Started():
            return _started(event)
        case EpochDone():
            return [ConsoleLine(_epoch(event, epochs))]
        case Paused():
            text = (
                f"after step {grouped_digits(event.step)}"
                if event.step
                else "before step 1"
            )
            return [ConsoleLine(f"Paused {text}.")]
        case Resumed():
            return [ConsoleLine(f"Resumed after step {grouped_digits(event.step)}.")]
        case Finished():
            word, tone = _ENDINGS[event.reason]
            spent = (
                f"{event.seconds:.1f} s"
                if event.seconds < 120
                else duration(event.seconds)
            )
            looking = (
                f" Telemetry took {percent(event.looking)} % of it."
                if event.looking
                else ""
            )
            why = f": {event.reason_text}" if event.reason_text else ""
            return [
                ConsoleLine(
                    f"{word} after {grouped_digits(event.steps)} steps, {spent}{why}.{looking}",
                    tone,
                )
            ]
        case Caught() | Noticed():
            return [ConsoleLine(event.message, "warn")]
        case Failed():
            return [
                ConsoleLine(
                    _sentences(event.message, event.cure),
                    "error",
                    event.traceback.rstrip(),
                )
            ]
        case RateSet():
            of = f" of {event.group}" if event.group else ""
            text = f"Learning rate{of} set to {figure(event.rate)} by hand after step {grouped_digits(event.step)}."
            return [
                ConsoleLine(
                    f"{text} From that step, results differ from those without the change.",
                    "warn",
                )
            ]
        case Skipped():
            return [ConsoleLine(f"Skipped: {_sentences(event.message)}", "warn")]
        case Saved() if event.problem:
            return [ConsoleLine(event.problem, "warn")]
    return []


def _started(event: Started) -> list[ConsoleLine]:
    count = parameters_text(event.parameters + event.frozen, event.frozen)
    if not event.steps_per_epoch:
        return [ConsoleLine(f"A script trains {count} on {event.device}.", "text")]
    seed = f", seed {event.seed}" if event.seed >= 0 else ""
    lines = [
        ConsoleLine(
            f"Training on {event.device}{seed}: {count}, "
            f"{grouped_digits(event.train_count)} training and {grouped_digits(event.validation_count)} validation "
            f"samples, {grouped_digits(event.epochs)} epochs of {grouped_digits(event.steps_per_epoch)} batches of "
            f"{event.batch_size}.",
            "text",
        )
    ]
    if event.loss:
        lines.append(ConsoleLine(f"{event.loss[:1].upper()}{event.loss[1:]}.", "text"))
    if event.stand_in:
        lines.append(ConsoleLine(event.stand_in, "warn"))
    if event.device_note:
        lines.append(ConsoleLine(event.device_note, "warn"))
    if event.changed:
        lines.append(ConsoleLine(event.changed, "warn"))
    return lines


def _sentences(*texts: str) -> str:
    """Join the non-empty texts as sentences."""
    stripped = [text.strip() for text in texts if text.strip()]
    return " ".join(text if text[-1] in ".!?…" else f"{text}." for text in stripped)


def _epoch(event: EpochDone, epochs: int) -> str:
    of = f"/{epochs:,}" if epochs else ""
    text = f"Epoch {event.epoch:,}{of}: training loss {figure(event.train_loss)}{_share(event.train_accuracy)}"
    if event.val_loss is None:
        return f"{text}; no validation samples."
    scores = "".join(
        f", {label_of(name)} {figure(value)}" for name, value in event.metrics
    )
    return f"{text}; validation loss {figure(event.val_loss)}{_share(event.val_accuracy)}{scores}."


def _share(accuracy: float | None) -> str:
    """Format the accuracy; "" for data without classes."""
    return "" if accuracy is None else f", accuracy {percent(accuracy)} %"
