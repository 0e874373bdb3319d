"""The cost of a network as rows of text, with the numbers behind them. Qt-free."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from app.builder.catalog.catalog import Catalog
from app.util.columns import Column
from app.util.formatting import (
    UNKNOWN,
    bytes_text,
    counted,
    grouped_digits,
    parameters_text,
    share,
)

if TYPE_CHECKING:
    from app.builder.shapes.network_cost import NetworkCost, NodeCost


class CostRow(Struct, frozen=True):
    """The cost of a node beside the totals of its network."""

    node: str
    name: str
    label: str
    category: str
    cost: NodeCost
    parameters: int
    multiply_adds: int | None

    @property
    def certain(self) -> bool:
        return self.cost.state not in ("unknown", "muted")

    def text(self, value: int | None, text: Callable[[int], str]) -> str:
        """Return the text of a number, or why there is none."""
        if value is not None:
            return text(value)
        return UNKNOWN if self.certain else self.cost.state


def rows_of(cost: NetworkCost, catalog: Catalog) -> list[CostRow]:
    """Return a row per node, in execution order."""
    rows = []
    for node_id, node_cost in cost.nodes.items():
        node = cost.graph.nodes[node_id]
        spec = catalog.spec_of(cost.graph, node)
        totals = cost.parameters, cost.multiply_adds
        look = node.name, spec.label, spec.category
        rows.append(CostRow(node_id, *look, node_cost, *totals))
    return rows


def _parameters(row: CostRow) -> str:
    if row.cost.parameters is None:
        return row.cost.state or UNKNOWN
    return grouped_digits(row.cost.parameters)


def _compute(row: CostRow) -> str:
    if row.cost.state == "":
        return UNKNOWN
    if row.cost.multiply_adds is None:
        return row.cost.state
    return grouped_digits(row.cost.multiply_adds)


def _live(row: CostRow, amount: int | None) -> int | None:
    return amount if row.cost.live else None


def _share(amount: int | None, total: int | None) -> str:
    return "" if amount is None else share(amount, total or 0)


def _percent(amount: int | None, total: int | None) -> str:
    return "" if amount is None or not total else f"{100 * amount / total:.4g}"


def _unused(row: CostRow) -> str:
    if row.cost.live:
        return ""
    muted = row.cost.state == "muted"
    reason = "Muted: the network bypasses it." if muted else "No output depends on it."
    return f"{reason} The totals leave it out."


def _column(
    title: str,
    copied: str,
    meaning: str,
    text: Callable[[CostRow], str],
    value: Callable[[CostRow], Any],
    *,
    number: bool = True,
    quiet: Callable[[CostRow], bool] = lambda _row: False,
    **more: Any,
) -> Column:
    """Return a column whose cells are quiet where there is no value."""

    def color(row: CostRow) -> str:
        if value(row) is None or quiet(row):
            return "text3"
        return "" if number else "text2"

    return Column(
        title, text, meaning, number, value, color=color, copied=copied, **more
    )


COLUMNS = (
    Column(
        "Node",
        lambda row: row.name,
        "Nodes in execution order",
        tip=_unused,
        icon=lambda row: (row.category,),
    ),
    Column(
        "Class",
        lambda row: row.label,
        "Its class or function in PyTorch",
        color=lambda _row: "text2",
    ),
    _column(
        "Parameters",
        "",
        "Parameter count; parameters of a frozen node are not trained",
        _parameters,
        lambda row: row.cost.parameters,
        tip=lambda row: (
            "Frozen: they are not trained."
            if row.cost.parameters and row.cost.frozen
            else ""
        ),
    ),
    _column(
        "Share",
        "Parameters %",
        "Share of the network's parameters",
        lambda row: _share(_live(row, row.cost.parameters) or None, row.parameters),
        lambda row: _live(row, row.cost.parameters),
        exact=lambda row: _percent(row.cost.parameters, row.parameters),
    ),
    _column(
        "Multiply-adds (estimated)",
        "Multiply-adds per sample (estimated)",
        "For one sample, by PyTorch's own formulas (torch.utils.flop_counter): matrix products, convolutions and "
        "attention. One multiply-add is 2 FLOP. Biases and everything else have no formula.",
        _compute,
        lambda row: row.cost.multiply_adds,
        tip=lambda row: row.cost.gaps_text,
    ),
    _column(
        "Share",
        "Multiply-adds %",
        "Share of the counted multiply-adds",
        lambda row: _share(_live(row, row.cost.multiply_adds), row.multiply_adds),
        lambda row: _live(row, row.cost.multiply_adds),
        exact=lambda row: _percent(row.cost.multiply_adds, row.multiply_adds),
    ),
    _column(
        "Output",
        "",
        "Output shape; N is the batch size",
        lambda row: row.cost.output or row.text(None, str),
        lambda row: row.cost.output or None,
        number=False,
    ),
    _column(
        "Activation bytes",
        "Activation bytes per sample",
        "Output bytes for one sample. Memory shared with its input, as with a view, is counted once.",
        lambda row: row.text(row.cost.activation, bytes_text),
        lambda row: row.cost.activation,
        quiet=lambda row: row.cost.shares,
        tip=lambda row: (
            "A view of its input's memory, so it is not counted again in the total."
            if row.cost.shares
            else ""
        ),
    ),
    _column(
        "Receptive field",
        "",
        "Input positions that one output value depends on, and the stride between neighbouring values, along "
        "convolutions and poolings",
        lambda row: str(row.cost.receptive or UNKNOWN),
        lambda row: prod(row.cost.receptive.size) if row.cost.receptive else None,
        number=False,
        exact=lambda row: str(row.cost.receptive or UNKNOWN),
    ),
)


def total_texts(cost: NetworkCost) -> tuple[str, ...]:
    """Return the texts of the total row."""
    compute = cost.multiply_adds
    return (
        "Total",
        counted(sum(node_cost.live for node_cost in cost.nodes.values()), "node"),
        grouped_digits(cost.parameters),
        "",
        "not counted" if compute is None else grouped_digits(compute),
        "",
        "",
        bytes_text(cost.activation),
        "",
    )


def note(cost: NetworkCost) -> str:
    """Explain what the totals include and omit."""
    sentences = [
        "For one sample; a batch of N takes N times as many multiply-adds and activation bytes."
    ]
    if cost.frozen:
        sentences.append(f"{parameters_text(cost.parameters, cost.frozen)}.")
    if cost.not_counted:
        many = cost.not_counted != 1
        sentences.append(
            f"{counted(cost.not_counted, 'node')} {'compute' if many else 'computes'} operations "
            "that PyTorch has no formula for."
        )
    if cost.unknown:
        sentences.append(
            f"Left out: {counted(cost.unknown, 'node')} whose shapes are unknown."
        )
    return " ".join(sentences)
