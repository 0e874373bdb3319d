"""A language that nobody speaks, made on the fly: with accents, two fifths longer, from right to left if wanted.

What its sentences are cut off at, German or Finnish would be cut off at too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from app.util import language

LONGER = 0.4  # of the English text
ACCENTS = str.maketrans("aeiouyAEIOUcnsz", "áéíóúýÁÉÍÓÚçñšž")
FILLER = "lörém ípšúm "
KEPT = re.compile(r"(\{[^{}]*\}|`[^`]*`)")  # values, and code
RIGHT_TO_LEFT = "\N{RIGHT-TO-LEFT EMBEDDING}{}\N{POP DIRECTIONAL FORMATTING}"


def pseudo(sentence: str, right_to_left: bool = False) -> str:
    """Return a sentence in this language."""
    parts = KEPT.split(sentence)
    parts[::2] = [part.translate(ACCENTS) for part in parts[::2]]
    size = round(LONGER * len(sentence)) + 1
    text = f"{''.join(parts)} {(FILLER * size)[:size].strip()}"
    return RIGHT_TO_LEFT.format(text) if right_to_left else text


class PseudoForms(Mapping[str, tuple[str, ...]]):
    """The forms of every sentence that is asked for; those are counted."""

    def __init__(self, right_to_left: bool) -> None:
        self._right_to_left = right_to_left
        self.asked: set[str] = set()

    def __getitem__(self, sentence: str) -> tuple[str, ...]:
        if not sentence:
            raise KeyError(sentence)
        self.asked.add(sentence)
        return (pseudo(sentence, self._right_to_left),)

    def __iter__(self) -> Iterator[str]:
        return iter(self.asked)

    def __len__(self) -> int:
        return len(self.asked)


def speak_pseudo(
    monkeypatch: pytest.MonkeyPatch, right_to_left: bool = False
) -> PseudoForms:
    """Have this process speak the language until the end of the test; return what it was asked to say."""
    forms = PseudoForms(right_to_left)
    made = language.Catalogue(forms, lambda _number: 0)
    monkeypatch.setattr(language, "catalogue", lambda: made)
    return forms
