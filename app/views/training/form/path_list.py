"""A list of chosen modules of the net: one per line, with a button to add; missing ones are marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.project.module_paths import Layers, NetModule
from app.util.formatting import grouped_digits
from app.views.ui.layouts import hbox, vbox
from app.views.ui.pick_box import Picker, PickRow
from app.views.ui.widgets import Button, icon_button
from app.views.ui.widgets.focus import keeping_focus
from app.views.ui.widgets.painting import label, set_property

MOST = 2_000  # layers to choose from
GONE = "The network no longer has a module with this name."


def pick_layer(
    title: str,
    layers: Iterable[NetModule],
    below: QWidget,
    take: Callable[[NetModule], None],
    nothing: str,
) -> Picker:
    """Open a picker of layers below a widget; of very many only the first are listed."""
    picks = [
        PickRow(layer.path, "", layer, _about(layer)) for layer in islice(layers, MOST)
    ]
    picker = Picker(title, picks, nothing, below)
    picker.picked.connect(take)
    picker.open_below(below)
    return picker


def _about(layer: NetModule) -> str:
    if layer.frozen:
        return "frozen"
    return f"{grouped_digits(layer.parameters)} parameters" if layer.parameters else ""


class PathLine(QWidget):
    """A path with the button that takes it away; marked where the net has no such module."""

    removed = Signal(str)

    def __init__(self, path: str, what: str) -> None:
        super().__init__()
        self.path = path
        self.name = label(path, "code", "text")
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.remove = icon_button("close", f"Remove {what} {path}")
        self.remove.setFixedSize(22, 22)
        self.remove.clicked.connect(lambda: self.removed.emit(path))
        hbox((self.name, 1), self.remove, on=self, margins=0, spacing=6)

    def set_known(self, exists: bool) -> None:
        set_property(self.name, "tone", "text" if exists else "error")
        self.name.setToolTip("" if exists else GONE)


class PathList(QWidget):
    """`changed(paths)` carries an edit."""

    changed = Signal(object)

    def __init__(self, caption: str, words: str, what: str) -> None:
        super().__init__()
        self._what = what
        self._paths: tuple[str, ...] = ()
        self._layers: Layers | None = None
        self.lines: dict[str, PathLine] = {}
        self.add = Button("Add a layer…", "link", "add")
        self.add.setAccessibleName(f"Add a layer to {caption}")
        self.add.clicked.connect(self.open_picker)
        title = label(caption, "code", "text2")
        title.setToolTip(words)
        self._rows = vbox(spacing=2)
        vbox(
            title,
            label(words, "label", "text3", wrap=True),
            self._rows,
            (self.add, 0, Qt.AlignmentFlag.AlignLeft),
            on=self,
            margins=(0, 4, 0, 0),
            spacing=3,
        )

    def set_layers(self, layers: Layers) -> None:
        """Set the layers of the net."""
        self._layers = layers
        self._mark()

    def show_paths(self, paths: tuple[str, ...]) -> None:
        if paths == self._paths:
            return
        self._paths = paths
        with keeping_focus(self):
            for line in self.lines.values():
                self._rows.removeWidget(line)
                line.hide()
                line.deleteLater()
            self.lines = {path: PathLine(path, self._what) for path in paths}
            for line in self.lines.values():
                line.removed.connect(
                    lambda path: self.changed.emit(
                        tuple(p for p in self._paths if p != path)
                    )
                )
                self._rows.addWidget(line)
        self._mark()

    def _mark(self) -> None:
        for path, line in self.lines.items():
            line.set_known(self._layers is None or self._layers.has(path))

    def open_picker(self) -> Picker:
        """Open a list of layers to add."""
        chosen = set(self._paths)
        left = (
            layer
            for layer in self._layers or ()
            if not chosen.issuperset(layer.modules)
        )
        return pick_layer(
            "Layers of the network", left, self.add, self._add, "No other layers."
        )

    def _add(self, layer: NetModule) -> None:
        self.changed.emit(
            (*self._paths, *(path for path in layer.modules if path not in self._paths))
        )
