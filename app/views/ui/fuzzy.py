"""Fuzzy matching of typed letters against a text, shared by the palette, the outline and the command palette."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_WORD_START = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z0-9]|(?<=[a-z])[A-Z]|(?<=[A-Za-z])[0-9]"
)


def score(query: str, text: str) -> float | None:
    """Return how well `query` matches, higher is better; None if a word of it does not match.

    A contiguous match ranks above scattered letters, the start of a word above its middle.

    >>> score("conv", "Conv2d") > score("conv", "ConvTranspose2d") > score("cnv", "Conv2d")
    True
    >>> score("bn", "BatchNorm2d") is None, score("x", "ReLU") is None, score("", "ReLU")
    (False, True, 0.0)
    """
    total = 0.0
    for word in query.lower().split():
        word_score = _score_word(word, text)
        if word_score is None:
            return None
        total += word_score
    return total


def _score_word(word: str, text: str) -> float | None:
    lowered = text.lower()
    starts = {match.start() for match in _WORD_START.finditer(text)}
    shortness = len(word) / max(len(text), 1)
    at = lowered.find(word)
    if at >= 0:
        if at > 0 and at not in starts:  # the same letters may begin a later word
            at = next((i for i in sorted(starts) if lowered.startswith(word, i)), at)
        return (
            100.0
            + 20.0 * shortness
            + (30.0 if at == 0 else 15.0 if at in starts else 0.0)
        )
    points, position = 0.0, -1
    for letter in word:
        following = position + 1
        position = lowered.find(letter, following)
        if position < 0:
            return None
        points += 2.0 if position in starts else 1.0 if position == following else 0.25
    # Letters strewn about a long text fit nearly everything, so most of them must begin or continue something.
    if points < 0.75 * len(word):
        return None
    return 20.0 * points / (2.0 * len(word)) + 20.0 * shortness


def best(query: str, texts: Iterable[tuple[str, float]]) -> float | None:
    """Return the best score among several texts, each with a weight; None if none matches."""
    scores = [
        (fit * weight)
        for text, weight in texts
        if (fit := score(query, text)) is not None
    ]
    return max(scores, default=None)


def ranked(query: str, things: Iterable[T], text: Callable[[T], str]) -> list[T]:
    """Return the matching things, best first; ties, and all for an empty query, in the order given."""
    fits = [
        (fit, thing)
        for thing in things
        if (fit := score(query, text(thing))) is not None
    ]
    return [thing for _, thing in sorted(fits, key=lambda pair: -pair[0])]
