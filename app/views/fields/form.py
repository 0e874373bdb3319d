"""A form built from parameters: of a layer, an optimizer, a loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QMenu, QWidget

from app.builder.literals import AUTO
from app.views.fields.editors import Editor
from app.views.fields.row import LABEL_MOST, ParamRow, RowOwner
from app.views.fields.values import BlockScope, ParamLike
from app.views.ui.docks import beside_text
from app.views.ui.theme import manager
from app.views.ui.widgets import Button, icon_button

_TOOLS = 20  # room for the button with what can be done with a parameter, px
_LABELS = 96  # px, the least width of the column of names


class ParamWire(Struct, frozen=True):
    """A wire into a parameter or a part of it: port, parameter and name of the source node."""

    port: str
    param: str
    source: str


class ParamForm(RowOwner):
    """A form with one row per parameter. Where it is narrow the names are shortened, rather than the form be scrolled.

    `edited(name, value, merge)` carries a valid value; `merge` is the same for all edits of one visit to a field and
    None for single actions. `reset(name)` requests the default, `cut(port)` to cut a wire into a parameter.
    `refused(name, text)` reports an invalid text, `restored(name)` that a refused value gave way to the present one.

    Args: scope: The block whose parameters expressions may use. tools: Adds further actions to the context menus.
    defaults: Whether to mark values that are the default.
    """

    def __init__(
        self,
        params: Sequence[ParamLike],
        *,
        scope: BlockScope | None = None,
        tools: Callable[[QMenu, str], None] | None = None,
        defaults: bool = False,
    ) -> None:
        super().__init__()
        self.scope, self._tools, self._defaults = scope, tools, defaults
        self._more: Button | None = None
        self._pointed: ParamRow | None = None
        self._filling = False
        self._aligned: tuple[ParamForm, ...] = (self,)
        self._column = 0  # the width of the names
        grid = self._grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(0)
        grid.setColumnStretch(1, 1)
        self.rows = {
            param.name: ParamRow(self, param, grid, line)
            for line, param in enumerate(params)
        }
        self._fold: Button | None = None  # shows and hides what few change
        self._unfolded = False
        if any(row.is_expert for row in self.rows.values()):
            self._fold = Button("More", "link")
            self._fold.clicked.connect(lambda: self.show_expert(not self._unfolded))
            grid.addWidget(
                self._fold, 2 * len(self.rows), 0, 1, 2, Qt.AlignmentFlag.AlignLeft
            )
        self.set_docs({param.name: getattr(param, "doc", "") for param in params})
        if tools is not None:
            for row in self.rows.values():
                row.name.installEventFilter(self)
        self._fit_names()

    def align_with(self, *others: ParamForm) -> None:
        """Give the names of these forms, which are above one another, the same width."""
        for form in (self, *others):
            form._aligned = (self, *others)
            form._fit_names()

    def _fit_names(self) -> None:
        """Give the names what the widest of them wants, as far as the editors leave it."""
        most = round(LABEL_MOST * manager().scale)
        least = min(beside_text(_LABELS), most)
        name_width = max(
            (
                row.name.wanted + form._tools_room
                for form in self._aligned
                for row in form.rows.values()
            ),
            default=0,
        )
        name_width = min(max(name_width, least), most)
        editors = self._grid.minimumSize().width() - self._column
        column = (
            name_width
            if not self.isVisible()
            else min(max(self.width() - editors, least), name_width)
        )
        if column != self._column:
            self._column = column
            for row in self.rows.values():
                row.name.set_room(column)
            self._grid.setColumnMinimumWidth(0, column)

    @property
    def _tools_room(self) -> int:
        return _TOOLS if self._tools is not None else 0

    def minimumSizeHint(self) -> QSize:
        """Return the least size, with names as short as they may become."""
        least = self._grid.minimumSize()
        return QSize(
            least.width() - self._column + min(self._column, beside_text(_LABELS)),
            least.height(),
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_names()

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.LayoutRequest
        ):  # an editor, or the text size, is another one
            self._fit_names()
        return super().event(event)

    @property
    def params(self) -> tuple[ParamLike, ...]:
        return tuple(row.param for row in self.rows.values())

    def forget(self) -> None:
        """Drop refused text: the next values belong to another object."""
        for row in self.rows.values():
            row.forget()
        self.show_expert(False)

    def set_values(
        self, values: Mapping[str, Any], wires: Sequence[ParamWire] = ()
    ) -> None:
        """Show the values that are set, defaults for the others, and which of them, or of their parts, wires give."""
        sources = {wire.param: wire.source for wire in wires if wire.port == wire.param}
        self._filling = True
        for name, row in self.rows.items():
            row.show_value(values.get(name, row.param.default), sources.get(name, ""))
            parts = [
                (wire.port, wire.source)
                for wire in wires
                if wire.param == name and wire.port != name
            ]
            if parts or row.parts:
                row.show_parts(parts)
            if self._defaults:
                row.show_default(name not in values)
        self._filling = False
        self._fold_rows()
        self.keep_tab_order()

    def show_expert(self, shown: bool) -> None:
        """Show the parameters that few change, or those alone that differ from their defaults."""
        self._unfolded = shown
        self._fold_rows()

    def _fold_rows(self) -> None:
        if self._fold is None:
            return
        folded = [row for row in self.rows.values() if row.is_expert and row.is_plain]
        for row in self.rows.values():
            row.set_shown(self._unfolded or row not in folded)
        self._fold.setText("Less" if self._unfolded else f"More ({len(folded)})")
        self._fold.setToolTip(
            "" if self._unfolded else ", ".join(row.param.name for row in folded)
        )
        self._fold.setVisible(bool(folded))

    def set_resolved(self, resolved: Mapping[str, Any], source: str) -> None:
        """Show the values of AUTO parameters with the node that they come from, and of expressions."""
        for name, row in self.rows.items():
            if row.param.auto or self.scope is not None:
                row.show_resolved(resolved.get(name, AUTO), source)

    def set_docs(self, docs: Mapping[str, str]) -> None:
        """Set torch's documentation of the parameters."""
        for name, row in self.rows.items():
            row.set_doc(docs.get(name, ""))

    def blame(self, messages: Sequence[str]) -> None:
        """Mark the parameters that torch's error message names."""
        for name, row in self.rows.items():
            row.blame(
                next(
                    (
                        message
                        for message in messages
                        if re.search(rf"\b{re.escape(name)}\b", message)
                    ),
                    "",
                )
            )

    def set_problem(self, name: str, message: str) -> None:
        """Mark a value that others refused; "" takes the mark away."""
        editor = self.rows[name].editor if name in self.rows else None
        if editor is not None:
            editor.set_problem(message)

    def editor(self, name: str) -> Editor:
        """Return the editor of a parameter. Raises KeyError."""
        editor = self.rows[name].editor
        if editor is None:
            raise KeyError(name)
        return editor

    def editor_changed(self, row: ParamRow) -> None:
        """Set up a row's new editor: event filter and tab order."""
        if self._tools is not None and row.editor is not None:
            row.editor.installEventFilter(self)
        if not self._filling:
            self.keep_tab_order()

    def keep_tab_order(self) -> None:
        """Tab goes down the lines, whichever editor was put in last."""
        before: QWidget | None = None
        for row in self.rows.values():
            for widget in (row.editor, row.__dict__.get("link")):
                if widget is not None:
                    if before is not None:
                        QWidget.setTabOrder(before, widget)
                    before = widget

    # --- What can be done with a parameter

    def fill(self, menu: QMenu, name: str) -> None:
        """Put into a menu what can be done with a parameter."""
        if self._tools is not None:
            self._tools(menu, name)
        menu.addAction(f"Reset {name}", lambda: self.reset.emit(name))

    def point_at(self, row: ParamRow | None) -> None:
        """Show the menu button beside the name of the hovered or focused row."""
        self._pointed = row
        if self._tools is None or (row is None and self._more is None):
            return
        if self._more is None:
            self._more = icon_button("more", "")
            self._more.setParent(self)
            self._more.setFixedSize(_TOOLS, _TOOLS)
            self._more.setFocusPolicy(self._more.focusPolicy().NoFocus)
            self._more.clicked.connect(self._open)
        if row is None:
            self._more.hide()
            return
        tip = f"Actions for {row.param.name} (Shift+F10)"
        self._more.setToolTip(tip)
        self._more.setAccessibleName(tip)
        name_rect = row.name.geometry()
        self._more.move(
            name_rect.right() - _TOOLS + 3, name_rect.center().y() - _TOOLS // 2 + 1
        )
        self._more.show()
        self._more.raise_()

    def _open(self) -> None:
        if self._pointed is not None and self._more is not None:
            self._pointed.open_menu(
                self._more.mapToGlobal(self._more.rect().bottomLeft())
            )

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Enter:
            here = (
                row for row in self.rows.values() if watched in (row.name, row.editor)
            )
            self.point_at(next(here, None))
        return super().eventFilter(watched, event)

    def leaveEvent(self, event: QEvent) -> None:
        focused = (
            row
            for row in self.rows.values()
            if row.editor is not None and row.editor.has_focus()
        )
        self.point_at(next(focused, None))
        super().leaveEvent(event)
