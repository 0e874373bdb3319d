"""The canvas's actions, for its keys, its context menus, the main window's menus and the list of commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.builder.edits import alignment
from app.builder.layout.arrange import GRID
from app.builder.sheet import FRAME
from app.views.ui import icons
from app.views.ui.graphview.spatial import DOWN, LEFT, RIGHT, UP

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas


class CanvasAction(Struct, frozen=True):
    """One action: the key it is asked for by, its words, its shortcuts, its icon, its group in the window's menus."""

    key: str
    text: str
    shortcuts: tuple[str, ...] = ()
    icon: str = ""
    menu: str = ""


ROWS = (
    CanvasAction("search", "Add layer…", ("Tab",), "add", menu="layer.edit"),
    CanvasAction("cut", "Cut", ("Ctrl+X",), "cut", menu="edit.clipboard"),
    CanvasAction("copy", "Copy", ("Ctrl+C",), "copy", menu="edit.clipboard"),
    CanvasAction("paste", "Paste", ("Ctrl+V",), "paste", menu="edit.clipboard"),
    CanvasAction("duplicate", "Duplicate", ("Ctrl+D",), menu="edit.clipboard"),
    CanvasAction(
        "delete", "Delete", ("Delete", "Backspace"), "trash", menu="edit.clipboard"
    ),
    CanvasAction(
        "delete_reconnect",
        "Delete and reconnect",
        ("Ctrl+Delete", "Ctrl+Backspace"),
        menu="edit.clipboard",
    ),
    CanvasAction("select_all", "Select all", ("Ctrl+A",), menu="edit.clipboard"),
    CanvasAction(
        "edit", "Edit parameters", ("Return", "Enter"), "inspector", menu="layer.edit"
    ),
    CanvasAction("find", "Find a node on the canvas…", ("Ctrl+F",), "search"),
    CanvasAction("rename", "Rename…", ("F2",), menu="layer.edit"),
    CanvasAction("replace", "Replace…", ("Ctrl+R",), menu="layer.edit"),
    CanvasAction("mute", "Mute", ("M",), "mute", menu="layer.edit"),
    CanvasAction("freeze", "Freeze", ("Shift+F",), "snowflake", menu="layer.edit"),
    CanvasAction("unfold", "Unfold", ("U",), "chevron-down", menu="block.fold"),
    CanvasAction(
        "unfold_level", "Unfold all by one level", ("Shift+U",), menu="block.fold"
    ),
    CanvasAction("fold_all", "Fold all", ("Alt+U",), menu="block.fold"),
    CanvasAction(
        "comment",
        "Comment, or frame the selection",
        ("C",),
        "comment",
        menu="layer.notes",
    ),
    CanvasAction("fit_frame", "Fit frame to contents", menu="layer.notes"),
    CanvasAction(
        "next_note", "Go to the next comment or frame", ("N",), menu="layer.notes"
    ),
    CanvasAction(
        "previous_note",
        "Go to the previous comment or frame",
        ("Shift+N",),
        menu="layer.notes",
    ),
    CanvasAction("bend", "Add a bend to the wire", ("B",), menu="layer.notes"),
    CanvasAction("straighten", "Straighten the wire", ("Shift+B",), menu="layer.notes"),
    CanvasAction("connect", "Connect to…", ("W",), "link", menu="layer.edit"),
    CanvasAction("disconnect", "Disconnect…", ("Shift+W",), menu="layer.edit"),
    CanvasAction("lay_out", "Auto layout", ("L",), "tree", menu="layer.edit"),
    *(
        CanvasAction(f"align_{edge}", f"Align {edge}", menu="layer.align")
        for edge in alignment.EDGES
    ),
    *(
        CanvasAction(f"distribute_{axis}", f"Distribute {axis}ly", menu="layer.align")
        for axis in alignment.AXES
    ),
    CanvasAction(
        "frame_selection", "Frame selection", ("F", "."), "frame", menu="view.zoom"
    ),
    CanvasAction("frame_all", "Frame everything", ("Home",), "frame", menu="view.zoom"),
    CanvasAction(
        "zoom_in", "Zoom in", ("+", "=", "Ctrl++", "Ctrl+="), "add", menu="view.zoom"
    ),
    CanvasAction("zoom_out", "Zoom out", ("-", "Ctrl+-"), "remove", menu="view.zoom"),
    CanvasAction("zoom_100", "Zoom to 100 %", ("Ctrl+0",), menu="view.zoom"),
    CanvasAction("cancel", "Cancel or select nothing", ("Esc",)),
    CanvasAction("left", "Follow the wire left", ("Left",), menu="layer.navigate"),
    CanvasAction("right", "Follow the wire right", ("Right",), menu="layer.navigate"),
    CanvasAction("up", "Go to the node above", ("Up",), menu="layer.navigate"),
    CanvasAction("down", "Go to the node below", ("Down",), menu="layer.navigate"),
    CanvasAction("nudge_left", "Nudge left", ("Shift+Left",), menu="layer.navigate"),
    CanvasAction("nudge_right", "Nudge right", ("Shift+Right",), menu="layer.navigate"),
    CanvasAction("nudge_up", "Nudge up", ("Shift+Up",), menu="layer.navigate"),
    CanvasAction("nudge_down", "Nudge down", ("Shift+Down",), menu="layer.navigate"),
    CanvasAction(
        "grow_left",
        "Make the comment or frame narrower",
        ("Ctrl+Left",),
        menu="layer.notes",
    ),
    CanvasAction(
        "grow_right",
        "Make the comment or frame wider",
        ("Ctrl+Right",),
        menu="layer.notes",
    ),
    CanvasAction(
        "grow_up", "Make the comment or frame shorter", ("Ctrl+Up",), menu="layer.notes"
    ),
    CanvasAction(
        "grow_down",
        "Make the comment or frame taller",
        ("Ctrl+Down",),
        menu="layer.notes",
    ),
)


SWITCHES = ("mute", "freeze", "unfold")  # checked where all that is selected is so


def make(widget: QWidget, does: dict[str, Callable[[], object]]) -> dict[str, QAction]:
    """Return the actions by key, added to a widget so that their shortcuts work in it and its children alone."""
    actions = {}
    for row in ROWS:
        action = QAction(row.text, widget)
        action.setObjectName(f"canvas.{row.key}")
        action.setShortcuts([QKeySequence(keys) for keys in row.shortcuts])
        action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        if row.icon:
            action.setIcon(icons.icon(row.icon))
        action.setCheckable(row.key in SWITCHES)
        action.triggered.connect(_caller(does[row.key]))
        widget.addAction(action)
        actions[row.key] = action
    return actions


def doings(canvas: Canvas) -> dict[str, Callable[[], object]]:
    """Return the callback of each action of a canvas, by key."""
    commands, view, hand = canvas.commands, canvas.view, canvas.hand
    steps = {
        "left": (-GRID, 0),
        "right": (GRID, 0),
        "up": (0, -GRID),
        "down": (0, GRID),
    }
    return {
        "search": hand.open_search,
        "cut": commands.cut,
        "copy": commands.copy,
        "paste": hand.paste,
        "duplicate": hand.duplicate,
        "delete": commands.delete,
        "delete_reconnect": commands.delete_reconnect,
        "select_all": commands.select_all,
        "edit": hand.edit,
        "find": canvas.findRequested.emit,
        "rename": hand.rename,
        "replace": hand.replace,
        "mute": partial(_switch, canvas, partial(commands.toggle, "muted")),
        "freeze": partial(_switch, canvas, partial(commands.toggle, "frozen")),
        "unfold": partial(_switch, canvas, canvas.folding.toggle),
        "unfold_level": canvas.folding.one_level,
        "fold_all": canvas.folding.fold_all,
        "comment": hand.comment,
        "fit_frame": commands.notes.fit,
        "next_note": partial(hand.step_note, 1),
        "previous_note": partial(hand.step_note, -1),
        "bend": hand.bend,
        "straighten": hand.straighten,
        "connect": canvas.connector.connect,
        "disconnect": canvas.connector.disconnect,
        "lay_out": hand.lay_out,
        **{f"align_{edge}": partial(commands.align, edge) for edge in alignment.EDGES},
        **{
            f"distribute_{axis}": partial(commands.distribute, axis)
            for axis in alignment.AXES
        },
        "frame_selection": canvas.frame_selection,
        "frame_all": canvas.frame_all,
        "zoom_in": partial(view.zoom_by, 1.25),
        "zoom_out": partial(view.zoom_by, 0.8),
        "zoom_100": lambda: view.zoom_to(view.unit),
        "cancel": hand.cancel,
        **{
            way: partial(hand.walk, direction)
            for way, direction in zip(steps, (LEFT, RIGHT, UP, DOWN), strict=True)
        },
        **{f"nudge_{way}": partial(commands.nudge, *by) for way, by in steps.items()},
        **{
            f"grow_{way}": partial(commands.notes.grow, *by)
            for way, by in steps.items()
        },
    }


def enable(canvas: Canvas) -> None:
    """Disable actions that need a selection if there is none."""
    nodes, notes = canvas.selection.ids, canvas.scene.notes.selected
    single = canvas.selection.single is not None
    wires = bool(canvas.scene.selected_wires)
    comments = canvas.scene.notes.comments
    wants = {
        **dict.fromkeys(("cut", "copy", "duplicate"), bool(nodes or notes)),
        **dict.fromkeys(("delete_reconnect", "mute", "freeze"), bool(nodes)),
        **dict.fromkeys(("rename", "edit"), single or (len(notes) == 1 and not nodes)),
        "unfold": bool(canvas.folding.instances()),
        **dict.fromkeys(("unfold_level", "fold_all"), canvas.folding.any_here),
        "connect": 1 <= len(nodes) <= 2,
        **dict.fromkeys(("replace", "disconnect"), single),
        "fit_frame": any(
            comments[note].kind == FRAME for note in notes if note in comments
        ),
        **dict.fromkeys(("bend", "straighten"), single or wires),
        **{row.key: bool(notes) for row in ROWS if row.key.startswith("grow_")},
        **{row.key: len(nodes) >= 2 for row in ROWS if row.key.startswith("align_")},
        **{
            row.key: len(nodes) >= 3
            for row in ROWS
            if row.key.startswith("distribute_")
        },
    }
    for key, on in wants.items():
        canvas.actions_by_key[key].setEnabled(on)
    instances = canvas.folding.instances()
    are = {
        "mute": canvas.commands.flagged("muted"),
        "freeze": canvas.commands.flagged("frozen"),
        "unfold": bool(instances) and canvas.folding.is_unfolded(instances),
    }
    for key in SWITCHES:
        canvas.actions_by_key[key].setChecked(are[key])


def _switch(canvas: Canvas, toggle: Callable[[], object]) -> None:
    """Toggle the selection; the check marks then show its state, also where nothing could be changed."""
    toggle()
    enable(canvas)


def _caller(function: Callable[[], object]) -> Callable[[], None]:
    """Wrap a function so that it ignores the `checked` argument of `triggered`."""

    def call() -> None:
        function()

    return call
