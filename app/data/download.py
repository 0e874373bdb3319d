"""Download datasets on request: retry on the next mirror, progress, checksums, cancelling, atomic files."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec.structs import replace

from app.data.archives import COLLECTIONS, GZIP, TAR, Addresses, Archive
from app.data.sources import DataError
from app.util.user_folders import default_root

CHUNK = 1 << 16
TIMEOUT = 30.0

Progress = Callable[[int, int, str], None]
Cancelled = Callable[[], bool]


class DownloadError(DataError):
    """Raised if no mirror delivered an intact file."""


class DownloadCancelledError(DataError):
    def __init__(self) -> None:
        super().__init__("The download was cancelled. The unfinished file was removed.")


class ChecksumMismatchError(DataError):
    def __init__(self, name: str, expected: str, found: str) -> None:
        super().__init__(f"{name} is damaged: its MD5 is {found}, not {expected}")


def download(
    source: str,
    addresses: Addresses,
    root: str | Path | None = None,
    progress: Progress = lambda done, total, name: None,
    cancelled: Cancelled = lambda: False,
) -> Path:
    """Download `source` from `addresses` into `root` and return the folder; existing files are kept.

    `progress(done, total, name)` gets bytes and the name of the current file; `cancelled()` is checked after every 64
    kB. Raises DownloadCancelledError, or DownloadError with the error of each mirror.
    """
    folder = Path(root or default_root())
    target = folder / COLLECTIONS[source].folder
    fetch(addresses.archives, addresses.mirrors, target, progress, cancelled)
    return folder


def unpack_from(
    folder: Path,
    source: str,
    addresses: Addresses,
    root: str | Path | None = None,
    progress: Progress = lambda done, total, name: None,
    cancelled: Cancelled = lambda: False,
) -> Path:
    """Take the archives of `source` from a folder of the user's, as `download` does from a server."""
    names = [archive.name for archive in addresses.archives]
    for name in names:
        if not (folder / name).is_file():
            raise DownloadError(
                f"{folder} has no {name}. Choose the folder with {', '.join(names)}, as they are downloaded."
            )
    here = replace(addresses, mirrors=(f"{folder.resolve().as_uri()}/",))
    return download(source, here, root, progress, cancelled)


def fetch(
    archives: Sequence[Archive],
    mirrors: Sequence[str],
    folder: Path,
    progress: Progress,
    cancelled: Cancelled,
) -> None:
    """Download, verify and unpack every archive into `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadError(
            f"{folder} cannot be created: {error.strerror}. Choose another folder."
        ) from error
    meter = _Meter(archives, progress)
    for archive in archives:
        if not all((folder / file).is_file() for file in archive.files):
            _fetch_one(archive, mirrors, folder, meter, cancelled)
        meter.finish(archive)


class _Meter:
    """Bytes done and expected over all files. A size reported by the server replaces the expected one."""

    def __init__(self, archives: Sequence[Archive], progress: Progress) -> None:
        self._sizes = {archive.name: archive.size for archive in archives}
        self._done = dict.fromkeys(self._sizes, 0)
        self._progress = progress

    def expect(self, archive: Archive, size: int | None) -> None:
        if size is not None:
            self._sizes[archive.name] = size

    def update(self, archive: Archive, done: int) -> None:
        self._done[archive.name] = done
        self._progress(
            sum(self._done.values()), sum(self._sizes.values()), archive.name
        )

    def finish(self, archive: Archive) -> None:
        self.update(archive, self._sizes[archive.name])


def _fetch_one(
    archive: Archive,
    mirrors: Sequence[str],
    folder: Path,
    meter: _Meter,
    cancelled: Cancelled,
) -> None:
    from http.client import (
        HTTPException,
    )  # the window keeps none of this in memory before it downloads something

    partial_path = folder / f"{archive.name}.part"
    refusals = []
    try:
        for mirror in mirrors:
            url = mirror + archive.name
            try:
                _stream(url, partial_path, archive, meter, cancelled)
                _unpack(archive, partial_path, folder, cancelled)
                return
            # URLError is an OSError. EOFError, TarError and BadGzipFile (an OSError) come from unpacking.
            except (
                HTTPException,
                OSError,
                EOFError,
                tarfile.TarError,
                ChecksumMismatchError,
            ) as error:
                refusals.append(f"{url}: {getattr(error, 'reason', None) or error}")
    finally:
        partial_path.unlink(missing_ok=True)
    raise DownloadError(
        f"{archive.name} could not be downloaded. "
        + "; ".join(refusals)
        + ". Check the connection and try again."
    )


def _stream(
    url: str, partial_path: Path, archive: Archive, meter: _Meter, cancelled: Cancelled
) -> None:
    from urllib.request import Request, urlopen

    digest, done = hashlib.md5(usedforsecurity=False), 0
    request = Request(url, headers={"User-Agent": "tapedeck"})
    with urlopen(request, timeout=TIMEOUT) as response, partial_path.open("wb") as file:
        length = response.headers.get("Content-Length")
        meter.expect(archive, int(length) if length else None)
        while chunk := response.read(CHUNK):
            if cancelled():
                raise DownloadCancelledError
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            meter.update(archive, done)
    if digest.hexdigest() != archive.md5:
        raise ChecksumMismatchError(archive.name, archive.md5, digest.hexdigest())


def _unpack(
    archive: Archive, partial_path: Path, folder: Path, cancelled: Cancelled
) -> None:
    """Unpack an archive into its folder; each file is complete or absent."""
    if archive.kind == GZIP:
        with gzip.open(partial_path) as packed:
            _write(packed, folder / archive.files[0], cancelled)
    elif archive.kind == TAR:
        _untar(archive, partial_path, folder, cancelled)
    else:
        os.replace(partial_path, folder / archive.name)


def _untar(
    archive: Archive, partial_path: Path, folder: Path, cancelled: Cancelled
) -> None:
    """Extract the named files from anywhere in an archive, and no others."""
    missing = set(archive.members)
    with tarfile.open(partial_path) as packed:
        for member in packed:
            name = PurePosixPath(member.name).name
            source = (
                packed.extractfile(member)
                if member.isreg() and name in missing
                else None
            )
            if source is not None:
                _write(source, folder / name, cancelled)
                missing.discard(name)
    if missing:
        raise tarfile.TarError(f"{', '.join(sorted(missing))} is missing in it")


def _write(
    source: IO[bytes] | gzip.GzipFile, target: Path, cancelled: Cancelled
) -> None:
    """Write a temporary file and rename it, so that the target is complete or absent."""
    unpacked = target.with_name(f"{target.name}.part")
    try:
        with unpacked.open("wb") as file:
            while chunk := source.read(1 << 20):
                if cancelled():
                    raise DownloadCancelledError
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unpacked, target)
    finally:
        unpacked.unlink(missing_ok=True)
