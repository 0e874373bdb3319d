"""The last page of an import: which parts were not traced call by call and why, and the result of the comparison."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.project.model_inits import LOSES
from app.views.ui import theme
from app.views.ui.layouts import vbox
from app.views.ui.widgets.painting import label

ONE_NODE = ") is one node"
TAKE = "Apply it with Run > Initialise as the imported model; this can be undone."
WHAT = (
    "A part shown as one node runs the code of its class: it trains, its shapes and gradients are shown, and its "
    "weights keep their keys. The calls inside it are not drawn."
)


class ResultPage(QScrollArea):
    """A sentence for each remark. `remarks` are those of `model_import.remarks`."""

    def __init__(self, remarks: tuple[str, ...]) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        inside = QWidget()
        column = vbox(on=inside, margins=(0, 0, 8, 0), spacing=12)
        parts = [text for text in remarks if ONE_NODE in text]
        if parts:
            many = f"{len(parts)} parts" if len(parts) > 1 else "One part"
            column.addWidget(
                label(
                    f"{many} could not be followed call by call.",
                    "label",
                    "text",
                    wrap=True,
                )
            )
        for remark in parts:
            subject, _, why = remark.partition(": ")
            location, _, became = subject.partition(") ")
            name = label(f"{location})", "code", "text", wrap=True)
            name.setFont(theme.font("code"))
            outcome = became.partition(" ")[2]
            row = vbox(
                name,
                label(
                    f"{outcome[:1].upper()}{outcome[1:]}: {why}",
                    "label",
                    "text2",
                    wrap=True,
                ),
                spacing=2,
            )
            column.addLayout(row)
        if parts:
            column.addWidget(label(WHAT, "label", "text3", wrap=True))
        others = [text for text in remarks if text not in parts]
        if others:
            column.addWidget(label("Notes on this import:", "label", "text", wrap=True))
        for remark in others:
            column.addWidget(label(remark, "label", "text2", wrap=True))
        if any(remark.startswith(LOSES) for remark in others):
            column.addWidget(label(TAKE, "label", "text3", wrap=True))
        column.addStretch(1)
        self.setWidget(inside)
