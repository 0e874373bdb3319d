"""Review of a file with a Dataset class before it runs."""

from __future__ import annotations

import ast

from PySide6.QtWidgets import QWidget

from app.builder.catalog.custom import CustomFile
from app.views.trust.trust_dialog import TrustDialog, listed


class DatasetTrustDialog(TrustDialog):
    """Like the review of a layer file, for Dataset classes."""

    problem = "It defines no class, so it has no Dataset."
    trusted_words = "It is trusted: its Dataset classes can be trained on."

    def __init__(
        self, file: CustomFile, before: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(file, before, parent)
        self.setWindowTitle("Dataset class")

    def contents(self) -> str:
        assert self.file.file is not None
        try:
            tree = ast.parse(self.file.file.text)
        except (SyntaxError, ValueError, RecursionError) as error:
            self.problem = f"It cannot be read as Python: {error}."
            return ""
        # A base may have any name here, such as a class of the file itself: which are datasets is seen once it runs.
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        return f"Classes: {listed(names)}" if names else ""

    def missing(self) -> str:
        return self.problem
