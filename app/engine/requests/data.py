"""Requests about data: read them with a preview batch, the classes of a file, and downloads."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from app.data.config import DataConfig
from app.data.downloads.archives import Addresses
from app.data.own_files.cache import Fact
from app.data.spec import BatchPreview, DataError
from app.engine.protocol import Request
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class ReadProgress:
    """Progress of reading: `done` of `total`, and the name of the current item."""

    done: int
    total: int
    name: str


@dataclass(frozen=True)
class Read:
    """A batch, or the error, with the facts about a user's files."""

    preview: BatchPreview | None
    error: DataError | None
    fact: Fact | None


@dataclass(frozen=True)
class ReadData(Request[Read]):
    """Read data and return a preview of the first batch of a run with these settings; progress is ReadProgress."""

    lane: ClassVar[str] = "data"
    config: DataConfig
    root: Path
    batch: int
    seed: int = 0
    one_batch: bool = False


@dataclass(frozen=True)
class FindAddresses(Request[Addresses]):
    """Look up in torchvision the addresses and checksums of a source's archives."""

    lane: ClassVar[str] = "data"
    source: str


@dataclass(frozen=True)
class FindDatasetClasses(Request[tuple[str, ...]]):
    """List the Dataset classes of a Python file, without running it. Raises DataError for a file that is unreadable."""

    lane: ClassVar[str] = "data files"
    path: Path
