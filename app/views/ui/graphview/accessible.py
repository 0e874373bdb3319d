"""The parts of a graph view for screen readers: each a child of the view, with a name, a role, states and actions.

Nothing here is made before an assistive technology asks for a view: Qt calls the factory that `PanZoomView` installs.
`GraphAccess` is what a subclass fills: which parts there are, and what each of them says and does. A part is a
`QObject` because Qt keeps the interface of one as long as the object lives; `GraphAccess` says where it is in the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any
from weakref import ref

from msgspec import Struct
from PySide6.QtCore import QObject, QPoint, QRect, QRectF, QTimer
from PySide6.QtGui import (
    QAccessible,
    QAccessibleActionInterface,
    QAccessibleEvent,
    QAccessibleInterface,
    QAccessibleObject,
    QAccessibleSelectionInterface,
    QAccessibleStateChangeEvent,
    QWindow,
)
from PySide6.QtWidgets import QAccessibleWidget, QGraphicsView, QWidget
from shiboken6 import VoidPtr, getCppPointer, isValid

SETTLES = (
    60  # milliseconds after the last change of a picture until its parts are compared
)
MANY = 100  # changes at once that are reported as one, of the whole view

Role = QAccessible.Role
PRESS = QAccessibleActionInterface.pressAction()
MENU = QAccessibleActionInterface.showMenuAction()
FOCUS = QAccessibleActionInterface.setFocusAction()


class PartFacts(Struct, frozen=True):
    """What a screen reader says of a part. `area` is on the scene, `actions` are names, `PRESS` first.

    `folded` is None for what does not fold.
    """

    name: str
    description: str
    role: QAccessible.Role
    area: QRectF
    actions: tuple[str, ...] = (PRESS,)
    folded: bool | None = None


GONE = PartFacts("", "", Role.NoRole, QRectF(), ())


class GraphAccess(QObject):
    """The parts of one view by key, made when they are asked for, and the events about them.

    A subclass answers `top_keys`, `inner_keys`, `parent_key`, `facts`, `chosen_keys`, `choose`, `act` and `key_at`, and
    calls `changed` and `chosen_changed`.
    """

    def __init__(self, view: QGraphicsView) -> None:
        super().__init__(view)
        self.view = view
        self._parts: dict[Hashable, GraphPart] = {}
        self._keys: tuple[Hashable, ...] = ()
        self._numbers: dict[Hashable, int] = {}
        self._chosen: tuple[Hashable, ...] = ()
        self._stale = True
        self._settle = QTimer(self, singleShot=True, interval=SETTLES)
        self._settle.timeout.connect(self._compare)

    # --- What a subclass says

    def top_keys(self) -> Iterable[Hashable]:
        """Return the parts of the view, in reading order."""
        raise NotImplementedError

    def inner_keys(self, key: Hashable) -> Sequence[Hashable]:
        """Return the parts of a part."""
        return ()

    def parent_key(self, key: Hashable) -> Hashable | None:
        """Return the part that this one is in, None for the view."""
        return None

    def facts(self, key: Hashable) -> PartFacts | None:
        """Describe a part; None if it is gone."""
        raise NotImplementedError

    def chosen_keys(self) -> Sequence[Hashable]:
        """Return the selected parts."""
        raise NotImplementedError

    def choose(self, keys: Collection[Hashable]) -> None:
        """Select parts and nothing else."""
        raise NotImplementedError

    def act(self, key: Hashable, action: str) -> None:
        """Carry out an action of a part other than `FOCUS`."""
        raise NotImplementedError

    def shortcut(self, action: str) -> list[str]:
        """Return the keys of an action."""
        return []

    def key_at(self, point: QPoint) -> Hashable | None:
        """Return the part at a point of the viewport."""
        return None

    # --- What the interfaces ask

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The parts of the view, in reading order."""
        if self._stale:
            self._keys = tuple(self.top_keys())
            self._numbers = {key: number for number, key in enumerate(self._keys)}
            self._stale = False
        return self._keys

    def number_of(self, key: Hashable) -> int:
        """Return the position of a part among its siblings, -1 if it is gone."""
        parent = self.parent_key(key)
        if parent is None:
            return self._numbers.get(key, -1) if self.keys else -1
        inner = self.inner_keys(parent)
        return inner.index(key) if key in inner else -1

    def interface(self, key: Hashable) -> QAccessibleInterface:
        """Return the interface of a part."""
        return QAccessible.queryAccessibleInterface(self.part(key))

    def part(self, key: Hashable) -> GraphPart:
        """Return the object that stands for a part."""
        accessible = self._parts.get(key)
        if accessible is None:
            accessible = self._parts[key] = GraphPart(key, self)
            facts = self.facts(key)
            accessible.name = facts.name if facts is not None else ""
        return accessible

    def widgets(self) -> list[QWidget]:
        """Return the visible widgets on the view."""
        return [
            child
            for child in self.view.viewport().children()
            if isinstance(child, QWidget) and not child.isHidden()
        ]

    def on_screen(self, area: QRectF) -> QRect:
        """Map an area of the scene to the screen."""
        rect = self.view.mapFromScene(area).boundingRect()
        return QRect(self.view.viewport().mapToGlobal(rect.topLeft()), rect.size())

    def in_sight(self, area: QRectF) -> bool:
        return (
            self.view.viewport()
            .rect()
            .intersects(self.view.mapFromScene(area).boundingRect())
        )

    # --- Events

    def changed(self) -> None:
        """Compare the parts with what they were, after the picture has settled."""
        self._stale = True
        if QAccessible.isActive():
            self._settle.start()

    def chosen_changed(self) -> None:
        """Report what is selected now."""
        before, self._chosen = self._chosen, tuple(self.chosen_keys())
        if not QAccessible.isActive() or before == self._chosen:
            return
        state = QAccessible.State()
        state.selected = True
        other = [
            key for key in {*before} ^ {*self._chosen} if self.facts(key) is not None
        ]
        for key in other if len(other) <= MANY else ():
            QAccessible.updateAccessibility(
                QAccessibleStateChangeEvent(self.part(key), state)
            )
        _send(self.view, QAccessible.Event.SelectionWithin)
        if self._chosen:
            last = self.part(self._chosen[-1])
            _send(last, QAccessible.Event.Selection)
            if self.view.hasFocus():
                _send(last, QAccessible.Event.Focus)

    def focus_came(self) -> None:
        """Report the selected part as focused when the view gets the keyboard focus."""
        chosen = self.chosen_keys()
        if chosen and QAccessible.isActive():
            _send(self.part(chosen[-1]), QAccessible.Event.Focus)

    def _compare(self) -> None:
        before = set(self._keys)
        for key in [key for key in self._parts if self.facts(key) is None]:
            gone = self._parts.pop(key)
            _send(gone, QAccessible.Event.ObjectDestroyed)
            gone.deleteLater()
        self._stale = True
        new = [key for key in self.keys if key not in before]
        if before and len(new) <= MANY:
            for key in new:
                _send(self.part(key), QAccessible.Event.ObjectCreated)
        else:
            _send(self.view, QAccessible.Event.ObjectReorder)
        for key, accessible in self._parts.items():
            facts = self.facts(key)
            if facts is not None and facts.name != accessible.name:
                accessible.name = facts.name
                _send(accessible, QAccessible.Event.NameChanged)


def _send(target: QObject, event: QAccessible.Event) -> None:
    QAccessible.updateAccessibility(QAccessibleEvent(target, event))


class GraphPart(QObject):
    """Represents one part, which is no object of Qt's; `name` is its name at the last comparison."""

    def __init__(self, key: Hashable, access: GraphAccess) -> None:
        super().__init__(access)
        self.key, self.access, self.name = key, access, ""

    def accessible_interface(self) -> QAccessibleInterface:
        return PartInterface(self)


def _pointer(interface: Any) -> Any:
    """Return a pointer to an interface's part; Qt reads a void pointer, and None would be read as garbage."""
    return VoidPtr(getCppPointer(interface)[0]) if interface is not None else VoidPtr(0)


class PartActions(QAccessibleActionInterface):
    """The actions of a part."""

    def __init__(self, part: GraphPart) -> None:
        super().__init__()
        self._part = ref(part)

    def actionNames(self) -> list[str]:
        facts = _facts(_alive(self._part()))
        return [*facts.actions, FOCUS] if facts is not GONE else []

    def doAction(self, name: str) -> None:
        part = _alive(self._part())
        facts = _facts(part)
        if part is None or facts is GONE:
            return
        if name == FOCUS:
            part.access.choose([part.key])
            part.access.view.setFocus()
        elif name in facts.actions:
            part.access.act(part.key, name)

    def keyBindingsForAction(self, name: str) -> list[str]:
        part = _alive(self._part())
        return part.access.shortcut(name) if part is not None else []

    def localizedActionName(self, name: str) -> str:
        return "Select" if name == PRESS else name

    def localizedActionDescription(self, name: str) -> str:
        return ""


def _alive(part: object) -> GraphPart | None:
    """Return a part whose view is there."""
    there = isinstance(part, GraphPart) and isValid(part) and isValid(part.access)
    return part if isinstance(part, GraphPart) and there else None


def _facts(part: GraphPart | None) -> PartFacts:
    """Return what is said of a part, `GONE` of one that is."""
    return part and part.access.facts(part.key) or GONE


class PartInterface(QAccessibleObject):
    """A part of a graph view, as Qt asks for it."""

    def __init__(self, part: GraphPart) -> None:
        super().__init__(part)
        self._actions = PartActions(part)

    @property
    def _part(self) -> GraphPart | None:
        return _alive(self.object())

    @property
    def _inner(self) -> Sequence[Hashable]:
        part = self._part
        return part.access.inner_keys(part.key) if part is not None else ()

    def isValid(self) -> bool:
        return _facts(self._part) is not GONE

    def text(self, kind: QAccessible.Text) -> str:
        facts = _facts(self._part)
        if kind == QAccessible.Text.Name:
            return facts.name
        return facts.description if kind == QAccessible.Text.Description else ""

    def role(self) -> QAccessible.Role:
        return _facts(self._part).role

    def state(self) -> QAccessible.State:
        state = QAccessible.State()
        part = self._part
        facts = _facts(part)
        if part is None or facts is GONE:
            state.invalid = state.invisible = True
            return state
        access = part.access
        state.selectable = state.focusable = True
        state.selected = part.key in access.chosen_keys()
        state.focused = state.selected and access.view.hasFocus()
        state.invisible = not access.view.isVisible()
        state.offscreen = not access.in_sight(facts.area)
        if facts.folded is not None:
            state.expandable = True
            state.collapsed, state.expanded = facts.folded, not facts.folded
        return state

    def rect(self) -> QRect:
        part = self._part
        facts = _facts(part)
        if part is None or facts is GONE:
            return QRect()
        return part.access.on_screen(facts.area)

    def parent(self) -> QAccessibleInterface | None:  # type: ignore[override]
        part = self._part
        if part is None:
            return None
        above = part.access.parent_key(part.key)
        if above is not None:
            return part.access.interface(above)
        return QAccessible.queryAccessibleInterface(part.access.view)

    def window(self) -> QWindow | None:  # type: ignore[override]
        part = self._part
        return part.access.view.window().windowHandle() if part is not None else None

    def childCount(self) -> int:
        return len(self._inner)

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        part, inner = self._part, self._inner
        if part is None or not 0 <= index < len(inner):
            return None
        return part.access.interface(inner[index])

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        inner = child.object()
        return inner.access.number_of(inner.key) if isinstance(inner, GraphPart) else -1

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        part = self._part
        if part is None:
            return None
        for key in self._inner:
            facts = part.access.facts(key)
            if facts is not None and part.access.on_screen(facts.area).contains(x, y):
                return part.access.interface(key)
        return None

    def interface_cast(self, kind: QAccessible.InterfaceType) -> Any:
        asked = kind == QAccessible.InterfaceType.ActionInterface
        return _pointer(self._actions if asked else None)


class ChosenParts(QAccessibleSelectionInterface):
    """The selection of a graph view."""

    def __init__(self, access: GraphAccess) -> None:
        super().__init__()
        self._access = ref(access)

    def _chosen(self) -> list[Hashable]:
        access = _there(self._access)
        return list(access.chosen_keys()) if access is not None else []

    def _choose(self, keys: Collection[Hashable]) -> bool:
        access = _there(self._access)
        if access is not None:
            access.choose(keys)
        return access is not None

    def selectedItemCount(self) -> int:
        return len(self._chosen())

    def selectedItems(self) -> list[QAccessibleInterface]:
        access = _there(self._access)
        return [access.interface(key) for key in self._chosen()] if access else []

    def isSelected(self, item: QAccessibleInterface) -> bool:
        return _key_of(item) in self._chosen()

    def select(self, item: QAccessibleInterface) -> bool:
        key = _key_of(item)
        if key is not None:
            self._choose([*self._chosen(), key])
        return key in self._chosen()

    def unselect(self, item: QAccessibleInterface) -> bool:
        key = _key_of(item)
        if key is None:
            return False
        return self._choose([other for other in self._chosen() if other != key])

    def selectAll(self) -> bool:
        access = _there(self._access)
        return access is not None and self._choose(access.keys)

    def clear(self) -> bool:
        return self._choose(())


def _there(access: ref[GraphAccess]) -> GraphAccess | None:
    alive = access()
    return alive if alive is not None and isValid(alive) else None


def _key_of(item: QAccessibleInterface) -> Hashable | None:
    part = item.object() if item is not None else None
    return part.key if isinstance(part, GraphPart) else None


class ViewInterface(QAccessibleWidget):
    """A graph view as a list of its parts, and of the widgets that lie on it."""

    def __init__(self, view: QGraphicsView, access: GraphAccess) -> None:
        super().__init__(view, Role.List, view.accessibleName())
        self._selection = ChosenParts(access)
        self._of = ref(access)

    @property
    def _access(self) -> GraphAccess | None:
        return _there(self._of)

    def state(self) -> QAccessible.State:
        state = super().state()
        state.multiSelectable = state.extSelectable = True
        return state

    def childCount(self) -> int:
        access = self._access
        return len(access.keys) + len(access.widgets()) if access is not None else 0

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        access = self._access
        if access is None or index < 0:
            return None
        keys = access.keys
        if index < len(keys):
            return access.interface(keys[index])
        on_it = access.widgets()[index - len(keys) :]
        return QAccessible.queryAccessibleInterface(on_it[0]) if on_it else None

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        access, target = self._access, child.object()
        if access is None:
            return -1
        if isinstance(target, GraphPart):
            return access.number_of(target.key)
        on_it = access.widgets()
        return len(access.keys) + on_it.index(target) if target in on_it else -1

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        access = self._access
        if access is None:
            return None
        at = access.view.viewport().mapFromGlobal(QPoint(x, y))
        over = next(
            (widget for widget in access.widgets() if widget.geometry().contains(at)),
            None,
        )
        if over is not None:
            return QAccessible.queryAccessibleInterface(over)
        key = access.key_at(at)
        return access.interface(key) if key is not None else None

    def focusChild(self) -> QAccessibleInterface | None:  # type: ignore[override]
        access = self._access
        if access is None or not access.view.hasFocus():
            return None
        chosen = access.chosen_keys()
        return access.interface(chosen[-1]) if chosen else None

    def interface_cast(self, kind: QAccessible.InterfaceType) -> Any:
        if kind == QAccessible.InterfaceType.SelectionInterface:
            return _pointer(self._selection)
        interface = super().interface_cast(kind)
        return interface if interface is not None else _pointer(None)
