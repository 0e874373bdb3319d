"""How a feature adds a page to Findings: a `Diagnostic` in `workspace.diagnostics`, which is given `Diagnostics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from PySide6.QtWidgets import QWidget

if TYPE_CHECKING:
    from app.autograd.grouping import LayerGroup
    from app.autograd.tape import Tape, TapeNode
    from app.engine.protocol import Request
    from app.engine.requests.observe import AnyCapture


class Diagnostics(Protocol):
    """What runs diagnostics: one at a time, on the newest batch. `tape` is the graph in front, `selected` in that."""

    @property
    def tape(self) -> Tape | None: ...

    @property
    def selected(self) -> TapeNode | LayerGroup | None: ...

    def show(self, page: str) -> None:
        """Bring a page to the front."""

    def batch(self) -> AnyCapture | None:
        """Return the newest batch; None without one, and the page shows what to do."""

    def begin(self, request: Request[Any], answered: Callable[[Any], None]) -> None:
        """Ask for a diagnostic, in place of the running one; `answered` is called with its results."""

    def inspect_again(self) -> None:
        """Recreate the inspector's sections that depend on the results."""


class Diagnostic(Protocol):
    """A page of Findings that a feature adds: `key` and `title` of its tab, the `command` on its button, the `hint`
    that stands there before a batch is captured."""

    key: str
    title: str
    command: str
    hint: str

    def make_page(self) -> QWidget:
        """Return the widget."""

    def follow(self, findings: Diagnostics) -> None:
        """Take what runs diagnostics, once the page is there."""

    def run(self) -> None:
        """Do what the button of the page says."""

    def clear(self) -> None:
        """Forget the results: there is another batch."""

    def show_failure(self, message: str) -> None:
        """Say why the diagnostic has failed."""

    def sections(self, tape: Tape, item: TapeNode | LayerGroup) -> Iterable[QWidget]:
        """Return sections of the inspector for a node or a group that the newest batch has run."""
