"""The inspector with no node selected: the project as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QEvent, QObject

from app.builder.diagnostics.problems import Problem
from app.builder.graph import Graph
from app.util.formatting import counted, grouped_digits
from app.views.fields.line_edits import NotesField, leaves_to_window
from app.views.fields.tab_order import TabDown
from app.views.inspector.edit_target import EditTarget
from app.views.inspector.io_section import InputsOutputsSection
from app.views.inspector.sections import CostBar
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Section, TextField
from app.views.ui.widgets.painting import Glyph, label

if TYPE_CHECKING:
    from app.builder.results import Analysis


def _project_name(text: str) -> str:
    if not text.strip():
        raise ValueError("Enter a name.")
    return text.strip()


HINTS = (
    "Its modules are on the Model page.",
    "Select a node to see and set its parameters.",
)  # of code, drawn


class OverviewPage(TabDown):
    """The project as a whole: name, size, inputs and outputs, notes."""

    def __init__(self, front: EditTarget) -> None:
        super().__init__()
        self._front = front
        self._analysis: Analysis | None = None
        self._problems: tuple[Problem, ...] = ()
        self._shown: object = None
        self.name = TextField(front.whole.name, _project_name)
        self.name.setAccessibleName("Name of the project")
        self.name.installEventFilter(self)
        self.name_problem = label("", "caption", "error", wrap=True)
        self.name_problem.hide()
        self.notes = NotesField("Notes: purpose, results, next steps.")
        self.net = Section("Network")
        self._nodes, self._parameters, self._trainable, self._frozen = (
            CostBar(name, "", None, "", "io")
            for name in ("Nodes", "Parameters", "Trainable", "Frozen")
        )
        self._sign, self._verdict = Glyph("check", size=14), label("", "label", "text2")
        verdict = hbox(self._sign, (self._verdict, 1), spacing=6)
        self.net.body_layout.setSpacing(6)
        self.net.body_layout.addWidget(self._nodes)
        for bar in (self._parameters, self._trainable, self._frozen):
            self.net.body_layout.addWidget(bar)
        self.net.body_layout.addLayout(verdict)
        self.ends = InputsOutputsSection(
            "The network has no inputs or outputs yet. Drag an Input and an Output onto the canvas."
        )
        notes = Section("Notes")
        notes.body_layout.addWidget(self.notes)
        self.hint = label("", "label", "text3", wrap=True)
        head = vbox(
            label("Project", "caption", "text3"),
            self.name,
            self.name_problem,
            self.hint,
            margins=12,
            spacing=5,
        )
        vbox(head, self.net, self.ends, notes, 1, on=self, margins=0, spacing=0)
        self.name.edited.connect(self._rename)
        self.name.textEdited.connect(
            lambda text: self._show_problem(self.name.invalid())
        )
        self.name.editingFinished.connect(lambda: self._show_problem(None))
        self.notes.textChanged.connect(self._note)
        self.refresh()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)

    def refresh(self) -> None:
        """Show the project as it is now."""
        project = self._front.whole
        if self.name.value() != project.name:
            self.name.set_value(project.name)
        self.notes.show_text(project.notes)
        drawn = project.opened is None
        self.hint.setText(HINTS[drawn])
        self._nodes.setVisible(drawn)
        self.ends.setVisible(drawn)  # of a model of code the page Model shows them
        self._show_net(project.graph, drawn)
        self.ends.show_ends(project.graph, self._analysis)

    def set_analysis(self, analysis: Analysis, problems: Sequence[Problem]) -> None:
        """Set the analysis of the graph; `refresh` shows it."""
        self._analysis, self._problems = analysis, tuple(problems)

    def forget_analysis(self) -> None:
        """Show nothing of the last net: another project is open, and is still to be checked."""
        self._analysis, self._problems = None, ()
        self.refresh()

    def _show_net(self, graph: Graph, drawn: bool) -> None:
        total = self._analysis.total_parameters if self._analysis is not None else None
        frozen = self._analysis.frozen_parameters if self._analysis is not None else 0
        shown = (
            drawn,
            len(graph.nodes),
            total,
            frozen,
            tuple(problem.severity for problem in self._problems),
        )
        if shown == self._shown:
            return
        self._shown = shown
        self._nodes.set_value(grouped_digits(len(graph.nodes)))
        for widget in (self._parameters, self._sign, self._verdict):
            widget.setVisible(total is not None)
        for widget in (self._trainable, self._frozen):
            widget.setVisible(bool(frozen))
        if total is not None:
            self._parameters.set_value(grouped_digits(total))
            self._trainable.set_value(grouped_digits(total - frozen))
            self._frozen.set_value(grouped_digits(frozen))
            errors = sum(problem.severity == "error" for problem in self._problems)
            warnings = sum(problem.severity == "warning" for problem in self._problems)
            self._sign.set("error" if errors else "warning" if warnings else "check")
            counts = ((errors, "error"), (warnings, "warning"))
            summary = ", ".join(
                counted(number, kind) for number, kind in counts if number
            )
            self._verdict.setText(
                summary or ("All shapes match" if drawn else "No problems")
            )

    def _rename(self, name: str) -> None:
        self._front.apply_whole(
            "Rename project",
            lambda project: replace(project, name=name),
            "project.name",
        )

    def _show_problem(self, problem: str | None) -> None:
        self.name_problem.setText(problem or "")
        self.name_problem.setVisible(bool(problem))

    def _note(self) -> None:
        notes, visit = self.notes.toPlainText(), self.notes.visit
        self._front.apply_whole(
            "Edit notes",
            lambda project: replace(project, notes=notes),
            f"project.notes/{visit}",
        )
