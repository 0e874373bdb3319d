"""Render every widget and icon into one picture: `python -m scripts.widget_sheet OUT.png --theme dark`.

The texts are samples. The tests render it in both themes; check it by eye after a change of the theme.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPaintEvent, QPixmap, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QDoubleSpinBox,
    QFrame,
    QGridLayout,
    QGroupBox,
    QHBoxLayout,
    QMenu,
    QPlainTextEdit,
    QProgressBar,
    QRadioButton,
    QSlider,
    QTableView,
    QTreeView,
    QWidget,
)

from app.views.ui import icons, theme
from app.views.ui import widgets as w
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.painting import TextLine, box, start


class _IconSheet(QWidget):
    COLUMNS, CELL = 14, 33

    def __init__(self) -> None:
        super().__init__()
        rows = -(-len(icons.names()) // self.COLUMNS)
        self.setFixedSize(self.COLUMNS * self.CELL, rows * self.CELL)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        for i, name in enumerate(icons.names()):
            y, x = divmod(i, self.COLUMNS)
            icons.draw(
                painter,
                name,
                icons.default_color(name),
                x * self.CELL + 8,
                y * self.CELL + 8,
                16,
            )
        painter.end()


class _Colours(QWidget):
    """Category headers and chart series."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(86)
        self._names = [TextLine(key, "node") for key in theme.current().categories]

    def paintEvent(self, event: QPaintEvent) -> None:
        t = theme.current()
        painter = start(self)
        for i, line in enumerate(self._names):
            area = QRectF(i % 6 * 78, i // 6 * 30, 74, 27)
            box(painter, area, 6, theme.header_fill(line.text), t.line2)
            icons.draw(painter, line.text, line.text, area.x() + 8, area.y() + 7, 14)
            line.draw_in(painter, area.x() + 28, area, t.text)
        for i, color in enumerate(t.series):
            painter.fillRect(QRectF(i * 78, 66, 74, 10), color)
        painter.end()


def _row(*items: QWidget | int, spacing: int = 8) -> QWidget:
    """Return the items side by side; a number is a stretch."""
    result = QWidget()
    layout = hbox(on=result, margins=0, spacing=spacing)
    for item in items:
        if isinstance(item, int):
            layout.addStretch(item)
        else:
            layout.addWidget(item, 0, Qt.AlignmentFlag.AlignVCenter)
    return result


def _disabled(widget: QWidget) -> QWidget:
    widget.setEnabled(False)
    return widget


def _invalid(field: w.NumberField, message: str = "At least 1.") -> QWidget:
    field.set_invalid(message)
    return field


def _linked(field: w.NumberField) -> QWidget:
    field.set_linked(True)
    return field


def buttons() -> QWidget:
    """Return buttons, toggles and check boxes in their states."""
    checks = [QCheckBox("Break on NaN or Inf"), QCheckBox("Watch"), QCheckBox("Part")]
    checks[0].setChecked(True)
    checks[2].setTristate(True)
    checks[2].setCheckState(Qt.CheckState.PartiallyChecked)
    radios = [QRadioButton("CPU"), QRadioButton("CUDA")]
    radios[0].setChecked(True)
    off = QCheckBox("Off")
    off.setChecked(True)
    device = w.Button("cuda:0", icon="chip", icon_color="run")
    device.setMenu(QMenu(device))
    column = QWidget()
    layout = vbox(
        _row(
            w.Button("Insert Flatten", "primary"),
            w.Button("New", "primary", "new"),
            w.Button("Set bias=False"),
            w.Button("Export", icon="export"),
            device,
            w.Button("Cancel", "flat"),
            w.Button("Open", "link", "export"),
            1,
        ),
        _row(
            _disabled(w.Button("Insert Flatten", "primary")),
            _disabled(w.Button("Set bias=False")),
            _disabled(w.Button("Export", icon="export")),
            _disabled(w.Button("Cancel", "flat")),
            w.icon_button("snowflake", "Freeze"),
            w.icon_button("mute", "Mute"),
            w.icon_button("more", "More"),
            1,
        ),
        on=column,
        margins=0,
    )
    toggles = [
        w.Toggle(value=True),
        w.Toggle(),
        w.Toggle("64 values", value=True),
        _disabled(w.Toggle()),
    ]
    layout.addWidget(_row(*toggles, 1))
    layout.addWidget(_row(*checks, _disabled(off), *radios, 1, spacing=12))
    return column


def decks() -> QWidget:
    """Return transports and counters in their states."""
    column = QWidget()
    layout = vbox(on=column, margins=0)
    states = []
    for state in w.Transport.LOOKS:
        deck = w.Transport()
        deck.set_state(state, "Fix 1 error to run")
        states.append(deck)
    layout.addWidget(_row(*states[:2], 1))
    layout.addWidget(_row(*states[2:], 1))
    backs = []
    for state in ("ready", "running"):
        back = w.BackwardTransport()
        back.set_state(state)
        backs.append(back)
    layout.addWidget(_row(*backs, 1))
    blocked = w.Counter()
    blocked.set_fields((("Epoch", "0/10"), ("Batch", "0/938")))
    blocked.set_progress(0, 10)
    blocked.set_message("Fix 1 error to run", "error", "error")
    running = w.Counter()
    figures = (
        ("Epoch", "3/10"),
        ("Batch", "412/938"),
        ("Samples/s", "12,480"),
        ("Loss", "0.0541"),
        ("ETA", "0:39"),
    )
    running.set_fields(figures)
    running.set_progress(2.44, 10)
    running.set_color("run")
    replay = w.Counter()
    replay.set_fields((("Epoch", "93/200"), ("Batch", "412/938"), ("Loss", "0.1030")))
    replay.set_progress(92.4, 200)
    replay.set_color("back")
    replay.set_message("Replaying backward", "tapedeck", "back")
    for counter in (blocked, running, replay):
        layout.addWidget(counter)
    return column


def fields() -> QWidget:
    """Return an inspector's form, and plain Qt fields."""
    rows = {
        "in_channels": _linked(w.NumberField(32)),
        "out_channels": w.NumberField(64, minimum=1),
        "kernel_size": w.NumbersField(2, 3),
        "normalized_shape": w.NumbersField(0, (64, 12, 12)),
        "lr": w.NumberField(1e-3, "float"),
        "groups": _invalid(w.NumberField(-1)),
        "dim": _disabled(w.NumberField(1)),
        "padding_mode": w.ChoiceField(("zeros", "reflect", "replicate", "circular")),
        "reduction": _disabled(w.ChoiceField(("mean", "sum"))),
        "slice": w.TextField("(slice(None), 0)"),
        "bias": w.Toggle("64 values", value=True),
    }
    form = QWidget()
    grid = QGridLayout(form)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setVerticalSpacing(5)
    grid.setHorizontalSpacing(12)
    for i, (name, field) in enumerate(rows.items()):
        grid.addWidget(w.label(name, "code", "text2"), i, 0)
        grid.addWidget(field, i, 1)
    grid.setColumnStretch(1, 1)
    return form


def sections() -> QWidget:
    """Return an inspector's sections."""
    column = QFrame()
    parameters = w.Section("Parameters")
    parameters.set_action("Reset to defaults", quiet=True)
    parameters.set_body(fields())
    shape = w.Section("Explain shape")
    shape.body_layout.addWidget(
        _row(
            w.ShapeChip("N×32×26×26"),
            w.ShapeChip("N×64×24×24", "accent"),
            w.ShapeChip("N×64×12×12", "error"),
            w.ShapeChip("N×128", "assumed"),
            w.ShapeChip("0.132", "back"),
            1,
            spacing=6,
        )
    )
    document = w.Section("Documentation", opened=False)
    document.set_action("Open")
    vbox(
        parameters,
        shape,
        w.Section("Cost", "N = 64, share of the network", opened=False),
        document,
        on=column,
        margins=0,
        spacing=0,
    )
    return column


def tabs() -> QWidget:
    """Return tabs over the centre and over a dock, with overlay and search."""
    centre = w.ToolTabs(central=True)
    for text, edge in (("Network", ""), ("Autograd", "back"), ("Code", "")):
        centre.add(text.lower(), text, text.lower(), edge)
    dock = w.ToolTabs()
    for key, icon in (
        ("Problems", "error"),
        ("Curves", "curves"),
        ("Console", "console"),
        ("Runs", "runs"),
    ):
        dock.add(key, key, icon)
    dock.set_badge("Problems", 2)
    column = QWidget()
    typed = w.SearchField("Search layers", "Tab")
    typed.setText("conv")
    vbox(
        centre,
        dock,
        _row(
            w.label("Overlay", "label", "text3"),
            w.Segmented(("Shapes", "Gradients", "Memory")),
            1,
        ),
        w.SearchField("Search layers", "Tab"),
        typed,
        _row(w.HeatBar(("0.01", "10"), "Gradient norm, oldest to newest"), 1),
        on=column,
        margins=0,
    )
    return column


def messages() -> QWidget:
    """Return banners, the empty state and toasts."""
    column = QWidget()
    layout = vbox(
        w.Banner(
            "error",
            "Training stopped: the loss became NaN at step 1,204",
            "First seen in fc1. Weights are restored to step 1,200.",
            "Show fc1",
        ),
        w.Banner(
            "warning", "GPU memory is 94 % full. A batch of 48 would fit.", "", "Use 48"
        ),
        w.Banner(
            "info",
            "The network was edited since this run started.",
            "The run uses its own copy.",
        ),
        on=column,
        margins=0,
    )
    host = QWidget()
    host.setMinimumHeight(230)
    inner = QHBoxLayout(host)
    hint = "Drag a layer here, or press Tab to search for one."
    empty = w.EmptyState(
        "add", "Nothing on the canvas yet", hint, "Open the digits example"
    )
    inner.addWidget(empty)
    inner.addSpacing(270)
    stack = w.ToastStack(host)
    stack.show(
        "Flatten inserted", "fc1 now gets 9216 features", action="Undo", seconds=3600
    )
    stack.show(
        "Saved net.py and net.pt",
        "84 lines, 4.9 MiB",
        icon="save",
        color="accent",
        action="Show",
        seconds=3600,
    )
    stack.show(
        "Paused at step 2,288",
        "Edit the canvas",
        icon="pause",
        color="back",
        action="Resume",
        seconds=3600,
    )
    layout.addWidget(host)
    return column


def plain() -> QWidget:
    """Return standard Qt widgets in the theme."""
    tree = QTreeView()
    model = QStandardItemModel()
    model.setHorizontalHeaderLabels(["Layer", "Shape"])
    parent = QStandardItem(icons.icon("conv"), "Convolution")
    parent.appendRow([QStandardItem(icons.icon("conv"), "Conv2d"), QStandardItem("2d")])
    parent.appendRow([QStandardItem(icons.icon("conv"), "Conv1d"), QStandardItem("1d")])
    model.appendRow([parent, QStandardItem("14")])
    model.appendRow([QStandardItem(icons.icon("linear"), "Linear"), QStandardItem("4")])
    model.setParent(tree)
    tree.setModel(model)
    tree.expandAll()
    tree.setColumnWidth(0, 140)
    tree.setCurrentIndex(model.index(0, 0, model.index(0, 0)))
    tree.setFixedHeight(140)
    table = QTableView()
    table.setModel(model)
    table.setFixedHeight(140)
    table.verticalHeader().hide()
    spin = QDoubleSpinBox()
    spin.setValue(0.25)
    progress = QProgressBar()
    progress.setValue(60)
    slider = QSlider(Qt.Orientation.Horizontal)
    slider.setValue(70)
    text = QPlainTextEdit("def forward(self, x):\n    return self.fc1(x)\n" * 4)
    text.setFont(theme.font("code"))
    text.setFixedHeight(64)
    group = QGroupBox("Data")
    vbox(_row(spin, slider), progress, on=group)
    column = QWidget()
    vbox(_row(tree, table), text, group, on=column, margins=0)
    return column


PARTS: dict[str, Callable[[], QWidget]] = {
    "Icons": _IconSheet,
    "Colours": _Colours,
    "Tabs, choices, search": tabs,
    "Plain Qt": plain,
    "Buttons": buttons,
    "Decks": decks,
    "Messages": messages,
    "Inspector": sections,
}


def gallery() -> QWidget:
    """All parts on one panel, in the theme in force."""
    sheet = QWidget()
    sheet.setObjectName("gallery")
    columns = hbox(on=sheet, margins=(24, 20, 24, 20), spacing=28)
    names = list(PARTS)
    split = (names[:4], names[4:7], names[7:])
    for names, width in zip(split, (480, 620, 400), strict=True):
        column = vbox(spacing=10)
        for name in names:
            column.addWidget(w.label(name, "section"))
            part = PARTS[name]()
            part.setMinimumWidth(max(width, part.minimumSizeHint().width()))
            column.addWidget(part)
        column.addStretch(1)
        columns.addLayout(column)
    return sheet


def picture(sheet: QWidget, scale: float = 1.0) -> QPixmap:
    """A widget as it looks at a screen's scale."""
    sheet.adjustSize()
    sheet.ensurePolished()
    result = QPixmap(sheet.size() * scale)
    result.setDevicePixelRatio(scale)
    result.fill(theme.current().panel)
    sheet.render(result)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Draw the gallery into a file."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.widget_sheet", description=main.__doc__
    )
    parser.add_argument("out", help="the PNG to write")
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="device pixels a pixel (1)"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    theme.apply(app, options.theme)
    sheet = gallery()
    sheet.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
    sheet.show()
    app.processEvents()
    if not picture(sheet, options.scale).save(options.out):
        print(f"{options.out} could not be written.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
