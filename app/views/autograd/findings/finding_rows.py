"""List of findings: one row each, with its location, sentence and fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QMenu, QScrollArea, QWidget

from app.util.language import tr, trn
from app.views.ui import icons
from app.views.ui.layouts import hbox, vbox
from app.views.ui.list_row import ListRow
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Glyph, label

if TYPE_CHECKING:
    from app.autograd.diagnostics.results import Finding

CHUNK = 50  # rows that are made at once
PLACE = 168  # px of the column of locations
_STATES = {
    "error": ("error", "error"),
    "warning": ("warning", "warn"),
    "info": ("info", "text3"),
}


def as_text(finding: Finding) -> str:
    """Return the finding as text for the clipboard."""
    parts = [
        f"{tr(finding.severity)}: {finding.location_text}: {finding.sentence}",
        finding.cure,
    ]
    if finding.after:
        parts += [
            f"- {finding.before}",
            *(f"+ {line}" for line in finding.after.splitlines()),
        ]
    return "\n".join(filter(None, parts))


class FindingRow(ListRow):
    """One finding. Click or Enter goes to its place; the menu copies it. `expanded` asks for the rows of those that it
    stands for."""

    opened = Signal(object)
    expanded = Signal()

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding
        self.followed.connect(lambda: self.opened.emit(finding))
        self.setAccessibleName(
            f"{tr(finding.severity)}, {finding.location_text}: {finding.sentence}"
        )
        self.setAccessibleDescription(finding.cure)
        top = Qt.AlignmentFlag.AlignTop
        title = label(finding.title, "message", wrap=True)
        title.setFixedWidth(PLACE)
        where = vbox(title, spacing=1)
        if finding.line is not None:
            where.addWidget(
                line_label := label(finding.line_text, "caption", "text3", wrap=True)
            )
            line_label.setFixedWidth(PLACE)
        where.addStretch(1)
        column = vbox(label(finding.sentence, "label", wrap=True), spacing=2)
        if finding.cure:
            column.addWidget(
                label(finding.cure.replace("`", ""), "label", "text2", wrap=True)
            )
        if finding.after:
            column.addSpacing(2)
            column.addWidget(label(f"− {finding.before}", "formula", "error"))
            for line in finding.after.splitlines():
                column.addWidget(label(f"+ {line}", "formula", "run"))
        if finding.others:
            every = Button(
                trn(
                    "Show the {count} other place",
                    "Show the {count} other places",
                    len(finding.others),
                ),
                "link",
            )
            every.clicked.connect(every.hide)
            every.clicked.connect(self.expanded)
            column.addWidget(every, 0, Qt.AlignmentFlag.AlignLeft)
        hbox(
            (Glyph(*_STATES[finding.severity], 15), 0, top),
            where,
            (column, 1),
            on=self,
            margins=(16, 8, 16, 9),
            spacing=10,
        )

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(
            icons.icon("frame"), "Show it", lambda: self.opened.emit(self.finding)
        )
        text = as_text(self.finding)
        menu.addAction(
            icons.icon("copy"),
            "Copy text",
            lambda: QGuiApplication.clipboard().setText(text),
        )
        if self.finding.after:
            after = self.finding.after
            menu.addAction(
                icons.icon("copy"),
                "Copy the new line",
                lambda: QGuiApplication.clipboard().setText(after),
            )
        menu.popup(event.globalPos())


class FindingList(QScrollArea):
    """All findings, errors first, then the checks without a finding. `opened(finding)` asks to show its location."""

    opened = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[FindingRow] = []
        self.setWidgetResizable(True)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        inside = QWidget()
        self._icon, self.foot = (
            Glyph("check", "run", 15),
            label("", "label", "text3", wrap=True),
        )
        foot = hbox(
            (self._icon, 0, Qt.AlignmentFlag.AlignTop),
            (self.foot, 1),
            margins=(16, 12, 16, 12),
            spacing=10,
        )
        self.more = Button("", "link")
        self.more.hide()
        self.more.clicked.connect(self._add)
        self._waiting: tuple[Finding, ...] = ()
        self._column = vbox(
            (self.more, 0, Qt.AlignmentFlag.AlignLeft),
            foot,
            1,
            on=inside,
            margins=0,
            spacing=0,
        )
        self.setWidget(inside)

    def show_findings(
        self, findings: tuple[Finding, ...], note: str, fine: bool
    ) -> None:
        """Show the rows, and `note` below them; `fine` puts a check before them."""
        for row in self.rows:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows, self._waiting = [], findings
        self._add()
        self._icon.set("check" if fine else "info", "run" if fine else "text3")
        self.foot.setText(note)
        self.verticalScrollBar().setValue(0)

    def _add(self) -> None:
        """Make the next rows; the focus stays with the last that was there."""
        last = len(self.rows)
        for finding in self._waiting[:CHUNK]:
            self._insert(len(self.rows), finding)
        self._waiting = self._waiting[CHUNK:]
        self.more.setVisible(bool(self._waiting))
        self.more.setText(
            trn(
                "Show more of {count} other finding",
                "Show more of {count} other findings",
                len(self._waiting),
            )
        )
        if last and last < len(self.rows):
            self.rows[last].setFocus(Qt.FocusReason.OtherFocusReason)

    def _insert(self, index: int, finding: Finding) -> None:
        row = FindingRow(finding)
        row.opened.connect(self._open)
        row.left.connect(self._move)
        row.expanded.connect(lambda: self._expand(row))
        self._column.insertWidget(index, row)
        self.rows.insert(index, row)

    def _expand(self, row: FindingRow) -> None:
        """Make rows for the findings that a row stands for, below it; of very many the last row has the rest."""
        shown, rest = row.finding.others[:CHUNK], row.finding.others[CHUNK:]
        index = self.rows.index(row) + 1
        for number, finding in enumerate(shown, 1):
            self._insert(
                index,
                replace(finding, others=rest) if number == len(shown) else finding,
            )
            index += 1
        row.setFocus(Qt.FocusReason.OtherFocusReason)

    def _open(self, finding: Finding) -> None:
        for row in self.rows:
            row.set_marked(row.finding is finding)
        self.opened.emit(finding)

    def _move(self, step: int) -> None:
        at = next((index for index, row in enumerate(self.rows) if row.hasFocus()), 0)
        row = self.rows[min(max(at + step, 0), len(self.rows) - 1)]
        row.setFocus(Qt.FocusReason.TabFocusReason)
        self.ensureWidgetVisible(row, 0, 0)
