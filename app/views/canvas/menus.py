"""The context menus: of a node, of a wire and its bends, of a comment or frame, of nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QAction, QColor, QIcon, QPainter, QPen, QPixmap
from PySide6.QtWidgets import QMenu

from app.builder.graph import Edge
from app.builder.sheet import FRAME
from app.views.canvas.gestures.gesture import Hit
from app.views.ui import icons, theme
from app.views.ui.op_rows import CATEGORY_NAMES

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

NODE = (
    "edit",
    "rename",
    "replace",
    "mute",
    "freeze",
    None,
    "connect",
    "disconnect",
    None,
    "cut",
    "copy",
    "duplicate",
    "comment",
    None,
    "delete",
    "delete_reconnect",
    None,
    "lay_out",
    "frame_selection",
)
NOTE = (
    None,
    "cut",
    "copy",
    "duplicate",
    "comment",
    None,
    "delete",
    None,
    "frame_selection",
)
EMPTY = (
    "search",
    "comment",
    "paste",
    None,
    "select_all",
    "lay_out",
    None,
    "unfold_level",
    "fold_all",
    None,
    "frame_all",
    "zoom_100",
)


def menu_for(canvas: Canvas, hit: Hit, spot: QPoint) -> QMenu:
    """Return the context menu of what was clicked, at a point of the screen."""
    menu = QMenu(canvas)
    point = canvas.view.mapToScene(canvas.view.mapFromGlobal(spot))
    if hit.wire is not None:
        _of_wire(canvas, menu, hit.wire, hit.bend, point)
    elif hit.note is not None:
        _of_note(canvas, menu, hit.note)
    elif hit.node is not None:
        if hit.inside:
            _of_inside(canvas, menu, hit.node, hit.inside)
        if hit.node not in canvas.selection.ids:
            canvas.commands.select([hit.node])
        nodes = canvas.folding.instances()
        if nodes:
            verb = "Fold" if canvas.folding.is_unfolded(nodes) else "Unfold"
            _add(menu, f"{verb}\tU", canvas.folding.toggle, "chevron-down")
            menu.addAction(canvas.actions_by_key["unfold_level"])
            menu.addSeparator()
        _fill(canvas, menu, NODE, point)
        if more := canvas.more_actions():
            menu.addSeparator()
            menu.addActions(more)
    else:
        _fill(canvas, menu, EMPTY, point)
    return menu


def _fill(
    canvas: Canvas, menu: QMenu, keys: Iterable[str | None], point: QPointF
) -> None:
    for key in keys:
        if key is None:
            menu.addSeparator()
        elif key == "paste":  # from the menu, things are put where it was opened
            _add(menu, "Paste here", lambda: canvas.commands.paste(point), "paste")
        elif (
            key == "comment"
            and not canvas.selection.ids
            and not canvas.scene.notes.selected
        ):
            _add(menu, "Comment here", lambda: canvas.writing.begin(point), "comment")
        elif key == "comment":
            _add(menu, "Frame the selection\tC", canvas.hand.comment, "comment")
        else:
            menu.addAction(canvas.actions_by_key[key])


def _of_inside(canvas: Canvas, menu: QMenu, node: str, way: tuple[str, ...]) -> None:
    """Add commands for a node in an unfolded block, before those for the block."""
    face = canvas.scene.nodes[node].face_at(way)
    if face is not None:
        if face.block:
            verb = "Fold" if face.inside is not None else "Unfold"
            _add(
                menu,
                f"{verb} {face.name}",
                lambda: canvas.folding.toggle_at(node, way),
                "chevron-down",
            )
        _add(menu, f"Go to {face.name}", lambda: canvas.insideRequested.emit(node, way))
        menu.addSeparator()


def _of_wire(
    canvas: Canvas, menu: QMenu, wire: Edge, bend: int | None, point: QPointF
) -> None:
    commands = canvas.commands
    commands.select_wire(wire, bend)
    _add(menu, "Insert layer…", lambda: canvas.finder.for_wire(wire, point), "add")
    if bend is None:
        _add(menu, "Add a bend", lambda: commands.notes.bend(wire, point))
    else:
        _add(menu, "Remove the bend", lambda: commands.notes.unbend(wire, bend))
    if commands.project.bends.get(wire):
        _add(menu, "Straighten", lambda: commands.notes.straighten(wire))
    menu.addSeparator()
    _add(menu, "Cut wire", lambda: commands.cut_wire(wire), "cut")


def _of_note(canvas: Canvas, menu: QMenu, note: str) -> None:
    if note not in canvas.scene.notes.selected:
        canvas.commands.select((), [note])
    value = canvas.scene.notes.comments[note]
    frame = value.kind == FRAME
    _add(
        menu,
        "Rename frame" if frame else "Edit comment",
        lambda: canvas.writing.edit(note),
    )
    colors = menu.addMenu("Colour")
    tints = {key: name for key, name in CATEGORY_NAMES.items() if key != "own"}
    for color, name in (("", "Plain"), *tints.items()):
        action = _add(
            colors, name.replace("&", "&&"), partial(canvas.commands.notes.tint, color)
        )
        action.setIcon(
            _swatch(
                theme.current().categories.get(color, theme.current().line3),
                color == value.color,
            )
        )
    if frame:
        menu.addAction(canvas.actions_by_key["fit_frame"])
        _add(
            menu,
            "Select contents",
            lambda: canvas.commands.select(*canvas.commands.selected_with_contents()),
        )
    _fill(canvas, menu, NOTE, QPointF())


def _add(menu: QMenu, text: str, does: Callable[[], object], icon: str = "") -> QAction:
    action = QAction(text, menu)
    if icon:
        action.setIcon(icons.icon(icon))
    action.triggered.connect(lambda *_: does())
    menu.addAction(action)
    return action


def _swatch(color: QColor, chosen: bool) -> QIcon:
    """Return a colour swatch; the current one has a ring."""
    picture = QPixmap(32, 32)
    picture.setDevicePixelRatio(2.0)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(color)
    painter.drawRoundedRect(QRectF(4, 4, 8, 8), 2, 2)
    if chosen:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme.current().text, 1.5))
        painter.drawRoundedRect(QRectF(1.5, 1.5, 13, 13), 4, 4)
    painter.end()
    return QIcon(picture)
