"""A snapshot of an allocator in the window: the memory of a device by the line that allocated it, and its course."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QComboBox, QHeaderView, QWidget

from app.features.memory.values import DeviceSnapshot
from app.features.memory.wording import out_of_memory_text, site_text, summary
from app.util.columns import Column
from app.util.formatting import bytes_text, grouped_digits
from app.util.language import tr
from app.views.training.charts.small_plot import PlotLine, SmallPlot
from app.views.ui.dialogs.base import Dialog
from app.views.ui.tables import Table
from app.views.ui.widgets.painting import label

TITLE = "Memory by line"
EXPLANATION = (
    "The line is the innermost one outside torch; what of torch it called follows in brackets. “At the peak” is at the "
    "most that was in use while the allocator recorded."
)


def _bytes(title: str, field: str) -> Column:
    return Column(
        title,
        lambda site: bytes_text(getattr(site, field)),
        number=True,
        value=lambda site: getattr(site, field),
    )


COLUMNS = (
    Column("Line", site_text, tip=site_text),
    _bytes("At the peak", "peak"),
    _bytes("Now", "size"),
    Column("Blocks", lambda site: grouped_digits(site.blocks), number=True),
)


class SnapshotDialog(Dialog):
    """Shows one device of a snapshot at a time."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(TITLE, parent, icon="memory")
        self.summary = label(
            tr("{name} is read…", name=name), "label", "text", wrap=True
        )
        self.failures = label("", "caption", "warn", wrap=True)
        self.devices = QComboBox()
        self.devices.setAccessibleName("Device")
        self.plot = SmallPlot("Memory in use over the recording", 110)
        self.table = Table(COLUMNS, "Memory by line")
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for widget in (self.devices, self.summary, self.failures, self.plot):
            self.body.addWidget(widget)
        self.body.addWidget(self.table, 1)
        self.body.addWidget(label(EXPLANATION, "caption", "text3", wrap=True))
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)
        for widget in (self.devices, self.failures, self.plot):
            widget.hide()
        self.resize(860, 560)
        self._snapshot: Sequence[DeviceSnapshot] = ()
        self.devices.currentIndexChanged.connect(self._show)

    def show_snapshot(self, snapshot: Sequence[DeviceSnapshot]) -> None:
        """Show the devices, the first one at once."""
        self._snapshot = snapshot
        self.devices.addItems(
            [tr("Device {number}", number=device.device) for device in snapshot]
        )
        self.devices.setVisible(len(snapshot) > 1)
        if not snapshot:
            self.summary.setText(tr("The snapshot has no memory of a device."))

    def show_failure(self, text: str) -> None:
        """Show why there is nothing."""
        self.summary.setText(text)

    def _show(self, index: int) -> None:
        device = self._snapshot[index]
        self.summary.setText(summary(device))
        self.failures.setText("\n".join(map(out_of_memory_text, device.out_of_memory)))
        self.failures.setVisible(bool(device.out_of_memory))
        mebibytes = tuple(size / 2**20 for size in device.curve)
        self.plot.setVisible(device.events > 0)
        self.plot.show_lines(
            range(len(mebibytes)),
            (PlotLine(mebibytes),),
            ends=("first event", "last"),
            unit=("event", "MiB"),
        )
        self.table.cells.set_rows(list(device.sites))
