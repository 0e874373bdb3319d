"""Memory over the steps: allocated on the device, or resident in the process, labelled accordingly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtGui import QColor

from app.util import formatting
from app.util.formatting import MEBIBYTE
from app.views.training.charts import series
from app.views.training.charts.card import LegendEntry
from app.views.training.charts.charts import Chart
from app.views.training.charts.curve import Curve
from app.views.training.charts.readout import Row
from app.views.ui import theme


class MemoryChart(Chart):
    """On CUDA allocated, reserved and peak; on MPS allocated and reserved; elsewhere the process's resident memory."""

    def __init__(self) -> None:
        super().__init__("Memory", "MiB")
        self.plot.show_epochs = False
        self.plot.grid_x = False
        self._reserved = Curve(self.plot, 0, 1.0, 0.6)
        self._allocated = Curve(self.plot, 0, 1.0)
        self._peak = Curve(self.plot, -1, 1.25, dashed=True)

    @property
    def of_device(self) -> bool:
        """Return whether the run reported device memory, not the process's."""
        memory = self.history.memory
        return bool(len(memory) and not np.isnan(memory["allocated"][-1]))

    @property
    def _device(self) -> str:
        return self.history.started.device if self.history.started else ""

    def redraw(self) -> None:
        memory = self.history.memory
        x = self.scale.x_of(memory["step"], memory["seconds"])
        window = self._window(x)
        names = (
            ("allocated", "reserved", "peak")
            if self.of_device
            else ("resident", "", "")
        )
        top = 0.0
        for curve, name in zip(
            (self._allocated, self._reserved, self._peak), names, strict=True
        ):
            if not name:
                curve.clear()
                continue
            thin_x, thin_y = series.thin_peaks(
                x[window], memory[name][window] / MEBIBYTE, self.plot.pixels // 2
            )
            curve.set_points(thin_x, thin_y)
            finite = thin_y[np.isfinite(thin_y)]
            top = max(top, float(finite.max()) if finite.size else 0.0)
        self._allocated.fill_to(0.0, 0.45 if self.of_device else 0.2)
        self._reserved.fill_to(0.0, 0.13)
        if top > 0:
            self.plot.set_y_range(0.0, series.snapped(0.0, top, 0.0)[1])
        self._name()

    def _name(self) -> None:
        if not len(self.history.memory):
            self.heading.set("Memory", "MiB")
        elif self.of_device:
            self.heading.set("GPU memory", f"MiB, {self._device}")
        else:
            self.heading.set("Resident memory", "MiB, of the process")

    def entries(self, index: int | None) -> Sequence[LegendEntry]:
        memory = self.history.memory
        if not len(memory):
            return ()
        row = len(memory) - 1
        if index is not None:
            row = (
                int(
                    np.searchsorted(
                        memory["step"], self.history.steps["step"][index], "right"
                    )
                )
                - 1
            )
            if row < 0:
                return ()
        texts = {
            name: _bytes(memory[name][row])
            for name in ("allocated", "reserved", "peak", "resident")
        }
        if not self.of_device:
            return (
                LegendEntry(
                    "resident", f"{texts['resident']} MiB", 0, "square", opacity=0.6
                ),
            )
        entries = [LegendEntry("allocated", texts["allocated"], 0, "square", "alloc.")]
        if not np.isnan(memory["peak"][row]):
            entries.append(LegendEntry("peak", texts["peak"], -1, "dash"))
        if not np.isnan(memory["reserved"][row]):
            entries.append(
                LegendEntry(
                    "reserved", texts["reserved"], 0, "square", "res.", opacity=0.3
                )
            )
        return entries

    def rows(self, index: int) -> Sequence[Row]:
        unit = (
            " MiB" if self.of_device else ""
        )  # the legend has it in its heading, which is narrow
        return [
            (entry.color, entry.label, f"{entry.value}{unit}")
            for entry in self.entries(index)
        ]

    def dots(self, index: int) -> Sequence[tuple[float, QColor]]:
        memory = self.history.memory
        name = "allocated" if self.of_device else "resident"
        row = (
            int(
                np.searchsorted(
                    memory["step"], self.history.steps["step"][index], "right"
                )
            )
            - 1
        )
        return (
            []
            if row < 0
            else [(float(memory[name][row]) / MEBIBYTE, theme.current().series[0])]
        )


def _bytes(size: float) -> str:
    return "not available" if np.isnan(size) else formatting.mebibytes(float(size))
