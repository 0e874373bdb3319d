"""The options of a capture: their menu in the head of the graph and under Autograd, and what a change of them does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.autograd.options import CaptureOptions
from app.views.autograd.capture_menu import CaptureMenu
from app.views.widgets.button import Button

if TYPE_CHECKING:
    from app.views.main_window import MainWindow

NOT_CALLED = ("ModuleList", "ModuleDict")
TIP = "Data, loss or outputs, AMP, checkpoint, create_graph and compile of a capture"


class OptionsControl(QObject):
    """`button` opens `menu`; where a graph is shown, other options capture it again."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self.menu = CaptureMenu(window)
        self.menu.about = self._about_net
        self.menu.changed.connect(self._changed)
        self.button = Button("Options")
        self.button.setMenu(self.menu)
        self.button.setToolTip(TIP)
        before = window.actions_by_key["play-backward"]
        window.autograd_menu.insertMenu(before, self.menu)
        window.autograd_menu.insertSeparator(before)
        window.room.head.add(self.button)
        window.document.replaced.connect(lambda _project: self._forget())

    def _about_net(self) -> tuple[int, tuple[str, ...]]:
        """How many outputs the net has, and its blocks."""
        nodes = self._window.document.project.graph.nodes.values()
        tape = self._window.room.tape
        layers = tape.layers if tape is not None else {}
        owners = {path.rpartition(".")[0] for path in layers}
        blocks = tuple(path for path in layers if path and path in owners and layers[path] not in NOT_CALLED)
        return max(sum(node.op == "output" for node in nodes), 1), blocks

    def _forget(self) -> None:
        """Another net has other blocks and other outputs."""
        now = self.menu.options
        self.menu.set_options(replace(now, checkpoint=(), outputs=()))

    def _changed(self, options: CaptureOptions) -> None:
        window = self._window
        window.autograd_control.options = options
        count = len(options.words)
        self.button.setText(f"Options ({count})" if count else "Options")
        self.button.setToolTip("; ".join(options.words) or TIP)
        self.button.updateGeometry()
        window.room.head.fit()
        if window.room.tape is not None:
            window.room.captureRequested.emit(window.room.head.mode.value() == "train")
