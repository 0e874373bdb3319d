"""The cost of a network as rows of text, with the numbers behind them. Qt-free."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

from app.builder.catalog.catalog import Catalog
from app.util.formatting import (
    bytes_text,
    counted,
    grouped_digits,
    parameters_text,
    share,
)

if TYPE_CHECKING:
    from app.builder.shapes.network_cost import NetworkCost, NodeCost

COLUMNS = (
    "Node",
    "Class",
    "Parameters",
    "Share",
    "Multiply-adds (estimated)",
    "Share",
    "Output",
    "Activation bytes",
    "Receptive field",
)
(
    NODE,
    CLASS,
    PARAMETERS,
    PARAMETERS_SHARE,
    COMPUTE,
    COMPUTE_SHARE,
    OUTPUT,
    BYTES,
    FIELD,
) = range(9)
NUMBERS = frozenset({PARAMETERS, PARAMETERS_SHARE, COMPUTE, COMPUTE_SHARE, BYTES})
NAMES = (
    "Node",
    "Class",
    "Parameters",
    "Parameters %",
    "Multiply-adds per sample (estimated)",
    "Multiply-adds %",
    "Output",
    "Activation bytes per sample",
    "Receptive field",
)
NOTHING = "–"
MEANINGS = (
    "Nodes in execution order",
    "Its class or function in PyTorch",
    "Parameter count; parameters of a frozen node are not trained",
    "Share of the network's parameters",
    "For one sample, by PyTorch's own formulas (torch.utils.flop_counter): matrix products, convolutions and attention."
    " One multiply-add is 2 FLOP. Biases and everything else have no formula.",
    "Share of the counted multiply-adds",
    "Output shape; N is the batch size",
    "Output bytes for one sample. Memory shared with its input, as with a view, is counted once.",
    "Input positions that one output value depends on, and the stride between neighbouring values, along convolutions "
    "and poolings",
)


class CostRow(Struct, frozen=True):
    """A row of the table: texts, sort and export keys, and a tool tip per cell.

    A key is None if there is no value; `quiet` are the columns whose text is not a number.
    """

    node: str
    category: str
    texts: tuple[str, ...]
    keys: tuple[float | str | None, ...]
    tips: tuple[str, ...]
    quiet: frozenset[int] = frozenset()


def rows_of(cost: NetworkCost, catalog: Catalog) -> list[CostRow]:
    """Return a row per node, in execution order."""
    return [
        _row(node, node_cost, cost, catalog) for node, node_cost in cost.nodes.items()
    ]


def _row(
    node_id: str, node_cost: NodeCost, cost: NetworkCost, catalog: Catalog
) -> CostRow:
    node = cost.graph.nodes[node_id]
    spec = catalog.spec_of(cost.graph, node)
    parameters, compute = (
        node_cost.parameters if node_cost.live else None,
        node_cost.multiply_adds if node_cost.live else None,
    )
    certain = node_cost.state not in ("unknown", "muted")
    texts = (
        node.name,
        spec.label,
        _number(node_cost.parameters, node_cost.state),
        share(parameters, cost.parameters) if parameters else "",
        NOTHING
        if node_cost.state == ""
        else node_cost.state
        if node_cost.multiply_adds is None
        else grouped_digits(node_cost.multiply_adds),
        share(compute, cost.multiply_adds or 0) if compute is not None else "",
        node_cost.output or (NOTHING if certain else node_cost.state),
        bytes_text(node_cost.activation)
        if node_cost.activation is not None
        else NOTHING
        if certain
        else node_cost.state,
        str(node_cost.receptive) if node_cost.receptive else NOTHING,
    )
    keys = (
        node.name,
        spec.label,
        node_cost.parameters,
        parameters,
        node_cost.multiply_adds,
        compute,
        node_cost.output or None,
        node_cost.activation,
        prod(node_cost.receptive.size) if node_cost.receptive else None,
    )
    quiet = {column for column in NUMBERS | {OUTPUT, FIELD} if keys[column] is None}
    quiet |= {BYTES} if node_cost.shares else set()
    return CostRow(
        node_id, spec.category, texts, keys, _tips(node_cost), frozenset(quiet)
    )


def _number(value: int | None, state: str) -> str:
    return grouped_digits(value) if value is not None else state or NOTHING


def _tips(node_cost: NodeCost) -> tuple[str, ...]:
    tips = [""] * len(COLUMNS)
    if not node_cost.live:
        reason = (
            "Muted: the network bypasses it."
            if node_cost.state == "muted"
            else "No output depends on it."
        )
        tips[NODE] = f"{reason} The totals leave it out."
    if node_cost.parameters and node_cost.frozen:
        tips[PARAMETERS] = "Frozen: they are not trained."
    tips[COMPUTE] = node_cost.gaps_text
    if node_cost.shares:
        tips[BYTES] = (
            "A view of its input's memory, so it is not counted again in the total."
        )
    return tuple(tips)


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


def sorted_rows(
    rows: Sequence[CostRow], column: int, descending: bool
) -> list[CostRow]:
    """Sort the rows by a column; those without a value come last in both directions."""
    valued = [row for row in rows if row.keys[column] is not None]
    rest = [row for row in rows if row.keys[column] is None]
    return (
        sorted(valued, key=lambda row: _sort_key(row.keys[column]), reverse=descending)
        + rest
    )


def _sort_key(key: float | str | None) -> tuple[float, str]:
    return (0.0, key.casefold()) if isinstance(key, str) else (float(key or 0), "")


def as_text(rows: Iterable[CostRow], totals: Sequence[str] = ()) -> str:
    """Return rows as tab-separated text, as they are shown."""
    lines = [NAMES, *(row.texts for row in rows), *([totals] if totals else [])]
    return "\n".join("\t".join(line) for line in lines)


def as_csv(rows: Iterable[CostRow], cost: NetworkCost) -> str:
    """Return rows as CSV with exact numbers; unknown values are empty, uncounted ones are marked."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(NAMES)
    for row in rows:
        line: list[object] = [
            row.texts[i] if key is None or i == FIELD else key
            for i, key in enumerate(row.keys)
        ]
        line[PARAMETERS_SHARE] = _percent(row.keys[PARAMETERS], cost.parameters)
        line[COMPUTE_SHARE] = _percent(row.keys[COMPUTE], cost.multiply_adds)
        writer.writerow("" if cell == NOTHING else cell for cell in line)
    return out.getvalue()


def _percent(amount: float | str | None, total: int | None) -> str:
    return (
        f"{100 * amount / total:.4g}"
        if isinstance(amount, int | float) and total
        else ""
    )
