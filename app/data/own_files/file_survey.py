"""What is found out about a user's file before it is read, and the limits of what is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.data.spec import CLASSES, DataError, TargetInfo

# A net has one output per class, and each is counted; token ids are bounded by vocabulary sizes.
CLASSES_LIMIT = 100_000
VOCABULARY_LIMIT = 2**20


class FileSurvey(Struct, frozen=True):
    """How to read a file: plain arguments of its reader, and their meaning."""

    arguments: Mapping[str, Any]
    task: str = CLASSES
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    all_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    targets: tuple[TargetInfo, ...] = ()


def check_class_count(subject: str, count: int, samples: int) -> None:
    """Raise DataError for more classes than supported."""
    if count > CLASSES_LIMIT:
        raise DataError(
            f"{subject} has {count:,} different classes in {samples:,} samples; at most "
            f"{CLASSES_LIMIT:,} are supported. "
            "Choose another target, or read its numbers as values to predict (as floats)."
        )


def fits(size: int) -> bool:
    """Return whether a number of bytes fits into half of this machine's memory."""
    try:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on Windows
        return True
    return size <= room / 2
