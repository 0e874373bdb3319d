"""The text is the model: what is compiled is what is shown, down to the lines of a traceback."""

from __future__ import annotations

import copy
import linecache
import pickle
import traceback

import pytest
import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.source.compiled import load_class, make_module
from app.source.generated import InputSpec, Source
from app.util.frozen import FrozenMap
from tests.support.builder_nets import net

SOURCE = analyse(
    net([("input", "x", {"shape": (4,)}), ("nn.Linear", "fc", {}), ("output", "y", {})])
).source


def test_a_traceback_shows_the_lines() -> None:
    module = make_module(SOURCE)
    with pytest.raises(RuntimeError) as told:
        module(torch.zeros(2, 5))
    frames = traceback.extract_tb(told.value.__traceback__)
    (ours,) = [frame for frame in frames if frame.filename == SOURCE.filename]
    assert ours.line == "x = self.fc(x)  # (N, 64)"
    assert SOURCE.node_at(ours.lineno) == "fc"
    linecache.checkcache()
    assert linecache.getline(SOURCE.filename, ours.lineno).strip() == ours.line


def test_each_module_has_weights_of_its_own_drawn_from_the_seed() -> None:
    torch.manual_seed(1)
    first = make_module(SOURCE)
    torch.manual_seed(1)
    second = make_module(SOURCE)
    assert (
        torch.equal(first.fc.weight, second.fc.weight)
        and first.fc.weight is not second.fc.weight
    )
    assert not torch.equal(first.fc.weight, make_module(SOURCE).fc.weight)


def test_a_module_can_be_copied_pickled_and_traced() -> None:
    module = make_module(SOURCE)
    x = torch.ones(2, 4)
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    assert torch.equal(pickle.loads(pickle.dumps(module))(x), module(x))
    assert torch.equal(torch.fx.symbolic_trace(module)(x), module(x))


def test_equal_texts_share_a_name_and_others_do_not() -> None:
    other = Source(SOURCE.text + "# changed\n", class_name="Net")
    assert Source(SOURCE.text).filename == SOURCE.filename != other.filename
    assert (
        load_class(other).__name__ == "Net"
        and load_class(other).__module__ == other.filename
    )


def test_values_compare_and_print() -> None:
    assert InputSpec("x", (4,)) == InputSpec("x", (4,), "float32")
    assert hash(SOURCE) == hash(replace(SOURCE))
    assert (
        Source("a", lines=FrozenMap(n=(1, 2))).node_at(2) == "n"
        and Source("a").node_at(1) is None
    )
