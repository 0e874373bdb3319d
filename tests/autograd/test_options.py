"""Options of a capture: what they make of inputs, ends and vectors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.autograd.batch import TrainingBatch
from app.autograd.capture_options import PLAIN_OPTIONS, CaptureOptions
from app.autograd.errors import CaptureError
from app.autograd.forward_modes import Special
from app.autograd.playback.playback import Playback
from app.autograd.playback.root_gradients import chosen_vectors, vector

W = torch.tensor([[1.0, -2.0], [0.5, 3.0], [2.0, 1.0]])


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 3, bias=False)
        with torch.no_grad():
            self.fc.weight.copy_(W)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.fc(x)
        return y, y.tanh().sum()


def gradient(options: CaptureOptions) -> torch.Tensor:
    """What playing gives the weight."""
    seeds = chosen_vectors(options)
    graph = TrainingBatch(
        Two(), torch.ones(4, 2), special=Special.from_options(options), seeds=seeds
    ).hold()
    assert graph.seeds is not None
    playback = Playback(graph)
    playback.run()
    found = playback.gradients["fc.weight"].clone()
    playback.release()
    assert graph.seeds is None
    return found


def test_the_product_of_a_chosen_output_and_a_chosen_vector() -> None:
    options = CaptureOptions(loss=False, outputs=(0,), vector="one-hot", index=2)
    assert torch.equal(
        gradient(options), torch.tensor([[0.0, 0.0], [0.0, 0.0], [4.0, 4.0]])
    )
    assert options.differences == ("output 1 itself, vector one-hot 2",)
    slope = 1 - (torch.ones(4, 2) @ W.T).tanh() ** 2
    both = gradient(CaptureOptions(loss=False))
    assert torch.allclose(both, (1 + slope).T @ torch.ones(4, 2))


def test_an_index_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        CaptureError,
        match="Output 1 has 3 elements in its last dimension; there is no index 3",
    ):
        gradient(CaptureOptions(loss=False, outputs=(0,), vector="one-hot", index=3))
    assert vector(torch.ones(2), "ones", 0, 0) is None, "no gradient goes back from it"


def test_detectives_look_at_what_was_chosen_without_what_hides_lines() -> None:
    options = CaptureOptions(
        amp="bfloat16",
        checkpoint=("fc",),
        compile=True,
        second_order=True,
        data="random",
    )
    assert options.diagnosed == CaptureOptions(amp="bfloat16", data="random")
    assert (
        len(options.differences) == 5
        and PLAIN_OPTIONS.differences == ()
        and chosen_vectors(PLAIN_OPTIONS) is None
    )
    assert options.left_out.startswith(
        "Diagnosed without checkpoint fc, create_graph=True and torch.compile: "
    )
    assert options.diagnosed.left_out == PLAIN_OPTIONS.left_out == ""
