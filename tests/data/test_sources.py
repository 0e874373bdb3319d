"""Every source is what its description says, and a run on it is the run of the exported script, bit for bit."""

from __future__ import annotations

import pytest

from app.data.config import DataConfig
from app.data.loaders import load
from app.data.sample_counts import training_count
from app.data.sources import SOURCES, DataError, spec_of
from app.data.spec import TOKENS, VALUES
from app.training.choices import LOSSES
from app.training.config import Choice
from app.training.job import JobError, check_numbers
from app.util.frozen import FrozenMap
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import job, net

AT_HAND = [
    key for key, spec in SOURCES.items() if not spec.download_bytes and not spec.picks
]


def linear(inputs: int, outputs: int, shape: tuple[int, ...]):
    """The smallest net from samples of a shape to so many values."""
    init = [
        f"self.fc1 = nn.Linear({inputs}, 8)",
        "self.drop1 = nn.Dropout(0.1)",
        f"self.fc2 = nn.Linear(8, {outputs})",
    ]
    return net(
        init,
        ["x = F.relu(self.fc1(x.flatten(1)))", "return self.fc2(self.drop1(x))"],
        shape,
    )


@pytest.mark.parametrize("source", AT_HAND)
def test_a_source_is_what_its_description_says(source):
    config = DataConfig(source, 0.2, test_fraction=0.1)
    data, spec = load(config), spec_of(config)
    assert data.info.input_shape == spec.shape and data.info.dtype == spec.dtype
    counts = (data.info.train_count, data.info.validation_count, data.info.test_count)
    assert (
        counts == (len(data.train), len(data.val), len(data.test))
        and sum(counts) == spec.count
    )
    assert counts[0] == training_count(config) and counts[2] == pytest.approx(
        0.1 * spec.count, abs=len(spec.classes)
    )
    if spec.task == TOKENS:
        assert (
            spec.per_class == (spec.count,)
            and sum(data.info.class_counts) == counts[0] * spec.label_shape[0]
        )
        return
    if spec.task == VALUES:
        assert (
            spec.per_class == (spec.count,)
            and tuple(data.train.labels.shape[1:]) == spec.label_shape
        )
        assert set(data.train.labels.unique().tolist()) == {0.0, 1.0}
        return
    counted = [part.labels.bincount() for part in (data.train, data.val, data.test)]
    assert tuple(sum(counted).tolist()) == spec.per_class and len(
        spec.per_class
    ) == len(spec.classes)
    assert not spec.columns or len(spec.columns) == spec.shape[0]


def test_a_table_is_standardised_on_the_training_part_alone():
    data = load(DataConfig("sklearn.wine", 0.3))
    assert data.train.inputs.mean(0).abs().max() < 1e-5
    assert (data.train.inputs.std(0, correction=0) - 1).abs().max() < 1e-5
    assert data.val.inputs.mean(0).abs().max() > 1e-3
    plain = load(DataConfig("sklearn.wine", 0.3, options=FrozenMap(standardise=False)))
    assert plain.train.inputs[:, 12].mean() > 500


def test_points_follow_their_options():
    import torch

    first, again, other = (
        load(
            DataConfig("made.moons", options=FrozenMap(count=40, noise=0.0, seed=seed))
        ).train.inputs
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"count": "9"}, "an integer"),
        ({"count": 2}, "at least 4"),
        ({"noise": -1.0}, "at least 0"),
        ({"x": 1}, "no option"),
    ],
)
def test_an_option_that_cannot_be_is_told(options, word):
    with pytest.raises(DataError, match=word):
        load(DataConfig("made.moons", options=FrozenMap(options)))
    with pytest.raises(JobError, match=word):
        check_numbers(job(data=DataConfig("made.moons", options=FrozenMap(options))))


def test_the_parts_must_leave_something_to_learn_from():
    with pytest.raises(DataError, match="below 1"):
        load(DataConfig(validation_fraction=0.5, test_fraction=0.5))


def test_rare_classes_weigh_as_much_as_common_ones():
    import torch

    from app.data.splits import balanced_weights

    weights = balanced_weights(torch.tensor([10, 30, 0]))
    assert (
        float(weights[0]) * 10 == pytest.approx(float(weights[1]) * 30)
        and weights.isfinite().all()
    )


@pytest.mark.parametrize("loss", ["MSELoss", "BCEWithLogitsLoss"])
def test_class_weights_want_a_loss_that_takes_them(loss):
    with pytest.raises(JobError, match="class_weights"):
        check_numbers(job(data=DataConfig(class_weights=True), loss=Choice(loss)))
    assert loss in LOSSES


RUNS = {
    "iris": DataConfig("sklearn.iris", 0.2, test_fraction=0.2),
    "breast cancer, weighed": DataConfig(
        "sklearn.breast_cancer", 0.2, class_weights=True
    ),
    "wine as it is": DataConfig(
        "sklearn.wine", 0.0, options=FrozenMap(standardise=False)
    ),
    "moons": DataConfig("made.moons", 0.3, options=FrozenMap(count=100, noise=0.2)),
    "circles": DataConfig(
        "made.circles", 0.3, options=FrozenMap(count=100, factor=0.3)
    ),
    "synthetic pictures": DataConfig(
        "made.fake", 0.3, options=FrozenMap(shape=(3, 6, 5), classes=4, count=60)
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_run_of_the_script(name, run_script):
    data = RUNS[name]
    spec = spec_of(data)
    size = 1
    for side in spec.shape:
        size *= side
    a_job = job(
        linear(size, len(spec.classes), spec.shape), data=data, epochs=2, batch_size=32
    )
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
