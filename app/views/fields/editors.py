"""An editor for each kind of parameter, with one interface: set a value, emit valid values, report errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QKeyEvent
from PySide6.QtWidgets import QLineEdit, QMenu, QWidget

from app.builder.literals import AUTO
from app.builder.params import ParamError
from app.util.language import tr
from app.views.fields.line_edits import leaves_to_window
from app.views.fields.values import (
    DIFFERS,
    BlockScope,
    ParamLike,
    check,
    choices,
    computes,
    equal_values,
    expected,
    fits,
    maximum,
    parse,
    refusal,
    show,
    text_of,
)
from app.views.ui.layouts import hbox
from app.views.ui.widgets import (
    Button,
    ChoiceField,
    NumberField,
    NumbersField,
    TextField,
    Toggle,
    icon_button,
)
from app.views.ui.widgets.focus import focus_in

LEAST, SINGLE = 62, 106  # width of a field for one number, px


class Editor(QWidget):
    """Edits one value. `edited` carries valid values of the parameter, `problem_changed` an error message or "".

    Each time the focus enters, `visit` is incremented, so that the edits of one visit can be merged into one undo step.
    `refused(text)` carries an invalid text, `entered` and `left` report the visit, and `menu_wanted` carries the screen
    position of a request for the context menu.
    """

    edited = Signal(object)
    problem_changed = Signal(str)
    refused = Signal(str)
    restored = Signal()  # refused text gave way to the value
    entered = Signal()
    left = Signal()
    menu_wanted = Signal(QPoint)
    typed = True  # whether values come letter by letter
    menu_in_text = False  # whether the menu of the text is the form's

    def __init__(
        self, param: ParamLike, field: Any, scope: BlockScope | None = None
    ) -> None:
        super().__init__()
        self.param, self.field, self.scope = param, field, scope
        self.visit = 0
        self._inside = False
        self._given: Any = None
        self._problem = ""
        self.row = hbox((field, 1), on=self, margins=0, spacing=6)
        self.setFocusProxy(field)
        field.edited.connect(self._edited)
        if hasattr(field, "restored"):
            field.restored.connect(lambda: self.set_value(self._given))
            field.restored.connect(self.restored)
        lines = list(self.lines())
        for target in lines or [field]:
            target.installEventFilter(self)
        for line in lines:
            line.textEdited.connect(self._validate)

    def lines(self) -> Iterator[QLineEdit]:
        """Yield the line edits of the editor."""
        if isinstance(self.field, QLineEdit):
            yield self.field
        elif isinstance(self.field, NumbersField):
            yield from self.field.fields()

    def can_show(self, value: Any) -> bool:
        """Return whether the editor can show a value of another class while the user types in it."""
        return False

    def has_focus(self) -> bool:
        """Return whether the focus is inside."""
        return focus_in(self) is not None

    def set_value(self, value: Any) -> None:
        """Show a value; refused text is dropped, text being typed is not."""
        self._given = value
        self.field.set_value(value)
        self._show_error("")
        for (
            line
        ) in self.lines():  # unless the user typed more since the value was emitted
            if (problem := getattr(line, "invalid", str)()) and line.hasFocus():
                self._emit_problem(self._why(line.text()) or problem)

    def discard(self) -> None:
        """Drop text that is being typed: it was meant for another object."""
        for line in self.lines():
            if isinstance(line, TextField):
                line.discard()

    def set_problem(self, message: str) -> None:
        """Mark the value as one that others refused."""
        if message and hasattr(self.field, "refuse"):
            self.field.refuse(self._given)
        self._show_error(message)

    def name_it(self, name: str, description: str) -> None:
        """Set the accessible name and the tool tip."""
        targets = list(self.lines()) or [self.field]
        for number, target in enumerate(targets):
            target.setAccessibleName(
                name if len(targets) == 1 else f"{name}, dimension {number + 1}"
            )
        if hasattr(self.field, "set_hint"):
            self.field.set_hint(description)
        else:
            self.field.setToolTip(description)

    def _edited(self, value: Any) -> None:
        try:
            check(self.param, value)
        except ParamError as error:
            self._show_error(str(error))
            return
        self._show_error("")
        self.edited.emit(value)

    def _validate(self, text: str) -> None:
        """Validate the text on each keystroke."""
        if problem := (self.field.unread() or ""):
            self._emit_problem(self._why(text) or problem)
            self.refused.emit(text)
            return
        try:
            check(self.param, self.field.pending())
        except ParamError as error:
            self._show_error(str(error))
        else:
            self._show_error("")

    def _why(self, text: str) -> str:
        """Return the parser's error for an invalid text."""
        try:
            self.parse(text)
        except ParamError as error:
            return str(error)
        return ""

    def parse(self, text: str) -> Any:
        """Parse a text. Raises ParamError."""
        return (
            self.scope.parse(self.param, text)
            if self.scope is not None
            else parse(self.param, text)
        )

    def _show_error(self, message: str) -> None:
        self.field.set_invalid(message or None)
        self._emit_problem(message)

    def _emit_problem(self, message: str) -> None:
        if message != self._problem:
            self._problem = message
            self.problem_changed.emit(message)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.FocusIn:
            self.visit += (
                not self._inside
            )  # moving between its fields is the same visit
            self._inside = True
            self.entered.emit()
        elif kind == QEvent.Type.FocusOut:
            unseen = any(
                isinstance(line, TextField) and line.unseen() for line in self.lines()
            )
            if self._problem and not unseen:
                # The field returns to the project's value, which discards the refused text.
                self.discard()
                self.field.set_value(self._given)
                self._show_error("")
            self._inside = self.has_focus()
            self.left.emit()
        elif isinstance(event, QContextMenuEvent) and self.menu_in_text:
            self.menu_wanted.emit(event.globalPos())
            return True
        elif (
            self.menu_in_text and kind == QEvent.Type.KeyPress and _asks_for_menu(event)
        ):
            self.menu_wanted.emit(self.mapToGlobal(self.rect().bottomLeft()))
            return True
        elif leaves_to_window(event, watched):
            return True
        return super().eventFilter(watched, event)


def _asks_for_menu(event: QEvent) -> bool:
    """Shift+F10 and the menu key."""
    assert isinstance(event, QKeyEvent)
    shifted = (
        event.modifiers() == Qt.KeyboardModifier.ShiftModifier
        and event.key() == Qt.Key.Key_F10
    )
    return shifted or event.key() == Qt.Key.Key_Menu


class NumberEditor(Editor):
    """One number with arrows."""

    def __init__(self, param: ParamLike) -> None:
        field = NumberField(
            0, param.kind, param.minimum, maximum(param), optional=param.optional
        )
        super().__init__(param, field)
        field.setMinimumWidth(LEAST)
        field.setMaximumWidth(SINGLE)
        self.row.addStretch(0)


class NumbersEditor(Editor):
    """A number a dimension; where words are allowed too, a menu of them."""

    def __init__(self, param: ParamLike, scope: BlockScope | None = None) -> None:
        self.scope = scope
        super().__init__(param, self._make_field(param), scope)
        if param.count == 1:
            self.field.setMaximumWidth(SINGLE)
            self.row.addStretch(1)
        if param.choices:
            self.words = icon_button(
                "chevron-down", f"Words for {param.name}: {', '.join(param.choices)}"
            )
            self.words.setFixedWidth(18)
            self.words.clicked.connect(self._open_menu)
            self.row.addWidget(self.words)

    def _make_field(self, param: ParamLike) -> NumbersField:
        return NumbersField(
            param.count,
            0 if param.count else (0,),
            param.minimum,
            maximum(param),
        )

    def _open_menu(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for word in self.param.choices:
            menu.addAction(word, partial(self.edited.emit, word))
        menu.popup(self.words.mapToGlobal(self.words.rect().bottomLeft()))


class WordEditor(Editor):
    """A word in place of numbers (`padding="same"`), with a button back to numbers."""

    typed = False
    NUMBERS = "numbers…"

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, ChoiceField((*param.choices, self.NUMBERS)))

    def _edited(self, value: Any) -> None:
        if value == self.NUMBERS:
            number = param_number(self.param)
            self.edited.emit(number)
        else:
            super()._edited(value)


def param_number(param: ParamLike) -> int:
    """Return the number to start with after a word was shown."""
    return param.default if type(param.default) is int else int(param.minimum or 0)


class ValueField(TextField):
    """A line edit that distinguishes 1 from 1.0 and True, also in nested values."""

    _equal = staticmethod(equal_values)


class TextEditor(Editor):
    """Anything that is read from text: optional tuples, literals, and values that do not fit and must be mended."""

    def __init__(self, param: ParamLike, scope: BlockScope | None = None) -> None:
        super().__init__(
            param,
            ValueField("", self.parse_text, lambda value: text_of(param, value)),
            scope,
        )
        self.field.setPlaceholderText("None" if param.optional else "")
        self.choose: Button | None = None

    def offer(self, values: Sequence[Any]) -> None:
        """Offer values in a menu beside the field, which can still be typed into; none takes the menu away."""
        if self.choose is None and values:
            self.choose = icon_button("chevron-down", f"Choose {self.param.name}")
            self.choose.setFixedWidth(18)
            self.menu = QMenu(self.choose)
            self.choose.clicked.connect(self._open_menu)
            self.row.addWidget(self.choose)
        if self.choose is not None:
            self.menu.clear()
            for value in values:
                self.menu.addAction(show(value), partial(self._edited, value))
            self.choose.setVisible(bool(values))

    def _open_menu(self) -> None:
        self.menu.setMinimumWidth(self.width())
        self.menu.popup(self.field.mapToGlobal(self.field.rect().bottomLeft()))

    def parse_text(self, text: str) -> Any:
        return self.parse(text)

    def can_show(self, value: Any) -> bool:
        return fits(self.param, value) and value is not AUTO

    def set_value(self, value: Any) -> None:
        super().set_value(value)
        if not fits(self.param, value):
            self._show_error(refusal(self.param, show(value)))
        elif computes(value) and self.scope is None:
            text = tr(
                "{expects}; {value} is an expression, which only nodes inside a block can have",
                expects=expected(self.param),
                value=show(value),
            )
            self._show_error(text)


class DifferingTextEditor(TextEditor):
    """Edits nodes with different values: empty, and typed text is set on all of them."""

    def __init__(self, param: ParamLike, scope: BlockScope | None = None) -> None:
        super().__init__(param, scope)
        self.field.setPlaceholderText("differs")

    def set_value(self, value: Any) -> None:
        if value is DIFFERS:
            self._given = value
            self.field.set_value(value)
            self._show_error("")
        else:
            super().set_value(value)


class ChoiceEditor(Editor):
    """One of a few values."""

    typed = False

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, ChoiceField(choices(param), show=show))


class DifferingChoiceEditor(Editor):
    """Several nodes have several values, and one that is chosen goes into all of them."""

    typed = False

    def __init__(self, param: ParamLike) -> None:
        super().__init__(
            param,
            ChoiceField(
                (DIFFERS, *choices(param)), show=lambda v: show(v) or "differs"
            ),
        )


class ToggleEditor(Editor):
    """True or False, in PyTorch's words beside the switch."""

    typed = False

    def __init__(self, param: ParamLike) -> None:
        super().__init__(param, Toggle())
        self.row.addStretch(1)
        self.field.toggled.connect(lambda on: self.field.set_text(str(on)))
        self.field.set_text("False")
