"""The window as a screen reader walks it: every control that can be seen has a name and a role."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtWidgets import QApplication, QWidget

Text, Role = QAccessible.Text, QAccessible.Role
# What holds others or only shows something may be without a name.
HOLDERS = {
    Role.Client,
    Role.Grouping,
    Role.Separator,
    Role.LayeredPane,
    Role.StaticText,
    Role.ScrollBar,
    Role.Pane,
    Role.Border,
    Role.Grip,
    Role.Splitter,
    Role.ToolBar,
    Role.StatusBar,
    Role.MenuBar,
    Role.Whitespace,
}
PAGES = (
    "network",
    "autograd",
    "observed",
    "code",
    "curves",
    "layer",
    "training",
    "evaluation",
    "findings",
    "runs",
    "panels",
)


@pytest.fixture
def reader() -> Iterator[None]:
    QAccessible.setActive(True)
    yield
    QAccessible.setActive(False)


def seen(
    here: QAccessibleInterface, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, QAccessibleInterface]]:
    """All that is visible, with where it is."""
    if here.state().invisible and path:
        return
    where = (*path, f"{type(here.object()).__name__} {here.text(Text.Name)!r}")
    yield " > ".join(where[-4:]), here
    for number in range(min(here.childCount(), 40)):
        child = here.child(number)
        if child is not None:
            yield from seen(child, where)


def takes_keys(one: QAccessibleInterface) -> bool:
    thing = one.object()
    return (
        isinstance(thing, QWidget)
        and bool(thing.focusPolicy().value)
        and one.state().focusable
    )


def test_every_control_in_sight_of_a_screen_reader_has_a_name(window, reader) -> None:
    window.furnish()
    count, nameless = 0, set[str]()
    for page in PAGES:
        window.pages.show(page)
        QApplication.processEvents()
        parts = list(seen(QAccessible.queryAccessibleInterface(window)))
        count += len(parts)
        nameless |= {
            where
            for where, one in parts
            if not one.text(Text.Name)
            and (one.role() not in HOLDERS or takes_keys(one))
        }
    assert not nameless and count > 1000
