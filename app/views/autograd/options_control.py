"""Controller of the capture options: their menu in the header and under Autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QWidget

from app.autograd.capture_options import CaptureOptions
from app.views.autograd.capture_control import MODEL, NET, SCRIPT
from app.views.autograd.capture_menu import MOST_SAMPLES, CaptureMenu
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.views.autograd.capture_control import AutogradControl
    from app.views.autograd.page import AutogradPage
    from app.views.workspace import Workspace

NOT_CALLED = ("ModuleList", "ModuleDict")
TYPED = (
    700  # ms after the last key until a batch of the size that was typed is captured
)
TIP = "Mode, data, loss or outputs, AMP, checkpoint, create_graph and compile of a capture"


class BatchField(QWidget):
    """How many samples a capture has: `field` beside its name."""

    def __init__(self) -> None:
        super().__init__()
        self.field = NumberField(64, minimum=1, maximum=MOST_SAMPLES)
        self.field.setAccessibleName("Batch size of a capture")
        self.field.setFixedWidth(64)
        hbox(
            label("Batch", "label", "text3"), self.field, on=self, margins=0, spacing=6
        )


class OptionsControl(QObject):
    """`button` opens `menu`, as the main menu does; where a graph is shown, other options capture it again."""

    def __init__(
        self,
        workspace: Workspace,
        room: AutogradPage,
        capture: AutogradControl,
        menu: CaptureMenu,
    ) -> None:
        super().__init__(workspace.window)
        self._workspace, self._room, self._captures = workspace, room, capture
        self.menu = menu
        self.menu.about = self._about_net
        self.menu.changed.connect(self._changed)
        self.menu.mode_chosen.connect(room.head.mode.set_value)
        self.button = Button("Options")
        self.button.setMenu(self.menu)
        self.button.setToolTip(TIP)
        self.batch = BatchField()
        self._typed = QTimer(self, interval=TYPED, singleShot=True)
        self._typed.timeout.connect(self._batch_edited)
        self.batch.field.edited.connect(lambda _size: self._typed.start())
        self.batch.field.editingFinished.connect(self._batch_edited)
        room.head.add(self.batch)
        room.head.add(self.button)
        room.randomRequested.connect(self.capture_random)
        capture.captured.connect(lambda *_: self._show_size())
        workspace.document.changed.connect(lambda _before, _after: self._show_size())
        self._show_size()
        workspace.document.replaced.connect(lambda _project: self._forget())
        capture.turned.connect(self._turned)

    def capture_random(self) -> None:
        """Capture random inputs from now on."""
        chosen = replace(self.menu.options, data="random")
        again = self._room.tape is not None and chosen != self.menu.options
        self.menu.set_options(chosen)
        if not again:
            self._capture()

    def _capture(self) -> None:
        self._captures.capture(self._room.head.train)

    def _batch_edited(self) -> None:
        """Capture a batch of another size, once it is typed."""
        self._typed.stop()
        size = int(self.batch.field.value())
        if size != self._shown_size():
            self.menu.project_batch = (
                self._workspace.document.project.training.batch_size
            )
            self.menu.set_batch(size)

    def _shown_size(self) -> int:
        """Return the number of samples of the newest capture, else of the next one."""
        tape, project = self._room.tape, self._workspace.document.project
        inputs = [node for node in project.graph.nodes.values() if node.op == "input"]
        batch_dimension = inputs[0].params.get("batch", 0) if inputs else 0
        if self.menu.options.batch:
            return self.menu.options.batch
        if (
            tape is not None
            and tape.input_shapes
            and type(batch_dimension) is int
            and batch_dimension < len(tape.input_shapes[0])
        ):
            return tape.input_shapes[0][batch_dimension]
        return project.training.batch_size

    def _show_size(self) -> None:
        training_size, shown = (
            self._workspace.document.project.training.batch_size,
            self._shown_size(),
        )
        self.batch.field.set_value(shown)
        chosen = (
            "chosen for captures"
            if self.menu.options.batch
            else "as in a training step"
        )
        if not self.menu.options.batch and shown != training_size:
            chosen = f"fewer than the {training_size:,} of a training step: more are not available or need over 1 GiB"
        self.batch.field.set_hint(
            f"Samples of a capture, findings and gradient checks: {chosen}"
        )

    def _about_net(self) -> tuple[int, tuple[str, ...], int]:
        """Return the number of outputs of the net, its blocks, and the batch size."""
        nodes = self._workspace.document.project.graph.nodes.values()
        tape = self._room.tape
        self.menu.mode = self._room.head.mode.value()
        layers = tape.layers if tape is not None else {}
        owners = {path.rpartition(".")[0] for path in layers}
        blocks = tuple(
            path
            for path in layers
            if path and path in owners and layers[path] not in NOT_CALLED
        )
        size = self._workspace.document.project.training.batch_size
        if self.menu.of_model:
            return (
                len(tape.roots) if tape is not None and tape.loss is None else 1,
                blocks,
                size,
            )
        return max(sum(node.op == "output" for node in nodes), 1), blocks, size

    def _forget(self) -> None:
        """Reset options that depend on the net: blocks, outputs and data."""
        now = self.menu.options
        self.menu.set_options(
            replace(now, checkpoint=(), outputs=(), data="batch", batch=0)
        )
        self._show_size()

    def _turned(self, subject: str) -> None:
        """Reset options that depend on the subject, without a capture."""
        head = self._room.head
        self.menu.of_model = subject == MODEL
        head.offer(self.batch, subject == NET)
        for widget in (self.button, head.mode):
            head.offer(widget, subject != SCRIPT)  # which ran as it did
        self.menu.options = replace(
            self.menu.options, checkpoint=(), outputs=(), data="batch", batch=0
        )
        self._show_options(self.menu.options)

    def _changed(self, options: CaptureOptions) -> None:
        self._show_options(options)
        if self._room.tape is not None:
            self._capture()

    def _show_options(self, options: CaptureOptions) -> None:
        self._captures.set_options(options)
        count = len(options.differences)
        self.button.setText(f"Options ({count})" if count else "Options")
        self.button.setToolTip("; ".join(options.differences) or TIP)
        self.button.updateGeometry()
        self._room.head.fit()
        self._show_size()
