"""The menu "Options" of the Autograd tab: batch, mode and start of the backward pass to capture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace
from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QInputDialog, QMenu, QWidget

from app.autograd.capture_options import PLAIN_OPTIONS, CaptureOptions

MOST = 40  # blocks that the menu offers
MOST_SAMPLES = 1_000_000

_VECTORS = (
    ("ones", "ones: the sum of all elements"),
    ("random", "random: normally distributed"),
    ("one-hot", "one-hot index…"),
)


class CaptureMenu(QMenu):
    """Shows the current options each time it opens. `changed(options)` emits new ones, `mode_chosen("eval")` the other
    mode: the header has no room for the choice of it in a narrow window."""

    changed = Signal(object)
    mode_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Capture &options", parent)
        self.options = PLAIN_OPTIONS
        self.mode = "train"
        self.outputs = 1
        self.blocks: tuple[str, ...] = ()  # their paths
        self.project_batch = 64  # samples of a training step
        self.of_model = (
            False  # an opened model is called with the inputs it was opened with
        )
        # Called when the menu opens: (number of outputs, paths of blocks, samples of a training step).
        self.about: Callable[[], tuple[int, tuple[str, ...], int]] | None = None
        self.by_key: dict[str, QAction] = {}
        self._groups: list[QActionGroup] = []
        self._menus: list[QMenu] = []
        self.setToolTipsVisible(True)
        self.aboutToShow.connect(self.fill)
        self.fill()

    def set_options(self, options: CaptureOptions) -> None:
        """Set other options and emit `changed`."""
        if options != self.options:
            self.options = options  # the entries are rebuilt when the menu opens, not while one is triggered
            self.changed.emit(options)

    def set_batch(self, size: int) -> None:
        """Set the batch size; the size of a training step is stored as 0, unless the data are random."""
        self._set(
            batch=0
            if size == self.project_batch and self.options.data == "batch"
            else size
        )

    def _set(self, **values: Any) -> None:
        self.set_options(replace(self.options, **values))

    def fill(self) -> None:
        """Rebuild the entries."""
        if self.about is not None:
            self.outputs, self.blocks, self.project_batch = self.about()
        now = self.options
        self.clear()
        for menu in self._menus:
            menu.deleteLater()
        self._menus = []
        for group in self._groups:
            group.deleteLater()
        self.by_key, self._groups = {}, []
        modes = tuple((mode, f"{mode}() mode") for mode in ("train", "eval"))
        self._choices(self, "mode", self.mode, modes).triggered.connect(
            lambda mode: self.mode_chosen.emit(mode.data())
        )
        self.addSeparator()
        if not self.of_model:
            self._data(now)
        starts = (
            ("loss", "Backward from the loss"),
            ("outputs", "Backward from the outputs: vector-Jacobian product"),
        )
        start = self._choices(self, "start", "loss" if now.loss else "outputs", starts)
        start.triggered.connect(lambda action: self._set(loss=action.data() == "loss"))
        vector = self._submenu("Vector v of the product")
        vector.setEnabled(not now.loss)
        texts = tuple(
            (
                key,
                f"one-hot index {now.index}…"
                if key == now.vector == "one-hot"
                else text,
            )
            for key, text in _VECTORS
        )
        self._choices(vector, "vector", now.vector, texts).triggered.connect(
            lambda action: self._vector(action.data())
        )
        if self.outputs > 1:
            which = self._submenu("Outputs")
            which.setEnabled(not now.loss)
            for index in range(self.outputs):
                on = not now.outputs or index in now.outputs
                self._check(
                    which,
                    f"output.{index}",
                    f"output {index + 1}",
                    on,
                    partial(self._output, index),
                )
        self.addSeparator()
        self._check(
            self,
            "amp",
            "AMP: autocast to bfloat16",
            now.amp == "bfloat16",
            lambda on: self._set(amp="bfloat16" if on else ""),
        )
        self._blocks(now)
        second = "Second order: square of the gradient's norm (create_graph=True)"
        self._check(
            self,
            "second_order",
            second,
            now.second_order,
            lambda on: self._set(second_order=on, compile=now.compile and not on),
        )
        self._check(
            self,
            "compile",
            "Compile: torch.compile with aot_eager",
            now.compile,
            lambda on: self._set(compile=on, second_order=now.second_order and not on),
        )
        self.addSeparator()
        plain = self.addAction("Plain capture", lambda: self.set_options(PLAIN_OPTIONS))
        plain.setEnabled(now != PLAIN_OPTIONS)
        self.by_key["plain"] = plain

    def _data(self, now: CaptureOptions) -> None:
        kinds = (
            ("batch", "First batch of the project's data"),
            ("random", "Random inputs and targets of the network's shapes"),
        )
        data = self._choices(self, "data", now.data, kinds)
        data.triggered.connect(lambda action: self._set(data=action.data()))
        size = (
            f"{now.batch:,}" if now.batch else f"{self.project_batch:,}, as in training"
        )
        self.by_key["batch"] = self.addAction(f"Batch size: {size}…", self._batch)
        self.addSeparator()

    def _blocks(self, now: CaptureOptions) -> None:
        menu = self._submenu("Checkpoint a block")
        menu.setEnabled(bool(self.blocks or now.checkpoint))
        for path in dict.fromkeys((*now.checkpoint, *self.blocks[:MOST])):
            self._check(
                menu,
                f"checkpoint.{path}",
                path,
                path in now.checkpoint,
                partial(self._checkpoint, path),
            )

    def _submenu(self, text: str) -> QMenu:
        menu = self.addMenu(text)
        self._menus.append(menu)
        return menu

    def _choices(
        self, menu: QMenu, key: str, value: str, options: tuple[tuple[str, str], ...]
    ) -> QActionGroup:
        group = QActionGroup(self)
        for name, text in options:
            action = menu.addAction(text)
            action.setCheckable(True)
            action.setChecked(name == value)
            action.setData(name)
            group.addAction(action)
            self.by_key[f"{key}.{name}"] = action
        self._groups.append(group)
        return group

    def _check(
        self, menu: QMenu, key: str, text: str, on: bool, slot: Callable[[bool], None]
    ) -> None:
        action = menu.addAction(text)
        action.setCheckable(True)
        action.setChecked(on)
        action.toggled.connect(slot)
        self.by_key[key] = action

    def _vector(self, kind: str) -> None:
        index = self.options.index
        if kind == "one-hot":
            index, sure = QInputDialog.getInt(
                self.window(),
                "One-hot vector",
                "1 at this index of the output's last dimension, 0 elsewhere:",
                index,
                0,
                10_000_000,
            )
            if not sure:
                return
        self._set(vector=kind, index=index)

    def _batch(self) -> None:
        now = self.options.batch or self.project_batch
        size, sure = QInputDialog.getInt(
            self.window(),
            "Batch size",
            "Samples of a capture, findings and gradient checks:",
            now,
            1,
            MOST_SAMPLES,
        )
        if sure:
            self.set_batch(size)

    def _output(self, index: int, on: bool) -> None:
        chosen = set(self.options.outputs or range(self.outputs))
        chosen = chosen | {index} if on else chosen - {index}
        complete = len(chosen) == self.outputs or not chosen
        self._set(outputs=() if complete else tuple(sorted(chosen)))

    def _checkpoint(self, path: str, on: bool) -> None:
        others = tuple(other for other in self.options.checkpoint if other != path)
        self._set(checkpoint=(*others, path) if on else others)
