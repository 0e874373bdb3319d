"""Store of trusted layer files, by hash of their text, so that every edit requires consent again."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from app.source import layer_files
from app.source.layer_files import LayerFile
from app.util import atomic

FILE = "trusted.json"
MOST = 500
# Limits of texts that are stored to show what an edit changed.
LONGEST_KEPT, MOST_KEPT = 200_000, 50


class TrustRecord(msgspec.Struct, frozen=True):
    """One trusted text: the file's path, and when it was trusted (UTC).

    `tried` means that it was imported successfully here. `text` is stored for the newest files only.
    """

    sha256: str
    path: str = ""
    when: str = ""
    tried: bool = False
    text: str = ""


def default_file() -> Path:
    """Return the store's path, next to the settings."""
    if sys.platform == "win32":
        home = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    else:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "Tapedeck" / FILE


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

    def before(self, path: str | Path) -> TrustRecord | None:
        """Return the last trusted version of the file at a path, to show changes; None if there is none with a text."""
        found = [entry for entry in self._entries.values() if entry.path == str(path) and entry.text]
        return found[-1] if found else None

    def trust(self, file: LayerFile) -> None:
        """Allow this text to run, persistently. Raises OSError if that cannot be saved."""
        layer_files.allow(file.sha256)
        text = file.text if len(file.text) <= LONGEST_KEPT else ""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        kept = self._read()
        kept.pop(file.sha256, None)  # the newest comes last
        self._keep({**kept, file.sha256: TrustRecord(file.sha256, file.path, when, False, text)})

    def revoke(self, sha256: str) -> None:
        """Require consent again. Raises OSError if that cannot be saved."""
        layer_files.disallow(sha256)
        self._keep({key: entry for key, entry in self._read().items() if key != sha256})

    def mark_tried(self, sha256: str) -> None:
        """Mark its first import as completed, so that it is not tried in a separate process again. Raises OSError."""
        known = self._entries.get(sha256)
        if known is not None and not known.tried and sha256 in (kept := self._read()):
            self._keep({**kept, sha256: msgspec.structs.replace(known, tried=True)})

    def _keep(self, kept: dict[str, TrustRecord]) -> None:
        newest = list(kept.values())[-MOST:]
        for number, entry in enumerate(newest[:-MOST_KEPT]):
            newest[number] = msgspec.structs.replace(entry, text="")
        self._entries = {entry.sha256: entry for entry in newest}
        self._write(newest)

    def _read(self) -> dict[str, TrustRecord]:
        try:
            entries = msgspec.json.decode(self.file.read_bytes(), type=list[TrustRecord])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        return {entry.sha256: entry for entry in entries}

    def _write(self, entries: list[TrustRecord]) -> None:
        """Whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(entries), indent=1)
        atomic.write_bytes(self.file, data)
