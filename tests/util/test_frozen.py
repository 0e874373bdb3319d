"""A mapping that nobody can change and everybody can compare."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.util.frozen import FrozenMap

maps = st.dictionaries(st.text(max_size=3), st.integers(), max_size=6)


@given(maps)
def test_is_the_mapping_it_was_made_of(items: dict[str, int]) -> None:
    frozen = FrozenMap(items)
    assert (
        dict(frozen) == items
        and list(frozen) == list(items)
        and len(frozen) == len(items)
    )
    assert FrozenMap(items.items()) == frozen and hash(FrozenMap(items)) == hash(frozen)
    items["new"] = 1
    assert "new" not in frozen or frozen["new"] != 1 or len(items) == len(frozen)


@given(maps, st.text(max_size=3), st.integers())
def test_edits_leave_the_old_one_alone(
    items: dict[str, int], key: str, value: int
) -> None:
    frozen = FrozenMap(items)
    assert dict(frozen.set(key, value)) == {**items, key: value}
    assert dict(frozen.update({key: value})) == {**items, key: value}
    assert dict(frozen.without(key)) == {k: v for k, v in items.items() if k != key}
    assert dict(frozen) == items


def test_order_is_kept_and_does_not_matter_for_equality() -> None:
    assert list(FrozenMap(b=1, a=2).set("b", 3)) == ["b", "a"]
    assert FrozenMap(a=1, b=2) == FrozenMap(b=2, a=1)
    assert hash(FrozenMap(a=1, b=2)) == hash(FrozenMap(b=2, a=1))
    assert FrozenMap(a=1) != {"a": 1} and FrozenMap(a=1) != FrozenMap(a=2)


def test_cannot_be_changed() -> None:
    frozen = FrozenMap(a=1)
    with pytest.raises(TypeError):
        frozen["a"] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        frozen.b = 2  # type: ignore[attr-defined]
    with pytest.raises(KeyError):
        frozen["b"]


def test_goes_between_processes() -> None:
    frozen = FrozenMap(a=(1, FrozenMap(b=2)))
    assert pickle.loads(pickle.dumps(frozen)) == frozen == copy.deepcopy(frozen)
