"""What became of a submodule that could not be followed, as a value and as words."""

from __future__ import annotations

from msgspec import Struct

from app.builder.importer.tracing.source_lines import SourceLine

LONGEST = 300  # letters of a reason
EXPORTED, OPAQUE = "exported", "opaque"


class Fallback(Struct, frozen=True):
    """A submodule that was not traced call by call: its path, what it became and why.

    `kind` is "exported" if `torch.export` traced it, "opaque" for a class that is one node.
    """

    path: str
    name: str
    kind: str
    reason: str
    place: SourceLine | None = None

    def __str__(self) -> str:
        where = (
            f"{self.path} ({self.name})"
            if self.path
            else f"The whole model ({self.name})"
        )
        became = (
            "was read by torch.export"
            if self.kind == EXPORTED
            else "is one node, run by its own code"
        )
        reason = " ".join(
            self.reason.split()
        )  # one line, even for a multi-line torch error
        reason = reason if len(reason) <= LONGEST else f"{reason[:LONGEST]}…"
        return f"{where} {became}: {reason.rstrip('.')}{f' ({self.place})' if self.place else ''}."


def parent(path: str) -> str:
    """Return the path of the enclosing module.

    >>> parent("stage.0.conv"), parent("stem")
    ('stage.0', '')
    """
    return path.rpartition(".")[0]


def inside(path: str, outer: str) -> bool:
    """Return whether a path is `outer` or nested in it.

    >>> inside("stage.0", "stage"), inside("stages", "stage"), inside("a", "")
    (True, False, True)
    """
    return not outer or path == outer or path.startswith(f"{outer}.")
