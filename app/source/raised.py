"""What an exception says to a person: one sentence, with the line of the person's own file that raised."""

from __future__ import annotations

import re
import traceback

from app.source import layer_files
from app.util import user_frames
from app.util.errors import CodedError

_BLOCK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+)', re.M)
_MEMORY = "OutOfMemoryError"
_NEEDED = re.compile(r"tried to allocate ([\d.,]+ ?\w+)", re.IGNORECASE)


def trace_of(error: BaseException) -> str:
    """Return the traceback of an exception: that of the engine where it was raised in one."""
    return getattr(error, "__traceback_text__", "") or "".join(
        traceback.format_exception(error)
    )


def place_of(error: BaseException) -> str:
    """Return the innermost line of the user's own files that an exception came through, such as "line 24 of net.py"; ""
    if there is none."""
    if kind_of(error) == _MEMORY:
        return ""  # it is where memory ended, by whoever's doing
    blocks = trace_of(error).split(_BLOCK)
    return next(filter(None, map(_place_in, reversed(blocks))), "")


def _place_in(block: str) -> str:
    locations = [
        f"line {line} of {layer_files.display_name(file)}"
        for file, line in _FRAME.findall(block)
        if layer_files.is_layer_file(file)
        or (user_frames.is_users(file) and "-packages" not in file)
    ]
    return locations[-1] if locations else ""


def shortage(text: str) -> str:
    """Return what the text of an error says of memory that ended, of whichever device: several sentences of torch's.

    >>> shortage("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.5 GiB.")
    'ran out of memory: 2.00 GiB more did not fit'
    """
    needed = _NEEDED.search(text)
    return "ran out of memory" + (f": {needed[1]} more did not fit" if needed else "")


def kind_of(error: BaseException) -> str:
    """Return the name of an exception's class, also of one that was raised in an engine."""
    return str(getattr(error, "kind", "")) or type(error).__name__


def is_ours(error: BaseException) -> bool:
    """Return whether the text of an exception was written by this program for a person."""
    return isinstance(error, CodedError) and not getattr(error, "kind", "")


def message_of(error: BaseException) -> str:
    """Return the text of an error of this program as it is, and the sentence of any other."""
    return (
        str(error).strip() or type(error).__name__
        if is_ours(error)
        else sentence(error)
    )


def sentence(error: BaseException) -> str:
    """Return what happened in one sentence, without a full stop: of an error of this program its own text, of any other
    its class, text and the line of the user's own file.

    >>> sentence(ValueError("no such row")), sentence(FileNotFoundError(2, "No such file or directory", "a.pt"))
    ('ValueError: no such row', 'a.pt: No such file or directory')
    """
    text = str(error).strip()
    if is_ours(error):
        return (text or type(error).__name__).removesuffix(".")
    if kind_of(error) == _MEMORY:
        return f"the computation {shortage(text)}; a smaller batch_size needs less, and cpu may have more"
    location = place_of(error)
    if isinstance(error, OSError) and error.strerror and not location:
        return (
            f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        )
    message = f"{kind_of(error)}: {text}".removesuffix(": ").removesuffix(".")
    return f"{message} ({location})" if location else message
