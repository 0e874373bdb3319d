"""Store of trusted code: layer files by their text, models by the places and texts of all files that they run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from app.source import layer_files
from app.source.layer_files import LayerFile
from app.source.own_files import OwnFiles
from app.util import atomic, user_folders

FILE = "trusted.json"
MOST = 500
# Limits of texts that are stored to show what an edit changed.
LONGEST_KEPT, MOST_KEPT = 200_000, 50


class TrustRecord(Struct, frozen=True):
    """What was trusted at once: the hash that `layer_files.allow` takes, the path of the file, and when (UTC).

    `tried` means that it was imported successfully here. `texts` are those that were shown, by path, and stored for the
    newest only.
    """

    sha256: str
    path: str = ""
    when: str = ""
    tried: bool = False
    texts: dict[str, str] = {}


class _Stored(Struct):
    """The whole file. Format 1 was a list of hashes of single texts, whose files could import any others: of it nothing
    is trusted."""

    trusted: list[TrustRecord]
    format: Literal[2] = 2


def default_file() -> Path:
    """Return the store's path, next to the settings."""
    return user_folders.config() / FILE


class TrustStore:
    """The store in one file. If the file is damaged, only its valid entries are trusted.

    Several windows may use it: it is re-read before each write.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._entries = self._read()

    def admit(self) -> None:
        """Let everything that is trusted run in this process."""
        for entry in self._entries.values():
            layer_files.allow(entry.sha256, entry.tried)

    def is_trusted(self, sha256: str) -> bool:
        return sha256 in self._entries

    def entry(self, sha256: str) -> TrustRecord | None:
        return self._entries.get(sha256)

    def before(self, path: str | Path) -> str | None:
        """Return the last trusted text of the file at a path, to show changes; None without any."""
        text_sets = (entry.texts for entry in reversed(self._entries.values()))
        return next(
            (texts[str(path)] for texts in text_sets if str(path) in texts), None
        )

    def trust(self, file: LayerFile | OwnFiles) -> None:
        """Allow a text, or all files of a model, to run, persistently. Raises OSError if that cannot be saved."""
        if isinstance(file, OwnFiles):
            sha256, path, texts = (
                file.key,
                file.entry.path,
                {user_file.path: user_file.reviewed_text for user_file in file.files},
            )
        else:
            sha256, path, texts = file.sha256, file.path, {file.path: file.text}
        layer_files.allow(sha256)
        if sum(map(len, texts.values())) > LONGEST_KEPT:
            texts = {}
        when = datetime.now(UTC).isoformat(timespec="seconds")
        entries = self._read()
        entries.pop(sha256, None)  # the newest comes last
        self._keep({**entries, sha256: TrustRecord(sha256, path, when, False, texts)})

    def revoke(self, sha256: str) -> None:
        """Require consent again. Raises OSError if that cannot be saved."""
        layer_files.disallow(sha256)
        self._keep({key: entry for key, entry in self._read().items() if key != sha256})

    def mark_tried(self, sha256: str) -> None:
        """Mark its first import as completed, so that it is not tried in a separate process again. Raises OSError."""
        record = self._entries.get(sha256)
        if (
            record is not None
            and not record.tried
            and sha256 in (stored := self._read())
        ):
            self._keep({**stored, sha256: msgspec.structs.replace(record, tried=True)})

    def _keep(self, records: dict[str, TrustRecord]) -> None:
        newest = list(records.values())[-MOST:]
        for number, entry in enumerate(newest[:-MOST_KEPT]):
            newest[number] = msgspec.structs.replace(entry, texts={})
        self._entries = {entry.sha256: entry for entry in newest}
        self._write(newest)

    def _read(self) -> dict[str, TrustRecord]:
        try:
            entries = msgspec.json.decode(self.file.read_bytes(), type=_Stored).trusted
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        return {entry.sha256: entry for entry in entries}

    def _write(self, entries: list[TrustRecord]) -> None:
        """Whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(_Stored(entries)), indent=1)
        atomic.write_bytes(self.file, data)
