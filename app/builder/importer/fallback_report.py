"""What became of a submodule that could not be followed, as a value and as words."""

from __future__ import annotations

from msgspec import Struct

from app.builder.importer.tracing.source_lines import SourceLine

LONGEST = 300  # letters of a reason


class Fallback(Struct, frozen=True):
    """A submodule that is one node of its class: its path, class and why it is not traced."""

    path: str
    name: str
    reason: str
    place: SourceLine | None = None

    def __str__(self) -> str:
        where = (
            f"{self.path} ({self.name})"
            if self.path
            else f"The whole model ({self.name})"
        )
        reason = " ".join(
            self.reason.split()
        )  # one line, even for a multi-line torch error
        reason = reason if len(reason) <= LONGEST else f"{reason[:LONGEST]}…"
        place = f" ({self.place})" if self.place else ""
        return f"{where} is one node, run by its own code: {reason.rstrip('.')}{place}."


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
