"""Overlays of the canvas: legend, zoom control, the callout of an error, the message next to the pointer."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QRegion,
    QResizeEvent,
)
from PySide6.QtWidgets import QBoxLayout, QLabel, QLayout, QMenu, QWidget

from app.builder.diagnostics.problems import Cure, Problem
from app.views.canvas.items.faces import Pin
from app.views.canvas.items.geometry import text_width
from app.views.canvas.items.painter import paint_port
from app.views.ui import theme
from app.views.ui.free_place import Legend
from app.views.ui.graphview.minimap import EDGE
from app.views.ui.graphview.pan_zoom_view import LEGIBLE, Pads
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.heatbar import HeatBar
from app.views.ui.widgets.painting import (
    Glyph,
    TextLine,
    announce,
    at_least,
    box,
    label,
    show_or_hide,
    start,
)

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

CLOSER = 4  # px from the breadcrumb, and from one place of the drawing that is tried to the next
LESS = tuple(LEGIBLE * share for share in (0.95, 0.9, 0.85, 0.8, 0.75))
KINDS = (("Tensor", "tensor"), ("Number", "number"), ("Tuple", "tuple"))


class PortLegend(Legend):
    """Legend of the port shapes."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAccessibleName("Ports: circle tensor, diamond number, square tuple")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.refont()

    def refont(self) -> None:
        self._words = [
            (TextLine(word, "caption"), Pin("", kind, wired=True))
            for word, kind in KINDS
        ]
        width = sum(16 + line.width + 14 for line, _ in self._words)
        self.setFixedSize(at_least(width, 24))

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        painter = start(self)
        area, x = QRectF(self.rect()), 8.0
        for line, pin in self._words:
            paint_port(
                painter, QPointF(x, area.center().y()), pin, now.wire, now.canvas
            )
            line.draw_in(painter, x + 10, area, now.text2)
            x += 16 + line.width + 14
        painter.end()


class Scales(Legend):
    """Legend of gradients, costs or widths: the colour ramp with its bounds, and three widths with their meaning."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._heat = (("0", "1"), "Gradient norm, oldest to newest")
        self.heat = HeatBar(*self._heat)
        self.widths = _Widths()
        hbox(self.heat, self.widths, on=self, margins=0, spacing=20)
        self.heat.hide()
        self.widths.hide()
        self.has_widths = False

    def fit(self, room: int) -> None:
        """Take as much as there is room for; the widths go first, then the ramp's caption."""
        self.widths.setVisible(self.has_widths)
        self.heat.set(*self._heat)
        self.adjustSize()
        if self.width() > room and not self.heat.isHidden():
            self.widths.hide()
            self.adjustSize()
        if self.width() > room and not self.heat.isHidden():
            self.heat.set(self._heat[0])
            self.adjustSize()

    def show_heat(self, bounds: tuple[str, str], caption: str) -> None:
        self._heat = (bounds, caption)
        self.heat.set(*self._heat)
        self.heat.show()
        self.adjustSize()

    def hide_heat(self) -> None:
        self.heat.hide()
        self.adjustSize()

    def show_widths(self, largest: int | None) -> None:
        self.widths.set_largest(largest)
        self.has_widths = largest is not None
        self.widths.setVisible(self.has_widths)
        self.adjustSize()


class _Widths(QWidget):
    """Three lines as wide as wires that carry a hundredth, a tenth and all of the largest number of values."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[tuple[TextLine, float]] = []
        self._caption = TextLine("Values per sample", "caption")

    def set_largest(self, largest: int | None) -> None:
        counts = sorted(
            {max(1, round((largest or 1) * share)) for share in (0.01, 0.25, 1.0)}
        )
        self._lines = [
            (
                TextLine(f"{count:,}", "caption"),
                1.5 + 5.5 * (count / (largest or 1)) ** 0.5,
            )
            for count in counts
        ]
        self.setAccessibleName(f"Widths: values per sample, up to {largest or 0:,}")
        width = self._caption.width + sum(
            12 + 26 + 6 + line.width for line, _ in self._lines
        )
        self.setFixedSize(at_least(width, 18))

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        painter = start(self)
        area = QRectF(self.rect())
        self._caption.draw_in(painter, 0, area, now.text3)
        x = self._caption.width + 12
        for line, width in self._lines:
            painter.setPen(
                QPen(
                    now.wireTrain, width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap
                )
            )
            painter.drawLine(
                QPointF(x + 3, area.center().y()), QPointF(x + 23, area.center().y())
            )
            line.draw_in(painter, x + 32, area, now.text2)
            x += 12 + 26 + 6 + line.width
        painter.end()


class ZoomControl(QWidget):
    """Out, how far in, in, everything, and for a long line of nodes its wrapping into rows."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.out = icon_button("remove", "Zoom out (−)")
        self.into = icon_button("add", "Zoom in (+)")
        self.all = icon_button("frame", "Frame everything (Home)")
        self.wrap = Button("Wrap into rows", "flat", "tree")
        self.wrap.setToolTip("Lay the network out in rows as wide as the window (L)")
        self.wrap.setFixedHeight(26)
        self.wrap.hide()
        self.percent = Button("100 %", "flat")
        self.percent.setToolTip("Zoom to 100 %")
        self.percent.setAccessibleName("Zoom to 100 %")
        self.percent.setFixedHeight(26)
        self.percent.setMinimumWidth(56)
        layout = hbox(on=self, margins=1, spacing=0)
        for button in (self.wrap, self.out, self.percent, self.into, self.all):
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            layout.addWidget(button)
        self.setFixedHeight(28)

    def set_zoom(self, zoom: float) -> None:
        self.percent.setText(f"{round(zoom * 100)} %")

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 5, now.panel, now.line2)
        painter.setPen(now.line2)
        wraps = self.wrap.isVisibleTo(self)
        for button in (self.out, self.percent, self.into, self.all)[not wraps :]:
            painter.drawLine(button.x(), 1, button.x(), self.height() - 2)
        painter.end()


class Callout(QWidget):
    """A problem under or above its node: what, why, a button that mends it, and one with the other cures."""

    cure_wanted = Signal(object)
    dismissed = Signal(object)
    POINTER, RADIUS, WIDEST, OFF = 7, 6, 520, 6

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.problem: Problem | None = None
        self._tip, self._above = 0.0, False
        self._sign = Glyph("error", size=14)
        self._message = label("", "message", wrap=True)
        self._reason = label("", "caption", "text2", wrap=True)
        self.button = Button("", "primary")
        self.more = icon_button("more", "Other fixes")
        self.more.setFixedSize(22, 22)
        self.more.clicked.connect(self._list)
        self._close = icon_button("close", "Close this message")
        self._close.setFixedSize(20, 20)
        self._close.setIconSize(QSize(11, 11))
        head = hbox(
            (self._sign, 0, Qt.AlignmentFlag.AlignVCenter),
            (self._message, 1),
            (self._close, 0, Qt.AlignmentFlag.AlignVCenter),
            spacing=8,
        )
        acts = hbox(self.button, self.more, spacing=4)
        acts.addStretch(0)
        self._foot = hbox((self._reason, 1), acts, margins=(22, 0, 2, 0), spacing=12)
        vbox(head, self._foot, on=self, spacing=4)
        self._make_room_for_tip()
        self.button.clicked.connect(self._cure)
        self._close.clicked.connect(self.dismiss)
        self.hide()

    def dismiss(self) -> None:
        """Hide the callout of this problem."""
        self.dismissed.emit(self.problem)

    def set_problem(self, problem: Problem) -> None:
        """Show another problem."""
        if problem == self.problem:
            return
        self.problem = problem
        self._sign.set("error" if problem.severity == "error" else "warning")
        self._message.setText(problem.message)
        show_or_hide(self._reason, problem.reason)
        cure = problem.cures[0] if problem.cures else None
        self.button.setVisible(cure is not None)
        self.button.setText(cure.label if cure else "")
        self.more.setVisible(len(problem.cures) > 1)
        self.setAccessibleName(problem.message)
        self.setAccessibleDescription(problem.reason)
        announce(self, problem.message)
        self._fit()

    def _fit(self) -> None:
        margins = present(self.layout()).contentsMargins()
        sides = margins.left() + margins.right()
        cures = len(self.problem.cures) if self.problem is not None else 0
        button = (self.button.sizeHint().width() + 12 if cures else 0) + (
            self.more.width() + 4 if cures > 1 else 0
        )
        head = 14 + 8 + text_width(self._message.text(), "message") + 8 + 20
        foot = 22 + text_width(self._reason.text(), "caption") + button + 2
        width = min(math.ceil(max(head, foot, 160)) + sides + 4, self.WIDEST)
        under = (
            foot + sides > self.WIDEST and button > self.WIDEST / 2
        )  # the reason would be a column of one word
        self._foot.setDirection(
            QBoxLayout.Direction.TopToBottom
            if under
            else QBoxLayout.Direction.LeftToRight
        )
        self._foot.setSpacing(6 if under else 12)
        self.setFixedWidth(width)
        for layout in self.findChildren(
            QLayout
        ):  # inner ones hold the height of the problem before
            layout.invalidate()
        self.setFixedHeight(max(present(self.layout()).heightForWidth(width), 52))

    def _cure(self) -> None:
        if self.problem is not None and self.problem.cures:
            cure: Cure = self.problem.cures[0]
            self.cure_wanted.emit(cure)

    def menu(self) -> QMenu:
        """Return a menu with every cure of the problem."""
        menu = QMenu(self)
        for cure in self.problem.cures if self.problem is not None else ():
            menu.addAction(
                cure.label.replace("&", "&&"), partial(self.cure_wanted.emit, cure)
            )
        return menu

    def _list(self) -> None:
        menu = self.menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.more.mapToGlobal(self.more.rect().bottomLeft()))

    def places_at(self, node: QRectF) -> list[tuple[QRect, bool]]:
        """Return the positions at which it points at a node, the preferred first, each with whether it is above."""
        room, width, height = (
            present(self.parentWidget()).width() - 8,
            self.width(),
            self.height(),
        )
        placements = []
        for above in (False, True):
            # At the upper edge it may be closer than usual.
            over = max(node.top() - self.OFF - height, min(node.top() - height, 0))
            top = over if above else node.bottom() + self.OFF
            for before_tip in (min(width / 2, 120), width / 2, width - 28, 28):
                left = min(max(node.center().x() - before_tip, 8), max(room - width, 8))
                placements.append(
                    (QRect(round(left), round(top), width, height), above)
                )
        return placements

    def point_at(self, spot: float, rect: QRect, above: bool) -> None:
        """Move to a position, with the tip at an x of the parent, at the lower side if it is above."""
        tip = min(max(spot - rect.left(), 20), rect.width() - 20)
        if (tip, above, rect.topLeft()) == (self._tip, self._above, self.pos()):
            return
        self._tip = tip
        if above != self._above:
            self._above = above
            self._make_room_for_tip()
        self.move(rect.topLeft())
        self.update()

    def _make_room_for_tip(self) -> None:
        over, under = (0, self.POINTER) if self._above else (self.POINTER, 0)
        present(self.layout()).setContentsMargins(14, over + 10, 8, under + 10)

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        warns = self.problem is not None and self.problem.severity != "error"
        fill, line = (now.warnBg, now.warn) if warns else (now.errorBg, now.error)
        painter = start(self)
        over, under = (0, self.POINTER) if self._above else (self.POINTER, 0)
        area = QRectF(self.rect()).adjusted(0.5, over + 0.5, -0.5, -under - 0.5)
        path = QPainterPath()
        path.addRoundedRect(area, self.RADIUS, self.RADIUS)
        edge, tip = (
            (area.bottom() - 1, area.bottom() + under)
            if self._above
            else (area.top() + 1, area.top() - over)
        )
        pointer = QPainterPath(QPointF(self._tip - self.POINTER, edge))
        pointer.lineTo(self._tip, tip)
        pointer.lineTo(self._tip + self.POINTER, edge)
        pointer.closeSubpath()
        painter.setPen(QPen(line, 1))
        painter.setBrush(fill)
        painter.drawPath(path.united(pointer))
        painter.end()


class Word(QLabel):
    """A few words over the canvas: beside the pointer, red for a refused wire, or at the foot."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("canvasWord")
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setMargin(6)
        self.setWordWrap(False)
        self._bad = False
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self.hide)
        self.restyle()
        self.hide()

    def restyle(self) -> None:
        now = theme.current()
        ground, line = (
            (now.errorBg, now.error) if self._bad else (now.raised, now.line3)
        )
        self.setFont(theme.font("caption"))
        self.setStyleSheet(
            f"#canvasWord {{ background: {ground.name()}; color: {now.text.name()}; "
            f"border: 1px solid {line.name()}; border-radius: 5px; }}"
        )

    def show_text(
        self, text: str, spot: QPoint, milliseconds: int = 0, bad: bool = False
    ) -> None:
        """Show a text with its left edge at a point of the parent, for a time or until the next; "" hides.

        `bad` is for refusals.
        """
        self._timer.stop()
        if not text:
            self.hide()
            return
        if bad != self._bad:
            self._bad = bad
            self.restyle()
        if text != self.text():
            self.setText(text)
            announce(self, text)
        self.adjustSize()
        parent = present(self.parentWidget())
        x = min(spot.x(), parent.width() - self.width() - 8)
        y = min(spot.y(), parent.height() - self.height() - 8)
        self.move(max(8, x), max(8, y))
        self.show()
        self.raise_()
        if milliseconds:
            self._timer.start(milliseconds)


class FocusRing(QWidget):
    """A focus ring around the canvas for keyboard users. It is only a frame, so that the contents stay visible."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.setMask(QRegion(self.rect()) - QRegion(self.rect().adjusted(2, 2, -2, -2)))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.current().accent)
        painter.end()


def arrange_overlays(canvas: Canvas) -> None:
    """Place the overlays in the corners of the canvas."""
    width, height = canvas.width(), canvas.height()
    scales, legend, minimap, zoom = (
        canvas.scales,
        canvas.legend,
        canvas.minimap,
        canvas.zoom_control,
    )
    shown = not scales.heat.isHidden() or scales.has_widths
    # The breadcrumb takes precedence over the legend of ports.
    fits = canvas.breadcrumb.fit(width - 3 * EDGE - legend.width())
    if shown or not fits:
        canvas.breadcrumb.fit(width - 2 * EDGE)
    canvas.breadcrumb.move(EDGE, 9)
    # In a narrow window the ramp is the one that cannot be guessed.
    room = width - canvas.breadcrumb.width() - 3 * EDGE
    scales.fit(room)
    scales.setVisible(shown)
    legend.setVisible(fits and not shown)
    legend.move(width - EDGE - legend.width() + 8, 10)
    scales.move(width - EDGE - scales.width(), 13)
    minimap.follow()
    zoom.adjustSize()
    right = minimap.x() - 8 if minimap.fits else width - EDGE
    zoom.move(right - zoom.width(), height - EDGE - zoom.height())
    scale = theme.manager().scale
    top = canvas.breadcrumb.geometry().bottom()
    wide, high = min(round(360 * scale), width), min(round(340 * scale), height - top)
    above = max((height - high) // 2, top)
    canvas.empty.setGeometry((width - wide) // 2, above, wide, high)
    start = canvas.start_net
    start.adjustSize()
    start.move((width - start.width()) // 2, height - 2 * EDGE - 2 * start.height())
    canvas.ring.setGeometry(canvas.rect())
    canvas.ring.raise_()


def overlays_below(canvas: Canvas) -> list[QRectF]:
    """Return the areas of the overlays that are shown at the foot of the canvas, in pixels of its view."""
    shown = [
        overlay
        for overlay in (canvas.zoom_control, canvas.minimap)
        if overlay.isVisibleTo(canvas)
    ]
    return [
        QRectF(overlay.geometry().translated(-canvas.view.pos())) for overlay in shown
    ]


def pads_beside_overlays(
    canvas: Canvas, area: QRectF, most: float
) -> tuple[Pads, float]:
    """Return the room to leave around an area, and the share of the text size that is legible, so that it is as large
    as can be with no node under an overlay."""
    arrange_overlays(canvas)
    view, below, index = canvas.view, overlays_below(canvas), canvas.scene.index
    tries = [view.PADS]
    if canvas.minimap.isVisibleTo(canvas):
        size, (left, top, right, bottom) = (
            canvas.minimap.size() + QSize(2 * EDGE, 2 * EDGE),
            view.PADS,
        )
        tries += [(left, top, right, size.height()), (left, top, size.width(), bottom)]

    def rank(option: tuple[Pads, float]) -> tuple[bool, float]:
        zoom, point, spot = view.framing(area, most, *option)
        areas = [
            QRectF(point + (overlay.topLeft() - spot) / zoom, overlay.size() / zoom)
            for overlay in below
        ]
        return any(index.inside(rect) for rect in areas), -zoom

    best = min(((pads, LEGIBLE) for pads in tries), key=rank)
    if rank(
        best
    )[
        0
    ]:  # there is no room for all: its beginning may be closer to the corner, and a little smaller
        left, top, right, bottom = best[0]
        least = (
            EDGE,
            min(canvas.breadcrumb.geometry().bottom() + CLOSER - canvas.view.y(), top),
        )
        ups = range(top, least[1] - 1, -CLOSER)
        closer = [(x, y, right, bottom) for x in (left, least[0]) for y in ups]
        best = min((best, *product(closer, (LEGIBLE, *LESS))), key=rank)
    return best
