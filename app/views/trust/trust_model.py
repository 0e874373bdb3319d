"""Review of all files that run for a model, before they do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from PySide6.QtWidgets import QWidget

from app.builder.catalog.custom import CustomFile, module_name
from app.source.layer_files import LayerFile, names_in
from app.source.own_files import OwnFile, OwnFiles
from app.views.trust.trust_dialog import ReviewedText, TrustDialog, listed

PERMISSIONS = (
    "in a separate process with all your permissions: it can read and change your files and use the network. Trust it "
    "only if you know what it does. You are asked again when any of its files changes."
)


class ModelTrustDialog(TrustDialog):
    """Shows the file of a model with every file of the user's that it imports; `before` are the texts that were trusted
    last, by path. `trusted(files)` is emitted when the user trusts them all."""

    warning = f"To import its model, Python runs this code {PERMISSIONS}"
    agree = "Trust and import"
    subject = "Your own model"

    def __init__(
        self,
        files: OwnFiles,
        before: Mapping[str, str | None],
        parent: QWidget | None = None,
    ) -> None:
        self.files, self._before = files, before
        entry = files.entry
        assert entry.text is not None
        path = Path(entry.path)
        module = module_name(path)
        super().__init__(
            CustomFile(
                path, module, LayerFile.from_text(module, entry.text, entry.path)
            ),
            before[entry.path],
            parent,
        )

    def reviewed(self) -> tuple[ReviewedText, ...]:
        again = any(before is not None for before in self._before.values())
        return tuple(self._text(file, again) for file in self.files.files)

    def _text(self, file: OwnFile, again: bool) -> ReviewedText:
        name = os.path.relpath(file.path, os.path.dirname(self.files.entry.path))
        before = self._before[file.path]
        return ReviewedText(
            name, file.reviewed_text, before, new=again and before is None
        )

    def contents(self) -> str:
        assert self.file.file is not None
        sentence = f"It contains {listed(list(names_in(self.file.file.text)))}"
        others = [review.name for review in self.reviewed()[1:]]
        return f"{sentence}; with it run {listed(others)}" if others else sentence

    def _trust(self) -> None:
        self.trusted.emit(self.files)
        self.accept()
