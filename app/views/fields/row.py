"""One row of a form: the parameter's name, its editor, and notes below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QVBoxLayout,
    QWidget,
)

from app.builder.literals import AUTO
from app.views.fields.editor_factory import make_editor, suits
from app.views.fields.editors import Editor
from app.views.fields.line_edits import leaves_to_window
from app.views.fields.values import (
    BlockScope,
    ParamLike,
    computes,
    equal_values,
    expected,
    show,
)
from app.views.fields.wired_field import AutoEditor, WiredEditor
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, icon_button
from app.views.ui.widgets.focus import focus_in
from app.views.ui.widgets.painting import announce, label, set_property, show_or_hide

# --- An inline prompt for a name


class NamePrompt(QWidget):
    """A field with a name to begin with, and the button that takes it. Enter takes it, Esc and leaving close it."""

    closed = Signal()

    def __init__(
        self,
        name: str,
        title: str,
        take: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._take = take
        self.line = QLineEdit(name)
        self.line.setFont(theme.font("code"))
        self.line.setFixedHeight(24)
        self.line.setMinimumWidth(44)
        self.line.setAccessibleName(title)
        self.line.installEventFilter(self)
        self.button = Button(title, "primary")
        self.button.setFixedHeight(24)
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        row = hbox((self.line, 1), self.button, spacing=6)
        vbox(row, self.problem, on=self, margins=(0, 0, 0, 4), spacing=3)
        self.line.textEdited.connect(lambda _: self._show_problem(""))
        self.button.clicked.connect(self.submit)

    def start(self) -> None:
        """Put the caret into the name, all of it selected."""
        self.show()
        self.line.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.line.selectAll()

    def submit(self) -> None:
        """Submit the name; if it is refused, show why and stay open."""
        try:
            self._take(self.line.text().strip())
        except ValueError as error:
            self._show_problem(str(error))
        else:
            self.closed.emit()

    def _show_problem(self, message: str) -> None:
        set_property(self.line, "invalid", bool(message))
        self.line.setAccessibleDescription(message)
        show_or_hide(self.problem, message)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        return leaves_to_window(event, watched) or super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.submit()
        elif event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)


ROW = 29
LABEL_MOST = 138
_NOTE_LEAST = 60
_DEFAULT = "default"


class _Note(QLabel):
    """Small words behind an editor, cut where the room ends; the tool tip has them whole."""

    def __init__(self) -> None:
        super().__init__()
        self.setFont(theme.font("caption"))
        self.setProperty("tone", "text3")

    def show_text(self, text: str) -> None:
        if text != self.text():
            self.setFont(theme.font("formula" if text.startswith("=") else "caption"))
            self.setText(text)
            self.setToolTip(text)

    def minimumSizeHint(self) -> QSize:
        natural = self.sizeHint()
        return QSize(min(natural.width(), _NOTE_LEAST), natural.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().windowText().color())
        shown = self.fontMetrics().elidedText(
            self.text(), Qt.TextElideMode.ElideRight, self.width()
        )
        painter.drawText(
            self.rect(),
            Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter,
            shown,
        )
        painter.end()


class ParamName(QLabel):
    """The name of a parameter, shortened in the middle where it is too long."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._whole = text
        self._room = 0
        self.setFont(theme.font("code"))
        self.setProperty("tone", "text2")
        self._fit_text()
        theme.manager().changed.connect(self._fit_text)

    def _fit_text(self) -> None:
        """Take the room that a name may have at the text size in force, until the form gives it less."""
        most = round(LABEL_MOST * theme.manager().scale)
        self.wanted = min(
            QFontMetrics(theme.font("code")).horizontalAdvance(self._whole) + 1, most
        )  # rounded down
        self._room = 0
        self.set_room(most)

    def set_room(self, most: int) -> None:
        """Shorten the name to a width, px."""
        if most != self._room:
            self._room = most
            self.setText(
                QFontMetrics(theme.font("code")).elidedText(
                    self._whole, Qt.TextElideMode.ElideMiddle, most
                )
            )
            self.setMaximumWidth(most)


class RowOwner(QWidget):
    """The form of rows, as they know it; `ParamForm` says what its signals carry."""

    edited = Signal(str, object, object)
    reset = Signal(str)
    cut = Signal(str)
    refused = Signal(str, str)
    restored = Signal(str)
    scope: BlockScope | None

    def point_at(self, row: ParamRow) -> None:
        raise NotImplementedError

    def editor_changed(self, row: ParamRow) -> None:
        raise NotImplementedError

    def show_expert(self, shown: bool) -> None:
        raise NotImplementedError

    def fill(self, menu: QMenu, name: str) -> None:
        raise NotImplementedError


class ParamRow:
    """One row. Rarely needed parts, such as the error label, are created on demand."""

    def __init__(
        self, form: RowOwner, param: ParamLike, grid: QGridLayout, line: int
    ) -> None:
        self._form, self.param, self._grid, self._line = form, param, grid, line
        self.editor: Editor | None = None
        self.prompt: NamePrompt | None = None
        self._value: Any = None
        self._source = ""
        self._known = False
        self._shown = True
        self._doc = self._message = self._blame = ""
        self.parts: dict[str, QWidget] = {}
        self.name = ParamName(param.name)
        self.name.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.name.customContextMenuRequested.connect(
            lambda position: self.open_menu(self.name.mapToGlobal(position))
        )
        self._cell = hbox(spacing=6)
        grid.addWidget(self.name, 2 * line, 0)
        grid.addLayout(self._cell, 2 * line, 1)
        grid.setRowMinimumHeight(2 * line, ROW)

    # --- Parts that are made when they are needed

    @cached_property
    def note(self) -> _Note:
        """Small words behind the editor: where a value comes from, what an expression is now."""
        note = _Note()
        note.hide()
        self._cell.insertWidget(1, note, 1)
        return note

    @cached_property
    def link(self) -> QWidget:
        """The button that gives the value back to the arriving shape."""
        link = icon_button("link", f"Infer {self.param.name} from the input")
        link.setFixedSize(22, 22)
        link.clicked.connect(lambda: self._edited(AUTO))
        link.hide()
        self._cell.addWidget(link)
        return link

    @cached_property
    def _below(self) -> QVBoxLayout:
        column = vbox(spacing=3)
        self._grid.addLayout(column, 2 * self._line + 1, 1)
        return column

    @cached_property
    def problem(self) -> QLabel:
        """The label of the error."""
        problem = label("", "caption", "error", wrap=True)
        problem.hide()
        self._below.addWidget(problem)
        return problem

    @cached_property
    def remark(self) -> QLabel:
        """The label of what an edit does, where that is not what one expects."""
        remark = label("", "caption", "warn", wrap=True)
        remark.hide()
        self._below.addWidget(remark)
        return remark

    def show_remark(self, text: str) -> None:
        """Say below the editor what an edit does; "" takes it away."""
        if text or "remark" in self.__dict__:
            show_or_hide(self.remark, text)

    # --- Values

    @property
    def value(self) -> Any:
        return self._value

    @property
    def is_expert(self) -> bool:
        """Return whether few change the parameter, so that it is under "More" while it is the default."""
        return getattr(self.param, "expert", False)

    @property
    def is_plain(self) -> bool:
        """Return whether the value is the default, and is not being edited."""
        edited = self.editor is not None and self.editor.has_focus()
        return not edited and equal_values(self._value, self.param.default)

    def set_shown(self, shown: bool) -> None:
        """Show the row, or take it away."""
        if shown != self._shown:
            self._shown = shown
            self.name.setVisible(shown)
            if self.editor is not None:
                self.editor.setVisible(shown)
            self._grid.setRowMinimumHeight(2 * self._line, ROW if shown else 0)

    def reveal(self) -> None:
        """Show the row wherever it is."""
        if not self._shown:
            self._form.show_expert(True)

    @property
    def wired(self) -> bool:
        """Return whether a node provides the value."""
        return bool(self._source)

    def show_value(self, value: Any, source: str = "") -> None:
        """Show the project's value, or the node that it comes from. Text being typed stays if neither has changed."""
        if self._known and equal_values(value, self._value) and source == self._source:
            return
        self._value, self._source, self._known = value, source, True
        if source:
            if not isinstance(self.editor, WiredEditor):
                self._put(WiredEditor(self.param))
            assert isinstance(self.editor, WiredEditor)
            self.editor.show_source(source)
        else:
            if not self._keeps(value):
                self._put(make_editor(self.param, value, self._form.scope))
            assert self.editor is not None
            self.editor.set_value(value)
        self.fit()

    def _keeps(self, value: Any) -> bool:
        """Return whether the present editor can show the value; while focused, also one that suits another editor."""
        editor = self.editor
        if editor is None or isinstance(editor, WiredEditor):
            return False
        return suits(editor, value) or (editor.has_focus() and editor.can_show(value))

    def settle(self) -> None:
        """Replace the editor, after it lost the focus, if another one suits the value."""
        editor = self.editor
        if (
            editor is not None
            and not isinstance(editor, WiredEditor)
            and not editor.has_focus()
        ):
            if self._known and not suits(editor, self._value):
                editor = make_editor(self.param, self._value, self._form.scope)
                self._put(editor)
                editor.set_value(self._value)
                self.fit()

    def forget(self) -> None:
        """Show the next value whatever is in the editor."""
        self._known = False
        self.close_prompt()
        if self.editor is not None:
            self.editor.visit += 1
            self.editor.discard()

    def _put(self, editor: Editor) -> None:
        had_focus = False
        if (old := self.editor) is not None:
            had_focus = focus_in(old) is not None
            self._cell.removeWidget(old)
        self.editor = editor
        self._cell.insertWidget(0, editor, 0 if isinstance(editor, AutoEditor) else 1)
        if not self._shown:
            editor.hide()
        self.name.setBuddy(editor)
        editor.menu_in_text = True
        editor.edited.connect(self._edited)
        editor.problem_changed.connect(self._show_error)
        editor.refused.connect(
            lambda text: self._form.refused.emit(self.param.name, text)
        )
        editor.restored.connect(lambda: self._form.restored.emit(self.param.name))
        editor.menu_wanted.connect(self.open_menu)
        editor.entered.connect(lambda: self._form.point_at(self))
        editor.left.connect(lambda: QTimer.singleShot(0, editor, self.settle))
        if isinstance(editor, WiredEditor):
            editor.cut.connect(lambda: self._form.cut.emit(self.param.name))
        self._describe()
        self._show_error("")
        self._form.editor_changed(self)
        if had_focus:
            editor.setFocus(Qt.FocusReason.OtherFocusReason)
        if (
            old is not None
        ):  # after the new one has the focus, so that it does not go elsewhere in between
            old.hide()
            old.deleteLater()

    def fit(self) -> None:
        """Show the parts that the value calls for."""
        automatic, wired = isinstance(self.editor, AutoEditor), self.wired
        if self.param.auto and not automatic and not wired:
            self.link.show()
        elif "link" in self.__dict__:
            self.link.hide()
        if "note" in self.__dict__:
            shows_note = computes(self._value) or self.note.text() == _DEFAULT
            self.note.setVisible(
                bool(self.note.text()) and not wired and (automatic or shows_note)
            )
            self._cell.setStretch(0, 0 if automatic else 1)
            self._cell.setStretch(1, 0 if computes(self._value) else 1)
        computed = self._form.scope is not None and computes(self._value) and not wired
        set_property(
            self.name,
            "tone",
            "error" if self._blame else "accent" if computed else "text2",
        )

    def blame(self, message: str) -> None:
        """Mark the parameter with torch's error message that names it; "" removes the mark."""
        if message != self._blame:
            self._blame = message
            self._describe()
            self.fit()

    def show_resolved(self, value: Any, source: str) -> None:
        """Show the resolved value of AUTO and the node that it comes from, or the value of an expression."""
        note = ""
        if isinstance(self.editor, AutoEditor):
            self.editor.set_resolved(value)
            note = f"from {source}" if source else ""
        elif computes(self._value) and value is not AUTO and not computes(value):
            note = f"= {show(value)}"
        elif "note" in self.__dict__ and self.note.text() == _DEFAULT:
            return
        if note or "note" in self.__dict__:
            self.note.show_text(note)
            self.fit()

    def show_default(self, unset: bool) -> None:
        """Mark the value as the default."""
        if unset or "note" in self.__dict__:
            self.note.show_text(_DEFAULT if unset else "")
            self.fit()

    def show_parts(self, parts: Sequence[tuple[str, str]]) -> None:
        """Show the wires into parts of the value, as (port, source node): `size[0]` from `size1`."""
        if [*self.parts] == [port for port, _ in parts] and all(
            widget.property("source") == name
            for widget, (_, name) in zip(self.parts.values(), parts, strict=True)
        ):
            return
        for widget in self.parts.values():
            widget.hide()
            widget.deleteLater()
        self.parts = {port: self._part(port, name) for port, name in parts}

    def _part(self, port: str, source: str) -> QWidget:
        holder = QWidget()
        holder.setProperty("source", source)
        note = _Note()
        note.show_text(f"{port} from {source}")
        cut = icon_button("close", f"Cut the wire from {source} to {port}")
        cut.setFixedSize(20, 20)
        cut.clicked.connect(lambda: self._form.cut.emit(port))
        hbox((note, 1), cut, on=holder, margins=(0, 0, 0, 2), spacing=4)
        self._below.addWidget(holder)
        return holder

    # --- Words

    def set_doc(self, text: str) -> None:
        """Set torch's documentation of the parameter as tool tip."""
        if text != self._doc:
            self._doc = text
            self._describe()

    def _describe(self) -> None:
        default = "inferred from the input" if self.param.default is AUTO else None
        lines = [
            expected(self.param) + ".",
            self._doc,
            default and f"Default: {default}.",
        ]
        if isinstance(self.editor, WiredEditor):
            lines.insert(
                0,
                "Set by a wire. Click the link, or press Enter, to cut it and type a value instead.",
            )
        elif isinstance(self.editor, AutoEditor):
            lines.insert(
                0,
                "Inferred from the input shape. Click the link to type a value instead.",
            )
        elif self._form.scope is not None and self._form.scope.allows(self.param):
            lines.append(
                "Or an expression of the block's parameters, such as channels * 2."
            )
        if self._blame:
            lines.insert(0, f"PyTorch: {self._blame}")
        text = "\n".join(filter(None, lines))
        self.name.setToolTip(text)
        if self.editor is not None:
            self.editor.name_it(self.param.name, text)

    def _edited(self, value: Any) -> None:
        merge = None
        if self.editor is not None and self.editor.typed:
            merge = f"{self.param.name}/{id(self.editor)}/{self.editor.visit}"
        self._form.edited.emit(self.param.name, value, merge)

    def _show_error(self, message: str, torch_message: str = "") -> None:
        self._message = message
        if message or "problem" in self.__dict__:
            self.problem.setText(
                f"{message}\nPyTorch: {torch_message}" if torch_message else message
            )
            self.problem.setVisible(bool(message))
            if message:
                self.reveal()
                announce(self.problem, message)

    def show_refusal(self, message: str) -> None:
        """Show why an action on the parameter was refused."""
        self._show_error(message)

    def show_torch_message(self, torch_message: str, text: str) -> None:
        """Show torch's own message below ours, unless the field no longer holds that text."""
        lines = self.editor.lines() if self.editor is not None else ()
        if (
            self._message
            and torch_message
            and any(line.text() == text for line in lines)
        ):
            self._show_error(self._message, torch_message)

    # --- Menu and prompt

    def open_menu(self, position: QPoint) -> None:
        """Open the context menu: actions of the parameter and of the text field."""
        menu = QMenu(self._form)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._form.fill(menu, self.param.name)
        line = focus_in(self.editor) if self.editor is not None else None
        if isinstance(line, QLineEdit):
            standard = line.createStandardContextMenu()
            standard.setParent(menu)
            menu.addSeparator()
            menu.addActions(
                [
                    action
                    for action in standard.actions()
                    if action.text() or action.isSeparator()
                ]
            )
        menu.popup(position)

    def ask_name(self, name: str, title: str, take: Callable[[str], None]) -> None:
        """Prompt for a name below the field. `take` receives it and raises ValueError to refuse it."""
        self.close_prompt()
        self.prompt = NamePrompt(name, title, take)
        self.prompt.closed.connect(self.close_prompt)
        self._below.addWidget(self.prompt)
        self.prompt.start()

    def close_prompt(self) -> None:
        """Take the question away; the caret goes back into the field."""
        if self.prompt is not None:
            prompt, self.prompt = self.prompt, None
            back = focus_in(prompt) is not None
            prompt.hide()
            prompt.deleteLater()
            if back and self.editor is not None:
                self.editor.setFocus(Qt.FocusReason.OtherFocusReason)
