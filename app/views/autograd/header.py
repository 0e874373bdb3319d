"""Header above the graph: summary, legend, and controls."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLayout, QSizePolicy, QWidget

from app.autograd.tape import Tape
from app.util.formatting import significant
from app.views.autograd.graph.parts import CHIP_HEIGHT
from app.views.autograd.graph.playback_paint import paint_freed, width_of
from app.views.ui.layouts import hbox
from app.views.ui.present import present
from app.views.ui.theme import current, faded, manager
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.painting import TextLine, at_least, box, label, start
from app.views.ui.widgets.segmented import Segmented

DEVICE = "Runs one batch forward on the CPU, whichever device runs use"
CUT = 130  # px of a summary that is cut in its line
LEGENDS = 2  # optional parts that are hidden before the summary


class AutogradHeader(QWidget):
    """The line above the graph: summary, legend, actions."""

    def __init__(self) -> None:
        super().__init__()
        self.setMinimumHeight(38)
        self.root = label("loss.grad_fn", "section")
        self.summary = label("", "label", "text2")
        self.below = label(
            "", "label", "text2", wrap=True
        )  # the summary, where the line has no room for it
        self.below.setContentsMargins(12, 0, 10, 6)
        self.below.setMinimumWidth(1)
        self.below.hide()
        self.mode = Segmented(
            [("train", "train()"), ("eval", "eval()")], "Mode of the network"
        )
        self.mode.setToolTip(
            "Dropout and BatchNorm behave differently in train() and eval()"
        )
        self.grouping = Segmented(
            [("layer", "Layer"), ("block", "Block"), ("none", "None")], "Group by"
        )
        self.grouping.setToolTip(
            "Block: groups nested like the modules; ] and [ unfold and fold one level"
        )
        self.capture = Button("Capture again")
        self.capture.setToolTip(DEVICE)
        self.fold_all = Button("Fold all")
        self.search = icon_button("search", "Find a node (Ctrl+F)")
        self.export = icon_button("export", "Export this picture")
        self.frame = icon_button("frame", "Show everything (Home)")
        self.legend, self.norms = AutogradLegend(), NormLegend()
        legend, group_by = self.legend, label("Group by", "label", "text3")
        layout = hbox(
            self.root,
            (self.summary, 1),
            legend,
            self.norms,
            group_by,
            self.grouping,
            self.fold_all,
            self.mode,
            self.capture,
            self.search,
            self.export,
            self.frame,
            on=self,
            margins=(12, 5, 10, 5),
            spacing=8,
        )
        # The window may be narrower than all of this: the least important goes first, the summary is cut.
        layout.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        self.setMinimumWidth(1)
        self.summary.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self._text = self.weights = (
            ""  # `weights`: which ones the net had, for the next summary
        )
        self._played = False
        self.two_lines = True  # whether the summary may have a line of its own
        self._added: list[QWidget] = []
        self._withheld: set[QWidget] = (
            set()
        )  # of those, what means nothing for the graph that is shown
        self._spare: tuple[QWidget, ...] = (
            legend,
            group_by,
            self.root,
            self.fold_all,
            self.norms,
            self.mode,
            self.export,
            self.frame,
            self.grouping,
        )

    def add(self, widget: QWidget) -> None:
        """Put another widget before the button that captures; it goes where there is no room for any summary."""
        layout = present(self.layout())
        assert isinstance(layout, QHBoxLayout)
        layout.insertWidget(layout.indexOf(self.capture), widget)
        self._added.append(widget)
        self._fit()

    def offer(self, widget: QWidget, on: bool) -> None:
        """Show an added widget, or the choice of the mode, where there is room, or not at all."""
        (self._withheld.discard if on else self._withheld.add)(widget)
        self._fit()

    def fit(self) -> None:
        """Lay out again after the width of a child changed."""
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Move the summary to a second line if needed, and hide the legends that do not fit."""
        metrics = self.summary.fontMetrics()
        layout = present(self.layout())
        widgets = [
            present(layout.itemAt(index)).widget() for index in range(layout.count())
        ]
        others = [
            widget
            for widget in widgets
            if widget is not None and widget is not self.summary
        ]
        hidden: set[QWidget] = self._withheld | (
            set() if self._played else {self.norms}
        )
        summary_width = metrics.horizontalAdvance(self._text) + 8

        def needed() -> int:
            shown = [
                widget.sizeHint().width() for widget in others if widget not in hidden
            ]
            return sum(shown) + layout.spacing() * (len(shown) + 1) + 22 + summary_width

        legends = [widget for widget in self._spare[:LEGENDS] if widget not in hidden]
        spared = sum(widget.sizeHint().width() + layout.spacing() for widget in legends)
        fits = needed() - spared <= self.width()
        if not fits:
            summary_width = 0 if self.two_lines else min(summary_width, CUT)
        for widget in self._spare:
            if needed() <= self.width():
                break
            hidden.add(widget)
        if needed() - summary_width > self.width():
            hidden.update(self._added)
        excluded = (self.norms, *self._withheld)
        for widget in reversed(
            [
                spare
                for spare in self._spare
                if spare in hidden and spare not in excluded
            ]
        ):
            hidden.discard(widget)  # a narrow one may fit where a wide one did not
            if needed() > self.width():
                hidden.add(widget)
        for widget in (*self._spare, *self._added):
            widget.setVisible(widget not in hidden)
        below = not fits and self.two_lines and bool(self._text)
        self.summary.setText("" if below else self._text)
        self.below.setText(self._text)
        self.below.setVisible(below)
        layout.activate()

    def set_played(self, played: bool) -> None:
        """Set whether norms and freed tensors are shown, and with them their legend."""
        if played != self._played:
            self._played = played
            self.legend.set_played(played)
            self._fit()

    @property
    def train(self) -> bool:
        """Return whether the next capture is in train mode."""
        return self.mode.value() == "train"

    def set_mode(self, train: bool) -> None:
        """Show the mode of the next capture, without one."""
        self.mode.blockSignals(True)
        self.mode.set_value("train" if train else "eval")
        self.mode.blockSignals(False)

    def set_summary(self, text: str, tape: Tape) -> None:
        second = any(node.order > 1 for node in tape.nodes)
        end = "‖grad‖²" if second else "loss" if tape.loss is not None else "output"
        self.root.setText(f"{end}.grad_fn")
        self._text = f"{text} · {self.weights}" if self.weights else text
        self.summary.setToolTip(self._text)
        self.below.setToolTip(self._text)
        self.setAccessibleName(self._text)
        self._fit()

    def set_busy(self, busy: bool, status: str = "") -> None:
        """Turn the button that captures into one that cancels, while that lasts."""
        self.capture.setText("Cancel" if busy else "Capture again")
        self.capture.setToolTip(f"{status} Esc cancels" if busy else DEVICE)
        self.capture.updateGeometry()
        self._fit()

    def set_folded(self, folded: bool) -> None:
        """Set whether all groups are collapsed, which the button then unfolds."""
        self.fold_all.setText("Unfold all" if folded else "Fold all")


class AutogradLegend(QWidget):
    """The legend of the memory chips."""

    def __init__(self) -> None:
        super().__init__()
        self._held, self._kept = (
            TextLine("held", "caption"),
            TextLine("always held", "caption"),
        )
        self.setToolTip(
            "held: memory that only backward still needs\nalways held: parameters, buffers and the batch itself"
        )
        self._freed, self._played = TextLine("freed", "caption"), False
        manager().changed.connect(self.update)

    def set_played(self, played: bool) -> None:
        """Set whether chips can be freed."""
        self._played = played
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        freed = self._freed.width + 40 if self._played else 0
        return at_least(self._held.width + self._kept.width + 2 * 24 + 18 + freed, 20)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        x = 0.0
        area = QRectF(self.rect())
        for line, fill, border in (
            (self._held, faded(theme.series[0], 0.20), faded(theme.series[0], 0.55)),
            (self._kept, None, theme.line3),
        ):
            swatch = QRectF(
                x, area.center().y() - CHIP_HEIGHT / 2 + 2, 18, CHIP_HEIGHT - 4
            )
            box(painter, swatch, 3, fill, border)
            line.draw_in(painter, x + 24, area, theme.text2)
            x += 24 + line.width + 16
        if self._played:
            swatch = QRectF(
                x, area.center().y() - CHIP_HEIGHT / 2 + 2, 18, CHIP_HEIGHT - 4
            )
            paint_freed(painter, swatch, theme)
            self._freed.draw_in(painter, x + 24, area, theme.text2)
        painter.end()


class NormLegend(QWidget):
    """How wide an arrow is for three norms."""

    NORMS = (0.001, 0.03, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self._title = TextLine("Gradient norm", "caption")
        self._lines = [
            (norm, TextLine(significant(norm), "caption")) for norm in self.NORMS
        ]
        self.setToolTip(
            "An arrow is as wide as the logarithm of its gradient's norm; below 1e−4 it is dashed"
        )
        self.setAccessibleName("Gradient norm")
        self.hide()
        manager().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return at_least(
            self._title.width + sum(36 + line.width for _, line in self._lines) + 6, 20
        )

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, area = current(), QRectF(self.rect())
        painter = start(self)
        self._title.draw_in(painter, 0, area, theme.text3)
        x = self._title.width + 8
        for norm, line in self._lines:
            width = width_of(norm)
            painter.fillRect(
                QRectF(x, area.center().y() - width / 2, 20, width), theme.back
            )
            line.draw_in(painter, x + 25, area, theme.text2)
            x += 36 + line.width
        painter.end()
