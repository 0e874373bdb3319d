"""Review of a file before it may run: its imports, the diff to the trusted version, deceptive characters."""

from __future__ import annotations

import ast
import difflib
import unicodedata
import warnings

_LONGEST_COMPARED = 20_000  # lines
# Letters that turn the direction of writing round, or take no room: the text is read otherwise than it runs.
_HIDDEN = frozenset(
    "\u200b\u200c\u200d\u2060\u00ad\ufeff\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2066\u2067\u2068\u2069"
)


def imports(text: str) -> tuple[str, ...]:
    """List the top-level packages that a text imports, in order; () if it is no valid Python.

    >>> imports("import os.path\\nfrom torch import nn")
    ('os', 'torch')
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    packages: dict[str, None] = {}
    for node in ast.walk(tree):
        names = (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        )
        if isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        for name in names:
            packages[name if name.startswith(".") else name.partition(".")[0]] = None
    return tuple(packages)


def hidden_letters(text: str) -> tuple[tuple[int, str], ...]:
    """List lines (1-based) with a deceptive character, and its name; the first of each line.

    >>> hidden_letters("a = 1\\nb\\u202e = 2")
    ((2, 'RIGHT-TO-LEFT OVERRIDE'),)
    """
    hidden = []
    for number, line in enumerate(text.split("\n"), 1):
        letter = next((letter for letter in line if letter in _HIDDEN), None)
        if letter is not None:
            hidden.append((number, unicodedata.name(letter, "an invisible character")))
    return tuple(hidden)


def difference(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of a unified diff, without file names; () for equal texts.

    >>> difference("a\\nb", "a\\nc")
    ('@@ -1,2 +1,2 @@', ' a', '-b', '+c')
    """
    old, new = before.split("\n"), after.split("\n")
    if max(len(old), len(new)) > _LONGEST_COMPARED:
        return (
            ()
            if before == after
            else ("@@ the whole file @@", *(f"+{line}" for line in new))
        )
    return tuple(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
