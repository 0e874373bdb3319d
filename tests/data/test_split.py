"""The split: every sample once, every class in its share, the same for the same seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.data import description
from app.data.config import DataConfig
from app.data.loaders import load
from app.data.sample_counts import held_out, training_count
from app.data.sources import DIGITS, SOURCES, DataError, UnknownSourceError
from app.data.spec import SourceSpec

labels_lists = st.lists(st.integers(0, 4), min_size=1, max_size=120)
fractions = st.floats(0, 0.99)


@given(labels_lists, fractions, fractions, st.integers(0, 2**31))
def test_every_sample_is_in_one_part_and_every_class_in_its_share(
    labels, validation, test, seed
):
    import torch

    from app.data.splits import stratified_split

    labels = torch.tensor(labels)
    parts = stratified_split(labels, validation, test, seed)
    assert sorted(number for part in parts for number in part.tolist()) == list(
        range(len(labels))
    )
    counts = labels.unique(return_counts=True)[1].tolist()
    assert (len(parts[1]), len(parts[2])) == held_out(counts, validation, test)
    if all(
        not share or round(max(counts) * share) for share in (validation, test)
    ):  # else all are split as one
        for label, members in zip(labels.unique(), counts, strict=True):
            first = min(round(members * validation), members)
            counted = first, min(round(members * test), members - first)
            assert (
                tuple(int((labels[part] == label).sum()) for part in parts[1:])
                == counted
            )
    again = stratified_split(labels, validation, test, seed)
    assert all(torch.equal(a, b) for a, b in zip(again, parts, strict=True))


@pytest.mark.parametrize("shares", [(0.2, 0.0), (0.2, 0.2), (0.4, 0.1)])
def test_classes_of_one_or_two_samples_are_split_as_one(shares):
    import torch

    from app.data.splits import stratified_split

    parts = stratified_split(torch.arange(1000) % 500, *shares, 0)
    assert [len(part) for part in parts[1:]] == [1000 * share for share in shares]
    spec, config = (
        made(count=1000, classes=500),
        DataConfig(validation_fraction=shares[0], test_fraction=shares[1]),
    )
    assert description.parts(spec, config) == tuple(map(len, parts))
    assert training_count(config, spec) == len(parts[0])


def made(count: int, classes: int) -> SourceSpec:
    return replace(
        SOURCES[DIGITS],
        classes=tuple(map(str, range(classes))),
        per_class=(count // classes,) * classes,
    )


def test_the_digits_are_what_their_description_says():
    data = load(DataConfig())
    spec = SOURCES[DIGITS]
    assert data.info.input_shape == spec.shape and data.info.dtype == spec.dtype
    assert data.info.train_count + data.info.validation_count == spec.count
    assert len(data.train.labels.unique()) == len(spec.classes)
    assert float(data.train.inputs.min()) == 0 and float(data.train.inputs.max()) == 1
    shares = data.val.labels.bincount() / (
        data.val.labels.bincount() + data.train.labels.bincount()
    )
    assert (shares - 0.2).abs().max() < 0.01


def test_another_split_seed_holds_out_other_samples():
    import torch

    one, two = load(DataConfig(split_seed=1)), load(DataConfig(split_seed=2))
    assert not torch.equal(one.val.inputs, two.val.inputs)


def test_nothing_held_out_is_allowed_and_a_wrong_fraction_is_not():
    assert load(DataConfig(validation_fraction=0)).info.validation_count == 0
    with pytest.raises(DataError, match="validation_fraction is 1.5"):
        load(DataConfig(validation_fraction=1.5))


def test_an_unknown_source_names_the_known_ones():
    with pytest.raises(UnknownSourceError, match="sklearn.digits"):
        load(DataConfig(source="os.system"))


def test_classes_are_drawn_from_one_after_another():
    """The parts are those of a plain loop over the classes, whose time grows with their number."""
    import torch

    from app.data.splits import stratified_split

    labels = torch.tensor([3, 0, 3, 7, 0, 7, 7, 3, 0, 3] * 7)
    generator = torch.Generator().manual_seed(4)
    held = []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        held.append(
            members[torch.randperm(len(members), generator=generator)][
                : round(len(members) * 0.25)
            ]
        )
    assert torch.equal(
        stratified_split(labels, 0.25, 0.1, 4)[1], torch.cat(held).sort().values
    )
