"""Seconds to match and compare the modules of two models of 100,000 modules each, and the numbers of 1,000 layers.

The models are on the meta device: a list of 3,330 lists of ten layers of three modules. In B one list is missing, so
that the numbers of all behind it shift, and one epsilon differs.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn

from app.features.compare.compute.compare import Batch, compare_models
from app.features.compare.compute.facts import facts_of
from app.features.compare.compute.structure import compare
from app.training.setup.torch_flags import cpu_threads
from benchmarks._report import Figure, publish

ROUNDS = 5
LEFT_OUT, CHANGED = 1000, (7, 3)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.act, self.width = nn.LayerNorm(4), nn.GELU(), width


def model(count: int, left_out: int = -1) -> nn.Sequential:
    """Make a model of about 31 `count` modules."""
    with torch.device("meta"):
        rows = (
            nn.ModuleList(Layer(row % 7) for _ in range(10))
            for row in range(count)
            if row != left_out
        )
        return nn.Sequential(*rows)


def matched(count: int) -> float:
    """Seconds to read and match both models' modules; what is found is checked."""
    a, b = model(count), model(count, LEFT_OUT % count)
    b[CHANGED[0]][CHANGED[1]].norm.eps = 1e-6
    began = time.perf_counter()
    found = compare(facts_of(a), facts_of(b))
    seconds = time.perf_counter() - began
    assert [one.path for one in found.removed] == [
        str(LEFT_OUT % count)
    ] and not found.added
    assert [one.a for one in found.changed] == [f"{CHANGED[0]}.{CHANGED[1]}.norm"]
    return seconds


def run_on_numbers(count: int) -> float:
    """Seconds to name the layer that differs of `count` in a row, forward and backward."""

    def chain() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(*(nn.LayerNorm(16) for _ in range(count)))

    a, b = chain(), chain()
    b[count // 2].eps = 1e-6
    batch = Batch((torch.randn(2, 16),))
    began = time.perf_counter()
    with cpu_threads(1):  # as the program does for small ones
        found = compare_models(a, b, batch, modes=("eval",))
    seconds = time.perf_counter() - began
    assert found.first is not None and found.first.a == str(count // 2)
    return seconds


def main() -> None:
    short = "short" in sys.argv
    rounds, count, layers = (1, 50, 40) if short else (ROUNDS, 3330, 1000)
    modules = sum(1 for _ in model(count).modules())
    seconds = tuple(run_on_numbers(layers) for _ in range(min(rounds, 3)))
    publish(
        "diff",
        [
            Figure(
                f"match two models of {modules:,} modules",
                "s",
                tuple(matched(count) for _ in range(rounds)),
                aim=5.0,
            ),
            Figure(f"name one of {layers:,} layers by numbers", "s", seconds),
        ],
    )


if __name__ == "__main__":
    main()
