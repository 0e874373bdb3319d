"""The window's own feature: undo, theme, help, and errors of torch and the engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QKeySequence
from PySide6.QtWidgets import QApplication

from app.builder.results import Analysis
from app.engine.requests.shapes import Torch
from app.util import resources
from app.views.actions import NAME
from app.views.feature import Action, Adopted, Feature, Submenu
from app.views.shell.appearance import Appearance
from app.views.shell.preferences import PREFERENCES
from app.views.shell.settings_dialog import SettingsDialog
from app.views.ui import icons
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.about import AboutDialog
from app.views.ui.dialogs.search import SearchDialog, SearchEntry, command_entry
from app.views.ui.dialogs.shortcuts import GESTURES, ShortcutSheet, command_text
from app.views.ui.op_rows import CATEGORY_NAMES
from app.views.workspace import Workspace

# --- What Ctrl+K finds: commands, layers to add, nodes to go to, settings of the program, gestures, what features add

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


NO_MANUAL = "In a checkout `make docs` builds it; until then its pages are the Markdown files in docs."
ENGINE_ENDED = "The engine stopped"
TORCH_FAILED = "PyTorch cannot be loaded"
TORCH_CURE = (
    "Drawing works without it. To check and train, install it again, and start Tapedeck again: "
    f"{Path(sys.executable).name} -m pip install --force-reinstall torch"
)


class ShellFeature(Feature):
    rank = 5

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.appearance = Appearance(workspace.settings, self)
        self._ending = ""  # how the last engine ended, until there is another
        self._torch_is_broken = False  # which has been said: every engine ends of it

    def actions(self) -> Iterable[Action | Adopted | Submenu]:
        window, stack = self.workspace.window, self.workspace.document.undo_stack
        undo, redo = (
            stack.createUndoAction(window, "&Undo"),
            stack.createRedoAction(window, "&Redo"),
        )
        undo.setShortcut(QKeySequence("Ctrl+Z"))
        redo.setShortcuts([QKeySequence("Ctrl+Shift+Z"), QKeySequence("Ctrl+Y")])
        undo.setIcon(icons.icon("undo"))
        redo.setIcon(icons.icon("redo"))
        for action, name in ((undo, "Undo"), (redo, "Redo")):
            action.setProperty(NAME, name)
        return (
            Action(
                "quit",
                "&Quit",
                window.close,
                QKeySequence.StandardKey.Quit,
                menu="file.leave",
            ),
            Adopted("undo", undo, menu="edit.history"),
            Adopted("redo", redo, menu="edit.history"),
            Action(
                "settings",
                "&Settings…",
                self.show_settings,
                "Ctrl+,",
                "inspector",
                menu="edit.preferences",
            ),
            Action(
                "message",
                "&Go to message",
                self.workspace.notifier.focus_banner,
                "Ctrl+M",
                menu="view.window",
            ),
            Submenu(
                "theme", "T&heme", self.appearance.offer_themes, menu="view.window"
            ),
            Submenu(
                "text-size",
                "Te&xt size",
                self.appearance.offer_sizes,
                menu="view.window",
            ),
            Adopted("thick-wires", self.appearance.thick, menu="view.window"),
            Adopted("reduce-motion", self.appearance.motion, menu="view.window"),
            Adopted("projector", self.appearance.projector, menu="view.window"),
            Action(
                "full-screen",
                "Full screen",
                self._turn_full_screen,
                "F11",
                menu="view.window",
            ),
            Action(
                "enlarge",
                "Page as large as the window",
                self.workspace.pages.enlarge_focused,
                "Shift+F11",
                tip="Hide the other docks until Esc; a double click on its tab does the same",
                menu="view.window",
            ),
            Action(
                "commands",
                "Search &commands",
                self._search_commands,
                ("Ctrl+K", "Ctrl+Shift+P"),
                "search",
                menu="help.search",
            ),
            Action(
                "shortcuts",
                "&Shortcuts",
                self._show_shortcuts,
                ("?", "F1"),
                "help",
                menu="help.search",
            ),
            Action(
                "manual",
                "&Manual",
                self._show_manual,
                icon="help",
                tip="Tutorials, jobs, commands, settings and limits, in the browser and without a network",
                menu="help.learn",
            ),
            Action("about", "&About Tapedeck", self._show_about, menu="help.about"),
            Action("about-qt", "About &Qt", QApplication.aboutQt, menu="help.about"),
        )

    def begin(self) -> None:
        live, status = self.workspace.live, self.workspace.status
        live.torch_loaded.connect(self._torch_loaded)
        live.torch_failed.connect(self._torch_failed)
        live.analysed.connect(self._checked)
        live.analysis_failed.connect(self._analysis_failed)
        self.workspace.engine.ended.connect(self._engine_ended)
        self.workspace.engine.started.connect(self._engine_started)
        self.workspace.pages.shown.connect(self._page_shown)
        self.workspace.document.replaced.connect(
            lambda _project: status.set_parameters(None)
        )
        self.workspace.document.replaced.connect(
            lambda _project: self.workspace.selection.set(())
        )

    # -- commands -----------------------------------------------------------------------------------------------------

    # The dialogs are imported when they are first asked for.

    def show_settings(self, name: str = "") -> None:
        """Open the Settings dialog, at the setting `name` if one is given."""

        dialog = SettingsDialog(self.workspace.settings, self.workspace.window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
        if name:
            dialog.go_to(name)

    def _turn_full_screen(self) -> None:
        window = self.workspace.window
        window.setWindowState(window.windowState() ^ Qt.WindowState.WindowFullScreen)

    def _show_shortcuts(self) -> None:
        ShortcutSheet(self.workspace.commands.all(), self.workspace.window).open()

    def _search_commands(self) -> None:
        SearchDialog(
            commands(self.workspace),
            others(self.workspace, self._show_shortcuts, self.show_settings),
            self.workspace.window,
        ).open()

    def _show_manual(self) -> None:
        page = resources.manual()
        if page is None:
            self.workspace.notifier.refuse("There is no manual here", NO_MANUAL)
        elif not QDesktopServices.openUrl(QUrl.fromLocalFile(str(page))):
            self.workspace.notifier.refuse("No browser opens the manual", str(page))

    def _show_about(self) -> None:
        AboutDialog(self.workspace.window).open()

    def _checked(self, analysis: Analysis) -> None:
        """Show what was measured of a network; of an empty canvas nothing was."""
        status, measured = self.workspace.status, bool(analysis.graph.nodes)
        status.set_checked(analysis.milliseconds if measured else None)
        shows_parameters = measured or analysis.source.opened
        status.set_parameters(
            analysis.total_parameters if shows_parameters else None,
            analysis.frozen_parameters,
        )

    # -- torch and the engine -----------------------------------------------------------------------------------------

    def _torch_loaded(self, torch: Torch) -> None:
        self.workspace.status.set_torch(f"PyTorch {torch.version}")
        if self._torch_is_broken:  # it was installed meanwhile
            self._torch_is_broken = False
            self.workspace.notifier.withdraw(TORCH_FAILED)

    def _torch_failed(self, failure: WorkerFailure) -> None:
        self._torch_is_broken = True
        self.workspace.status.set_torch(TORCH_FAILED)
        commands, reason = self.workspace.commands, failure.message.rstrip(".")
        helps = commands.has("get-torch")
        self.workspace.notifier.refuse(
            TORCH_FAILED,
            f"{reason}. {TORCH_CURE}",
            "What to do…" if helps else "",
            lambda: commands.trigger("get-torch", f"{reason}."),
        )

    def _analysis_failed(self, failure: WorkerFailure) -> None:
        message = f"The network could not be checked: {failure.message}"
        self.workspace.notifier.show_unexpected(message, failure.traceback)

    def _engine_ended(self, message: str) -> None:
        self._ending = message
        if not self._torch_is_broken and not self._page_tells():
            reason = f"{message} The project is unchanged; a new engine starts when it is needed."
            self.workspace.notifier.refuse(ENGINE_ENDED, reason)

    def _page_tells(self) -> bool:
        """Return whether a visible page already reports how the engine ended."""
        return any(tells(self._ending) for tells in self.workspace.notifier.told_by)

    def _page_shown(self, _page: str) -> None:
        if self._ending and self._page_tells():
            self.workspace.notifier.withdraw(ENGINE_ENDED)

    def _engine_started(self) -> None:
        if self._ending and self.workspace.notifier.title == ENGINE_ENDED:
            self.workspace.notifier.withdraw(ENGINE_ENDED)
            self.workspace.notifier.say("A new engine has started", self._ending)
        self._ending = ""
