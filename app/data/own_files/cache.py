"""Cache of the user's files, valid until they are modified.

A lookup is quick (a stat for each file or folder); reading is done by `app.data.loaders`, in an engine, which sends its
result to the window as a Fact.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

from msgspec import Struct

from app.data.config import DataConfig
from app.data.spec import DataError, SourceSpec
from app.util.lru import LruCache

_facts: LruCache[SourceSpec | DataError] = LruCache(32)


def key_of(config: DataConfig) -> Hashable:
    """Return the cache key: options and modification state of the files."""
    more = str(config.options.get("labels_file", ""))
    return (
        config.source,
        config.path,
        config.options,
        _stamp(config.path),
        more and _stamp(more),
    )


def recall(config: DataConfig) -> SourceSpec | DataError | None:
    """Return the cached result or error for the current files; None if not cached."""
    return _facts.get(key_of(config))


def remember(key: Hashable, outcome: SourceSpec | DataError) -> None:
    _facts.put(key, outcome)


class Fact(Struct, frozen=True):
    """A cache entry to send to another process."""

    key: Hashable
    found: SourceSpec | DataError


def fact(config: DataConfig) -> Fact | None:
    """Return the cache entry for a config's files in their current state."""
    key = key_of(config)
    outcome = _facts.get(key)
    return Fact(key, outcome) if outcome is not None else None


def learn(fact: Fact | None) -> None:
    """Store a cache entry of another process."""
    if fact is not None:
        remember(fact.key, fact.found)


def _stamp(path: str) -> Hashable:
    """Return the modification times of a file, or of a folder and its subfolders; None if absent."""
    try:
        if not os.path.isdir(path):
            stat = Path(path).stat()
            return stat.st_mtime_ns, stat.st_size
        with os.scandir(path) as entries:
            inside = sorted(
                (entry.name, entry.stat().st_mtime_ns)
                for entry in entries
                if entry.is_dir()
            )
        return os.stat(path).st_mtime_ns, tuple(inside)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None
