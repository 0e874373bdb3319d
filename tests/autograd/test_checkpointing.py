"""What if a block were checkpointed: bytes measured against an oracle, gradients equal, the net left as it was."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.diagnostics.checkpointing import Peak, blocks, table, what_if
from app.autograd.diagnostics.results import StepCost, WhatIf
from tests.support.autograd_tapes import SOURCE


class Wide(nn.Module):
    """Narrow at its ends and wide inside, so that a checkpoint frees most of it."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.drop, self.down = (
            nn.Linear(8, 512),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(512, 8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.drop(self.act(self.up(x))))


def subject(*more: nn.Module) -> TrainingBatch:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Wide(), Wide(), *more, nn.Linear(8, 2))
    return TrainingBatch(
        model, (torch.randn(32, 8),), nn.CrossEntropyLoss(), torch.arange(32) % 2
    )


def test_a_wide_block_frees_what_it_held_and_the_gradients_are_the_same() -> None:
    one = subject()
    before = copy.deepcopy(one.model.state_dict())
    row = what_if(one, "1", repeats=1)
    wide = 32 * 512 * 4
    assert (row.path, row.kind) == ("1", "Wide") and row.equal and row.difference == 0
    assert (
        row.held_less >= 3 * wide - 1024
    )  # what GELU, dropout and the second layer keep; its input stays
    assert row.freed > 0 and row.again.peak < row.plain.peak
    assert row.plain.seconds > 0 and row.again.seconds > 0
    assert (
        "In training: recompute = 1." in row.sentence
        and "the gradients are the same" in row.sentence
    )
    assert all(
        torch.equal(value, before[key]) for key, value in one.model.state_dict().items()
    )
    assert all(parameter.grad is None for parameter in one.model.parameters())
    assert not any("forward" in vars(module) for module in one.model.modules())


def test_every_block_is_a_row_and_the_one_that_frees_most_is_first() -> None:
    rows = table(subject(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))), repeats=1)
    assert {row.path for row in rows} == {"1", "2", "3"}
    assert [row.freed for row in rows] == sorted(
        (row.freed for row in rows), reverse=True
    )
    norm = next(row for row in rows if row.path == "3")
    assert norm.freed < rows[0].freed
    assert (
        norm.remark
        == "BatchNorm1d in it updates its running statistics twice per step."
    )
    assert norm.sentence.endswith(norm.remark) and not rows[0].remark


def test_a_table_can_be_cancelled_and_an_unknown_path_is_refused() -> None:
    calls: list[int] = []

    def enough() -> bool:
        calls.append(1)
        return len(calls) > 1

    assert len(table(subject(), repeats=1, cancelled=enough)) == 1
    with pytest.raises(AttributeError):
        what_if(subject(), "nowhere")


def test_blocks_are_what_is_called() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Linear(2, 2)) for _ in range(2)
            )
            self.head = nn.Linear(2, 2)

    assert blocks(Net()) == ("layers.0", "layers.1")


def test_a_layer_of_the_generated_text_is_asked_too() -> None:
    one = compile_batch(
        SOURCE,
        torch.randn(3, 1, 8, 8),
        torch.tensor([1, 2, 3]),
        nn.CrossEntropyLoss(),
        0,
    )
    row = what_if(one, "relu1", repeats=1)
    assert row.equal and row.plain.held == one.hold().tape.held_bytes


def test_the_sentence_says_more_where_it_is_more() -> None:
    row = WhatIf(
        "b",
        "Block",
        StepCost(0, 2048, (0.009, 0.01, 0.012)),
        StepCost(0, 4096, (0.014, 0.014, 0.02)),
        1e-7,
    )
    assert row.sentence == (
        "With b checkpointed a step takes 2.00 KiB more at the peak (2.00 KiB without) and +5.0 ms (+50 %; +4.0 to "
        "+8.0 ms in 3 rounds); gradients differ by up to 1e−7."
    )
    even = WhatIf(
        "b",
        "Block",
        StepCost(0, 2048, (0.470, 0.010, 0.012)),
        StepCost(0, 2048, (0.13, 0.011, 0.013)),
        0.0,
    )
    assert even.sentence == (
        "With b checkpointed a step takes as much at the peak as without (2.00 KiB) and no measurable time more: the "
        "difference was −340.0 to +1.0 ms in 3 rounds, so noise exceeds the effect; the gradients are the same."
    )


def test_the_peak_is_that_of_what_is_alive_at_once() -> None:
    x = torch.ones(1000)
    with Peak([x]) as peak:
        for _ in range(5):
            y = (
                x + 1
            )  # 4,000 bytes, and the one before is gone when the next but one is made
        del y
    assert peak.bytes == 8000
    with Peak([x]) as peak:
        kept = [x + 1 for _ in range(5)]
    assert peak.bytes == 20_000 and len(kept) == 5
    with Peak([x]) as peak:
        x.view(10, 100).t()
    assert peak.bytes == 0
