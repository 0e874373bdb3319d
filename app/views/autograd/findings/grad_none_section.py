"""Inspector sections of the diagnostics: why .grad is None, and what a special node does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from app.autograd.grouping import LayerGroup
from app.autograd.tape import Tape, TapeNode
from app.util.formatting import significant
from app.util.language import tr
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.section import Section

if TYPE_CHECKING:
    from app.autograd.diagnostics.results import GradAnswer

_TONES = {
    "flows": "run",
    "none": "warn",
    "zero": "warn",
    "cancelled": "text2",
    "not finite": "error",
}


def layer_of(tape: Tape, item: TapeNode | LayerGroup) -> str:
    """Return the path of the innermost module around all of an item's operations; "" for the net and the loss."""
    if isinstance(item, TapeNode):
        return item.layer
    common: list[str] | None = None
    for number in item.nodes:
        node = tape.nodes[number]
        if node.is_leaf:
            continue
        if node.in_loss:
            return ""
        parts = node.layer.split(".") if node.layer else []
        if common is None:
            common = parts
        same = next(
            (
                at
                for at, pair in enumerate(zip(common, parts, strict=False))
                if pair[0] != pair[1]
            ),
            min(len(common), len(parts)),
        )
        common = common[:same]
    return ".".join(common or [])


def why_section(
    answers: Iterable[GradAnswer] | None, ask: Callable[[], None], title: str
) -> Section:
    """Return a section with the answers, or with a button that requests them if `answers` is None."""
    section = Section(title)
    if answers is None:
        every = "parameter" in title.lower()
        button = Button(
            tr("Which parameters get no gradient?")
            if every
            else tr("Does a gradient arrive?")
        )
        button.setObjectName("why")
        button.clicked.connect(ask)
        section.body_layout.addWidget(button)
        section.body_layout.addWidget(
            _small(
                tr(
                    "Follows the gradient from the loss to each parameter, on this batch."
                )
            )
        )
        return section
    for answer in answers:
        norm = "None" if answer.norm is None else f"norm {significant(answer.norm, 3)}"
        tone = _TONES.get(answer.state, "")
        section.body_layout.addWidget(
            FittingLabel(f"{answer.parameter}.grad: {norm}", "formula", tone)
        )
        section.body_layout.addWidget(_wrapped(answer.sentence))
        if answer.cure:
            section.body_layout.addWidget(_small(answer.cure))
        if answer.place is not None and answer.place.code and answer.state != "flows":
            line = f"{answer.place.line}  {answer.place.code}"
            section.body_layout.addWidget(
                FittingLabel(line, "formula", "text2", at_right=True)
            )
    return section


def notes_section(notes: tuple[str, ...]) -> Section:
    """Return a section for special nodes: checkpointing, autocast, compiled regions, double backward."""
    section = Section("Explanation")
    for note in notes:
        section.body_layout.addWidget(_wrapped(note))
    return section


def _wrapped(text: str) -> QWidget:
    result = label(text, "label", "text2", wrap=True)
    result.setMinimumWidth(1)
    return result


def _small(text: str) -> QWidget:
    result = label(text, "caption", "text3", wrap=True)
    result.setMinimumWidth(1)
    return result
