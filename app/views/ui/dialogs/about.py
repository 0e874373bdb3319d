"""The About dialog: version, licence, and the versions of Python and the libraries."""

from __future__ import annotations

import platform
from importlib import metadata

from PySide6.QtCore import Qt, qVersion
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app import __version__
from app.views.ui.dialogs.base import Dialog
from app.views.ui.icons import app_icon
from app.views.ui.widgets.painting import label

PARTS = (
    "torch",
    "torchvision",
    "PySide6-Essentials",
    "pyqtgraph",
    "scikit-learn",
    "numpy",
    "safetensors",
    "graphviz",
)


def versions() -> tuple[tuple[str, str], ...]:
    """Return the versions of the program and its libraries from package metadata, without importing them."""

    entries = [
        ("Tapedeck", __version__),
        ("Python", platform.python_version()),
        ("Qt", qVersion()),
    ]
    for name in PARTS:
        try:
            entries.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            entries.append((name, "not installed"))
    return (*entries, ("System", platform.platform(terse=True)))


class AboutDialog(Dialog):
    """Name, purpose, licence and versions, which can be copied into a report."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Tapedeck", parent)
        self.setWindowTitle("About Tapedeck")
        self.setMinimumWidth(400)
        picture = QLabel()
        picture.setPixmap(app_icon().pixmap(56, 56))
        picture.setAccessibleName("Tapedeck's icon: a cassette with two reels")
        self.body.addWidget(picture)
        description = "Build PyTorch networks on a canvas, train them, inspect the autograd graph, and export the code."
        self.body.addWidget(label(description, "body", "text2", wrap=True))
        table = QGridLayout()
        table.setHorizontalSpacing(24)
        table.setVerticalSpacing(4)
        table.setColumnStretch(1, 1)
        for row, (name, version) in enumerate(versions()):
            table.addWidget(label(name, "label", "text3"), row, 0)
            value = label(version, "label")
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            table.addWidget(value, row, 1)
        self.body.addLayout(table)
        self.body.addWidget(
            label(
                "MIT licence. No data is sent anywhere.", "caption", "text3", wrap=True
            )
        )
        self.copy_button = self.add_button("Copy versions", left=True)
        self.copy_button.clicked.connect(self._copy)
        close = self.add_button("Close", "primary", default=True)
        close.clicked.connect(self.accept)
        close.setFocus()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(
            "\n".join(f"{name} {version}" for name, version in versions())
        )
        self.copy_button.setText("Copied")
