"""Nodes and notes as text, between windows and programs: the text of a project file with these alone.

What comes from the clipboard is read as strictly as a file, and is data like a file.
"""

from __future__ import annotations

from app import project_file
from app.builder.edits import Piece
from app.project import Project

NAME = "copied from Tapedeck"
LONGEST = 8 * 2**20


class NotNodes(ValueError):
    """Text on the clipboard that is no nodes; says why."""


def to_text(piece: Piece) -> str:
    """The text of some nodes, with comments, frames and bends."""
    project = Project(NAME, piece.graph, piece.positions, piece.comments, piece.bends)
    return project_file.dumps(project).decode()


def from_text(text: str) -> Piece:
    """The nodes in a text. Raises NotNodes."""
    if not text.strip():
        raise NotNodes("The clipboard is empty: select nodes and copy them first")
    if len(text) > LONGEST:
        raise NotNodes("The text on the clipboard is too long to be nodes")
    try:
        project = project_file.loads(text.encode("utf-8", "replace"))
    except project_file.ProjectFileError as error:
        if '"tapedeck"' not in text[:200]:
            raise NotNodes("The clipboard holds text that is no nodes from Tapedeck") from error
        raise NotNodes(f"The nodes on the clipboard cannot be read: {error}") from error
    if not project.graph.nodes and not project.comments:
        raise NotNodes("The project on the clipboard has no nodes")
    return Piece(project.graph, project.positions, project.comments, project.bends)
