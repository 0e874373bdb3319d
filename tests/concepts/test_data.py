"""Rows 4 to 6 of the concepts that the program grew from: data sets, loading, and splitting them."""

from __future__ import annotations

import torch
from msgspec.structs import replace
from torch.utils.data import DataLoader, TensorDataset

from app.data.config import DataConfig, Transform
from app.data.loaders import load, read_spec
from app.training.job import Job
from app.util.frozen import FrozenMap
from app.util.torchvision_import import import_torchvision
from tests.data.test_own import file  # noqa: F401
from tests.data.test_torchvision import SOURCES, at_hand  # noqa: F401
from tests.support.training_jobs import SMALL_NET, job, losses, net, run


def test_row_04_torchvision_sets_in_one_folder_of_the_users_with_transforms(at_hand):
    """ToTensor, Normalize and crops: what torchvision's Dataset and Compose give is what the net gets"""
    v2 = import_torchvision("transforms.v2")
    for key in ("torchvision.FashionMNIST", "torchvision.CIFAR10"):
        root, spec = at_hand(key), SOURCES[key]
        half = (
            Transform("CenterCrop", FrozenMap(size=(20, 20))),
            Transform("Normalize"),
        )
        data = load(DataConfig(key, train_transforms=half, eval_transforms=half), root)
        compose = v2.Compose(
            [
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.CenterCrop(20),
                v2.Normalize((0.5,), (0.5,)),
            ]
        )
        theirs = getattr(import_torchvision("datasets"), key.partition(".")[2])(
            root, train=False, transform=compose
        )
        ours, labels = next(data.val.batches([torch.arange(len(data.val))]))
        for number, (picture, label) in enumerate(theirs):
            torch.testing.assert_close(
                ours[number], picture.as_subclass(torch.Tensor), rtol=0, atol=1e-6
            )
            assert labels[number] == label
        crop = Transform("RandomCrop", FrozenMap(size=(20, 20)))
        source = net(
            [f"self.fc = nn.Linear({spec.shape[0] * 400}, 10)"],
            ["return self.fc(x.flatten(1))"],
            (spec.shape[0], 20, 20),
        )
        config = DataConfig(key, train_transforms=(crop,), eval_transforms=half[:1])
        assert losses(
            run(Job(source, config, job(epochs=1, batch_size=8).training, str(root)))
        )


def test_row_05_batches_are_those_of_a_data_loader():
    """batch_size, shuffle, drop_last; a TensorDataset"""
    data = load(DataConfig())
    theirs = DataLoader(
        TensorDataset(data.train.inputs, data.train.labels),
        batch_size=100,
        drop_last=True,
    )
    ours = data.train.batches(torch.arange(len(data.train)).split(100)[:-1])
    for (x, y), (inputs, labels) in zip(ours, theirs, strict=True):
        assert torch.equal(x, inputs) and torch.equal(y, labels)
    whole = losses(run(job(SMALL_NET, epochs=1, batch_size=100)))
    full, plain = (
        losses(run(job(SMALL_NET, epochs=1, batch_size=100, data=config)))
        for config in (DataConfig(drop_last=True), DataConfig(shuffle=False))
    )
    assert len(whole) == 15 and full == whole[:14] and plain != whole


def test_row_05_map_style_and_iterable_datasets_with_workers_and_a_timeout(file):
    """num_workers, timeout; map-style and iterable"""
    for name, options in (("Squares", {"workers": 1, "timeout": 60.0}), ("Stream", {})):
        config = file(name, **options)
        spec = read_spec(config)
        assert spec.count == {"Squares": 90, "Stream": 70}[name]
        data = load(config)
        inputs, _ = next(data.train.to("cpu").batches([torch.arange(4)]))
        assert inputs.shape == (4, *spec.shape) and inputs.dtype == torch.float32


def test_row_06_training_validation_and_test_parts_share_no_sample():
    """what random_split and Subset are for: every sample in one part, the same for the same seed"""
    config = DataConfig(validation_fraction=0.15, test_fraction=0.1, split_seed=3)
    data = load(config)
    everything = load(DataConfig(validation_fraction=0.0)).train.inputs.flatten(1)
    parts = [part.inputs.flatten(1) for part in (data.train, data.val, data.test)]
    together = torch.cat(parts)
    assert len(together) == len(everything) == 1797
    assert torch.equal(together.sum(0), everything.sum(0))
    assert [len(part) for part in parts] == [1349, 269, 179]
    again, other = load(config), load(replace(config, split_seed=4))
    assert torch.equal(again.test.inputs, data.test.inputs) and not torch.equal(
        other.test.inputs, data.test.inputs
    )
