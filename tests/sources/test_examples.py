"""Example inputs that are proposed from the signature of forward, and models for which none can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.requests.observe import Observe, opened_model
from app.engine.tasks.observe import answer
from app.source.compiled import make_module
from app.source.generated import InputSpec as Given
from app.source.layer_files import allow
from app.sources.code import source_of
from app.sources.finding import digest_of
from app.sources.loading import load
from app.sources.spec import ArgumentsError, InputsNeededError, InputSpec, parse_source

OWN = """
import os
from torch import nn


class Keyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 2)

    def forward(self, *, x, mask=None):
        return self.a(x)


class Sized(nn.Linear):
    def __init__(self, width):
        super().__init__(width, 2)


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.LazyLinear(2)
        os.chdir("/")

    def forward(self, x):
        return self.a(x.flatten(1))


class Large(nn.Linear):
    def __init__(self):
        super().__init__(30000, 30000)

    def forward(self, input):
        return input * input.sum().item()


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
    with pytest.raises(InputsNeededError, match="--input left=1x8 --input right=1x8 --input mask=1x16:bool") as refused:
        load(parse_source("own_examples:Pair"), {})
    assert refused.value.names == ("left", "right", "mask")
    for arguments, words in (({}, 'needs width: give its arguments as JSON, {"width": …}'), ({"depth": 1}, "no depth")):
        with pytest.raises(ArgumentsError, match=words):
            load(parse_source("own_examples:Sized"), arguments)


def test_a_model_with_lazy_layers_is_drawn_and_its_text_gives_them_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_lazy.py").write_text(OWN)
    request = Observe(parse_source("own_lazy:Lazy"), inputs=(InputSpec((2, 3, 5)),), folder=str(tmp_path))
    found = answer(request)
    assert {"flatten", "linear"} <= {call.name for call in found.calls} and not found.remarks
    sha256 = digest_of(request.source, str(tmp_path))
    allow(sha256)
    opened = opened_model(request, found, sha256)
    monkeypatch.chdir(tmp_path)
    made = make_module(source_of(opened, [Given("x", (7, 2))]))
    assert Path.cwd() == tmp_path  # what a run writes stays in the folder that it was begun in
    assert made.training and made.a.weight.shape == (2, 14)


def test_a_model_without_values_that_raises_says_why_it_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_large.py").write_text(OWN)
    found = answer(Observe(parse_source("own_large:Large"), meta=True))
    assert found.calls[found.failed or 0].name == "item"
    assert "has 3.35 GiB of weights, so it ran without" in found.remarks[0]
