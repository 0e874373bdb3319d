"""The header of the inspector: icon, editable name, class, and the node's menu."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QWidget

from app.builder.catalog.catalog import OpSpec
from app.builder.graph import Graph, Node
from app.builder.names import written as written_name
from app.views.fields.line_edits import leaves_to_window
from app.views.ui import icons, theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.op_rows import Tile
from app.views.ui.widgets import icon_button
from app.views.ui.widgets.painting import label, set_property

LONGEST = 80


class BadName(ValueError):
    """An invalid name of a node; the message says why."""


def check_name(graph: Graph, node: str, name: str) -> None:
    """Raise BadName unless the node may be called so."""
    if not name.strip():
        raise BadName("Enter a name.")
    if len(name) > LONGEST:
        raise BadName(f"A name has at most {LONGEST} characters.")
    if any(other.name == name and other.id != node for other in graph.nodes.values()):
        raise BadName(f"Another node is already called {name}.")


class NameField(QLineEdit):
    """Reads as a title until one goes into it. Esc gives the old name back."""

    renamed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setFont(theme.font("title"))
        self.setFrame(False)
        self.setMaxLength(LONGEST + 1)
        self.setAccessibleName("Name of the node")
        self.setToolTip(
            "Node name, and the module's attribute name in the generated code."
        )
        self._plain = ""
        self.installEventFilter(self)
        self._restyle()
        theme.manager().changed.connect(self._restyle)

    def _restyle(self) -> None:
        colors = theme.current()
        rest = f"background: transparent; border: 1px solid transparent; color: {colors.text.name()};"
        self.setStyleSheet(
            f"QLineEdit {{ {rest} padding: 0 4px; margin-left: -5px; min-height: 20px; border-radius: 4px; }}"
            f"QLineEdit:hover {{ border-color: {colors.line2.name()}; }}"
            f"QLineEdit:focus {{ border: 1px solid {colors.accent.name()}; background: {colors.sunken.name()}; }}"
            f"QLineEdit[invalid='true'] {{ border: 1px solid {colors.error.name()}; color: {colors.error.name()}; }}"
        )

    def show_name(self, name: str) -> None:
        """Show the name that the project holds."""
        self._plain = name
        if self.text() != name:
            self.setText(name)
            self.setCursorPosition(0)

    def give_back(self) -> None:
        """Show the name that the project holds in the place of one that was refused."""
        self.setText(self._plain)
        self.setCursorPosition(0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.give_back()
            self.clearFocus()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.clearFocus()
        else:
            super().keyPressEvent(event)


class NodeHeader(QWidget):
    """Shows one node. `renamed(name, merge)` gives names that it can have."""

    renamed = Signal(str, str)
    frame_requested = Signal()
    reset_requested = Signal()
    delete_requested = Signal()
    flag_requested = Signal(
        str, bool
    )  # "muted" or "frozen", and whether it is to be so

    def __init__(self) -> None:
        super().__init__()
        self._graph, self._node, self._visit = Graph(), Node("", "", ""), 0
        self.tile = Tile()
        self.name = NameField()
        self.kind = label("", "formula", "text3")
        self.kind.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        # A long class name is cut at the buttons rather than widening the page.
        self.kind.setMinimumWidth(1)
        self.note = label("", "caption", "text3", wrap=True)
        self.note.hide()
        self.frozen = icon_button(
            "snowflake", "Freeze: its parameters get requires_grad=False"
        )
        self.muted = icon_button("mute", "Mute: bypass this node")
        for flag, button in (("frozen", self.frozen), ("muted", self.muted)):
            button.setCheckable(True)
            button.clicked.connect(
                lambda on, flag=flag: self.flag_requested.emit(flag, on)
            )
        self.frame = icon_button("frame", "Show on the canvas")
        self.frame.clicked.connect(self.frame_requested)
        self.more = icon_button("more", "More about this node")
        self.more.clicked.connect(self._open_menu)
        below = hbox(
            (self.kind, 1), self.frozen, self.muted, self.frame, self.more, spacing=6
        )
        column = vbox(self.name, below, spacing=1)  # the name has the whole width
        row = hbox(
            (self.tile, 0, Qt.AlignmentFlag.AlignVCenter), (column, 1), spacing=6
        )
        vbox(row, self.note, on=self, margins=(14, 12, 10, 12), spacing=6)
        self.name.textEdited.connect(self._typed)
        self.name.editingFinished.connect(self._finished)

    def show_node(self, graph: Graph, node: Node, spec: OpSpec, frozen: bool) -> None:
        """Show a node, and whether the module that it calls is frozen.

        A name being typed and refused stays if it is the same node still.
        """
        refused = (
            node.id == self._node.id
            and node.name == self._node.name
            and self.name.property("invalid")
        )
        if node.id != self._node.id:
            self._visit += 1
        self._graph, self._node = graph, node
        self.tile.set_category(spec.category)
        self.frozen.setVisible(spec.kind in ("module", "block", "custom", "parameter"))
        self.frozen.setChecked(frozen)
        self.muted.setVisible(bool(spec.inputs and spec.outputs))
        self.muted.setChecked(node.muted)
        class_name = node.op if spec.kind not in ("input", "output") else spec.label
        self.kind.setText(class_name)
        self.kind.setToolTip(class_name)
        if not refused:
            self.name.show_name(node.name)
            self._show_problem(None)

    def _typed(self, text: str) -> None:
        try:
            check_name(self._graph, self._node.id, text)
        except BadName as error:
            self._show_problem(str(error))
            return
        self._show_problem(None)
        self.renamed.emit(text, f"name/{self._visit}")

    def _finished(self) -> None:
        self._visit += 1
        self.name.give_back()
        self._show_problem(None)

    def _show_problem(self, problem: str | None) -> None:
        set_property(self.name, "invalid", problem is not None)
        self.name.setAccessibleDescription(problem or "")
        written = written_name(self._node.name)
        note = (
            f"In the code: {written}"
            if self._node.name and written != self._node.name
            else ""
        )
        self.note.setText(problem or note)
        set_property(self.note, "tone", "error" if problem else "text3")
        self.note.setVisible(bool(problem or note))

    def menu(self) -> QMenu:
        """Return the menu of the node."""
        menu = QMenu(self)
        menu.addAction("Rename", self.start_renaming)
        menu.addAction("Reset to defaults", self.reset_requested.emit)
        menu.addSeparator()
        clipboard = QGuiApplication.clipboard()
        name, op = self._node.name, self._node.op
        menu.addAction(icons.icon("copy"), "Copy name", lambda: clipboard.setText(name))
        menu.addAction(icons.icon("copy"), "Copy class", lambda: clipboard.setText(op))
        menu.addSeparator()
        menu.addAction(
            icons.icon("trash"), f"Delete {name}", self.delete_requested.emit
        )
        return menu

    def start_renaming(self) -> None:
        """Put the caret into the name, all of it selected."""
        self.name.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.name.selectAll()

    def _open_menu(self) -> None:
        menu = self.menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.more.mapToGlobal(self.more.rect().bottomLeft()))
