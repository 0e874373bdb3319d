"""The Problems panel: problems of the net with location, reason and one-click fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QMenu, QScrollArea, QWidget

from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.problems import Problem
from app.source.generated import Path
from app.util.formatting import counted
from app.util.language import tr, trn
from app.views.selection import Selection
from app.views.ui import icons, theme
from app.views.ui.layouts import Parts, hbox, vbox
from app.views.ui.list_row import ListRow
from app.views.ui.widgets import Button, icon_button
from app.views.ui.widgets.focus import focus_in
from app.views.ui.widgets.painting import Glyph, announce, label

if TYPE_CHECKING:
    from app.builder.results import Analysis

MOST = 200
AT_ONCE, A_TURN = (
    10,
    3,
)  # rows that are made at once, and in a turn of the event loop after that
_NAME_LEAST, _NAME_MOST = 52, 172
_SPACING, _BELOW = 16, 5  # between a text and the cure beside it, or below it, px
_LEFT, _CENTRE = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignVCenter
_STATES = {
    "error": ("error", "error"),
    "warning": ("warning", "warn"),
    "info": ("info", "text3"),
}


def plain(problem: Problem, name: str) -> str:
    """Return the problem as text for the clipboard."""
    parts = [
        f"{problem.severity}: {name + ': ' if name else ''}{problem.message}",
        problem.reason,
    ]
    if problem.torch_message:
        parts.append(f"PyTorch: {problem.torch_message}")
    return "\n".join(filter(None, parts))


def fine_text(fine: int, total: int) -> str:
    """Return the sentence about the nodes without problems.

    >>> fine_text(14, 16), fine_text(1, 2), fine_text(3, 3), fine_text(0, 3)
    ('The other 14 nodes have no problems.', 'The other node has no problems.', 'No problems in 3 nodes.', '')
    """
    if not fine:
        return ""
    if fine == total:
        return trn("The node has no problems.", "No problems in {count} nodes.", total)
    return trn(
        "The other node has no problems.",
        "The other {count} nodes have no problems.",
        fine,
    )


class ProblemRow(ListRow):
    """One problem. Click or Enter goes to its node; the button mends it; the menu has the rest."""

    jumped = Signal(object)
    cure_requested = Signal(object)

    def __init__(self, problem: Problem, name: str, category: str) -> None:
        super().__init__()
        self.problem, self._name, self._category = problem, name, category
        self.followed.connect(self._jump)
        self.setAccessibleName(
            f"{problem.severity}, {name}: {problem.message}"
            if name
            else problem.message
        )
        self.setAccessibleDescription(
            "\n".join(filter(None, (problem.reason, problem.torch_message)))
        )
        self.setToolTip(plain(problem, name))
        where: list[Parts] = []
        if name:
            self.name = label(name, "message")
            where = [Glyph(category, category, 14), self.name]
        self.texts = [label(problem.message, "message", wrap=True)]
        if problem.reason:
            self.texts.append(label(problem.reason, "label", "text3", wrap=True))
        for each in self.texts:
            each.setMinimumHeight(1)  # else Qt has room for the lines of the narrowest
        text = vbox(*self.texts, spacing=1)
        if problem.torch_message:
            quote = label(" ".join(problem.torch_message.split()), "formula", "text2")
            quote.setMinimumWidth(1)
            title = label(tr("PyTorch's error message"), "label", "text3")
            text.addLayout(hbox(title, (quote, 1), spacing=6))
        self._beside = hbox((text, 1), spacing=_SPACING)
        self.cure: Button | None = None
        if problem.cures:
            self.cure = Button(
                problem.cures[0].label,
                "primary" if problem.severity == "error" else "secondary",
            )
            self.cure.setMinimumWidth(1)  # elided where even a row of its own is short
            self.cure.clicked.connect(
                lambda: self.cure_requested.emit(problem.cures[0])
            )
            self._beside.addWidget(self.cure, 0, _CENTRE)
        self.more = icon_button("more", "More about this problem")
        self.more.clicked.connect(
            lambda: self._open_menu(
                self.more.mapToGlobal(self.more.rect().bottomLeft())
            )
        )
        hbox(
            Glyph(*_STATES[problem.severity], 15),
            *where,
            (self._beside, 1),
            self.more,
            on=self,
            margins=(16, 6, 14, 7),
            spacing=8,
        )

    @property
    def key(self) -> tuple[str, str | None, str]:
        """Message, node and name, which usually identify the problem."""
        return self.problem.message, self.problem.node, self._name

    def shows(self, problem: Problem, name: str, category: str) -> bool:
        """Return whether the row shows exactly this."""
        return (self._name, self._category) == (
            name,
            category,
        ) and self.problem == problem

    def natural_name_width(self) -> int:
        return min(self.name.sizeHint().width(), _NAME_MOST) if self._name else 0

    def set_name_width(self, width: int) -> None:
        """Have the texts of all rows begin below one another."""
        if self._name:
            self.name.setFixedWidth(width)

    def menu(self) -> QMenu:
        """Return the menu: all cures, going to the node, copying."""
        menu = QMenu(self)
        for cure in self.problem.cures:
            menu.addAction(cure.label, partial(self.cure_requested.emit, cure))
        if self.problem.cures:
            menu.addSeparator()
        if self.problem.node is not None:
            menu.addAction(icons.icon("frame"), f"Show {self._name}", self._jump)
        text = plain(self.problem, self._name)
        menu.addAction(
            icons.icon("copy"),
            "Copy text",
            lambda: QGuiApplication.clipboard().setText(text),
        )
        return menu

    def offer(self) -> None:
        """Open the menu below its button, with the first entry chosen."""
        menu = self._open_menu(self.more.mapToGlobal(self.more.rect().bottomLeft()))
        menu.setActiveAction(menu.actions()[0])

    def _open_menu(self, position: QPoint) -> QMenu:
        menu = self.menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(position)
        return menu

    def _jump(self) -> None:
        self.jumped.emit(self.problem.node)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self._open_menu(event.globalPos())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Have a long cure below a text that it would break into lines."""
        super().resizeEvent(event)
        if self.cure is not None:
            lines = [t.fontMetrics().horizontalAdvance(t.text()) for t in self.texts]
            room, taken = self._beside.geometry().width(), self.cure.sizeHint().width()
            below = taken > room / 3 and max(lines) + taken + _SPACING > room
            way = QBoxLayout.Direction
            self._beside.setDirection(way.TopToBottom if below else way.LeftToRight)
            self._beside.setSpacing(_BELOW if below else _SPACING)
            self._beside.setAlignment(self.cure, _LEFT if below else _CENTRE)


class ProblemsPanel(QWidget):
    """The list, errors first, and a line about the nodes without problems.

    `jump_requested(node)` requests to select a node and scroll to it, `cure_requested(Cure)` to fix a problem.
    `count_changed(errors, warnings)` is for the badge of the tab. Rows of selected nodes are highlighted.
    """

    jump_requested = Signal(str)
    enter_requested = Signal(object)  # the path of the block that contains a problem
    cure_requested = Signal(object)
    count_changed = Signal(int, int)

    def __init__(
        self,
        catalog: Catalog,
        selection: Selection | None = None,
    ) -> None:
        super().__init__()
        self._catalog, self._selection = catalog, selection
        self._shown: tuple[tuple[Problem, str], ...] | None = None
        self._counts = (0, 0)
        self.rows: list[ProblemRow] = []
        self._followed: object = None  # key of the row that was followed last
        self._waiting: Iterator[tuple[int, Problem, str]] = iter(())
        self._turn = QTimer(self, singleShot=True, interval=1)
        self._turn.timeout.connect(lambda: self._add(A_TURN))
        self._filling: Analysis | None = None
        self.ok_line = label("", "label", "text3", wrap=True)
        self._ok_icon = Glyph("check", size=15)
        inside = QWidget()
        foot = hbox(
            (self._ok_icon, 0, Qt.AlignmentFlag.AlignTop),
            (self.ok_line, 1),
            margins=(16, 14, 16, 12),
            spacing=10,
        )
        self._column = vbox(foot, 1, on=inside, margins=0, spacing=0)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(inside)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._scroll = scroll
        vbox(scroll, on=self, margins=0)
        if selection is not None:
            selection.changed.connect(lambda ids, origin: self._mark())
        theme.manager().changed.connect(inside.update)
        self.forget()

    @property
    def counts(self) -> tuple[int, int]:
        """Errors and warnings."""
        return self._counts

    def forget(self) -> None:
        """Show no problems: what is open has not been checked yet."""
        self._turn.stop()
        self._waiting, self._shown, self._filling, self._counts = (
            iter(()),
            None,
            None,
            (0, 0),
        )
        for row in self.rows:
            self._remove(row)
        self.rows = []
        self._show_ok_line("The network has not been checked yet.", fine=False)

    def set_analysis(self, analysis: Analysis, more: Sequence[Problem] = ()) -> None:
        """Show the problems of a net, and `more` that were found between it and the data."""
        problems = sorted((*analysis.problems, *more), key=lambda problem: problem.rank)
        nodes = analysis.graph.nodes
        shown = tuple(
            (p, nodes[p.node].name if p.node is not None and p.node in nodes else "")
            for p in problems
        )
        self._show_fine(analysis, problems)
        if shown == self._shown:
            return
        self._shown = shown
        self._fill(analysis, shown)
        errors = sum(problem.severity == "error" for problem in problems)
        warnings = sum(problem.severity == "warning" for problem in problems)
        if (errors, warnings) != self._counts:
            self._counts = (errors, warnings)
            self.count_changed.emit(*self._counts)
            kinds = zip(self._counts, ("error", "warning"), strict=True)
            announce(
                self,
                " and ".join(counted(count, kind) for count, kind in kinds if count)
                or "No problems",
            )

    def _fill(self, analysis: Analysis, shown: tuple[tuple[Problem, str], ...]) -> None:
        focused = next((i for i, row in enumerate(self.rows) if focus_in(row)), None)
        self._waiting = iter(self._remove_stale(shown[:MOST], analysis))
        self._turn.stop()
        self._filling = analysis
        self._add(max(AT_ONCE, 0 if focused is None else focused + 1 - len(self.rows)))
        if (
            focused is not None and self.rows
        ):  # the row that was mended is gone; stay in the list
            self.rows[min(focused, len(self.rows) - 1)].setFocus()
        self._mark()

    def _remove_stale(
        self, shown: tuple[tuple[Problem, str], ...], analysis: Analysis
    ) -> list[tuple[int, Problem, str]]:
        """Remove the rows of problems that are gone; return the problems without a row, with their position."""
        positions = {
            (problem.message, problem.node, name): index
            for index, (problem, name) in enumerate(shown)
        }
        remaining: dict[int, ProblemRow] = {}
        last = -1
        for row in self.rows:
            position = positions.get(row.key, -1)
            if position > last and row.shows(
                *shown[position], self._category(analysis, *shown[position])
            ):
                remaining[position], last = row, position
                continue
            self._remove(row)
        self.rows = list(remaining.values())
        return [
            (index, *entry)
            for index, entry in enumerate(shown)
            if index not in remaining
        ]

    def _remove(self, row: ProblemRow) -> None:
        self._column.removeWidget(row)
        row.hide()
        row.deleteLater()

    def _category(self, analysis: Analysis, problem: Problem, name: str) -> str:
        node = analysis.graph.nodes[problem.node] if name and problem.node else None
        return self._catalog.spec_of(analysis.graph, node).category if node else ""

    def _add(self, count: int) -> None:
        """Make the next rows. The others come in turns: 200 at once would hold the window up."""
        analysis, first = self._filling, len(self.rows)
        assert analysis is not None
        for position, problem, name in islice(self._waiting, count):
            row = ProblemRow(problem, name, self._category(analysis, problem, name))
            row.jumped.connect(lambda node, way=problem.path: self._jump(node, way))
            row.cure_requested.connect(self.cure_requested)
            row.left.connect(self._move_focus)
            self._column.insertWidget(position, row)
            self.rows.insert(position, row)
        width = max(
            (row.natural_name_width() for row in self.rows), default=_NAME_LEAST
        )
        for row in self.rows:
            row.set_name_width(width)
        if len(self.rows) - first == count:
            self._turn.start()
        if first:
            self._mark()

    def _show_fine(self, analysis: Analysis, problems: Sequence[Problem]) -> None:
        total = len(analysis.graph.nodes)
        bad = {
            p.node
            for p in problems
            if p.node in analysis.graph.nodes and p.severity != "info"
        }
        waiting = len(analysis.assumed - bad)
        fine = total - len(bad) - waiting
        sentences = [fine_text(fine, total)]
        if waiting:
            sentences.append(
                trn(
                    "{count} node waits for input shapes that are not known yet.",
                    "{count} nodes wait for input shapes that are not known yet.",
                    waiting,
                )
            )
        if len(problems) > MOST:
            only = tr(
                "Only the first {most} of {count} problems are shown.",
                most=MOST,
                count=len(problems),
            )
            sentences.insert(0, only)
        if analysis.source.opened:
            sentences = (
                []
                if problems
                else [
                    tr("Model, data and loss match, as far as one forward call shows.")
                ]
            )
        elif not total:
            hint = tr(
                "Drag a layer from the Layers panel onto the canvas, or press Tab there to search."
            )
            sentences = [] if problems else [hint]
        self._show_ok_line(
            " ".join(filter(None, sentences)),
            fine=(fine > 0 or analysis.source.opened) and len(problems) <= MOST,
        )

    def _show_ok_line(self, message: str, fine: bool) -> None:
        self.ok_line.setText(message)
        self._ok_icon.set("check" if fine else "info", "run" if fine else "text3")
        self._ok_icon.setVisible(bool(message))

    def _jump(self, node: str | None, way: Path = ()) -> None:
        if node is not None:
            if self._selection is not None:
                self._selection.set({node}, self)
            self.jump_requested.emit(node)
        if way:
            self.enter_requested.emit(way)

    def go_to_next(self) -> bool:
        """Follow the problem after the one that was followed last, errors before warnings; False if there is none."""
        worst = [
            row for row in self.rows if row.problem.severity == "error"
        ] or self.rows
        if not worst:
            return False
        followed = [i for i, row in enumerate(worst) if row.key == self._followed]
        row = worst[(followed[0] + 1) % len(worst) if followed else 0]
        self._followed = row.key
        if row.problem.node is None:  # it is in the data or the training settings
            row.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._scroll.ensureWidgetVisible(row, 0, 0)
        self._jump(row.problem.node, row.problem.path)
        return row.problem.node is not None

    def offer_fixes(self) -> None:
        """Open the menu of a problem: of the selected node, else of the one that was followed last, else the first."""
        ids = self._selection.ids if self._selection is not None else frozenset()
        rank = (
            lambda row: row.problem.node in ids,
            lambda row: row.key == self._followed,
            lambda _row: True,
        )
        row = next((row for suits in rank for row in self.rows if suits(row)), None)
        if row is not None:
            self._scroll.ensureWidgetVisible(row, 0, 0)
            row.offer()

    def _move_focus(self, step: int) -> None:
        at = next((i for i, row in enumerate(self.rows) if row.hasFocus()), 0)
        row = self.rows[min(max(at + step, 0), len(self.rows) - 1)]
        row.setFocus(Qt.FocusReason.TabFocusReason)
        self._scroll.ensureWidgetVisible(row, 0, 0)

    def _mark(self) -> None:
        ids = self._selection.ids if self._selection is not None else frozenset()
        for row in self.rows:
            row.set_marked(row.problem.node in ids)
