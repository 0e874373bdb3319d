"""The export dialog: which files to write, and the folder."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QFileDialog, QLabel, QLineEdit, QWidget
from shiboken6 import isValid

from app.features.export.values import NAMES, ExportChoice, onnx_missing
from app.source.generated import MAKER
from app.util.user_folders import typed_path
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import label, set_property
from app.views.ui.widgets.segmented import Segmented

_WORDS = {
    "code": "The class Net(nn.Module); it depends on torch only.",
    "safetensors": "The state_dict in a format that holds tensors only.",
    "pt": "The state_dict for torch.load(path, weights_only=True).",
    "script": "Reproduces the run with the same seed, step by step.",
    "pt2": "For torch.export.load, without the class. Checked: run once and compared with this network.",
    "onnx": "For other runtimes. Checked: run once by onnxruntime and compared with this network.",
    "certify": "Runs model.py with the weights in a clean process; compares outputs and gradients with this network.",
}
# Of a net with layers of the user's own files.
_OWN_WORDS = {
    "code": "The class Net(nn.Module); it depends on torch and on the files of your layers, which lie beside it.",
}
# Of a model of code, in place of the class.
_OPENED_WORDS = {
    "code": "The function that constructs the model; it imports the code from its own location.",
    "certify": "Runs make_model.py with the weights in a clean process and compares outputs and gradients.",
}
NEWEST, BEST = "newest", "best"
# Where another kind of thing begins.
_SECTIONS = {
    "code": "Files",
    "pt2": "Other formats, in eval mode",
    "certify": "Certificate",
}
_ABOVE_SECTION = 4  # px


def folder_problem(folder: Path) -> str:
    """Return why nothing can be written into a folder, "" if it can. The folder need not exist yet."""
    try:
        return _folder_problem(folder)
    except (OSError, ValueError) as error:  # such as a name that is too long
        return (
            f"{folder} cannot be a folder: {getattr(error, 'strerror', None) or error}."
        )


def _folder_problem(folder: Path) -> str:
    if folder.exists() and not folder.is_dir():
        return f"{folder} is a file, not a folder. Choose a folder."
    parent = folder
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        return f"{parent} is a file, so a folder cannot be created in it."
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"No permission to write in {parent}. Choose another folder."
    return ""


class ExportDialog(Dialog):
    """Choose the files and the folder. `chosen(ExportChoice)` is emitted when Export is pressed, `weights_chosen(best)`
    when the newest weights or the best ones are chosen.

    Args:
        folder: The folder proposed at first.
        weights: Which weights would be written, a phrase after "Weights": `untrained, drawn with seed 0`.
        opened: Whether the net is a model of code, in place of a drawing.
        own_files: Whether it has layers of the user's own files.
    """

    chosen = Signal(object)
    weights_chosen = Signal(bool)

    def __init__(
        self,
        folder: Path,
        weights: str,
        parent: QWidget | None = None,
        *,
        opened: bool = False,
        own_files: bool = False,
    ) -> None:
        super().__init__("Export", parent)
        self.setMinimumWidth(520)
        self.boxes: dict[str, QCheckBox] = {}
        self.words: dict[str, QLabel] = {}
        start = ExportChoice(folder)
        self._told = {
            **_WORDS,
            **(_OWN_WORDS if own_files else {}),
            **(_OPENED_WORDS if opened else {}),
        }
        for key, name in NAMES.items():
            name = (
                name.replace("model.", f"{MAKER}.")
                if opened and key in ("code", "certify")
                else name
            )
            if key in _SECTIONS:
                self._add_section(_SECTIONS[key])
            self._add_box(key, name, getattr(start, key))
        if missing := onnx_missing():
            self._disable("onnx", missing)
        self.weights = label("", "label", "text2", wrap=True)
        self.set_weights(weights)
        self.which = Segmented(
            [(NEWEST, "Newest"), (BEST, "Best validation loss")], "Weights to export"
        )
        self.which.changed.connect(lambda key: self.weights_chosen.emit(key == BEST))
        self.of_weights = QWidget()
        title = label("Weights in these files", "section")
        vbox(
            title,
            hbox(self.which, (self.weights, 1), spacing=12),
            on=self.of_weights,
            margins=(0, _ABOVE_SECTION, 0, 0),
            spacing=8,
        )
        self.body.addWidget(self.of_weights)
        self._add_section("Folder")
        self.folder = QLineEdit(str(folder))
        self.folder.setAccessibleName("Folder")
        self.folder.setMinimumHeight(26)
        browse = Button("Choose…", icon="folder")
        browse.clicked.connect(self._browse)
        row = hbox((self.folder, 1), browse, spacing=8)
        self.body.addLayout(row)
        self.note = label("", "label", "text3", wrap=True)
        self.body.addWidget(self.note)
        cancel = self.add_button("Cancel")
        cancel.clicked.connect(self.reject)
        self.export_button = self.add_button("Export", "primary", default=True)
        self.export_button.clicked.connect(self._choose)
        self.folder.textChanged.connect(self._validate)
        self._validate()
        self.resize(
            self.minimumWidth(), 1
        )  # as high as its content then needs: the hint of wrapped labels is higher

    def on_run_ended(self) -> None:
        """Have the weights named again, as long as they are shown: a run that had them has ended."""
        if self.isVisible():
            self.weights_chosen.emit(self.which.value() == BEST)

    def set_weights(self, weights: str) -> None:
        """Show which weights would be written, a phrase after "Weights"; nothing once the window is gone."""
        if isValid(self.weights):
            self.weights.setText(f"Weights {weights}.")

    def _add_section(self, title: str) -> None:
        heading = label(title, "section")
        heading.setContentsMargins(0, _ABOVE_SECTION if self.body.count() else 0, 0, 0)
        self.body.addWidget(heading)

    def _add_box(self, key: str, name: str, on: bool) -> None:
        check = QCheckBox(name)
        check.setFont(theme.font("code"))
        check.setChecked(on)
        check.setAccessibleDescription(self._told[key])
        check.toggled.connect(self._validate)
        self.boxes[key] = check
        caption = label(self._told[key], "label", "text3", wrap=True)
        caption.setContentsMargins(21, 0, 0, 2)
        column = vbox(check, caption, spacing=1)
        self.words[key] = caption
        self.body.addLayout(column)

    def _disable(self, key: str, why: str) -> None:
        """Uncheck and disable a box, with the reason below it."""
        self.boxes[key].setChecked(False)
        self.boxes[key].setEnabled(False)
        self.boxes[key].setAccessibleDescription(why)
        self.words[key].setText(why)

    def choice(self) -> ExportChoice:
        """Return the current choice."""
        folder = typed_path(self.folder.text())
        files = {key: check.isChecked() for key, check in self.boxes.items()}
        return ExportChoice(folder, **files, best=self.which.value() == BEST)

    def _validate(self) -> None:
        """Show what prevents the export, or which files it will replace."""
        choice = self.choice()
        problem = "" if choice.names else "Choose at least one file."
        if choice.certify and not choice.code:
            problem = (
                f"A certificate needs {self.boxes['code'].text()}: choose that too."
            )
        if not self.folder.text().strip() or not choice.folder.is_absolute():
            problem = problem or "Enter the absolute path of a folder, or choose one."
        problem = problem or folder_problem(choice.folder)
        there = [
            name
            for name in choice.names
            if not problem and (choice.folder / name).exists()
        ]
        note = f"Will be replaced: {', '.join(there)}." if there else ""
        if not problem and not note and not choice.folder.exists():
            note = "The folder will be created."
        self.note.setText(problem or note)
        set_property(
            self.note, "tone", "error" if problem else "warn" if there else "text3"
        )
        self.of_weights.setVisible(choice.takes_weights)
        self.export_button.setEnabled(not problem)

    def _browse(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Export to", self.folder.text())
        if folder:
            self.folder.setText(folder)

    def _choose(self) -> None:
        self.chosen.emit(self.choice())
        self.accept()
