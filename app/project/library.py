"""The user's block library: a folder of project files, each a block with its nested blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from app.builder.blocks import (
    PREFIX,
    Block,
    BlockError,
    Blocks,
    contained,
    spec_of,
    unused_name,
)
from app.builder.catalog.catalog import OpSpec
from app.builder.edits.blocks import W, Whole, sheet_named, with_ops
from app.builder.sheet import Sheet
from app.project import file as project_file
from app.project.file import ProjectFileError
from app.project.project import Project
from app.util.frozen import FrozenMap

SUFFIX = ".tape"
KEY = (
    "library."  # before the name of a block that is offered and not in the project yet
)


class LibraryEntry(Struct, frozen=True):
    """One block of the library: its file, and it with all that it contains."""

    name: str
    path: Path
    blocks: Blocks
    prefix: str = KEY

    @property
    def key(self) -> str:
        return self.prefix + self.name

    @property
    def block(self) -> Block:
        return self.blocks[self.name]


class Library(Struct, frozen=True):
    """Blocks in a folder. `unread` lists files that are no blocks: (file, reason)."""

    entries: tuple[LibraryEntry, ...] = ()
    unread: tuple[tuple[Path, str], ...] = ()

    def __getitem__(self, key: str) -> LibraryEntry:
        return next(entry for entry in self.entries if entry.key == key)

    def __contains__(self, key: object) -> bool:
        return any(entry.key == key for entry in self.entries)


def read(folder: Path) -> Library:
    """Read the blocks in a folder, by name; a missing folder is an empty library. Unreadable files are listed."""
    entries: dict[str, LibraryEntry] = {}
    unread: list[tuple[Path, str]] = []
    try:
        files = _files(folder) if folder.is_dir() else []
    except OSError as error:
        return Library((), ((folder, error.strerror or str(error)),))
    for file in files:
        try:
            file_entries = _entries(file)
        except (ProjectFileError, OSError) as error:
            unread.append((file, str(error)))
            continue
        if not file_entries:
            unread.append((file, f"{file.name} holds no block"))
        for entry in file_entries:
            if entry.name in entries:
                unread.append(
                    (
                        file,
                        f"{entry.name} is in {entries[entry.name].path.name} already",
                    )
                )
            entries.setdefault(entry.name, entry)
    return Library(
        tuple(entries[name] for name in sorted(entries, key=str.casefold)),
        tuple(unread),
    )


def _files(folder: Path) -> list[Path]:
    """List the project files in a folder, without backups."""
    return sorted(
        file for file in folder.glob(f"*{SUFFIX}") if not project_file.is_backup(file)
    )


def _entries(file: Path) -> list[LibraryEntry]:
    """Return the block that a file is named after, else every top-level block in it."""
    project = project_file.read(file)
    within = {
        inner for name in project.blocks for inner in contained(name, project.blocks)
    }
    names = (
        [project.name]
        if project.name in project.blocks
        else [n for n in project.blocks if n not in within]
    )
    return [
        LibraryEntry(name, file, with_contents(project.blocks, name)) for name in names
    ]


def with_contents(blocks: Blocks, name: str) -> Blocks:
    """Return a block and its nested ones, innermost first."""
    return FrozenMap(
        {inner: blocks[inner] for inner in (*contained(name, blocks), name)}
    )


def save(project: Whole, name: str, folder: Path) -> Path:
    """Write a block with all that it contains into the folder, over one of the same name; returns the file.

    Raises BlockError, OSError or ProjectFileError.
    """
    sheet_named(project, name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^0-9A-Za-z_-]', '_', name)}{SUFFIX}"
    note = project.blocks[name].note
    project_file.write(
        Project(name=name, blocks=with_contents(project.blocks, name), notes=note), path
    )
    return path


def take(project: W, entry: LibraryEntry) -> tuple[W, str]:
    """Copy a block of the library, with nested ones, into a project; return the project and the block's name there.

    An identical block of the project is reused; if another has its name, the copy gets a fresh one.
    """
    names: dict[str, str] = {}
    blocks = project.blocks
    for old, block in entry.blocks.items():
        ops = {
            PREFIX + before: PREFIX + after
            for before, after in names.items()
            if before != after
        }
        block = with_ops(block, ops)
        same = next(
            (
                name
                for name, other in blocks.items()
                if replace(block, name=name) == other
            ),
            None,
        )
        if same is None:
            same = unused_name(blocks, old)
            blocks = blocks.set(same, replace(block, name=same))
        names[old] = same
    return cast(W, replace(cast(Any, project), blocks=blocks)), names[entry.name]


def with_library_blocks(project: W, sheet: Sheet, library: Library) -> tuple[W, Sheet]:
    """Copy the library blocks that a sheet uses into a project; return the project and the sheet referring to the
    copies.

    Raises BlockError for a block that is no longer in the library.
    """
    ops: dict[str, str] = {}
    for op in dict.fromkeys(node.op for node in sheet.graph.nodes.values()):
        if op in library:
            project, name = take(project, library[op])
            ops[op] = PREFIX + name
        elif op.startswith(KEY):
            raise BlockError(f"{op.removeprefix(KEY)} is no longer in the library")
    return project, with_ops(sheet, ops)


def offered(library: Library, blocks: Blocks) -> Iterable[OpSpec]:
    """Yield an op for each block of the library that the project lacks."""
    for entry in library.entries:
        if blocks.get(entry.name) != entry.block:
            yield replace(spec_of(entry.block, entry.blocks), key=entry.key)
