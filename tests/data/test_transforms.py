"""Transforms: the shapes they leave are known, they draw from torch alone, and runs with them are the script's."""

from __future__ import annotations

import random

import pytest
import torch
from msgspec.structs import replace

from app.data.config import DataConfig, Transform
from app.data.loaders import load, read_spec
from app.data.sources import DataError
from app.data.transform_list import KINDS, calls, shape_after
from app.training.config import Choice
from app.training.control import Control
from app.training.events import Saved
from app.training.loop import train
from app.util.frozen import FrozenMap
from app.util.torchvision_import import import_torchvision
from tests.data.test_files import pictures
from tests.data.test_sources import linear
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import SMALL_NET, job, losses

SMALL = {"size": (5, 6)}


def of(name, **params):
    return Transform(name, FrozenMap(params))


def example(name):
    return of(
        name,
        **(
            SMALL
            if any(option.name == "size" for option in KINDS[name].options)
            else {}
        ),
    )


@pytest.mark.parametrize("name", KINDS)
def test_a_transform_leaves_the_shape_that_is_told_and_draws_from_torch_alone(name):
    import numpy as np
    import torch

    from app.data.transforms import composed

    transform = example(name)
    made = composed((transform,))
    sample = torch.rand(3, 8, 9)
    before, states = random.getstate(), np.random.get_state()[1].copy()
    results = []
    for _ in range(2):
        torch.manual_seed(4)
        results.append(torch.stack([made(sample) for _ in range(8)]))
    assert tuple(results[0].shape[1:]) == shape_after((transform,), (3, 8, 9))
    assert torch.equal(*results), "the same seed gives the same pictures"
    assert random.getstate() == before and (np.random.get_state()[1] == states).all()
    drawn = not torch.equal(results[0][0].expand_as(results[0]), results[0])
    assert drawn == KINDS[name].random
    if not KINDS[name].random:
        assert torch.equal(made(sample.expand(8, -1, -1, -1)), results[0]), (
            "a batch at once is the same"
        )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DataConfig(train_transforms=(of("os.system"),)), "no transform"),
        (
            DataConfig(train_transforms=(of("Pad", padding="1); import os"),)),
            "padding is",
        ),
        (DataConfig(train_transforms=(of("Pad", width=3),)), "no parameter"),
        (DataConfig(eval_transforms=(of("RandomErasing"),)), "for training only"),
        (DataConfig(train_transforms=(of("Resize", **SMALL),)), "to both lists"),
        (
            DataConfig("sklearn.iris", train_transforms=(of("RandomErasing"),)),
            "needs images",
        ),
        (
            DataConfig(train_transforms=(of("RandomCrop", size=(20, 20)),)),
            "reduce its size",
        ),
        (
            DataConfig(train_transforms=(of("Normalize", mean=(0.1, 0.2)),)),
            "one mean and std",
        ),
        (
            DataConfig(train_transforms=(of("Normalize", std=(0.0,)),)),
            "its numbers must be at least 1e-06",
        ),
        (
            DataConfig(train_transforms=(of("GaussianBlur", sigma=(2.0, 0.1)),)),
            "must not be above the second",
        ),
        (
            DataConfig(train_transforms=(of("RandomAffine", translate=(2.0, 0.1)),)),
            "must be at most 1",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(config, words):
    with pytest.raises(DataError, match=words):
        load(config)


AUGMENTED = DataConfig(
    train_transforms=(
        of("RandomCrop", size=(8, 8), padding=1),
        of("RandomRotation", degrees=8.0),
        of("Normalize"),
    ),
    eval_transforms=(of("Normalize"),),
)
RUNS = {
    "drawn": (AUGMENTED, {}),
    "drawn, LBFGS": (
        AUGMENTED,
        {"optimizer": Choice("LBFGS", FrozenMap(max_iter=2)), "batch_size": 512},
    ),
    "drawn, half precision, mixup": (
        replace(AUGMENTED, shuffle=False),
        {"amp": "bfloat16", "mixup": 0.3},
    ),
    "the same each time": (
        DataConfig(
            train_transforms=(of("Normalize"),), eval_transforms=(of("Normalize"),)
        ),
        {},
    ),
    "in evaluation alone": (DataConfig(eval_transforms=(of("Normalize"),)), {}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_run_of_the_script(name, run_script):
    data, training = RUNS[name]
    a_job = job(SMALL_NET, data=data, **{"epochs": 1, "batch_size": 128, **training})
    ours = app_lines(a_job)  # first: it imports torchvision as it can be imported here
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours
    assert '"steps"' in lines[-1]


def test_pictures_of_bytes_are_transformed_in_the_script_too(tmp_path, run_script):
    both = (of("Resize", size=(4, 4)),)
    data = replace(
        pictures(tmp_path),
        train_transforms=(of("ColorJitter"), *both),
        eval_transforms=both,
    )
    assert read_spec(data).shape == (3, 4, 4)
    a_job = job(linear(48, 2, (3, 4, 4)), data=data, epochs=2, batch_size=8)
    ours = app_lines(a_job)  # first: it imports torchvision as it can be imported here
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == ours


def test_a_run_that_goes_on_in_the_midst_of_an_epoch_draws_what_it_would_have(tmp_path):
    a_job = job(SMALL_NET, data=AUGMENTED, epochs=2, save_every=5)
    whole = list(train(a_job, folder=tmp_path))
    saved = next(
        event for event in whole if isinstance(event, Saved) and event.step == 40
    )
    rest = list(train(a_job, Control(), resume=type(tmp_path)(saved.path)))
    assert losses(rest) == losses(whole)[40:]


def test_looking_at_a_batch_leaves_no_trace():
    import torch

    data = load(AUGMENTED)
    state = torch.get_rng_state()
    data.batch(4)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_calls_are_python_that_a_person_would_write():
    assert calls((of("Normalize", mean=(0.1,)), of("TrivialAugmentWide"))) == [
        "v2.Normalize(mean=(0.1,), std=(0.5,))",
        "v2.TrivialAugmentWide()",
    ]


def test_flips_and_crops_are_done_at_once_and_each_picture_has_draws_of_its_own():
    from app.data.transforms import augmented, composed

    pictures = torch.arange(64 * 3 * 8 * 8, dtype=torch.float32).view(64, 3, 8, 8)
    flip = composed((Transform("RandomHorizontalFlip", FrozenMap(p=0.5)),))
    torch.manual_seed(1)
    made = augmented(pictures, flip, ())
    turned = [
        torch.equal(one, picture.flip(-1))
        for one, picture in zip(made, pictures, strict=True)
    ]
    assert all(
        torch.equal(one, picture) or t
        for one, picture, t in zip(made, pictures, turned, strict=True)
    )
    assert 10 < sum(turned) < 54
    crop = composed((Transform("RandomCrop", FrozenMap(size=(6, 5), padding=1)),))
    made = augmented(pictures, crop, ())
    padded = torch.nn.functional.pad(pictures, (1, 1, 1, 1))
    places = set()
    for one, picture in zip(made, padded, strict=True):
        found = [
            (y, x)
            for y in range(5)
            for x in range(6)
            if torch.equal(one, picture[:, y : y + 6, x : x + 5])
        ]
        assert found, "it is a piece of its own picture"
        places.add(found[0])
    assert len(places) > 10, "not all at the same place"
    alone = composed(
        (Transform("RandomRotation", FrozenMap(degrees=30.0)), Transform("Normalize"))
    )
    torch.manual_seed(2)
    made = augmented(pictures, alone, ("RandomRotation",))
    torch.manual_seed(2)
    v2 = import_torchvision("transforms.v2")
    turn, normal = v2.RandomRotation(30.0), v2.Normalize((0.5,), (0.5,))
    assert torch.equal(
        made, normal(torch.stack([turn(picture) for picture in pictures]))
    )
