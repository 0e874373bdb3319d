"""What a failed guard of compiled code says, from its text alone. Without torch."""

from __future__ import annotations

import re

from msgspec import Struct

_NUMBER = re.compile(r"^\d+/[\d_]+: ")
_TENSOR = re.compile(
    r"tensor '(?P<name>.*)' (?P<what>.*?)(?P<index> at index \d+)?\.? expected (?P<was>.*?),? actual (?P<now>.*)"
)
_AT = re.compile(r"# (?:.*# )?(\S+):(\d+) in ")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_CHILD = re.compile(r"_modules\['([^']+)'\]|_modules\[\"([^\"]+)\"\]")
_VALUE = "___stack"  # how dynamo names what a graph break has left


class FailedGuard(Struct, frozen=True):
    """`text` is the guard, `was` what it held for and `now` what was met, "" if that is not known. `locations` are file
    and line from the outermost call inwards, `children` the modules on the way from the frame's own."""

    text: str
    was: str
    now: str
    locations: tuple[tuple[str, int], ...]
    children: tuple[str, ...]


def read(reason: str) -> FailedGuard:
    """Parse a reason of torch's log; of a guard that is not about a tensor `was` is the guard as Python.

    >>> read("0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5").was
    '4'
    """
    line, _, stack = _NUMBER.sub("", reason).partition("\n")
    text, _, comment = line.partition("  # ")
    text = text.strip()
    at = _AT.search(f"# {comment}")
    locations = [(file, int(number)) for file, number in _FRAME.findall(stack)]
    if not locations and at is not None:
        locations = [(at[1], int(at[2]))]
    children = tuple(first or second for first, second in _CHILD.findall(text))
    if tensor := _TENSOR.match(text):
        name = f"{plain(tensor['name'])}{tensor['index'] or ''}: {tensor['what']}"
        was, now = tensor["was"], tensor["now"].rstrip(".")
    else:
        name, was, now = plain(text), text, ""
    return FailedGuard(name, was, now, tuple(locations), children)


def plain(text: str) -> str:
    """Return a guard without dynamo's own names: `L['x']` is x, `_modules['fc']` is fc.

    >>> plain("L['self']._modules['c']._modules['0'].calls == 0")
    'self.c[0].calls == 0'
    """
    text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text)
    text = re.sub(r"\._modules\['(\d+)'\]", r"[\1]", text)
    text = re.sub(r"\._modules\['(\w+)'\]", r".\1", text)
    return re.sub(rf"{_VALUE}\d+", "the value of a graph break", text)
