"""A form made from parameters: the inspector's for a layer, and that of an optimizer or a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QPoint, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QMenu, QWidget

from app.builder.literals import AUTO
from app.views import theme
from app.views.inspector.editors import AutoEditor, Editor, kind_of
from app.views.inspector.values import ParamLike, same, wanted
from app.views.widgets import icon_button
from app.views.widgets.painting import announce, label

ROW = 29
_LABEL_MOST = 138
_NOTE_LEAST = 60


class _Note(QLabel):
    """Small words behind an editor, cut where the room ends; the tool tip has them whole."""

    def __init__(self) -> None:
        super().__init__()
        self.setFont(theme.font("caption"))
        self.setProperty("tone", "text3")

    def say(self, text: str) -> None:
        self.setText(text)
        self.setToolTip(text)

    def minimumSizeHint(self) -> QSize:
        natural = self.sizeHint()
        return QSize(min(natural.width(), _NOTE_LEAST), natural.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().windowText().color())
        shown = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
        painter.end()


class ParamRow:
    """One line of the form: name, editor, a note, and below them what is wrong."""

    def __init__(self, form: ParamForm, param: ParamLike, grid: QGridLayout, line: int) -> None:
        self._form, self.param = form, param
        self.editor: Editor | None = None
        self._value: Any = None
        self._known = False
        self._doc = ""
        self.name = QLabel()
        self.name.setFont(theme.font("code"))
        self.name.setText(self.name.fontMetrics().elidedText(param.name, Qt.TextElideMode.ElideMiddle, _LABEL_MOST))
        self.name.setProperty("tone", "text2")
        self.name.setMaximumWidth(_LABEL_MOST)
        self.name.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.name.customContextMenuRequested.connect(self._open_menu)
        self.note = _Note()
        self.note.hide()
        self.link = icon_button("link", f"Take {param.name} from the input")
        self.link.setFixedSize(22, 22)
        self.link.clicked.connect(lambda: self._edited(AUTO))
        self.link.hide()
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        self._cell = QHBoxLayout()
        self._cell.setSpacing(6)
        self._cell.addWidget(self.note, 1)
        self._cell.addWidget(self.link)
        grid.addWidget(self.name, 2 * line, 0)
        grid.addLayout(self._cell, 2 * line, 1)
        grid.addWidget(self.problem, 2 * line + 1, 1)
        grid.setRowMinimumHeight(2 * line, ROW)

    @property
    def value(self) -> Any:
        return self._value

    def show_value(self, value: Any) -> None:
        """Show what the project holds. What is being typed stays if the project's value has not changed."""
        if self._known and same(value, self._value):
            return
        self._value, self._known = value, True
        if self.editor is None or not self.editor.suits(value):
            self._take_editor(value)
        assert self.editor is not None
        self.editor.set_value(value)
        self._fit()

    def forget(self) -> None:
        """Show the next value whatever is in the editor."""
        self._known = False
        if self.editor is not None:
            self.editor.visit += 1

    def _take_editor(self, value: Any) -> None:
        had_focus = False
        if (old := self.editor) is not None:
            had_focus = old.isAncestorOf(self._form.focusWidget() or self._form)
            self._cell.removeWidget(old)
            old.hide()
            old.deleteLater()
        editor = kind_of(self.param, value)(self.param)
        self.editor = editor
        self._cell.insertWidget(0, editor, 0 if isinstance(editor, AutoEditor) else 1)
        self.name.setBuddy(editor)
        editor.edited.connect(self._edited)
        editor.problem_changed.connect(self._say)
        self._describe()
        self._say("")
        self._form.keep_tab_order()
        if had_focus:
            editor.setFocus(Qt.FocusReason.OtherFocusReason)

    def _fit(self) -> None:
        automatic = isinstance(self.editor, AutoEditor)
        self.link.setVisible(self.param.auto and not automatic)
        self.note.setVisible(bool(self.note.text()) and (automatic or not self.param.auto))

    def show_resolved(self, value: Any, source: str) -> None:
        """For AUTO: the value it stands for, and the node that it comes from."""
        if isinstance(self.editor, AutoEditor):
            self.editor.set_resolved(value)
        self.note.say(f"from {source}" if source else "")
        self._fit()

    def set_doc(self, text: str) -> None:
        """What torch says of the parameter, as tool tip."""
        self._doc = text
        self._describe()

    def _describe(self) -> None:
        default = "taken from the input" if self.param.default is AUTO else None
        lines = [wanted(self.param) + ".", self._doc, default and f"By default {default}."]
        if isinstance(self.editor, AutoEditor):
            lines.insert(0, "Taken from the shape that arrives. Click the link to type a value instead.")
        text = "\n".join(filter(None, lines))
        self.name.setToolTip(text)
        if self.editor is not None:
            self.editor.name_it(self.param.name, text)

    def _edited(self, value: Any) -> None:
        merge = None
        if self.editor is not None and self.editor.typed:
            merge = f"{self.param.name}/{id(self.editor)}/{self.editor.visit}"
        self._form.edited.emit(self.param.name, value, merge)

    def _say(self, message: str) -> None:
        self.problem.setText(message)
        self.problem.setVisible(bool(message))
        if message:
            announce(self.problem, message)

    def _open_menu(self, place: QPoint) -> None:
        menu = QMenu(self.name)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(f"Reset {self.param.name}", lambda: self._form.reset.emit(self.param.name))
        menu.popup(self.name.mapToGlobal(place))


class ParamForm(QWidget):
    """A line a parameter.

    `edited(name, value, merge)`: the person made a value that the parameter can have; `merge` is equal for what was
    typed in one visit to a field, None for single acts. `reset(name)` asks for the default.
    """

    edited = Signal(str, object, object)
    reset = Signal(str)

    def __init__(self, params: Sequence[ParamLike], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(0)
        grid.setColumnStretch(1, 1)
        self.rows = {param.name: ParamRow(self, param, grid, line) for line, param in enumerate(params)}
        self._align(grid)

    def _align(self, grid: QGridLayout) -> None:
        widest = max((row.name.sizeHint().width() for row in self.rows.values()), default=0)
        grid.setColumnMinimumWidth(0, min(max(widest, 96), _LABEL_MOST))

    @property
    def params(self) -> tuple[ParamLike, ...]:
        return tuple(row.param for row in self.rows.values())

    def forget(self) -> None:
        """Let go of what is typed and refused: the next values are those of another thing."""
        for row in self.rows.values():
            row.forget()

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Show the values that are set, and defaults for the others."""
        for name, row in self.rows.items():
            row.show_value(values.get(name, row.param.default))

    def set_resolved(self, resolved: Mapping[str, Any], source: str) -> None:
        """What the AUTO parameters stand for, and the node that their value comes from."""
        for name, row in self.rows.items():
            if row.param.auto:
                row.show_resolved(resolved.get(name, AUTO), source)

    def set_docs(self, docs: Mapping[str, str]) -> None:
        """What torch says of the parameters."""
        for name, row in self.rows.items():
            row.set_doc(docs.get(name, ""))

    def set_problem(self, name: str, message: str) -> None:
        """Mark a value that others refused; "" takes the mark away."""
        editor = self.rows[name].editor if name in self.rows else None
        if editor is not None:
            editor.set_problem(message)

    def editor(self, name: str) -> Editor:
        """The editor of a parameter. Raises KeyError."""
        editor = self.rows[name].editor
        if editor is None:
            raise KeyError(name)
        return editor

    def keep_tab_order(self) -> None:
        """Tab goes down the lines, whichever editor was put in last."""
        before: QWidget | None = None
        for row in self.rows.values():
            for widget in (row.editor, row.link):
                if widget is not None:
                    if before is not None:
                        QWidget.setTabOrder(before, widget)
                    before = widget
