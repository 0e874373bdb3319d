"""Inspector sections about gradients while a backward pass is played: norms, sums, gain, anomalies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from msgspec import Struct
from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QWidget

from app.autograd.diagnostics.gradient_gain import rung_of
from app.autograd.grouping import LayerGroup
from app.autograd.playback.steps import FanIn, GradStats, StepRecord
from app.autograd.tape import Tape, TapeEdge, TapeNode
from app.util import formatting
from app.util.formatting import MINUS, figure, shape_text
from app.views.autograd.graph.playback_state import PREDICT, fan_ins_of
from app.views.autograd.tape.player import Player
from app.views.ui.inspector import cell, note
from app.views.ui.layouts import hbox
from app.views.ui.theme import current
from app.views.ui.widgets import Button, Glyph
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.painting import box, label, start
from app.views.ui.widgets.section import Section

LOW, HIGH = 1e-9, 1.0  # norms at the ends of a bar
TINY = 1e-6  # of the largest gradient that leaves the same node: as good as none
AGREE = 0.3  # cosine from which two gradients count as aligned


class GradientBar(QWidget):
    """A norm as a bar on a logarithmic scale."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        self._norm = norm
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setToolTip(f"{figure(norm)}, on a scale from {figure(LOW)} to 1")

    def sizeHint(self) -> QSize:
        return QSize(120, 5)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        area = QRectF(0, 1, self.width(), 3)
        box(painter, area, 1.5, theme.line)
        if math.isfinite(self._norm) and self._norm > 0:
            share = (math.log10(self._norm) - math.log10(LOW)) / (
                math.log10(HIGH) - math.log10(LOW)
            )
            area.setWidth(area.width() * max(0.0, min(share, 1.0)))
            box(painter, area, 1.5, theme.back)
        elif not math.isfinite(self._norm):
            box(painter, area, 1.5, theme.error)
        painter.end()


class _Known(Struct, frozen=True):
    """Norms of some nodes and edges, in the form that `gain` reads."""

    node_norms: Mapping[int, float]
    edge_norms: Mapping[tuple[int, int], float]


class GradientSections:
    """Gives the sections; put it into an inspector's `above`."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def __call__(self, tape: Tape, item: TapeNode | LayerGroup) -> Iterator[QWidget]:
        if not self._player.shows:
            return
        if self._is_concealed(tape, item):
            section = Section("Gradient norms")
            section.body_layout.addWidget(note(PREDICT))
            yield section
        elif isinstance(item, LayerGroup):
            yield self._group(tape, item)
        else:
            yield from self._node(tape, item)

    def _is_concealed(self, tape: Tape, item: TapeNode | LayerGroup) -> bool:
        """Return whether one of the gradients that arrive at it, or leave it, is hidden."""
        player = self._player
        nodes = item.nodes if isinstance(item, LayerGroup) else (item.id,)
        return bool(player.concealed) and any(
            player.is_concealed(node)
            or any(
                player.is_concealed(edge.target) for edge in tape.outgoing.get(node, ())
            )
            for node in nodes
        )

    # -- one node ------------------------------------------------------------------------------------------------------

    def _node(self, tape: Tape, node: TapeNode) -> Iterator[QWidget]:
        player, record = self._player, self._player.record_of(node.id)
        waits = node.id == player.next_node
        arriving = (
            record.arriving if record is not None else player.arriving if waits else ()
        )
        section = Section("Gradient norms", f"log scale, {figure(LOW)} to 1")
        body = section.body_layout
        if record is None and not any(arriving):
            body.addWidget(
                note(
                    "No gradient has arrived yet."
                    if not waits
                    else "This node receives no gradient."
                )
            )
            if not waits:
                button = Button("Run to here", icon="to-end")
                button.clicked.connect(lambda: player.run_to(node.id))
                body.addWidget(button)
            yield section
            return
        body.addWidget(label("grad_out, arriving", "caption", "text3"))
        sources = _sources(tape, node)
        for number, stats in enumerate(arriving):
            if stats is not None:
                body.addWidget(
                    _norm_row(
                        _output(number, len(arriving)),
                        sources.get(number, "the seed"),
                        stats,
                    )
                )
        if record is not None and record.leaving:
            body.addWidget(label("grad_in, leaving", "caption", "text3"))
            for edge in record.leaving:
                name, where = _target(tape, tape.nodes[edge.target])
                if edge.stats is not None:
                    body.addWidget(_norm_row(name, where, edge.stats))
                else:
                    body.addWidget(_empty_row(name, where))
        elif record is None:
            adds = "It is added to .grad when this node runs." if node.is_leaf else ""
            body.addWidget(note(adds or "Known once this node has run: step once."))
        for message in _odd(tape, node, record, arriving):
            body.addWidget(_warning(message))
        for message in _notes(record):
            body.addWidget(note(message))
        yield section
        for sum_ in fan_ins_of(player, node.id):
            yield _sum_section(tape, sum_)
        if record is not None and (gain := _gain(tape, record)) is not None:
            yield _gain_section(gain)

    # -- a layer -------------------------------------------------------------------------------------------------------

    def _group(self, tape: Tape, group: LayerGroup) -> QWidget:
        records = [
            record
            for node in group.nodes
            if (record := self._player.record_of(node)) is not None
        ]
        section = Section("Gradient norms", f"{len(records)} of {len(group.nodes)} run")
        recorded = _Known(
            {r.node: r.norm for r in records if r.norm is not None}, self._player.norms
        )
        rung = rung_of(tape, recorded, group)
        rows = (
            ("arriving", rung.arriving),
            ("leaving", rung.leaving),
            ("its parameters", rung.parameters),
        )
        shown = [(name, norm) for name, norm in rows if norm is not None]
        for name, norm in shown:
            section.body_layout.addWidget(_bar_row(name, "", norm))
        if not shown:
            section.body_layout.addWidget(note("No gradient has arrived yet."))
        if rung.gain is not None:
            gain = f"gain {figure(rung.gain)}: norm of the outgoing by the incoming gradient"
            section.body_layout.addWidget(note(gain))
        return section


def _norm_row(name: str, where: str, stats: GradStats) -> QWidget:
    details = f"{where} {shape_text(stats.shape, 'scalar')}".strip()
    return _bar_row(
        name,
        details,
        stats.unscaled,
        f"largest {figure(stats.absmax)}, mean {figure(stats.mean)}, "
        f"{formatting.share(stats.zeros, 1)} exactly 0, {stats.dtype}",
    )


def _bar_row(name: str, where: str, norm: float, tip: str = "") -> QWidget:
    widget = QWidget()
    grid = QGridLayout(widget)
    grid.setContentsMargins(0, 0, 0, 3)
    grid.setHorizontalSpacing(8)
    grid.setVerticalSpacing(2)
    value = cell(figure(norm), "formula", "" if math.isfinite(norm) else "error", tip)
    where_cell = cell(where, "caption", "text3", where)
    where_cell.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    grid.addWidget(FittingLabel(name, "formula"), 0, 0)
    grid.addWidget(where_cell, 0, 1)
    grid.addWidget(value, 0, 2)
    grid.addWidget(GradientBar(norm), 1, 0, 1, 3)
    grid.setColumnStretch(1, 1)
    widget.setToolTip(tip)
    return widget


def _empty_row(name: str, where: str) -> QWidget:
    widget = QWidget()
    hbox(
        FittingLabel(name, "formula"),
        (FittingLabel(where, "caption", "text3"), 1),
        cell("None", "formula", "text3", "This node returns no gradient for this edge"),
        on=widget,
        margins=0,
    )
    return widget


def _warning(message: str) -> QWidget:
    widget = QWidget()
    text = label(message, "caption", "warn", wrap=True)
    text.setMinimumWidth(1)
    hbox(
        Glyph("warning", "warn", 14),
        (text, 1),
        on=widget,
        margins=(0, 4, 0, 2),
        spacing=8,
    )
    return widget


def _sum_section(tape: Tape, sum_: FanIn) -> Section:
    """Show the summed gradients: the share of each, and whether they agree."""
    section = Section("Where gradients meet", f"{sum_.edges} add up")
    if not sum_.shares:
        section.body_layout.addWidget(
            note(f"{sum_.edges} gradients add up here; only their sum is kept.")
        )
        return section
    titles = [
        tape.title_of(tape.nodes[share.source])
        for share in sum_.shares
        if share.source >= 0
    ]
    alike = len(set(titles)) < len(titles)
    for share in sum_.shares:
        node = tape.nodes[share.source]
        name = (
            "an edited gradient"
            if share.source < 0
            else node.name
            if alike
            else tape.title_of(node)
        )
        percent = (
            ""
            if share.projection is None
            else f"{100 * share.projection:.0f} %".replace("-", MINUS)
        )
        section.body_layout.addWidget(_bar_row(name, percent, share.norm))
    sentences = [f"Together {figure(sum_.norm)}."]
    if len(sum_.shares) == 2 and (cosine := sum_.cosines[0][1]) is not None:
        sentences.append(
            f"Their cosine is {round(cosine, 2) + 0.0:.2f}: {_agreement(cosine)}.".replace(
                "-", MINUS
            )
        )
    measured = [
        share
        for share in sum_.shares
        if share.projection is not None and share.source >= 0
    ]
    if len(measured) > 1:
        most = max(measured, key=lambda share: share.projection or 0.0)
        sentences.append(f"{_name(tape, most.source)} contributes most of it.")
    section.body_layout.addWidget(note(" ".join(sentences)))
    return section


def _agreement(cosine: float) -> str:
    if abs(cosine) < AGREE:
        return "they are nearly orthogonal"
    return (
        "they point in similar directions" if cosine > 0 else "they oppose each other"
    )


def _gain_section(gain: float) -> Section:
    section = Section("Gain, input norm / output norm", figure(gain))
    comparison = "as large as" if 0.9 <= gain <= 1.1 else f"{figure(gain)} times"
    section.body_layout.addWidget(
        note(f"The gradient to earlier layers is {comparison} the one that arrived.")
    )
    return section


def _gain(tape: Tape, record: StepRecord) -> float | None:
    """|grad_in| / |grad_out| without parameters; None if the gradient ends here."""
    on = [
        edge.stats.norm
        for edge in record.leaving
        if edge.stats and tape.leaf_behind(edge.target) is None
    ]
    return math.hypot(*on) / record.norm if on and record.norm else None


def _odd(
    tape: Tape,
    node: TapeNode,
    record: StepRecord | None,
    arriving: tuple[GradStats | None, ...],
) -> Iterator[str]:
    """Yield warnings about these gradients."""
    arrived = [stats for stats in arriving if stats is not None]
    if bad := sum(stats.nonfinite for stats in arrived):
        yield f"{bad:,} incoming values are NaN or infinite."
    elif arrived and all(stats.norm == 0 for stats in arrived):
        yield "The incoming gradient is exactly 0: nothing before this node learns from this batch."
    if record is None:
        return
    nonfinite = sum(edge.stats.nonfinite for edge in record.leaving if edge.stats)
    if nonfinite and not sum(stats.nonfinite for stats in arrived):
        yield f"{nonfinite:,} outgoing values are NaN or infinite, but no incoming ones: they originate here."
    most = max((edge.stats.norm for edge in record.leaving if edge.stats), default=0.0)
    for edge in record.leaving:
        target = tape.nodes[edge.target]
        if (
            edge.stats is None
            or not target.parameters
            or not most
            or edge.stats.norm > TINY * most
        ):
            continue
        name = target.parameters[0]
        before = [
            tape.nodes[incoming.source] for incoming in tape.incoming.get(node.id, ())
        ]
        norm = next(
            (candidate for candidate in before if "BatchNorm" in candidate.name), None
        )
        if norm is not None and name.rpartition(".")[2] == "bias":
            yield (
                f"{name} gets no gradient: {tape.title_of(norm)} subtracts the channel mean, so any bias "
                "cancels."
            )
        else:
            yield f"{name} gets almost no gradient: {figure(edge.stats.norm)} against {figure(most)}."


def _notes(record: StepRecord | None) -> Iterator[str]:
    if record is not None and record.edited:
        yield "Its incoming gradient was edited before it ran."
    if record is not None and record.hooked:
        yield "A hook replaced its incoming gradient."


def _sources(tape: Tape, node: TapeNode) -> dict[int, str]:
    """Return the sources of the gradients, by output number."""
    edges_by_output: dict[int, list[TapeEdge]] = {}
    for edge in tape.incoming.get(node.id, ()):
        edges_by_output.setdefault(edge.output_nr, []).append(edge)
    return {
        number: f"from {tape.title_of(tape.nodes[edges[0].source])}"
        if len(edges) == 1
        else f"from {len(edges)} nodes"
        for number, edges in edges_by_output.items()
    }


def _output(number: int, count: int) -> str:
    return "output" if count == 1 else f"output {number}"


def _target(tape: Tape, node: TapeNode) -> tuple[str, str]:
    """Return the target of a gradient: a parameter by its name, or a layer."""
    leaf = tape.leaf_behind(node.id)
    if leaf is not None and tape.nodes[leaf].parameters:
        return tape.nodes[leaf].parameters[
            0
        ], f"by {node.name}" if leaf != node.id else ""
    return "input", f"to {tape.title_of(node)}"


def _name(tape: Tape, number: int) -> str:
    node = tape.nodes[number]
    return f"{tape.title_of(node)} · {node.name}"
