"""Files of start weights: stored by hash until the project is saved, then in its folder.

A file is never overwritten with other content, so that undo can restore the previous weights.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from app.builder.origin import KeptFile, Origin
from app.training.config import StartWeights
from app.training.setup.weights_header import is_unchanged, remember, sha256_of
from app.util import atomic, leftovers, user_folders

LONGEST_NAME = 120
KEPT = 30 * 24 * 3600.0  # seconds until an unused file is deleted


def store() -> Path:
    """Return the folder of weights that were loaded but not saved with a project yet."""
    return user_folders.cache() / "weights"


def keep(
    write: Callable[[Path], object], name: str, folder: Path | None = None
) -> StartWeights:
    """Let `write` fill a `.safetensors` file, and put it into the store under its hash. Raises what `write` raises."""
    folder = folder or store()
    folder.mkdir(parents=True, exist_ok=True)
    _prune(folder)
    temporary = leftovers.new_file(folder)
    try:
        write(temporary)
        sha256 = sha256_of(temporary)
        path = folder / f"{sha256[:24]}.safetensors"
        os.replace(temporary, path)
        remember(str(path), sha256)
    finally:
        temporary.unlink(missing_ok=True)
    return StartWeights(str(path), sha256, (), name[:LONGEST_NAME])


def adopt(path: str, sha256: str, folder: Path) -> str:
    """Move a file into `folder` under its hash; return where it is. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    _prune(folder)
    target = folder / f"{sha256[:24]}.safetensors"
    try:
        os.replace(path, target)
    except OSError:  # on another file system
        atomic.write(target, lambda temporary: shutil.copyfile(path, temporary))
    remember(str(target), sha256)
    return str(target)


def _prune(folder: Path) -> None:
    """Delete old files: saved projects have copies."""
    with contextlib.suppress(OSError):
        for path in folder.glob("*.safetensors"):
            if time.time() - path.stat().st_mtime > KEPT:
                path.unlink()


def weights_beside(start: StartWeights, project: Path) -> StartWeights:
    """Copy start weights to the project's folder if they are elsewhere. Raises OSError.

    A missing file keeps its path, so that the project can still be saved.
    """
    return replace(start, path=file_beside(start.path, start.sha256, project))


def origin_beside(origin: Origin, project: Path) -> Origin:
    """Copy the files of an import's origin to the project's folder, like `weights_beside`. Raises OSError."""

    def beside(file: KeptFile | None, tail: str) -> KeptFile | None:
        return file and replace(
            file, path=file_beside(file.path, file.sha256, project, tail)
        )

    return replace(
        origin,
        weights=beside(origin.weights, ""),
        reference=beside(origin.reference, ".reference"),
    )


def file_beside(path: str, sha256: str, project: Path, tail: str = "") -> str:
    """Copy a file to the project's folder under the project's name, unless it is there; return its path. Raises
    OSError."""
    file = Path(path)
    if file.parent.resolve() == project.parent.resolve() or not file.is_file():
        return path
    for name in (
        f"{project.stem}{tail}.safetensors",
        f"{project.stem}-{sha256[:8]}{tail}.safetensors",
    ):
        target = project.parent / name
        if not target.exists():
            _copy(file, target)
            return str(target)
        if target.stat().st_size == file.stat().st_size and is_unchanged(
            KeptFile(str(target), sha256)
        ):
            return str(target)
    raise OSError(
        f"{target} already exists with other weights; move it, or save under another name"
    )


def _copy(path: Path, target: Path) -> None:
    """Copy a file whole or not at all."""
    atomic.write(target, lambda temporary: shutil.copyfile(path, temporary))
