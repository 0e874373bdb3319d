"""The settings of several runs side by side; differing ones are marked and sorted to the top."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from app.runs.compare import Setting
from app.util.columns import Column
from app.util.formatting import plural
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented


def columns_of(titles: Sequence[str]) -> list[Column]:
    """Return the columns of settings: the name, then a column a run. Those that differ stand out."""

    def strong(line: Setting) -> str:
        return "section" if line.differs else ""

    def color(line: Setting) -> str:
        return "text" if line.differs else "text3"

    name = Column(
        "Setting",
        lambda line: line.name,
        color=lambda line: "text" if line.differs else "text2",
        font=strong,
        icon=lambda line: ("compare", "accent") if line.differs else (),
        spoken=lambda line: f"{line.name}, differs" if line.differs else line.name,
    )

    def run(at: int, title: str) -> Column:
        return Column(title, lambda line: line.values[at], color=color, font=strong)

    return [name, *(run(*numbered) for numbered in enumerate(titles))]


class RunsCompare(QWidget):
    """The table, with a choice between all settings and those that differ."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._titles: list[str] = []
        self._lines: tuple[Setting, ...] = ()
        self.table = Table(columns_of(()), "Settings of the runs", room=0)
        header = self.table.horizontalHeader()
        header.setMaximumSectionSize(260)
        header.setStretchLastSection(True)
        self._caption = label("", "caption", "text2")
        self._which = Segmented(
            [("differing", "Differences only"), ("all", "All settings")],
            "Settings to show",
        )
        self._which.changed.connect(lambda _key: self._show())
        row = hbox(self._caption, 1, self._which, margins=(12, 4, 8, 4), spacing=8)
        vbox(row, (self.table, 1), on=self, margins=0, spacing=0)

    def set_settings(self, titles: list[str], lines: tuple[Setting, ...]) -> None:
        """Show these runs, a column each."""
        self._titles, self._lines = titles, lines
        self._show()

    def _show(self) -> None:
        differing = [line for line in self._lines if line.differs]
        everything = self._which.value() == "all"
        same = [line for line in self._lines if not line.differs] if everything else []
        count = len(differing)
        caption = (
            f"{count} {plural(count, 'setting differs', 'settings differ')}"
            if count
            else ("All settings are equal")
        )
        self._caption.setText(caption)
        self.table.cells.set_rows([*differing, *same], columns_of(self._titles))
        self.table.resizeColumnsToContents()
