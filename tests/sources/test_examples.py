"""Example inputs that are proposed from the signature of forward, and models for which none can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from app.engine.requests.observe import Observe, opened_model
from app.engine.tasks.observe import answer
from app.source.compiled import make_module
from app.source.generated import InputSpec as Given
from app.sources.code import source_of
from app.sources.examples import called_with
from app.sources.finding import digest_of
from app.sources.loading import load
from app.sources.spec import (
    ArgumentsError,
    InputsNeededError,
    InputSpec,
    SourceError,
    parse_input,
    parse_source,
)
from tests.support import own_code

OWN = """
import os
import torch
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
        assert left.shape == (7, 8)
        return self.a(left) + self.a(right)


class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(4, 3, 3)

    def forward(self, x):
        return self.c(x.transpose(1, 2))


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.l = nn.Conv2d(3, 2, 3), nn.Linear(2 * 26 * 26, 2)

    def forward(self, x):
        return self.l(self.c(x).flatten(1))


class Table(nn.Module):
    def __init__(self, rows=30):
        super().__init__()
        self.e, self.l = nn.Embedding(rows, 4, padding_idx=0), nn.Linear(4, 2)

    def forward(self, words):
        return self.l(self.e(words)).mean(1)


class Packed(Table):
    def __init__(self):
        super().__init__()
        self.r = nn.GRU(4, 3, batch_first=True)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.e(ids), lengths, batch_first=True)
        return self.r(packed)[1]


class Unsorted(Packed):
    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.e(ids), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.r(packed)[1]


class Nodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 3)

    def forward(self, x, edge_index):
        source, target = edge_index
        return torch.zeros(len(x), 3).index_add(0, target, self.l(x)[source])


class Batch(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.numbers = nn.EmbeddingBag(50, 4), nn.Linear(6, 4)

    def forward(self, batch):
        out = {"sum": self.words(batch["tokens"]) + self.numbers(batch["numeric"])}
        if "label" in batch:
            out["loss"] = nn.functional.cross_entropy(out["sum"], batch["label"])
        return out


class Labels(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 9)

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.l(x), y)


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.LSTM(5, 7, batch_first=True)

    def forward(self, x, state):
        return self.r(x, state)[0]


class Wide(nn.Module):
    def __init__(self, dtype="float64"):
        super().__init__()
        self.l = nn.Linear(5, 2, dtype=getattr(torch, dtype))

    def forward(self, x, /):
        return self.l(x)


def example():
    return torch.ones(3, 5), (torch.zeros(1, 3, 7), torch.zeros(1, 3, 7))


def broken():
    raise KeyError("no data")
"""


def test_inputs_are_proposed_also_for_a_keyword_and_named_where_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_examples.py").write_text(OWN)
    own_code.trust("own_examples:Keyword")
    found = load(parse_source("own_examples:Keyword"), {})
    assert found.args == () and {
        name: tuple(one.shape) for name, one in found.kwargs.items()
    } == {"x": (2, 8)}
    assert found.remark == "Guessed inputs: --input x=2x8"
    assert found.model(**found.kwargs).shape == (2, 2)
    with pytest.raises(
        InputsNeededError,
        match="--input left=2x8 --input right=2x8 --input mask=2x16:bool",
    ) as refused:
        load(parse_source("own_examples:Pair"), {})
    assert refused.value.names == ("left", "right", "mask")
    for arguments, words in (
        ({}, 'needs width: give its arguments as JSON, {"width": …}'),
        ({"depth": 1}, "no depth"),
    ):
        with pytest.raises(ArgumentsError, match=words):
            load(parse_source("own_examples:Sized"), arguments)


def test_a_model_with_lazy_layers_is_drawn_and_its_text_gives_them_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_lazy.py").write_text(OWN)
    request = Observe(
        parse_source("own_lazy:Lazy"),
        inputs=(InputSpec((2, 3, 5)),),
        folder=str(tmp_path),
    )
    own_code.trust("own_lazy:Lazy", tmp_path)
    found = answer(request)
    assert {"flatten", "linear"} <= {
        call.name for call in found.calls
    } and not found.remarks
    sha256 = digest_of(request.source, str(tmp_path))
    opened = opened_model(request, found, sha256)
    monkeypatch.chdir(tmp_path)
    made = make_module(source_of(opened, [Given("x", (7, 2))]))
    assert (
        Path.cwd() == tmp_path
    )  # what a run writes stays in the folder that it was begun in
    assert made.training and made.a.weight.shape == (2, 14)


def test_a_model_without_values_that_raises_says_why_it_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_large.py").write_text(OWN)
    own_code.trust("own_large:Large")
    found = answer(Observe(parse_source("own_large:Large"), meta=True))
    assert found.calls[found.failed or 0].name == "item"
    assert "has 3.35 GiB of weights, so it ran without" in found.remarks[0]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with the models above, which no other test has imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    own_code.trust(f"{name}:any")
    return name


@pytest.mark.parametrize(
    ("model", "guessed"),
    [
        ("Series", "x=2x64x4"),
        ("Flat", "x=2x3x28x28"),
        ("Table", "words=2x16:int64:0..29"),
        ("Packed", "ids=2x16:int64:0..29 --input lengths=2:int64:16..1"),
        ("Nodes", "x=2x6 --input edge_index=2x8:int64:0..1"),
        ("Batch", "batch.tokens=2x16:int64:0..49 --input batch.numeric=2x6"),
        ("Labels", "x=2x6 --input y=2:int64:0..8"),
        ("Wide", "x=2x5"),
    ],
)
def test_inputs_are_proposed_by_what_a_model_does_with_them(
    own: str, model: str, guessed: str
) -> None:
    found = load(parse_source(f"{own}:{model}"), {})
    assert found.remark == f"Guessed inputs: --input {guessed}" and not found.refusal
    found.model(*found.args, **found.kwargs)


def test_integers_come_from_the_whole_table_but_its_padding_and_keep_a_range_that_is_given(
    own: str,
) -> None:
    inputs = (parse_input("words=200x3:int64"),)
    (words,) = load(parse_source(f"{own}:Table"), {}, inputs).kwargs.values()
    assert {*words.flatten().tolist()} == {*range(1, 30)}
    (words,) = load(
        parse_source(f"{own}:Table"), {}, (parse_input("words=200x3:int64:4..6"),)
    ).kwargs.values()
    assert {*words.flatten().tolist()} == {4, 5, 6}
    (words,) = load(
        parse_source(f"{own}:Table"), {}, (parse_input("words=2x3:int64:arange"),)
    ).kwargs.values()
    assert words.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_lengths_that_are_sorted_for_packing_are_between_1_and_the_length(
    own: str,
) -> None:
    inputs = (parse_input("ids=3x7:int64"), parse_input("lengths=3:int64"))
    found = load(parse_source(f"{own}:Unsorted"), {}, inputs)
    assert "--input lengths=3:int64:7..1" in found.remark
    assert found.kwargs["lengths"].tolist() == [7, 4, 1]
    found.model(**found.kwargs)


def test_inputs_have_the_dtype_of_the_weights(own: str) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        found = load(
            parse_source(f"{own}:Wide"),
            {"dtype": str(dtype).removeprefix("torch.")},
            (InputSpec((4, 5)),),
        )
        assert found.args[0].dtype == dtype == found.model(*found.args).dtype


def test_inputs_are_put_into_tuples_lists_and_dictionaries(own: str) -> None:
    inputs = tuple(map(parse_input, ("x=3x4x5", "state.0=1x3x7", "state.1=1x3x7:0")))
    found = load(parse_source(f"{own}:State"), {}, inputs)
    assert (
        isinstance(found.kwargs["state"], tuple) and not found.kwargs["state"][1].any()
    )
    assert found.model(**found.kwargs).shape == (3, 4, 7)
    args, kwargs = called_with(
        tuple(map(parse_input, ("a.b.c=1", "a.d[0]=2", "a.d[1]=3"))), [1, 2, 3]
    )
    assert (args, kwargs) == ((), {"a": {"b": {"c": 1}, "d": [2, 3]}})
    contradictions = {
        ("a.b=1", "a=1"): "twice",
        ("a.0=1", "a.2=1"): "without a gap",
        ("a.0=1", "a.b=1"): "both",
    }
    for wrong, words in contradictions.items():
        with pytest.raises(SourceError, match=words):
            called_with(tuple(map(parse_input, wrong)), [1, 2])


def test_inputs_come_from_a_function_or_a_file(own: str, tmp_path: Path) -> None:
    torch.save({"words": torch.full((2, 3), 7)}, "words.pt")
    np.savez(
        "batch.npz",
        tokens=np.ones((2, 4), np.int64),
        numeric=np.ones((2, 6), np.float32),
    )
    source = parse_source(f"{own}:State")
    found = load(source, {}, example_file=f"{tmp_path}/{own}.py:example")
    assert found.args[0].shape == (3, 5) and isinstance(found.args[1], tuple)
    assert (
        load(parse_source(f"{own}:Table"), {}, example_file="words.pt")
        .kwargs["words"]
        .tolist()
        == [[7] * 3] * 2
    )
    found = load(parse_source(f"{own}:Batch"), {}, example_file="batch.npz")
    assert found.args[0].keys() == {"tokens", "numeric"} and not found.remark


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("none.py:example", "there is no file none.py"),
        ("{own}.py:none", "has no function none"),
        ("{own}.py:broken", r"failed: KeyError: 'no data' \(line \d+ of own_"),
        ("damaged.pt", "damaged.pt cannot be read as tensors"),
        ("pickled.pt", "pickled.pt cannot be read as tensors"),
        ("words.txt", "does not name example inputs"),
    ],
)
def test_an_example_that_cannot_be_read_is_named(
    own: str, text: str, words: str
) -> None:
    Path("damaged.pt").write_bytes(b"PK\x03\x04 and no more")
    torch.save({"a": Path("a")}, "pickled.pt")
    with pytest.raises(SourceError, match=words):
        load(parse_source(f"{own}:Table"), {}, example_file=text.format(own=own))


def test_a_file_that_turns_switches_of_torch_is_named_and_gradients_stay_on(
    own: str, tmp_path: Path
) -> None:
    (tmp_path / f"off_{own}.py").write_text(
        f"import torch\ntorch.set_grad_enabled(False)\nfrom {own} import Wide\n"
    )
    (tmp_path / f"wide_{own}.py").write_text(
        f"import torch\n\ntorch.set_default_dtype(torch.float64)\nfrom {own} import Labels as Net\n"
    )
    own_code.trust(f"off_{own}.py:Wide", tmp_path)
    own_code.trust(f"wide_{own}.py:Net", tmp_path)
    try:
        found = load(parse_source(f"off_{own}.py:Wide"), {}, (InputSpec((4, 5)),))
        said = f"Its file turns gradients off for all of torch (line 2 of off_{own}.py). Gradients are on here."
        assert found.remark == said and found.model(*found.args).requires_grad
        found = load(
            parse_source(f"wide_{own}.py:Net"),
            {},
            (InputSpec((4, 6)), InputSpec((4,), "int64", "", "0")),
        )
        assert (
            found.remark
            == f"Its file makes float64 the default of all of torch (line 3 of wide_{own}.py)."
        )
        assert found.args[0].dtype == torch.float64
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
