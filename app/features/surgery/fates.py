"""What becomes of each layer in a surgery, as rows of a table and as a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.training.surgery.values import Fate, Outcome
from app.util.columns import Column
from app.util.formatting import figure, plural, significant

PRESERVED = 1e-6  # relative: what rounding makes of an equal function in float32
WORDS = {
    "kept": "Kept",
    "changed": "Settings changed",
    "widened": "Widened",
    "narrowed": "Narrowed",
    "resized": "Resized",
    "copied": "Copied",
    "tied": "Tied",
    "identity": "New, identity",
    "zero": "New, zero",
    "initialised": "Initialised",
    "new": "New, no weights",
    "removed": "Removed",
    "frozen": "Frozen",
    "unfrozen": "Unfrozen",
}
MEANINGS = {
    "kept": "Weights and optimizer moments unchanged.",
    "widened": "Old units stay; the outputs of new ones are multiplied by zero weights at first.",
    "identity": "Initialised as the identity: the function is unchanged.",
    "zero": "Initialised with zeros, so the sum that it is added to is unchanged.",
    "initialised": "Random weights, by the default initialisation of PyTorch.",
    "removed": "Its weights and moments are discarded.",
}
COLORS = {
    "removed": "error",
    "initialised": "warn",
    "narrowed": "warn",
    "resized": "warn",
    "kept": "text3",
}


def layer_of(fate: Fate) -> str:
    """Return the path of a layer, or both if it was moved.

    >>> layer_of(Fate("conv1", "stem.conv1", "kept")), layer_of(Fate("", "fc3", "identity"))
    ('conv1 → stem.conv1', 'fc3')
    """
    if fate.before and fate.after and fate.before != fate.after:
        return f"{fate.before} → {fate.after}"
    return fate.after or fate.before


def why(fate: Fate) -> str:
    """Return the reason for what becomes of a layer, else what it means."""
    meaning = MEANINGS.get(fate.what, "")
    return (
        f"{fate.reason} {meaning}"
        if fate.what == "widened" and fate.reason
        else fate.reason or meaning
    )


def _quiet(fate: Fate) -> str:
    return "text3" if fate.what == "kept" else ""


LAYERS = (
    Column("Layer", layer_of, color=_quiet),
    Column(
        "What happens",
        lambda fate: WORDS.get(fate.what, fate.what),
        color=lambda fate: COLORS.get(fate.what, "text"),
    ),
    Column("Why", why, color=_quiet),
)


def summary(fates: Sequence[Fate]) -> str:
    """Return how many layers there are of each kind.

    >>> summary([Fate("a", "a", "kept"), Fate("b", "b", "kept"), Fate("", "c", "identity")])
    '2 layers keep their weights and moments. New, identity: 1.'
    """
    counts = Counter(fate.what for fate in fates)
    preserved = counts.pop("kept", 0)
    first = (
        f"{preserved} {plural(preserved, 'layer')} "
        f"{'keeps its' if preserved == 1 else 'keep their'} weights and moments."
    )
    others = ", ".join(
        f"{WORDS.get(fate_name, fate_name)}: {count}"
        for fate_name, count in counts.items()
    )
    return f"{first} {others}." if others else first


def function_words(outcome: Outcome, where: str) -> str:
    """Return whether the function is preserved, by what was measured `where`.

    >>> function_words(Outcome((), 0.25), "on random inputs")
    'The function changes: outputs differ by 25.0 % of the largest on random inputs, in eval mode.'
    >>> function_words(Outcome((), 0.0), "on random inputs")
    'The function is preserved: outputs are equal on random inputs, in eval mode.'
    """
    difference = outcome.difference
    if difference is None:
        return f"Whether the function is preserved was not measured. {outcome.note}".strip()
    if difference <= PRESERVED:
        comparison = (
            "outputs are equal"
            if not difference
            else f"outputs differ by {significant(difference, 1)} of the largest"
        )
        return f"The function is preserved: {comparison} {where}, in eval mode."
    return f"The function changes: outputs differ by {figure(100 * difference)} % of the largest {where}, in eval mode."
