"""The canvas's actions, for its keys, its context menus, the main window's menus and the list of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence

from app.builder.arrange import GRID
from app.builder.edits import alignment
from app.builder.sheet import FRAME
from app.views.ui import icons
from app.views.ui.graphview.spatial import DOWN, LEFT, RIGHT, UP

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas


class CanvasAction(Struct, frozen=True):
    """One action: the key it is asked for by, its words, what it does, its shortcuts, its icon, its group in the
    window's menus.

    It is enabled `when` that is so, and checked where `on` is: where all that is selected is so.
    """

    key: str
    text: str
    do: Callable[[], object]
    shortcuts: tuple[str, ...] = ()
    icon: str = ""
    when: Callable[[], bool] | None = None
    on: Callable[[], bool] | None = None
    menu: str = ""


class CanvasActions:
    """The actions by key, added to the view so that their shortcuts work in it and its children alone."""

    def __init__(self, canvas: Canvas) -> None:
        self.rows = tuple(_rows(canvas))
        self.by_key: dict[str, QAction] = {}
        for row in self.rows:
            action = self.by_key[row.key] = QAction(row.text, canvas.view)
            action.setObjectName(f"canvas.{row.key}")
            action.setShortcuts([QKeySequence(keys) for keys in row.shortcuts])
            action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            if row.icon:
                action.setIcon(icons.icon(row.icon))
            action.setCheckable(row.on is not None)
            action.triggered.connect(partial(self._act, row))
            canvas.view.addAction(action)

    def _act(self, row: CanvasAction, _checked: bool = False) -> None:
        row.do()
        if row.on is not None:  # also where nothing could be changed
            self.enable()

    def enable(self) -> None:
        """Disable actions that need a selection if there is none."""
        for row in self.rows:
            if row.when is not None:
                self.by_key[row.key].setEnabled(row.when())
            if row.on is not None:
                self.by_key[row.key].setChecked(row.on())


def _rows(canvas: Canvas) -> Iterator[CanvasAction]:
    commands, view, hand = canvas.commands, canvas.view, canvas.hand
    folding, selection, scene = canvas.folding, canvas.selection, canvas.scene
    notes = scene.notes
    clip, edit, fold, note, line, zoom, go = (
        partial(CanvasAction, menu=menu)
        for menu in (
            "edit.clipboard",
            "layer.edit",
            "block.fold",
            "layer.notes",
            "layer.align",
            "view.zoom",
            "layer.navigate",
        )
    )

    def some() -> bool:
        return bool(selection.ids or notes.selected)

    def nodes(least: int = 1, most: int | None = None) -> bool:
        return least <= len(selection.ids) <= (most or len(selection.ids))

    def single() -> bool:
        return selection.single is not None

    def named() -> bool:
        return single() or (len(notes.selected) == 1 and not selection.ids)

    def wired() -> bool:
        return single() or bool(scene.selected_wires)

    def framed() -> bool:
        comments = [notes.comments.get(note) for note in notes.selected]
        return any(note is not None and note.kind == FRAME for note in comments)

    def blocks() -> bool:
        return folding.any_here

    def instances() -> bool:
        return bool(folding.instances())

    def unfolded() -> bool:
        return instances() and folding.is_unfolded(folding.instances())

    muted, frozen = (partial(commands.flagged, flag) for flag in ("muted", "frozen"))
    mute, freeze = (partial(commands.toggle, flag) for flag in ("muted", "frozen"))

    yield edit("search", "Add layer…", hand.open_search, ("Tab",), "add")
    yield clip("cut", "Cut", commands.cut, ("Ctrl+X",), "cut", some)
    yield clip("copy", "Copy", commands.copy, ("Ctrl+C",), "copy", some)
    yield clip("paste", "Paste", hand.paste, ("Ctrl+V",), "paste")
    yield clip("duplicate", "Duplicate", hand.duplicate, ("Ctrl+D",), "", some)
    yield clip("delete", "Delete", commands.delete, ("Delete", "Backspace"), "trash")
    yield clip(
        "delete_reconnect",
        "Delete and reconnect",
        commands.delete_reconnect,
        ("Ctrl+Delete", "Ctrl+Backspace"),
        when=nodes,
    )
    yield clip("select_all", "Select all", commands.select_all, ("Ctrl+A",))
    yield edit(
        "edit", "Edit parameters", hand.edit, ("Return", "Enter"), "inspector", named
    )
    find = canvas.findRequested.emit
    yield CanvasAction(
        "find", "Find a node on the canvas…", find, ("Ctrl+F",), "search"
    )
    yield edit("rename", "Rename…", hand.rename, ("F2",), "", named)
    yield edit("replace", "Replace…", hand.replace, ("Ctrl+R",), "", single)
    yield edit("mute", "Mute", mute, ("M",), "mute", nodes, muted)
    yield edit("freeze", "Freeze", freeze, ("Shift+F",), "snowflake", nodes, frozen)
    yield fold(
        "unfold", "Unfold", folding.toggle, ("U",), "chevron-down", instances, unfolded
    )
    level = "Unfold all by one level"
    yield fold("unfold_level", level, folding.one_level, ("Shift+U",), "", blocks)
    yield fold("fold_all", "Fold all", folding.fold_all, ("Alt+U",), "", blocks)
    frame = "Comment, or frame the selection"
    yield note("comment", frame, hand.comment, ("C",), "comment")
    yield note("fit_frame", "Fit frame to contents", commands.notes.fit, when=framed)
    for step, name, keys in ((1, "next", "N"), (-1, "previous", "Shift+N")):
        text = f"Go to the {name} comment or frame"
        yield note(f"{name}_note", text, partial(hand.step_note, step), (keys,))
    yield note("bend", "Add a bend to the wire", hand.bend, ("B",), "", wired)
    straighten = "Straighten the wire"
    yield note("straighten", straighten, hand.straighten, ("Shift+B",), "", wired)
    connect, ends = canvas.connector.connect, partial(nodes, 1, 2)
    yield edit("connect", "Connect to…", connect, ("W",), "link", ends)
    cut = canvas.connector.disconnect
    yield edit("disconnect", "Disconnect…", cut, ("Shift+W",), "", single)
    yield edit("lay_out", "Auto layout", hand.lay_out, ("L",), "tree")
    for edge in alignment.EDGES:
        align, two = partial(commands.align, edge), partial(nodes, 2)
        yield line(f"align_{edge}", f"Align {edge}", align, when=two)
    for axis in alignment.AXES:
        spread, three = partial(commands.distribute, axis), partial(nodes, 3)
        yield line(f"distribute_{axis}", f"Distribute {axis}ly", spread, when=three)
    chosen, everything = canvas.frame_selection, canvas.frame_all
    yield zoom("frame_selection", "Frame selection", chosen, ("F", "."), "frame")
    yield zoom("frame_all", "Frame everything", everything, ("Home",), "frame")
    closer, further = partial(view.zoom_by, 1.25), partial(view.zoom_by, 0.8)
    yield zoom("zoom_in", "Zoom in", closer, ("+", "=", "Ctrl++", "Ctrl+="), "add")
    yield zoom("zoom_out", "Zoom out", further, ("-", "Ctrl+-"), "remove")
    yield zoom(
        "zoom_100", "Zoom to 100 %", lambda: view.zoom_to(view.unit), ("Ctrl+0",)
    )
    yield CanvasAction("cancel", "Cancel or select nothing", hand.cancel, ("Esc",))
    ways = {"left": LEFT, "right": RIGHT, "up": UP, "down": DOWN}
    walks = (
        "Follow the wire left",
        "Follow the wire right",
        "Go to the node above",
        "Go to the node below",
    )
    for (way, direction), text in zip(ways.items(), walks, strict=True):
        yield go(way, text, partial(hand.walk, direction), (way.title(),))
    for way, (x, y) in ways.items():
        nudge = partial(commands.nudge, x * GRID, y * GRID)
        yield go(f"nudge_{way}", f"Nudge {way}", nudge, (f"Shift+{way.title()}",))
    for (way, (x, y)), size in zip(
        ways.items(), ("narrower", "wider", "shorter", "taller"), strict=True
    ):
        grow, keys = partial(commands.notes.grow, x * GRID, y * GRID), way.title()
        text = f"Make the comment or frame {size}"
        yield note(
            f"grow_{way}",
            text,
            grow,
            (f"Ctrl+{keys}",),
            when=lambda: bool(notes.selected),
        )
