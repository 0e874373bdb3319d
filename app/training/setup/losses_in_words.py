"""Which loss fits a target, and the sentence that names the losses of a run before its first step."""

from __future__ import annotations

from app.data.spec import BINARY, CLASSES, PROBABILITIES, TOKENS, VALUES, TargetInfo
from app.source.generated import Source
from app.training.choices import (
    CLASS_IDS,
    LOSSES,
    OF_LOGITS,
    OF_ONE_OUTPUT,
    OWN_LOSS,
    WITH_PROBABILITIES,
    takes_one_output,
)
from app.training.config import (
    BY_DATA,
    BY_MODEL,
    INPUT,
    Choice,
    OutputLoss,
    TrainingConfig,
)


def usual_loss(target: TargetInfo, values: int | None = None) -> Choice:
    """Return the loss that is usual for a target, and for an output of so many `values` a sample, if they are known.

    >>> usual_loss(TargetInfo("", "values", (), (1,))).name, usual_loss(TargetInfo("", "tokens")).name
    ('MSELoss', 'CrossEntropyLoss')
    """
    if target.task == VALUES and target.form != PROBABILITIES:
        return Choice(OF_LOGITS if target.form == BINARY else "MSELoss")
    if (
        target.task == CLASSES
        and values == 1
        and takes_one_output(OF_LOGITS, len(target.classes))
    ):
        return Choice(OF_LOGITS)
    return Choice(WITH_PROBABILITIES)


def takes(loss: Choice, target: TargetInfo) -> bool:
    """Return whether a loss takes the kind of a target, unless there is no such loss: class ids, or numbers."""
    if target.task != VALUES:
        return True
    return LOSSES.get(loss.name) != CLASS_IDS or (
        loss.name == WITH_PROBABILITIES and target.form == PROBABILITIES
    )


def losses_in_words(
    training: TrainingConfig, source: Source, target: TargetInfo
) -> str:
    """Name the losses of a run, their outputs and what chose them; `target` is the first one of the data."""
    rows = training.losses or (
        OutputLoss(source.outputs[0] if source.outputs else "output", training.loss),
    )
    trained = " + ".join(map(_one, (row for row in rows if row.weight)))
    measured = ", ".join(map(_one, (row for row in rows if not row.weight)))
    sentence = f"loss: {trained}, chosen by {_chooser(training, rows, target)}"
    return f"{sentence}; {measured} is measured alone" if measured else sentence


def _one(row: OutputLoss) -> str:
    times = f"{row.weight:g} * " if row.weight not in (0, 1) else ""
    against = (
        " against the input"
        if row.target == INPUT
        else f" against {row.target}"
        if row.target
        else ""
    )
    output = "its output" if row.output == "output" else f"output {row.output}"
    return f"{times}{row.loss.name} of {output}{'' if row.loss.name == OWN_LOSS else against}"


def _chooser(
    training: TrainingConfig, rows: tuple[OutputLoss, ...], target: TargetInfo
) -> str:
    if training.loss_by == BY_MODEL and any(row.loss.name == OWN_LOSS for row in rows):
        return "the model, which computes it"
    if training.loss_by != BY_DATA:
        return "the settings"
    if any(row.target == INPUT for row in rows):
        return "default, as the output has the shape of the input"
    kinds = {
        VALUES: {
            BINARY: "labels of 0 and 1",
            PROBABILITIES: "probabilities of classes",
        }.get(target.form, "values"),
        TOKENS: "class labels of places",
    }
    labels = (
        "labels of two classes"
        if rows[0].loss.name in OF_ONE_OUTPUT
        else "class labels"
    )
    return f"default for {kinds.get(target.task, labels)}"
