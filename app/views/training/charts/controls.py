"""The controls of the curves: smoothing, the x axis, following the run, and export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QMenu, QMessageBox, QSlider, QWidget

from app.views.ui import theme
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

STEPS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99)
START = 0.9
FORMATS = {"png": "Picture (*.png)", "svg": "Drawing (*.svg)", "csv": "Numbers (*.csv)"}


def export_menu(parent: QWidget, chosen: Callable[[str], None]) -> QMenu:
    """Return the menu of export formats; `chosen` gets the key of one."""
    menu = QMenu("Export", parent)
    for kind, text in (
        ("png", "Picture, PNG…"),
        ("svg", "Drawing, SVG…"),
        ("csv", "Numbers, CSV…"),
    ):
        menu.addAction(text).triggered.connect(
            lambda _checked=False, kind=kind: chosen(kind)
        )
    menu.setFont(theme.font("label"))
    return menu


def export_as(
    parent: QWidget, title: str, name: str, kind: str, write: Callable[[Path], None]
) -> None:
    """Ask for a file and write it; say why where that fails."""
    file_name, _ = QFileDialog.getSaveFileName(
        parent, title, f"{name}.{kind}", FORMATS[kind]
    )
    if not file_name:
        return
    path = Path(file_name if Path(file_name).suffix else f"{file_name}.{kind}")
    try:
        write(path)
    except OSError as error:
        text = f"“{path}” could not be written: {error.strerror or error}. Choose another folder."
        QMessageBox.warning(parent, title, text)


class CurveControls(QWidget):
    """A line of controls; it offers no export before it is told how to write one."""

    smoothingChanged = Signal(float)
    modeChanged = Signal(str)
    followRequested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._save: Callable[[Path, str], None] | None = None
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setRange(0, len(STEPS) - 1)
        self._slider.setValue(STEPS.index(START))
        self._slider.setFixedWidth(72)
        self._slider.setAccessibleName("Loss smoothing")
        self._slider.setToolTip(
            "Weight of past values in the smoothed loss (exponential moving average)"
        )
        self._weight = label("", "caption")
        self._weight.setMinimumWidth(
            self._weight.fontMetrics().horizontalAdvance("0.00") + 4
        )
        self._mode = Segmented(
            [("step", "Step"), ("epoch", "Epoch"), ("time", "Time")], "Horizontal axis"
        )
        self._follow = Button("Follow run", "link")
        self._follow.setToolTip(
            "Show the whole run and keep following it (or double-click a chart)"
        )
        self._follow.hide()
        self._export = icon_button("export", "Export the curves")
        self._export.clicked.connect(self._ask_format)
        self._export.hide()
        self._caption = label("Smoothing", "caption", "text2")
        hbox(
            self._follow,
            self._caption,
            self._slider,
            self._weight,
            self._mode,
            self._export,
            on=self,
            margins=(12, 4, 8, 4),
            spacing=8,
        )
        self._slider.valueChanged.connect(self._tell_smoothing)
        self._mode.changed.connect(self.modeChanged)
        self._follow.clicked.connect(self.followRequested)
        self._tell_smoothing()

    def offer_export(self, save: Callable[[Path, str], None]) -> None:
        """Offer to export by `save`, which takes a file and a format and raises OSError."""
        self._save = save
        self._export.show()

    @property
    def parts(self) -> tuple[QWidget, ...]:
        """Return the widgets, for a page that lays them out itself."""
        return self._follow, self._caption, self._slider, self._weight, self._mode

    @property
    def smoothing(self) -> float:
        return STEPS[self._slider.value()]

    def show_smoothing(self, weight: float) -> None:
        nearest = min(range(len(STEPS)), key=lambda index: abs(STEPS[index] - weight))
        self._slider.blockSignals(True)
        self._slider.setValue(nearest)
        self._slider.blockSignals(False)
        self._weight.setText(f"{weight:.2f}")

    def show_mode(self, mode: str) -> None:
        self._mode.blockSignals(True)
        self._mode.set_value(mode)
        self._mode.blockSignals(False)

    def show_following(self, following: bool) -> None:
        self._follow.setVisible(not following)

    def set_run(self, present: bool) -> None:
        """Enable the controls if there is a run."""
        for widget in (
            self._caption,
            self._slider,
            self._weight,
            self._mode,
            self._export,
        ):
            widget.setEnabled(present)

    def _tell_smoothing(self) -> None:
        self._weight.setText(f"{self.smoothing:.2f}")
        self.smoothingChanged.emit(self.smoothing)

    def export_menu(self) -> QMenu:
        """Return the menu of export formats."""
        return export_menu(self, self._ask_file)

    def _ask_format(self) -> None:
        menu = self.export_menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self._export.mapToGlobal(self._export.rect().bottomLeft()))

    def _ask_file(self, kind: str) -> None:
        if (save := self._save) is not None:
            export_as(
                self, "Export the curves", "curves", kind, lambda path: save(path, kind)
            )
