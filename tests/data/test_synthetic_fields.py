"""Synthetic samples with several inputs and targets, as they are written down."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.data.config import DataConfig
from app.data.loaders import load
from app.data.spec import CLASSES, TOKENS, VALUES, DataError, FieldInfo, TargetInfo
from app.data.synthetic_fields import (
    SyntheticField,
    parse_fields,
    parse_targets,
    target_text,
    text_of,
)
from app.util.frozen import FrozenMap

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
SIZES = st.lists(st.integers(1, 99), max_size=4).map(tuple)
FIELDS = st.one_of(
    st.builds(
        SyntheticField,
        st.builds(FieldInfo, NAMES, SIZES, st.sampled_from(["float32", "bool"])),
    ),
    st.builds(
        SyntheticField,
        st.builds(FieldInfo, NAMES, SIZES, st.just("int64")),
        st.integers(1, 10**6),
    ),
)
IDS = st.integers(1, 40).map(lambda count: tuple(map(str, range(count))))
TARGETS = st.one_of(
    st.builds(TargetInfo, NAMES, st.just(CLASSES), IDS),
    st.builds(TargetInfo, NAMES, st.just(TOKENS), IDS, SIZES),
    st.builds(TargetInfo, NAMES, st.just(VALUES), st.just(()), SIZES),
)


@given(
    st.lists(FIELDS, min_size=1, max_size=4, unique_by=lambda one: one.info.name).map(
        tuple
    )
)
def test_inputs_are_read_as_they_are_written(
    fields: tuple[SyntheticField, ...],
) -> None:
    assert parse_fields(text_of(fields)) == fields


@given(
    st.lists(TARGETS, min_size=1, max_size=4, unique_by=lambda one: one.name).map(tuple)
)
def test_targets_are_read_as_they_are_written(targets: tuple[TargetInfo, ...]) -> None:
    assert parse_targets("; ".join(map(target_text, targets))) == targets


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fields": ""}, "is not a valid input"),
        ({"fields": "ids 18 int64"}, "“ids 18 int64” is not a valid input"),
        ({"fields": "x (3,) float16"}, "Write a name"),
        ({"fields": "x (0,)"}, "size of 0"),
        ({"fields": "x (3,); x (4,)"}, "“x” is named twice"),
        ({"fields": "x (3,) int64 < 0"}, "between 1 and"),
        ({"targets": "classes"}, "“classes” is not a valid target"),
        ({"targets": "values 3"}, "is not a valid target"),
        ({"targets": "classes 0"}, "is not a valid target"),
        ({"targets": "classes 3; values (1,)"}, "need a name each"),
        ({"targets": "a classes 3; a values (1,)"}, "“a” is named twice"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_way_to_write_it(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        load(DataConfig("made.fields", options=FrozenMap(options)))


def test_samples_are_of_the_shapes_and_below_the_bounds() -> None:
    options = FrozenMap(
        fields="ids (5,) int64 < 7; mask (5,) bool; x ()",
        targets="tokens (5,) 3",
        count=50,
    )
    data = load(DataConfig("made.fields", options=options))
    (batch, labels) = next(data.train.batches([torch.arange(40)]))
    assert (
        set(batch["ids"].unique().tolist()) == set(range(7))
        and batch["mask"].dtype == torch.bool
    )
    assert batch["x"].shape == (40,) and batch["x"].dtype == torch.float32
    assert labels.shape == (40, 5) and set(labels.unique().tolist()) == {0, 1, 2}
    assert [(one.name, one.shape) for one in data.info.inputs] == [
        ("ids", (5,)),
        ("mask", (5,)),
        ("x", ()),
    ]
