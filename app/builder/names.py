"""Names in source: what a person typed made into identifiers that clash with nothing."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from functools import cache

# What the source itself uses.
SCAFFOLD = frozenset({"self", "torch", "nn", "F", "Net", "super", "forward"})


@cache
def module_attributes() -> frozenset[str]:
    """Names that `nn.Module` has already; a layer of that name would hide one of them."""
    from torch import nn

    return frozenset(dir(nn.Module())) | SCAFFOLD


def identifier(text: str, fallback: str = "layer") -> str:
    """The nearest identifier to a name.

    >>> identifier("conv 1"), identifier("3x3"), identifier("class"), identifier("größe"), identifier("'); import os")
    ('conv_1', '_3x3', 'class_', 'größe', 'import_os')
    """
    plain = unicodedata.normalize("NFKC", text)
    word = re.sub(r"_+", "_", re.sub(r"\W", "_", plain)).rstrip("_") if plain.strip("_") else ""
    word = word if plain.startswith("_") else word.lstrip("_")
    if word and not (word[0].isalpha() or word[0] == "_"):
        word = "_" + word
    if not word.isidentifier():
        word = re.sub(r"\W", "", word.encode("ascii", "ignore").decode()) or fallback
    if not word.isidentifier():
        word = fallback
    # Two leading underscores would be mangled inside a class.
    word = re.sub(r"^__+", "_", word)[:80]
    return word + "_" if keyword.iskeyword(word) else word


class Names:
    """Hands out identifiers, each once."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._reserved = reserved
        self._taken = set(reserved)
        self._next: dict[str, int] = {}

    def take(self, text: str, fallback: str = "layer") -> str:
        """The identifier nearest to `text` that is free: `conv`, `conv_2`, `conv_3`; `input_` for a reserved one."""
        stem = identifier(text, fallback)
        stem = stem + "_" if stem in self._reserved else stem
        name, number = stem, self._next.get(stem, 2)
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._next[stem] = number
        self._taken.add(name)
        return name

    def first_free(self, candidates: tuple[str, ...]) -> str:
        """The first candidate that is not taken, else the first; `take` numbers it then."""
        return next((name for name in candidates if name not in self._taken), candidates[0])


def reserved_variables() -> frozenset[str]:
    """Names that a variable of `forward` must not hide."""
    return SCAFFOLD | frozenset(dir(builtins))
