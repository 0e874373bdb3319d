"""The page "Compile": graph breaks and recompiles as rows, with what compiling gains."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QSizePolicy, QStackedLayout, QWidget

from app.features.compile import guard_text
from app.features.compile.cures import cure, recompile_cure
from app.features.compile.values import Break, Compiled, Recompile
from app.training.events import GraphBreak, Recompiled
from app.util.columns import Column
from app.util.formatting import figure, milliseconds
from app.util.language import marked, tr, trn
from app.views.ui.code_edit import CodeEdit
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import RowsModel, Table
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import label

TITLE = marked("Compile the network")
HINT = marked(
    "Calls the network under torch.compile with several batch sizes, in a process of its own, and names each graph "
    "break and each recompile with its line."
)
CLEAN = marked("No graph breaks and no recompiles.")
MODEL = marked("the model")
WIDEST = 420  # px of a column


class CompileRow(Struct, frozen=True):
    """A graph break or a recompile, with what to do about it."""

    kind: str
    path: str
    line: str
    reason: str
    cure: str

    @property
    def layer(self) -> str:
        return self.path or tr(MODEL)


def script_row(event: GraphBreak | Recompiled) -> CompileRow:
    """Return the row of what a watched script told."""
    if isinstance(event, GraphBreak):
        reason = ": ".join(filter(None, (event.kind, event.explanation)))
        advice = cure(event.kind, event.explanation, event.hints.splitlines())
        return CompileRow(
            tr("Graph break"), event.layer, event.line, reason.removesuffix("."), advice
        )
    guard = guard_text.read(event.reason)
    line = ":".join(map(str, guard.locations[-1])) if guard.locations else ""
    again = Recompile(
        event.layer,
        f"{guard.text} ({line})",
        guard.was,
        guard.now,
        recompile_cure(guard.text),
    )
    return rows_of((), (again,))[0]


def rows_of(
    breaks: Sequence[Break], recompiles: Sequence[Recompile]
) -> list[CompileRow]:
    """Return a row per break, then one per recompile."""
    rows = [
        CompileRow(tr("Graph break"), entry.path, entry.line, entry.reason, entry.cure)
        for entry in breaks
    ]
    for again in recompiles:
        guard, _, line = again.guard.removesuffix(")").rpartition(" (")
        reason = tr(
            "{guard}: was {was}, is {now}",
            guard=guard,
            was=again.was,
            now=again.now or tr("something else"),
        )
        rows.append(CompileRow(tr("Recompile"), again.path, line, reason, again.cure))
    return rows


COLUMNS = (
    Column("Kind", lambda row: row.kind, color=lambda _row: "warn"),
    Column("Layer", lambda row: row.layer),
    Column("Line", lambda row: row.line, color=lambda _row: "text2"),
    Column("Reason", lambda row: row.reason),
    Column("Cure", lambda row: row.cure),
)


def conclusion(result: Compiled) -> str:
    """Return the counts and times in sentences."""
    sentences = [
        trn("{count} graph.", "{count} graphs.", result.graphs),
    ]
    if result.breaks or result.recompiles:
        sentences += [
            trn("{count} graph break,", "{count} graph breaks,", len(result.breaks)),
            trn("{count} recompile.", "{count} recompiles.", len(result.recompiles)),
        ]
    else:
        sentences.append(tr(CLEAN))
    eager, fast = result.eager_seconds, result.compiled_seconds
    if eager is not None and fast is not None:
        sentences.append(
            tr(
                "A call takes {eager}, compiled by Inductor {compiled}: {ratio} times as fast.",
                eager=milliseconds(eager),
                compiled=milliseconds(fast),
                ratio=figure(eager / fast, 2),
            )
        )
    sentences.append(tr("Called with: {calls}.", calls="; ".join(result.calls)))
    return " ".join((*sentences, *result.remarks))


class CompileTable(Table):
    """Enter and a double click go to the layer."""

    def opens(self, row: CompileRow) -> str:
        return tr("Show {layer}", layer=row.layer)


class CompilePage(QWidget):
    """What compiling found, or what it does at the moment. `jump_requested(row)` requests to show a layer."""

    jump_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.result: Compiled | None = None
        self.train_mode = QCheckBox(tr("Backward too"))
        self.train_mode.setToolTip(
            tr("Calls it in train mode, forward and backward; else in eval mode")
        )
        self.start = Button(tr("Compile"), "secondary")
        self.stop = Button(tr("Cancel"), "secondary")
        self.code = Button(tr("Generated code…"), "secondary")
        self.code.clicked.connect(self._show_code)
        self.summary = label("", "caption", "text2", wrap=True)
        self.summary.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.table = CompileTable(
            RowsModel(COLUMNS), tr("Graph breaks and recompiles"), 26
        )
        self.table.sort_by_header()
        self.table.opened.connect(self.jump_requested)
        self.empty = EmptyState("chip", tr(TITLE), tr(HINT))
        head = hbox(
            (self.summary, 1),
            self.train_mode,
            self.code,
            self.stop,
            self.start,
            margins=(8, 4, 8, 4),
            spacing=8,
        )
        self._stack = QStackedLayout()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.table)
        vbox(head, (self._stack, 1), on=self, margins=0, spacing=0)
        self.show_message(tr(HINT))

    def show_message(self, text: str, busy: bool = False) -> None:
        """Show a sentence in place of rows; while it is busy there is a button that cancels."""
        self.result = None
        self.summary.setText("")
        self.empty.set_text(tr(TITLE), text)
        self._stack.setCurrentIndex(0)
        self.set_busy(busy)

    def set_busy(self, busy: bool) -> None:
        """Offer to cancel in place of what begins."""
        self.stop.setVisible(busy)
        self.start.setVisible(not busy)
        self.train_mode.setEnabled(not busy)
        self.code.setVisible(self.result is not None and bool(self.result.code))

    def show_result(self, result: Compiled) -> None:
        """Show what was found."""
        self.result = result
        self.summary.setText(conclusion(result))
        self.table.cells.set_rows(rows_of(result.breaks, result.recompiles))
        self.table.fit_columns(WIDEST)
        self.empty.set_text(tr(CLEAN))
        self._stack.setCurrentIndex(int(bool(self.table.rows)))
        self.set_busy(False)

    def show_logged(self, rows: Sequence[CompileRow]) -> None:
        """Show what a watched script has told so far."""
        self.result = None
        self.summary.setText(
            trn(
                "The watched script has had {count} graph break or recompile.",
                "The watched script has had {count} graph breaks and recompiles.",
                len(rows),
            )
        )
        self.table.cells.set_rows(rows)
        self.table.fit_columns(WIDEST)
        self._stack.setCurrentIndex(1)
        self.set_busy(False)

    def note(self, text: str) -> None:
        """Put a sentence before what was found."""
        if not self.summary.text().startswith(text):
            self.summary.setText(f"{text} {self.summary.text()}")

    def _show_code(self) -> None:
        if self.result is not None:
            CodeDialog(self.result.code, self.window()).open()


class CodeDialog(Dialog):
    """The code that Inductor generated, one text after the other."""

    def __init__(self, texts: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(tr("Generated code"), parent, icon="code")
        self.edit = CodeEdit()
        self.edit.setAccessibleName(tr("Generated code"))
        self.edit.show_text("\n\n".join(texts))
        count = trn(
            "Inductor generated {count} module of code, for forward and backward of each graph.",
            "Inductor generated {count} modules of code, for forward and backward of each graph.",
            len(texts),
        )
        self.body.addWidget(label(count, "label", "text2", wrap=True))
        self.body.addWidget(self.edit, 1)
        self.add_button(tr("Close"), "primary", default=True).clicked.connect(
            self.accept
        )
        self.resize(960, 620)
