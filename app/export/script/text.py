"""Values as a person would write them in Python."""

from __future__ import annotations


def quoted(text: str) -> str:
    """A string literal in double quotes where that needs no escape.

    >>> print(quoted("data"), quoted('a"b'))
    "data" 'a"b'
    """
    plain = text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}
    return f'"{text}"' if plain else repr(text)
