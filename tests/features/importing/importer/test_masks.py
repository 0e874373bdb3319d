"""Masks that `torch.vmap` makes or a transformer takes, states in tuples, empty pasts and weights under a lost name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.sources.spec import InputSpec
from tests.features.importing.redrawn_nets import own_ops, redrawn

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

"""
IDS = InputSpec((2, 6), "int64")


@pytest.fixture
def file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None
) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path / "masked_net.py"
    sys.modules.pop("masked_net", None)


MAPPED = """
def both(*functions):
    def inner(batch, head, query, key):
        found = torch.ones((), dtype=torch.bool, device=query.device)
        for function in functions:
            found = found & function(batch, head, query, key)
        return found

    return inner

def mapped(function):
    for dims in (None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None):
        function = torch.vmap(function, in_dims=dims, out_dims=0)
    return function

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return torch.vmap(lambda row: self.out(row).tanh() * row.sum())(x.mean(1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qk, self.scale = nn.Embedding(11, 8), nn.Linear(8, 16), Scale()
        self.register_buffer("near", torch.ones(6, 6).tril(1).bool(), persistent=False)

    def forward(self, ids):
        x, (n, t) = self.embed(ids), ids.shape
        places, there = torch.arange(t, device=ids.device), ids > 2
        mask = both(lambda b, h, q, k: k <= q, lambda b, h, q, k: there[b, k], lambda b, h, q, k: self.near[q, k])
        mask = mapped(mask)(torch.arange(n), torch.arange(2), places, places)
        q, k = self.qk(x).view(n, t, 2, 2, 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT).masked_fill(~mask, -1e4).softmax(-1)
        values = (scores @ x.view(n, t, 2, 4).transpose(1, 2)).transpose(1, 2).flatten(2)
        return values + self.scale(x).unsqueeze(1)
"""


def test_masks_made_by_vmap_are_drawn_for_any_batch_and_other_vmaps_are_one_node(
    file: Path,
) -> None:
    project, source = redrawn(file, HEAD + MAPPED, IDS)
    assert own_ops(project) == ["custom.masked_net:Scale"]
    assert "ids.size(0)" in source and "vmap" not in source


ENCODER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embed, self.body = nn.Embedding(11, 8), nn.TransformerEncoder(layer, 2)
        self.later = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)

    def forward(self, ids):
        pad, mask = ids == 0, nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        x = self.body(self.embed(ids), src_key_padding_mask=pad)
        return self.later(x, x, tgt_mask=mask, tgt_is_causal=True, tgt_key_padding_mask=pad.float() * -1e4)
"""


def test_a_transformer_with_padding_and_causal_masks_is_drawn_layer_by_layer(
    file: Path,
) -> None:
    project, source = redrawn(file, HEAD + ENCODER, IDS)
    assert own_ops(project) == [] and source.count("nn.TransformerEncoderLayer(") == 1


STATES = """
class Past(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x, past):
        return self.fc(torch.cat([past, x], 1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)
        self.head.weight = embed.weight
        self.unregistered, self.past = [embed], Past()
        self.lstm, self.start = nn.LSTM(8, 4, batch_first=True, bidirectional=True), nn.Parameter(torch.randn(2, 1, 4))
        self.acts, self.cell = {"tanh": nn.Tanh}, nn.LSTMCell(8, 8)

    def forward(self, ids):
        x = self.past(self.unregistered[0](ids), torch.zeros(len(ids), 0, 8))
        first = self.start.expand(-1, len(ids), -1).contiguous(), torch.normal(0.0, 0.1, size=(2, len(ids), 4)) * 0
        x, (h, c) = self.lstm(x, first)
        again, _ = self.lstm(x.new_ones(size=(len(ids), 2, 8)), hx=(h, c))
        one, two = self.cell(x[:, 0], self.cell(x[:, 1]))
        pairs = torch.baddbmm(torch.ones(1, 6, 6), batch1=x, batch2=x.mT, alpha=0.5) @ x
        x = x + pairs + (one * two).unsqueeze(1)
        return self.head(self.acts["tanh"]()(x)) + again.sum((1, 2), keepdim=True)
"""


def test_states_in_tuples_empty_pasts_and_weights_under_a_lost_name_are_drawn(
    file: Path,
) -> None:
    project, source = redrawn(file, HEAD + STATES, IDS)
    assert own_ops(project) == []
    assert (
        "F.embedding(ids, self.head.weight)" in source
        and "self.lstm = nn.LSTM(8, 4, " in source
    )
    assert source.count("self.cell(") == 2
