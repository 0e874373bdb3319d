"""Read a pickle of plain values: dicts, lists, tuples, texts, numbers, truth values and None.

Nothing is imported or called: an operation that names a class or a function is refused, as is any other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from app.util.errors import CodedError

MOST_OPERATIONS = 60_000_000  # values of some 3 GB
MOST_TEXT = 1 << 30  # bytes of all texts
LONGEST_NUMBER = 16  # bytes

_NAMES_CODE = {
    b"c": "a class or function",
    b"\x93": "a class or function",
    b"R": "a call",
    b"i": "a class",
    b"o": "a class",
    b"b": "an object's state",
    b"\x81": "an object",
    b"\x92": "an object",
    b"P": "an object kept elsewhere",
    b"Q": "an object kept elsewhere",
    b"\x82": "a registered class",
    b"\x83": "a registered class",
    b"\x84": "a registered class",
}


class PlainPickleError(CodedError):
    """Raised for a file that is no pickle of plain values; the text says why, without its name."""


def read(file: BinaryIO, tell: Callable[[int], None] = lambda position: None) -> Any:
    """Return the value of a pickle; `tell` gets the position in the file now and then, and may raise.

    Raises PlainPickleError, also for a pickle of more than MOST_OPERATIONS, and OSError.
    """
    return _Reader(file).value(tell)


class _Reader:
    """The stack that a pickle's operations work on."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._text_left = MOST_TEXT
        self._operations: dict[bytes, Callable[[], None]] = {
            b"\x80": self._protocol,
            b"\x95": lambda: self._skip(8),  # how long a frame is
            b"(": lambda: self._marks.append(len(self._stack)),
            b"}": lambda: self._stack.append({}),
            b"]": lambda: self._stack.append([]),
            b")": lambda: self._stack.append(()),
            b"N": lambda: self._stack.append(None),
            b"\x88": lambda: self._stack.append(True),
            b"\x89": lambda: self._stack.append(False),
            b"J": lambda: self._stack.append(self._number("<i")),
            b"K": lambda: self._stack.append(self._number("<B")),
            b"M": lambda: self._stack.append(self._number("<H")),
            b"G": lambda: self._stack.append(self._number(">d")),
            b"\x8a": self._long,
            b"\x8c": lambda: self._text("<B"),
            b"X": lambda: self._text("<I"),
            b"\x8d": lambda: self._text("<Q"),
            b"t": lambda: self._stack.append(tuple(self._above_mark())),
            b"\x85": lambda: self._tuple(1),
            b"\x86": lambda: self._tuple(2),
            b"\x87": lambda: self._tuple(3),
            b"a": lambda: self._extend([self._pop()]),
            b"e": lambda: self._extend(self._above_mark()),
            b"s": lambda: self._set([self._pop(), self._pop()][::-1]),
            b"u": lambda: self._set(self._above_mark()),
            b"\x94": lambda: self._remember(len(self._memo)),
            b"q": lambda: self._remember(self._number("<B")),
            b"r": lambda: self._remember(self._number("<I")),
            b"h": lambda: self._recall(self._number("<B")),
            b"j": lambda: self._recall(self._number("<I")),
        }

    def value(self, tell: Callable[[int], None]) -> Any:
        """Carry out the operations to the end."""
        read, operations, count = self._file.read, self._operations, 0
        while (code := read(1)) != b".":
            operation = operations.get(code)
            if operation is None:
                raise PlainPickleError(_reason(code))
            operation()
            count += 1
            if count % 100_000 == 0:
                tell(self._file.tell())
                if count > MOST_OPERATIONS:
                    raise PlainPickleError(
                        "it is too large; record fewer events (max_entries)"
                    )
        if self._marks or len(self._stack) != 1:
            raise PlainPickleError("it is damaged")
        return self._pop()

    def _read(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise PlainPickleError("it ends too early")
        return data

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._read(struct.calcsize(layout)))[0]

    def _skip(self, count: int) -> None:
        self._read(count)

    def _protocol(self) -> None:
        if not 2 <= self._number("<B") <= 5:
            raise PlainPickleError("it is no pickle of a protocol between 2 and 5")

    def _long(self) -> None:
        size = self._number("<B")
        if size > LONGEST_NUMBER:
            raise PlainPickleError("it has a number that is too long")
        self._stack.append(int.from_bytes(self._read(size), "little", signed=True))

    def _text(self, layout: str) -> None:
        size = self._number(layout)
        self._text_left -= size
        if self._text_left < 0:
            raise PlainPickleError("its texts are too long")
        self._stack.append(self._read(size).decode("utf-8", "replace"))

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise PlainPickleError("it is damaged")
        return self._stack.pop()

    def _above_mark(self) -> list[Any]:
        if not self._marks:
            raise PlainPickleError("it is damaged")
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _tuple(self, size: int) -> None:
        self._stack.append(tuple([self._pop() for _ in range(size)][::-1]))

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise PlainPickleError("it is damaged")
        return self._stack[-1]

    def _extend(self, values: list[Any]) -> None:
        self._top(list).extend(values)

    def _set(self, values: list[Any]) -> None:
        keys = values[::2]
        if len(values) % 2 or not all(type(key) in (str, int) for key in keys):
            raise PlainPickleError("it is damaged")
        self._top(dict).update(zip(keys, values[1::2], strict=True))

    def _remember(self, number: int) -> None:
        if not self._stack:
            raise PlainPickleError("it is damaged")
        self._memo[number] = self._stack[-1]

    def _recall(self, number: int) -> None:
        if number not in self._memo:
            raise PlainPickleError("it is damaged")
        self._stack.append(self._memo[number])


def _reason(code: bytes) -> str:
    """Return why an operation is refused."""
    if not code:
        return "it ends too early"
    if code in _NAMES_CODE:
        return f"it holds {_NAMES_CODE[code]}, which a snapshot has not; nothing of it was run"
    return "it is no pickle of plain values"
