"""The lines of an exported script for a net whose outputs have losses of their own; see `app.training.objectives`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pprint import pformat
from typing import Any

from app.data.spec import SourceSpec
from app.training.config import INPUT, OutputLoss
from app.training.job import Job
from app.training.objectives import Row, forms, rows_of, wants_input
from app.training.registry import loss_call
from app.training.setup.class_weights import takes_weights


@dataclass(frozen=True)
class Several:
    """What a script is made of: the losses with what they compare with, the first of them first."""

    job: Job
    spec: SourceSpec
    rows: tuple[Row, ...]

    @property
    def chief(self) -> OutputLoss:
        return self.rows[0].given

    @property
    def label(self) -> str:
        """The labels of the first loss in a batch, as an expression; those of an only target have no name."""
        return self.labels(self.rows[0], "labels[batch]")

    def labels(self, row: Row, of: str = "labels") -> str:
        """The labels that a loss compares with, as an expression."""
        return f'{of}["{row.target}"]' if self.spec.targets else of

    @property
    def answer(self) -> str:
        """The first loss's output, as an expression."""
        return f'named(output, FORMS)["{self.chief.output}"]'

    def target(self, inputs: str) -> str:
        """What the losses compare with; `inputs` is the expression of what went into the net."""
        if not wants_input(self.job.training):
            return "labels[batch]"
        return f'with_input(labels[batch], "{INPUT}", {inputs})'

    def loss(self) -> str:
        """The expression that makes the losses."""
        rows = [
            f"            ({row.given.output!r}, {row.target!r}, {_flat(loss_call(row.given.loss))}, "
            f"{row.given.weight!r}, {row.hot}, {row.turned}),"
            for row in self.rows
        ]
        return "\n".join(["SeveralLosses(", "        FORMS,", "        [", *rows, "        ],", "    )"])

    def chief_spec(self) -> SourceSpec:
        """What is known of the data, said of the first loss's target."""
        task = self.rows[0].task
        target = next((one for one in self.spec.known_targets if one.name == self.rows[0].target), None)
        classes = target.classes if target is not None else ()
        shape = target.label_shape if target is not None else self.spec.shape
        return replace(self.spec, task=task.kind, classes=classes, label_shape=shape)


def several(job: Job, spec: SourceSpec) -> Several | None:
    """None for a run with one loss. Raises JobError."""
    return Several(job, spec, rows_of(job, spec.known_targets, spec.shape, spec.label)) if job.training.losses else None


def _flat(call: str) -> str:
    """A call on one line."""
    return " ".join(call.split()).replace("( ", "(").replace(", )", ")").replace(",)", ")")


def constants(job: Job) -> str:
    """What the net gives in either mode."""
    if not job.training.losses:
        return ""
    return f"FORMS = {pformat(list(forms(job.source)), width=110, sort_dicts=False)}\n"


def balance(job: Job, spec: SourceSpec) -> str:
    """The lines that weigh rare classes as much as common ones in the loss, "" if that is not asked for."""
    if not job.data.class_weights:
        return ""
    own = several(job, spec)
    if own is None:
        return _balanced("loss_function", "labels", len(spec.classes))
    lines = [
        _balanced(f"loss_function.losses[{number}]", own.labels(row), row.task.classes)
        for number, row in enumerate(own.rows) if takes_weights(row.given.loss)
    ]  # fmt: skip
    return "\n    ".join(lines)


def _balanced(loss: str, labels: str, classes: int) -> str:
    return f"{loss}.weight = balanced_weights(torch.bincount({labels}.flatten(), minlength={classes}))"


def helpers(job: Job, spec: SourceSpec) -> str:
    """The classes and functions that the lines call."""
    from app.data import targets
    from app.training import multi_output as losses
    from app.training import script_recipes

    wanted: list[Any] = []
    if spec.targets or wants_input(job.training):
        wanted.append(targets.Targets)
    if wants_input(job.training):
        wanted.append(targets.with_input)
    if job.training.losses:
        wanted += [losses.named, script_recipes.mixed_loss, losses.SeveralLosses]
    return "".join(f"\n\n\n{inspect.getsource(one).rstrip()}" for one in wanted)


def imports(job: Job, spec: SourceSpec) -> str:
    """What they want of the standard library."""
    names = {"Mapping"} if spec.targets or job.training.losses else set()
    names |= {"Callable", "Sequence"} if job.training.losses else set()
    if not names:
        return ""
    return f"from collections.abc import {', '.join(sorted(names))}\nfrom typing import Any\n"
