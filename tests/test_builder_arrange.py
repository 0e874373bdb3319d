"""Lay out: what belongs together stands in one row."""

from __future__ import annotations

from typing import Any

from app.builder.arrange import arrange
from tests.builder_nets import net


def test_a_row_ends_between_residual_blocks_and_not_within_them() -> None:
    rows: list[Any] = [("input", "x", {"shape": (8,)})]
    wires: list[tuple[Any, ...]] = []
    last = "x"
    for i in range(4):
        names = [f"start{i}", f"fc{i}", f"relu{i}"]
        rows += zip(("nn.LayerNorm", "nn.Linear", "nn.ReLU"), names, ({}, {"out_features": 8}, {}), strict=True)
        rows.append(("operator.add", f"add{i}", {}))
        wires += zip([last, *names], [*names, f"add{i}"], strict=True)
        wires.append((names[0], f"add{i}", "other"))
        last = f"add{i}"
    graph = net([*rows, ("output", "y", {})], [*wires, (last, "y")])
    places = arrange(graph, {})
    assert len({y for _, y in places.values()}) > 1
    for i in range(4):
        assert len({places[f"{name}{i}"][1] for name in ("start", "fc", "relu", "add")}) == 1
