"""The outcome of a surgery as text."""

from __future__ import annotations

from app.training.surgery.values import Fate, Outcome

_UNSAID = ("kept", "new")
SAID = 6  # layers that are named


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
