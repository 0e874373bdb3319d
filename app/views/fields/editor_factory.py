"""Choose the editor for a parameter and its value."""

from __future__ import annotations

from typing import Any

from app.builder.literals import AUTO
from app.builder.params import COMPUTED
from app.views.fields.editors import (
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
from app.views.fields.expression_field import (
    ComputedEditor,
    ComputedNumbersEditor,
    ComputedTextEditor,
)
from app.views.fields.values import (
    DIFFERS,
    BlockScope,
    ParamLike,
    computes,
    fits,
)
from app.views.fields.wired_field import AutoEditor

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
