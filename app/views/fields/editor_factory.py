"""Choose the editor for a parameter and its value."""

from __future__ import annotations

from typing import Any

from PySide6.QtGui import QFont, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.builder.catalog.catalog import Param
from app.builder.expressions import Expr
from app.builder.literals import AUTO
from app.builder.params import COMPUTED
from app.views.fields.editors import (
    SINGLE,
    ChoiceEditor,
    DifferingChoiceEditor,
    DifferingTextEditor,
    Editor,
    NumberEditor,
    NumbersEditor,
    TextEditor,
    ToggleEditor,
    WordEditor,
)
from app.views.fields.values import (
    DIFFERS,
    BlockScope,
    ParamLike,
    computes,
    fits,
    item_of,
    maximum,
    show,
)
from app.views.fields.wired_field import AutoEditor
from app.views.ui import theme
from app.views.ui.widgets import NumberField, NumbersField, TextField

# --- Fields inside a block: a number, or an expression over the block's parameters such as `channels * 2`

_WIDEST = 16777215  # what Qt takes for no bound


class ComputedField(NumberField):
    """A number with step arrows, or an expression in the code font without them."""

    def __init__(
        self, param: ParamLike, scope: BlockScope, parent: QWidget | None = None
    ) -> None:
        self._param, self._scope, self._mono = param, scope, False
        super().__init__(
            0,
            param.kind,
            param.minimum,
            maximum(param),
            optional=param.optional,
            parent=parent,
        )
        self._show = show

    @property
    def computes(self) -> bool:
        """Return whether the value is an expression."""
        return isinstance(self._value, Expr)

    def _parse_bounded(self, text: str) -> Any:
        return self._scope.parse(self._param, text)

    def set_value(self, value: Any) -> None:
        super().set_value(value)
        self._dress()

    def _accept(self, value: Any) -> None:
        super()._accept(value)
        self._dress()

    def _dress(self) -> None:
        if self.computes or self._mono:
            self._mono = self.computes
            self.setFont(theme.font("code") if self._mono else QFont())
        self._fit_margins()

    def _mark(self) -> None:
        super()._mark()
        if self._mono:  # restyling a field resets its font
            self.setFont(theme.font("code"))

    def _fit_margins(self) -> None:
        if getattr(self, "_value", None) is not None and self.computes:
            self.setTextMargins(0, 0, 0, 0)
        else:
            super()._fit_margins()

    def step_by(self, steps: int) -> None:
        if not self.computes:
            super().step_by(steps)

    def _arrow_at(self, event: Any) -> int:
        return 0 if self.computes else super()._arrow_at(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.computes:
            TextField.paintEvent(self, event)
        else:
            super().paintEvent(event)


class ComputedEditor(Editor):
    """One number or an expression."""

    def __init__(self, param: ParamLike, scope: BlockScope) -> None:
        super().__init__(param, ComputedField(param, scope), scope)
        self.row.addStretch(0)

    def set_value(self, value: Any) -> None:
        super().set_value(value)
        self._fit()

    def _edited(self, value: Any) -> None:
        super()._edited(value)
        self._fit()

    def _fit(self) -> None:
        """Limit the width of a number; give an expression the available width."""
        computes = self.field.computes
        self.field.setMaximumWidth(_WIDEST if computes else SINGLE)
        self.row.setStretch(1, 0 if computes else 1)


class _ComputedNumbers(NumbersField):
    """A number or an expression a dimension."""

    def __init__(self, param: ParamLike, scope: BlockScope) -> None:
        self._item: Param = item_of(param)
        self._scope = scope
        super().__init__(param.count, 0, param.minimum, maximum(param))

    def _field(
        self, value: Any, minimum: float | None, maximum: float | None
    ) -> TextField:
        return ComputedField(self._item, self._scope, self)


class ComputedNumbersEditor(NumbersEditor):
    """A number a dimension, each of which may be computed; where one is, the form takes one wide field instead."""

    def __init__(self, param: ParamLike, scope: BlockScope) -> None:
        super().__init__(param, scope)

    def _make_field(self, param: ParamLike) -> NumbersField:
        assert self.scope is not None
        return _ComputedNumbers(param, self.scope)

    def can_show(self, value: Any) -> bool:
        numeric = not isinstance(value, str) and value is not None
        return numeric and fits(self.param, value)


class ComputedTextEditor(TextEditor):
    """Anything with an expression in it, in mono."""

    def __init__(self, param: ParamLike, scope: BlockScope) -> None:
        super().__init__(param, scope)
        self.field.setFont(theme.font("code"))


_MOST_FIELDS = (
    3  # up to this many numbers have a field each; more share one, comma-separated
)


def kind_of(
    param: ParamLike, value: Any, scope: BlockScope | None = None
) -> type[Editor]:
    """Return the editor class for a value of a parameter; in a block, `scope`, numbers may be expressions."""
    if value is DIFFERS:
        return (
            DifferingChoiceEditor
            if param.kind in ("choice", "dtype", "bool")
            else DifferingTextEditor
        )
    if value is AUTO and param.auto:
        return AutoEditor
    if not fits(param, value):
        return ChoiceEditor if param.kind in ("choice", "dtype") else TextEditor
    if (
        scope is not None
        and param.kind in COMPUTED
        and (computed := _computed_kind(param, value)) is not None
    ):
        return computed
    if computes(value):
        return TextEditor
    if param.kind in ("int", "float"):
        return NumberEditor
    if param.kind == "bool":
        return ChoiceEditor if param.optional else ToggleEditor
    if param.kind in ("choice", "dtype"):
        return ChoiceEditor
    if param.kind == "ints" and not param.optional and param.count <= _MOST_FIELDS:
        return WordEditor if isinstance(value, str) else NumbersEditor
    return TextEditor


def _computed_kind(param: ParamLike, value: Any) -> type[Editor] | None:
    """Return the editor class for an expression inside a block, None if the usual one will do."""
    if param.kind in ("int", "float"):
        return ComputedEditor
    several = param.kind == "ints" and (
        param.optional or param.count not in range(1, _MOST_FIELDS + 1)
    )
    if computes(value) or several:
        return ComputedTextEditor
    if param.kind == "ints" and not isinstance(value, str):
        return ComputedNumbersEditor
    return None


def make_editor(
    param: ParamLike, value: Any, scope: BlockScope | None = None
) -> Editor:
    """Return a new, empty editor for a value."""
    kind: Any = kind_of(param, value, scope)
    takes_scope = issubclass(kind, TextEditor | NumbersEditor | ComputedEditor)
    return kind(param, scope) if takes_scope else kind(param)


def suits(editor: Editor, value: Any) -> bool:
    """Return whether the editor is of the class for the value."""
    return kind_of(editor.param, value, editor.scope) is type(editor)
