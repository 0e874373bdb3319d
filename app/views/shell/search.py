"""What Ctrl+K finds beside the commands: layers to add, nodes to go to, settings to edit, and gestures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QScrollArea, QWidget

from app.views.fields.form import ParamForm
from app.views.shell.preferences import PREFERENCES
from app.views.ui import icons
from app.views.ui.dialogs.shortcuts import GESTURES
from app.views.ui.op_rows import CATEGORY_NAMES
from app.views.ui.widgets import Section
from app.views.workspace import Workspace

MOST_NODES = 2000


def found_beside_commands(
    workspace: Workspace,
    show_help: Callable[[], None],
    show_setting: Callable[[str], None],
    owner: QObject,
) -> list[QAction]:
    """Return an action for each layer, node, setting and gesture, owned by `owner`."""
    return [
        *_nodes(workspace, owner),
        *_layers(workspace, owner),
        *_settings(workspace, owner),
        *_preferences(show_setting, owner),
        *_gestures(show_help, owner),
    ]


def _action(
    owner: QObject, text: str, terms: str, icon: str, does: Callable[[], object]
) -> QAction:
    action = QAction(text, owner)
    action.setData(terms)
    action.setIcon(icons.icon(icon))
    action.triggered.connect(lambda *_: does())
    return action


def _layers(workspace: Workspace, owner: QObject) -> Iterator[QAction]:
    for key, spec in workspace.catalog.items():
        terms = f"layer {key} {CATEGORY_NAMES.get(spec.category, '')}"
        icon = (
            spec.category
            if spec.category in CATEGORY_NAMES and spec.category != "own"
            else "block"
        )
        yield _action(
            owner, f"Add {spec.label}", terms, icon, partial(_add, workspace, key)
        )


def _add(workspace: Workspace, key: str) -> None:
    workspace.pages.turn_to("network")
    workspace.drawing.add_op(key)


def _nodes(workspace: Workspace, owner: QObject) -> Iterator[QAction]:
    nodes = workspace.sheet.project.graph.nodes
    for _, node in zip(range(MOST_NODES), nodes.values(), strict=False):
        terms = f"node {node.op}"
        yield _action(
            owner,
            f"Go to {node.name}",
            terms,
            "network",
            partial(workspace.show_node, node.id),
        )


def _settings(workspace: Workspace, owner: QObject) -> Iterator[QAction]:
    """Yield the fields of the training page, with the names of their sections."""
    for form in workspace.pages.widget("training").findChildren(ParamForm):
        section = _around(form, Section)
        title = section.title() if isinstance(section, Section) else ""
        for name, row in form.rows.items():
            terms = f"training setting preferences {title}"
            if row.editor is not None:
                text = f"Set {name}" + (f" ({title})" if title else "")
                yield _action(
                    owner,
                    text,
                    terms,
                    "inspector",
                    partial(_edit, workspace, row.editor),
                )


def _preferences(
    show_setting: Callable[[str], None], owner: QObject
) -> Iterator[QAction]:
    """Yield the settings of the program, each of which opens the dialog at its place."""
    for section, members in PREFERENCES.items():
        for preference in members:
            terms = f"settings preferences options {section} {preference.words}"
            yield _action(
                owner,
                f"Settings: {preference.label}",
                terms,
                "inspector",
                partial(show_setting, preference.name),
            )


def _edit(workspace: Workspace, field: QWidget) -> None:
    """Bring a field of the training page into sight, and put the caret into it."""
    workspace.pages.show("training")
    section = _around(field, Section)
    if isinstance(section, Section):
        section.set_open(True)
    area = _around(field, QScrollArea)
    if isinstance(area, QScrollArea):
        area.ensureWidgetVisible(field)
    field.setFocus()


def _around(widget: QWidget, kind: type[QWidget]) -> QWidget | None:
    above = widget.parentWidget()
    while above is not None and not isinstance(above, kind):
        above = above.parentWidget()
    return above


def _gestures(show_help: Callable[[], None], owner: QObject) -> Iterator[QAction]:
    for area, gestures in GESTURES:
        for gesture in gestures:
            yield _action(
                owner,
                f"{gesture.text}: {gesture.keys}",
                f"help mouse keys {area}",
                "help",
                show_help,
            )
