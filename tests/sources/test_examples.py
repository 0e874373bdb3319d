"""Example inputs that are proposed from the signature of forward, and models for which none can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.sources.loading import load
from app.sources.spec import InputsNeededError, parse_source

OWN = """
from torch import nn


class Keyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 2)

    def forward(self, *, x, mask=None):
        return self.a(x)


class Pair(Keyword):
    def forward(self, left, right, *, mask):
        return self.a(left) + self.a(right)
"""


def test_inputs_are_proposed_also_for_a_keyword_and_named_where_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_examples.py").write_text(OWN)
    found = load(parse_source("own_examples:Keyword"), {})
    assert found.args == () and {name: tuple(one.shape) for name, one in found.kwargs.items()} == {"x": (2, 8)}
    assert found.model(**found.kwargs).shape == (2, 2)
    with pytest.raises(InputsNeededError, match="--input left=") as refused:
        load(parse_source("own_examples:Pair"), {})
    assert refused.value.names == ("left", "right", "mask")
