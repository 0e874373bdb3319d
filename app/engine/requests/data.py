"""Requests about data: read them with a preview batch, the classes of a file, and downloads."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.data.archives import Addresses
from app.data.config import DataConfig
from app.data.own_files.cache import Fact
from app.data.spec import BatchPreview, DataError
from app.engine.protocol import Request


class ReadProgress(Struct, frozen=True):
    """Progress of reading: `done` of `total`, and the name of the current item."""

    done: int
    total: int
    name: str


class Read(Struct, frozen=True):
    """A batch, or the error, with the facts about a user's files."""

    preview: BatchPreview | None
    error: DataError | None
    fact: Fact | None


class ReadData(Request[Read], frozen=True):
    """Read data and return a preview of the first batch of a run with these settings; progress is ReadProgress."""

    lane: ClassVar[str] = "data"
    config: DataConfig
    root: Path
    batch: int
    seed: int = 0
    one_batch: bool = False


class FindAddresses(Request[Addresses], frozen=True):
    """Look up in torchvision the addresses and checksums of a source's archives."""

    lane: ClassVar[str] = "data"
    source: str


class FindDatasetClasses(Request[tuple[str, ...]], frozen=True):
    """List the Dataset classes of a Python file, without running it. Raises DataError for a file that is unreadable."""

    lane: ClassVar[str] = "data files"
    path: Path
