"""How well typed words match names: whole words first, then their starts and insides, misspellings, and initials last.

The palette, the outline, the gallery, the search box of the canvas and Ctrl+K share it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from rapidfuzz import process
from rapidfuzz.distance import OSA

T = TypeVar("T")

# What a word of the query is worth by how it matches; at most 1.
WHOLE, START, INSIDE, MISSPELT, INITIALS = 1.0, 0.8, 0.6, 0.4, 0.1
EXACT = 0.25  # beside it, where the whole query is the whole text; half of it where the text begins with it
SIMILAR = 0.75  # of the letters, for a misspelling
LEAST = 4  # letters of what may be misspelt
SENTENCE = 60  # letters above which a text is no name: nearly everything is somewhere inside it
# Words of questions, which name nothing.
FILLERS = frozenset(
    "a an and can do does for how i in is it me my of on or that the this to what where which why with".split()
)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[a-z]?")
_WORD_START = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z0-9]|(?<=[a-z])[A-Z]|(?<=[A-Za-z])[0-9]"
)


class _Text(NamedTuple):
    """A text as it is compared: its words, its letters and digits, and where words start in it."""

    words: frozenset[str]
    spaced: str  # the words, each after a space: to look through a text takes less than to loop over them
    letters: str
    lowered: str
    starts: frozenset[int]


@lru_cache(16384)
def _text(text: str) -> _Text:
    text = unicodedata.normalize("NFKC", text)  # such as R²
    tokens = {*re.findall(r"\w+", text), *re.findall(r"[^\W_]+", text)}
    parts = {part for token in tokens for part in _CAMEL.findall(token)}
    words = frozenset(word.lower() for word in tokens | parts)
    return _Text(
        words,
        "".join(f" {word}" for word in words),
        _letters(text),
        text.lower(),
        frozenset(match.start() for match in _WORD_START.finditer(text)),
    )


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def query_words(query: str) -> list[str]:
    """Return the words of a query; those of a question are left out where others remain, and arguments in brackets.

    >>> query_words("How do I use nn.Dropout(0.5)?"), query_words("what is this")
    (['use', 'nn', 'dropout'], ['what', 'is', 'this'])
    """
    words = re.findall(r"\w+", query.lower().partition("(")[0])
    return [word for word in words if word not in FILLERS] or words


def score(query: str, *fields: tuple[str, float], partly: bool = False) -> float | None:
    """Return how well a query matches texts, each with its weight; higher is better.

    Each word counts by the text that it matches best. None if one matches none, or, if it may match `partly`, half of
    them do not.

    >>> conv, transposed = score("conv", ("Conv2d", 1)), score("conv", ("ConvTranspose2d", 1))
    >>> conv > transposed > score("cnv", ("Conv2d", 1))
    True
    >>> score("bn", ("BatchNorm2d", 1)) > 0, score("x", ("ReLU", 1)), score("", ("ReLU", 1))
    (True, None, 0.0)
    """
    words = query_words(query)
    if not words:
        return None if query.strip() else 0.0
    return _score(words, fields, partly)


def _score(
    words: list[str], fields: Iterable[tuple[str, float]], partly: bool
) -> float | None:
    texts = list(fields)
    values = []
    for word in words:
        value = max((weight * _worth(word, text) for text, weight in texts), default=0)
        if not value and not partly:  # most things end here
            return None
        values.append(value)
    matched = len(words) - values.count(0)
    if matched < len(words) and 2 * matched <= len(words):
        return None
    letters = "".join(map(_letters, words))
    exact = max(weight * _likeness(letters, text) for text, weight in texts)
    shortness = min(len(letters) / max(len(_text(texts[0][0]).letters), 1), 1.0)
    return sum(values) / len(words) + EXACT * exact + 0.02 * shortness


def _likeness(letters: str, text: str) -> float:
    other = _text(text).letters
    return 1.0 if other == letters else 0.5 if other.startswith(letters) else 0.0


@lru_cache(65536)
def _worth(word: str, text: str) -> float:
    """Return what a word is worth in a text, 0 if it does not match."""
    against = _text(text)
    if word in against.words:
        return WHOLE
    if f" {word}" in against.spaced or against.letters.startswith(word):
        begun = [len(other) for other in against.words if other.startswith(word)]
        return START + 0.1 * len(word) / min(begun, default=len(against.letters))
    if len(text) > SENTENCE:
        return 0.0
    if len(word) > 1 and word in against.letters:
        return INSIDE
    if len(word) >= LEAST:
        closest = process.extractOne(
            word,
            against.words,
            scorer=OSA.normalized_similarity,
            score_cutoff=SIMILAR,
        )
        if closest is not None:
            return MISSPELT * closest[1]
    return _initials(word, against)


def _initials(word: str, against: _Text) -> float:
    """Return what letters are worth that are strewn about a text, most of which start or continue a word of it."""
    points, position = 0.0, -1
    for letter in word:
        following = position + 1
        position = against.lowered.find(letter, following)
        if position < 0:
            return 0.0
        if position in against.starts:
            points += 1.0
        else:
            points += 0.5 if position == following else 0.125
    # Letters strewn about a long text fit nearly everything.
    return INITIALS * points / len(word) if points >= 0.375 * len(word) else 0.0


def ranked(
    query: str,
    things: Iterable[T],
    fields: Callable[[T], Iterable[tuple[str, float]]],
    partly: bool = False,
) -> list[T]:
    """Return the matching things, best first; ties, and all for an empty query, in the order given.

    Where none matches all words, those are taken that match most of them, if it may be `partly`.
    """
    candidates = [(thing, tuple(fields(thing))) for thing in things]
    words = query_words(query)
    if not words:
        return [] if query.strip() else [thing for thing, _ in candidates]
    for some in (False, True) if partly else (False,):
        scores = [
            (value, thing)
            for thing, texts in candidates
            if (value := _score(words, texts, some)) is not None
        ]
        if scores:
            break
    return [thing for _, thing in sorted(scores, key=lambda pair: -pair[0])]
