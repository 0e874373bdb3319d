"""Review of a snippet file before it runs."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from app.builder.catalog.custom import CustomFile
from app.util.formatting import plural
from app.views.trust.trust_dialog import TrustDialog


class SnippetTrustDialog(TrustDialog):
    """Like the review of a layer file, for lines to run."""

    warning = (
        "A snippet runs in a separate process with a time and a memory limit, but with all your permissions: it can "
        "read and change your files and use the network. Trust it only if you know what it does. It runs when you "
        "press Run, not before."
    )
    agree = "Trust this snippet"

    def __init__(
        self, file: CustomFile, before: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(file, before, parent)
        self.setWindowTitle("PyTorch snippet")

    def contents(self) -> str:
        assert self.file.file is not None
        lines = sum(bool(line.strip()) for line in self.file.file.text.splitlines())
        return f"{lines} {plural(lines, 'line')} to be run"
