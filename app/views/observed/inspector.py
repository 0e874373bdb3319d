"""Inspector of the page "Model": one call, or a row of equal layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QScrollArea, QWidget

from app.observe.figures import ModuleFigures
from app.observe.folding import Part
from app.observe.observation import Observation, TensorFacts
from app.util.formatting import bytes_text, counted, shape_text
from app.views.autograd.inspector.inspector import note
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

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setAccessibleName("Call")
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.figures: Mapping[str, ModuleFigures] = {}
        self.show_part(None, None)

    def show_part(self, found: Observation | None, part: Part | None) -> None:
        """Show a part of an observation with the `figures` of its module; None shows a hint."""
        if found is None or part is None:
            self.setWidget(
                EmptyState(
                    "layers",
                    "Nothing selected",
                    HINT,
                )
            )
            return
        page = QWidget()
        title, *sections = _sections(found, part)
        vbox(
            title,
            *self._captured(found, part),
            *sections,
            1,
            on=page,
            margins=0,
            spacing=0,
        )
        self.setWidget(page)

    def _captured(self, found: Observation, part: Part) -> Iterator[QWidget]:
        """Yield the section of what a capture measured, with the way to its backward nodes."""
        call = found.calls[part.first]
        if not self.figures or call.kind not in ("module", "operation"):
            return
        section = Section(
            "Captured", "figures of the first call" if part.repeated > 1 else ""
        )
        measured = self.figures.get(call.path) if call.kind == "module" else None
        if measured is not None:
            section.body_layout.addWidget(_rows(measured.rows))
        button = Button("Show backward nodes", icon="autograd")
        button.clicked.connect(lambda: self.backwardRequested.emit(part))
        section.body_layout.addWidget(button)
        yield section


def _sections(found: Observation, part: Part) -> Iterable[QWidget]:
    call = found.calls[part.first]
    yield _title(part.title, part.kind or call.op)
    if found.failed is not None and found.failed in (
        call.id,
        *found.children.get(call.id, ()),
    ):
        section = Section("Raised", found.error.partition(":")[0])
        section.body_layout.addWidget(label(found.error, "formula", "error", wrap=True))
        yield section
    rows = [("Operation" if call.kind == "operation" else "Class", call.op)]
    if part.repeated > 1:
        rows.append(("Repeated", f"×{part.repeated}"))
    if call.call > 1:
        rows.append(("Call", str(call.call)))
    if call.value:
        rows.append(("Read as", call.value))
    rows += [("Set to", one) for one in call.settings if one]
    if call.written:
        rows.append(("In place", "writes to its input"))
    if call.view:
        rows.append(("View", "shares memory with its input"))
    what = Section("Call")
    what.body_layout.addWidget(_rows(rows))
    yield what
    for title, held in (("Inputs", call.inputs), ("Outputs", call.outputs)):
        if held:
            yield _tensors(title, held)
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
        said = label(value.replace(".", ".\u200b"), "formula", wrap=True)
        said.setMinimumWidth(1)
        said.setToolTip(value)
        grid.addWidget(said, row, 1)
    grid.setColumnStretch(1, 1)
    return widget


def _tensors(title: str, held: tuple[TensorFacts, ...]) -> Section:
    section = Section(
        title,
        "" if any(map(_is_open, held)) else bytes_text(sum(one.bytes for one in held)),
    )
    rows = [
        (
            _sizes(one),
            one.dtype if _is_open(one) else f"{one.dtype} · {bytes_text(one.bytes)}",
        )
        for one in held[:MOST]
    ]
    section.body_layout.addWidget(_rows(rows))
    if len(held) > MOST:
        section.body_layout.addWidget(
            note(f"and {counted(len(held) - MOST, 'more tensor')}")
        )
    return section


def _is_open(one: TensorFacts) -> bool:
    """Return whether a file leaves a size of a tensor open, so that its bytes are unknown."""
    return any(isinstance(size, str) for size in one.shape)


def _sizes(one: TensorFacts) -> str:
    layout = "" if one.layout == "strided" else f" {one.layout}"
    return f"{shape_text(one.shape, 'scalar')}{layout}"
