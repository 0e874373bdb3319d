"""Nodes and notes as text, between windows and programs: the text of a project file with these alone.

What comes from the clipboard is read as strictly as a file, and is data like a file.
"""

from __future__ import annotations

from pathlib import Path

from app.builder import typed_code
from app.builder.blocks import Blocks, used
from app.builder.catalog.catalog import Catalog
from app.builder.edits.blocks import with_ops
from app.builder.edits.edits import Fragment
from app.project import file
from app.project.library import Library, LibraryEntry, with_contents
from app.project.project import Project
from app.util.frozen import FrozenMap

PASTED = "pasted."  # before the name of a block that comes with nodes and is not in the project yet
NAME = "copied from Tapedeck"
LONGEST = 8 * 2**20


class NotNodes(ValueError):
    """Text on the clipboard that is not nodes; the message says why."""


def to_text(piece: Fragment, blocks: Blocks = FrozenMap()) -> str:
    """Serialise nodes with comments, frames, bends, and the blocks that they are instances of."""
    contained: Blocks = FrozenMap()
    for name in used(piece.graph):
        contained = (
            contained.update(with_contents(blocks, name))
            if name in blocks
            else contained
        )
    project = Project(
        NAME,
        piece.graph,
        piece.positions,
        piece.comments,
        piece.bends,
        contained,
        unfolded=piece.unfolded,
    )
    return file.dumps(project).decode()


def from_text(text: str, ops: Catalog) -> tuple[Fragment, Library, tuple[str, ...]]:
    """Parse nodes and the blocks that came with them, whose instances have ops that `library.taken` resolves; of Python
    code the nodes that it makes, and what of it was left out. Raises NotNodes."""
    if not text.strip():
        raise NotNodes("The clipboard has no text: select nodes and copy them first")
    if len(text) > LONGEST:
        raise NotNodes("The text on the clipboard is too large to paste as nodes")
    try:
        project = file.loads(text.encode("utf-8", "replace"))
    except file.ProjectFileError as error:
        if '"tapedeck"' not in text[:200]:
            return _from_code(text, ops)
        raise NotNodes(f"The nodes on the clipboard cannot be read: {error}") from error
    if not project.graph.nodes and not project.comments:
        raise NotNodes("The project on the clipboard has no nodes")
    names = [name for name in used(project.graph) if name in project.blocks]
    offers = [
        LibraryEntry(name, Path(), with_contents(project.blocks, name), PASTED)
        for name in names
    ]
    sheet = with_ops(project, {entry.block.key: entry.key for entry in offers})
    piece = Fragment(
        sheet.graph, sheet.positions, sheet.comments, sheet.bends, sheet.unfolded
    )
    return piece, Library(tuple(offers)), ()


def _from_code(text: str, ops: Catalog) -> tuple[Fragment, Library, tuple[str, ...]]:
    if not typed_code.looks_like_code(text, ops):
        raise NotNodes(
            "The clipboard contains neither nodes copied from Tapedeck nor PyTorch code"
        )
    try:
        typed = typed_code.nodes_of(text, ops)
    except typed_code.TypedCodeError as error:
        raise NotNodes(
            f"The code cannot be pasted as nodes. {error} A file with it can be imported, which runs it."
        ) from error
    return Fragment(typed.graph, FrozenMap()), Library(()), typed.left_out
