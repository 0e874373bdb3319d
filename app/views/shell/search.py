"""What Ctrl+K finds: commands, layers to add, nodes to go to, settings of the program, gestures, what features add."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

from msgspec.structs import replace

from app.util import resources
from app.views.shell.preferences import PREFERENCES
from app.views.ui.dialogs.search import SearchEntry, command_entry
from app.views.ui.dialogs.shortcuts import GESTURES, command_text
from app.views.ui.op_rows import CATEGORY_NAMES
from app.views.workspace import Workspace

MOST_NODES = 2000


@cache
def phrases() -> dict[str, tuple[str, ...]]:
    """Return the phrases that find an entry though they do not occur in it, by its key; those of a feature are in a
    group of its name."""
    groups = json.loads(resources.path("search_phrases.json").read_text("utf-8"))
    return {
        key: tuple(members)
        for group in groups.values()
        for key, members in group.items()
    }


def commands(workspace: Workspace) -> list[SearchEntry]:
    """Return the commands of the menus."""
    return _with_phrases(
        command_entry(key, action)
        for key, action in workspace.commands.by_key.items()
        if command_text(action) and not action.isSeparator() and not action.menu()
    )


def others(
    workspace: Workspace,
    show_help: Callable[[], None],
    show_setting: Callable[[str], None],
) -> list[SearchEntry]:
    """Return what can be found beside the commands."""
    return _with_phrases(
        entry
        for entries in (
            _layers(workspace),
            *(searched() for searched in workspace.searched),
            _nodes(workspace),
            _preferences(show_setting),
            _gestures(show_help),
        )
        for entry in entries
    )


def _with_phrases(entries: Iterable[SearchEntry]) -> list[SearchEntry]:
    phrases_by_key = phrases()
    return [
        replace(entry, phrases=phrases_by_key.get(entry.key, ())) for entry in entries
    ]


def _layers(workspace: Workspace) -> Iterator[SearchEntry]:
    for key, spec in workspace.catalog.items():
        category = CATEGORY_NAMES.get(spec.category, "")
        yield SearchEntry(
            f"layer.{key}",
            f"Add {spec.label}",
            partial(_add, workspace, key),
            "Layer" if spec.kind == "module" else "Operation",
            (spec.label, key) if spec.kind == "module" else (key,),
            f"layer {spec.label} {category}",
            spec.category if category and spec.category != "own" else "block",
        )


def _add(workspace: Workspace, key: str) -> None:
    workspace.pages.turn_to("network")
    workspace.drawing.add_op(key)


def _nodes(workspace: Workspace) -> Iterator[SearchEntry]:
    nodes = workspace.sheet.project.graph.nodes
    for _, node in zip(range(MOST_NODES), nodes.values(), strict=False):
        yield SearchEntry(
            f"node.{node.id}",
            f"Go to {node.name}",
            partial(workspace.show_node, node.id),
            "Node",
            (node.name,),
            f"node {node.op}",
            "network",
        )


def _preferences(show_setting: Callable[[str], None]) -> Iterator[SearchEntry]:
    """Yield the settings of the program, each of which opens the dialog at its place."""
    for section, members in PREFERENCES.items():
        for preference in members:
            yield SearchEntry(
                f"preference.{preference.name}",
                f"Settings: {preference.label}",
                partial(show_setting, preference.name),
                "Settings",
                (preference.label,),
                words=f"preferences options {section} {preference.words}",
                icon="inspector",
            )


def _gestures(show_help: Callable[[], None]) -> Iterator[SearchEntry]:
    for area, gestures in GESTURES:
        for gesture in gestures:
            yield SearchEntry(
                f"gesture.{gesture.text}",
                f"{gesture.text}: {gesture.keys}",
                show_help,
                "Gesture",
                words=f"mouse keys {area}",
                icon="help",
            )
