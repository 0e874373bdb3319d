"""Choose the number of CPU threads per operation.

A step of a small net gains nothing from a second thread: torch parallelises an elementwise operation from `ELEMENTS` on
(`at::internal::GRAIN_SIZE`), a matrix product at any size. On four nets whose largest product is below `MULTIPLY_ADDS`,
two threads made 0.94, 0.97, 0.98 and 1.11 times as many steps a second as one (medians of five rounds on two cores,
torch 2.13), and one leaves the other cores to the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.builder.shapes.network_cost import NetworkCost

ELEMENTS = 32_768
MULTIPLY_ADDS = 1_000_000
FLOAT = 4  # bytes


def for_net(cost: NetworkCost, batch_size: int) -> int:
    """Return 1 for a network too small for intra-op parallelism, 0 for torch's default. An estimate, see `cost`."""
    if cost.unknown:
        return 0
    return int(
        all(
            node.call.tried
            and (node.multiply_adds or 0) * batch_size < MULTIPLY_ADDS
            and (node.activation or 0) // FLOAT * batch_size <= ELEMENTS
            and (node.parameters or 0) <= ELEMENTS
            for node in cost.nodes.values()
            if node.live
        )
    )
