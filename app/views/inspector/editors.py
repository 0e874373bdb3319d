"""One editor a kind of parameter. All speak alike: a value in, valid values out, and what is wrong with the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QMenu, QWidget

from app.builder.literals import AUTO
from app.builder.params import ParamError
from app.views.inspector.undo_keys import leaves_to_window
from app.views.inspector.values import ParamLike, check, choices, fits, maximum, parse, same, show, wanted
from app.views.widgets import ChoiceField, NumberField, NumbersField, TextField, Toggle, icon_button

SINGLE = 106  # width of a field for one number, px


class Editor(QWidget):
    """Edits one value. `edited` gives values that the parameter can have, `problem_changed` a sentence or "".

    A new visit with the keyboard or mouse raises `visit`, so that what is typed in one visit can be one undo step.
    """

    edited = Signal(object)
    problem_changed = Signal(str)
    typed = True  # whether values come letter by letter

    def __init__(self, param: ParamLike, field: Any, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.param, self.field = param, field
        self.visit = 0
        self._given: Any = None
        self._problem = ""
        self.row = QHBoxLayout(self)
        self.row.setContentsMargins(0, 0, 0, 0)
        self.row.setSpacing(6)
        self.row.addWidget(field, 1)
        self.setFocusProxy(field)
        field.edited.connect(self._edited)
        for line in self.lines():
            line.installEventFilter(self)
            line.textEdited.connect(self._look)

    def lines(self) -> Iterator[QLineEdit]:
        """The fields of text in it."""
        if isinstance(self.field, QLineEdit):
            yield self.field
        elif isinstance(self.field, NumbersField):
            yield from self.field.fields()

    def suits(self, value: Any) -> bool:
        """Whether this editor can show the value; the form takes another one if not."""
        return kind_of(self.param, value) is type(self)

    def set_value(self, value: Any) -> None:
        """Show a value; what was typed and refused is forgotten."""
        self._given = value
        self.field.set_value(value)
        self._say("")

    def set_problem(self, message: str) -> None:
        """Mark the value as one that others refused."""
        self._say(message)

    def name_it(self, name: str, description: str) -> None:
        """The name for a screen reader, and the tool tip."""
        targets = list(self.lines()) or [self.field]
        for number, target in enumerate(targets):
            target.setAccessibleName(name if len(targets) == 1 else f"{name}, dimension {number + 1}")
        if hasattr(self.field, "set_hint"):
            self.field.set_hint(description)
        else:
            self.field.setToolTip(description)

    def _edited(self, value: Any) -> None:
        try:
            check(self.param, value)
        except ParamError as error:
            self._say(str(error))
            return
        self._say("")
        self.edited.emit(value)

    def _look(self, text: str) -> None:
        """A letter was typed: say at once what is wrong with the text, if anything."""
        if problem := (self.field.invalid() or ""):
            self._tell(self._why(text) or problem)
        elif not self._problem or same(self.field.value(), self._given):
            self._say("")

    def _why(self, text: str) -> str:
        """The rule's own words on a text that the field could not read."""
        try:
            parse(self.param, text)
        except ParamError as error:
            return str(error)
        return ""

    def _say(self, message: str) -> None:
        self.field.set_invalid(message or None)
        self._tell(message)

    def _tell(self, message: str) -> None:
        if message != self._problem:
            self._problem = message
            self.problem_changed.emit(message)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.FocusIn:
            self.visit += 1
        elif kind == QEvent.Type.FocusOut and self._problem:
            # The field goes back to what the project holds, so what was refused is no longer in sight.
            self.field.set_value(self._given)
            self._say("")
        elif leaves_to_window(event):
            return True
        return super().eventFilter(watched, event)


class NumberEditor(Editor):
    """One number with arrows."""

    def __init__(self, param: ParamLike) -> None:
        field = NumberField(0, param.kind, param.minimum, maximum(param), optional=param.optional)
        super().__init__(param, field)
        field.setFixedWidth(SINGLE)
        self.row.addStretch(1)


class NumbersEditor(Editor):
    """A number a dimension; where words are allowed too, a menu of them."""

    def __init__(self, param: ParamLike) -> None:
        start = 0 if param.count else (0,)
        super().__init__(param, NumbersField(param.count, start, "int", param.minimum, maximum(param)))
        if param.count == 1:
            self.field.setMaximumWidth(SINGLE)
            self.row.addStretch(1)
        if param.choices:
            self.words = icon_button("chevron-down", f"Words for {param.name}: {', '.join(param.choices)}")
            self.words.setFixedWidth(18)
            self.words.clicked.connect(self._open_menu)
            self.row.addWidget(self.words)

    def _open_menu(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for word in self.param.choices:
            menu.addAction(word, lambda word=word: self.edited.emit(word))
        menu.popup(self.words.mapToGlobal(self.words.rect().bottomLeft()))


class WordEditor(Editor):
    """A word in place of numbers (`padding="same"`), with the way back to numbers."""

    typed = False
    NUMBERS = "numbers …"

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, ChoiceField((*param.choices, self.NUMBERS)))

    def _edited(self, value: Any) -> None:
        if value == self.NUMBERS:
            number = param_number(self.param)
            self.edited.emit(number)
        else:
            super()._edited(value)


def param_number(param: ParamLike) -> int:
    """A number to begin with where a word stood."""
    return param.default if type(param.default) is int else int(param.minimum or 0)


class TextEditor(Editor):
    """Anything that is read from text: optional tuples, literals, and values that do not fit and must be mended."""

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, TextField("", lambda text: parse(param, text), show))
        self.field.setPlaceholderText("None" if param.optional else "")

    def set_value(self, value: Any) -> None:
        super().set_value(value)
        if not fits(self.param, value):
            self._say(f"{wanted(self.param)}, not {show(value)}")


class ChoiceEditor(Editor):
    """One of a few values."""

    typed = False

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, ChoiceField(choices(param), show=show))


class ToggleEditor(Editor):
    """True or False, in PyTorch's words beside the switch."""

    typed = False

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, Toggle())
        self.row.addStretch(1)
        self.field.toggled.connect(lambda on: self.field.set_text(str(on)))
        self.field.set_text("False")


class LinkedField(TextField):
    """Shows a value that comes along the wire. The link, or Enter, cuts it."""

    cut = Signal()

    def __init__(self) -> None:
        super().__init__("", str, show)
        self.set_linked(True)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        over = event.position().x() > self.width() - 22
        self.setCursor(Qt.CursorShape.PointingHandCursor if over else Qt.CursorShape.IBeamCursor)
        super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if event.button() == Qt.MouseButton.LeftButton and event.position().x() > self.width() - 22:
            self.cut.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space, Qt.Key.Key_F2):
            self.cut.emit()
        else:
            super().keyPressEvent(event)


class AutoEditor(Editor):
    """AUTO: the value that the arriving shape gave, read-only, until the link is cut and it becomes a typed one."""

    typed = False

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, LinkedField())
        self._resolved: Any = AUTO
        self.field.setMouseTracking(True)
        self.field.setMinimumWidth(62)
        self.field.setMaximumWidth(SINGLE)
        self.field.cut.connect(self._cut)

    def set_value(self, value: Any) -> None:
        self._given = value
        self.set_resolved(self._resolved)

    def set_resolved(self, value: Any) -> None:
        """The value that AUTO stands for at the moment; AUTO itself while nothing arrives."""
        self._resolved = value
        self.field.set_value("auto" if value is AUTO else value)

    def _cut(self) -> None:
        value = self._resolved
        if value is AUTO:  # nothing arrives; begin with the least that can be
            value = int(self.param.minimum or 1)
            value = (value,) if self.param.kind == "ints" and not self.param.count else value
        self._edited(value)


def kind_of(param: ParamLike, value: Any) -> type[Editor]:
    """The editor that suits a value of a parameter."""
    if value is AUTO and param.auto:
        return AutoEditor
    if not fits(param, value):
        return ChoiceEditor if param.kind in ("choice", "dtype") else TextEditor
    if param.kind in ("int", "float"):
        return NumberEditor
    if param.kind == "bool":
        return ChoiceEditor if param.optional else ToggleEditor
    if param.kind in ("choice", "dtype"):
        return ChoiceEditor
    if param.kind == "ints" and not param.optional:
        return WordEditor if isinstance(value, str) else NumbersEditor
    return TextEditor
