"""Messages over the two pipes between processes: a length of eight bytes, then msgpack."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from typing import IO, Generic, TypeVar

import msgspec

from app.engine.protocol import Message
from app.util.errors import CodedError

M = TypeVar("M", bound=Message)

_LENGTH = struct.Struct("<Q")
LONGEST = 1 << 31


class ChannelError(CodedError):
    """What arrived, or was to be sent, is not a message of this protocol."""


class Channel(Generic[M]):
    """Both directions. `send` is thread-safe, `messages` is for one thread; `incoming` are the accepted messages, in
    messages of `longest` bytes at most.
    """

    def __init__(
        self,
        reads: IO[bytes],
        writes: IO[bytes],
        incoming: type[M],
        longest: int = LONGEST,
    ) -> None:
        self._reads, self._writes, self._longest = reads, writes, longest
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message. Raises OSError or ValueError if the other end is closed, and ChannelError for a message that
        cannot be encoded."""
        try:
            data = msgspec.msgpack.encode(message)
        except (TypeError, ValueError, OverflowError) as error:
            raise ChannelError(f"A message cannot be sent: {error}") from error
        with self._sending:
            self._writes.write(_LENGTH.pack(len(data)) + data)
            self._writes.flush()

    def messages(self) -> Iterator[M]:
        """Yield messages until the other end closes. Raises ChannelError."""
        while len(head := self._reads.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            if length > self._longest:
                raise ChannelError(f"a message of {length:,} bytes")
            data = self._reads.read(length)
            if len(data) < length:
                return
            try:
                yield self._decoder.decode(data)
            except msgspec.DecodeError as error:
                raise ChannelError(str(error)) from error

    def close(self) -> None:
        """Close the writing end, so that the other process reads the end of the stream."""
        with self._sending:
            try:
                self._writes.close()
            except OSError:
                # The other end closed amid a message: its rest is never read.
                return


def take_standard_streams(incoming: type[M]) -> Channel[M]:
    """Return a channel over this process's stdin and stdout; later prints go to stderr."""
    reads, writes = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return Channel(os.fdopen(reads, "rb"), os.fdopen(writes, "wb"), incoming)
