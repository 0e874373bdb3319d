"""Ways of writing a model that public code has, each found with a model that came out wrong or not at all."""

from __future__ import annotations

import torch
from torch import nn

from tests.test_import_models import code_of, same


class Dense(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, features):
        return self.fc(torch.relu(self.norm(torch.cat(features, 1))))


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Dense(4 * (number + 1)) for number in range(4))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def test_a_layer_that_joins_ever_longer_lists_is_one_block() -> None:
    project = same(Growing(), torch.randn(3, 4))
    text = code_of(project).text
    assert text.count("class ") == 2 and text.count("Dense(") == 5
