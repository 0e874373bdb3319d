"""Inspector of the page "Model": one call, or a row of equal layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QScrollArea, QWidget

from app.features.opened.folding import Part
from app.observe.figures import ModuleFigures
from app.observe.observation import Observation, TensorFacts
from app.util.formatting import bytes_text, counted, shape_text
from app.views.ui.inspector import note
from app.views.ui.layouts import vbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.section import Section

HINT = "Click a module or an operation to see its input and output tensors and where it was called."
MOST = 12  # tensors that are listed


class CallInspector(QScrollArea):
    """Shows inputs, outputs and settings of a call, and the line that called it. `backwardRequested(part)` asks for its
    backward nodes."""

    backwardRequested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setAccessibleName("Call")
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.figures: Mapping[str, ModuleFigures] = {}
        self.show_part(None, None)

    def show_part(self, observation: Observation | None, piece: Part | None) -> None:
        """Show a part of an observation with the `figures` of its module; None shows a hint."""
        if observation is None or piece is None:
            self.setWidget(
                EmptyState(
                    "layers",
                    "Nothing selected",
                    HINT,
                )
            )
            return
        page = QWidget()
        title, *sections = _sections(observation, piece)
        vbox(
            title,
            *self._captured(observation, piece),
            *sections,
            1,
            on=page,
            margins=0,
            spacing=0,
        )
        self.setWidget(page)

    def _captured(self, observation: Observation, piece: Part) -> Iterator[QWidget]:
        """Yield the section of what a capture measured, with the way to its backward nodes."""
        call = observation.calls[piece.first]
        if not self.figures or call.kind not in ("module", "operation"):
            return
        section = Section(
            "Captured", "figures of the first call" if piece.repeated > 1 else ""
        )
        measured = self.figures.get(call.path) if call.kind == "module" else None
        if measured is not None:
            section.body_layout.addWidget(_rows(measured.rows))
        button = Button("Show backward nodes", icon="autograd")
        button.clicked.connect(lambda: self.backwardRequested.emit(piece))
        section.body_layout.addWidget(button)
        yield section


def _sections(observation: Observation, piece: Part) -> Iterable[QWidget]:
    call = observation.calls[piece.first]
    yield _title(piece.title, piece.kind or call.op)
    if observation.failed is not None and observation.failed in (
        call.id,
        *observation.children.get(call.id, ()),
    ):
        section = Section("Raised", observation.error.partition(":")[0])
        section.body_layout.addWidget(
            label(observation.error, "formula", "error", wrap=True)
        )
        yield section
    rows = [("Operation" if call.kind == "operation" else "Class", call.op)]
    if piece.repeated > 1:
        rows.append(("Repeated", f"×{piece.repeated}"))
    if call.call > 1:
        rows.append(("Call", str(call.call)))
    if call.value:
        rows.append(("Read as", call.value))
    rows += [("Set to", setting) for setting in call.settings if setting]
    if call.written:
        rows.append(("In place", "writes to its input"))
    if call.view:
        rows.append(("View", "shares memory with its input"))
    call_section = Section("Call")
    call_section.body_layout.addWidget(_rows(rows))
    yield call_section
    for title, tensors in (("Inputs", call.inputs), ("Outputs", call.outputs)):
        if tensors:
            yield _tensors(title, tensors)
    if call.parameters:
        parameters = Section("Parameters and buffers", str(len(call.parameters)))
        for name in call.parameters:
            parameters.body_layout.addWidget(label(name, "formula", "text2", wrap=True))
        yield parameters
    if call.kernels:
        kernels = Section("Kernels", str(len(call.kernels)))
        for name in dict.fromkeys(call.kernels):
            kernels.body_layout.addWidget(label(name, "formula", "text2", wrap=True))
        yield kernels
    if call.line:
        where = Section("Called at", f"line {call.line}")
        where.body_layout.addWidget(
            note(f"{PurePath(call.file).name}, line {call.line}")
        )
        where.setToolTip(call.file)
        yield where


def _title(name: str, kind: str) -> QWidget:
    widget = QWidget()
    vbox(
        label(name, "title", wrap=True),
        label(kind, "caption", "text3", wrap=True),
        on=widget,
        margins=12,
        spacing=1,
    )
    return widget


def _rows(rows: Iterable[tuple[str, str]]) -> QWidget:
    """Return two columns of text; the second, in the code font, wraps after dots and commas."""
    widget = QWidget()
    grid = QGridLayout(widget)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(10)
    grid.setVerticalSpacing(5)
    for row, (name, value) in enumerate(rows):
        grid.addWidget(
            label(name, "caption", "text2"), row, 0, Qt.AlignmentFlag.AlignTop
        )
        value_label = label(value.replace(".", ".\u200b"), "formula", wrap=True)
        value_label.setMinimumWidth(1)
        value_label.setToolTip(value)
        grid.addWidget(value_label, row, 1)
    grid.setColumnStretch(1, 1)
    return widget


def _tensors(title: str, tensors: tuple[TensorFacts, ...]) -> Section:
    section = Section(
        title,
        ""
        if any(map(_is_open, tensors))
        else bytes_text(sum(tensor.bytes for tensor in tensors)),
    )
    rows = [
        (
            _sizes(tensor),
            tensor.dtype
            if _is_open(tensor)
            else f"{tensor.dtype} · {bytes_text(tensor.bytes)}",
        )
        for tensor in tensors[:MOST]
    ]
    section.body_layout.addWidget(_rows(rows))
    if len(tensors) > MOST:
        section.body_layout.addWidget(
            note(f"and {counted(len(tensors) - MOST, 'more tensor')}")
        )
    return section


def _is_open(tensor: TensorFacts) -> bool:
    """Return whether a file leaves a size of a tensor open, so that its bytes are unknown."""
    return any(isinstance(size, str) for size in tensor.shape)


def _sizes(tensor: TensorFacts) -> str:
    layout = "" if tensor.layout == "strided" else f" {tensor.layout}"
    return f"{shape_text(tensor.shape, 'scalar')}{layout}"
