"""torchvision's sets: small files of the real formats, read as torchvision reads them, fetched and run like MNIST."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile

import pytest
from msgspec.structs import replace

from app.data.archives import COLLECTIONS, TAR, Archive
from app.data.config import DataConfig
from app.data.download import DownloadError, download, fetch
from app.data.download_addresses import addresses
from app.data.loaders import load
from app.data.sources import SOURCES, DataError, NotDownloadedError, is_present
from app.training.job import Job
from tests.data.test_mnist import files, never, server  # noqa: F401
from tests.data.test_sources import linear
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import job

SETS = [key for key in COLLECTIONS if key != "torchvision.MNIST"]


def pixels(*shape):
    import torch

    return torch.randint(
        256,
        shape,
        generator=torch.Generator().manual_seed(sum(shape)),
        dtype=torch.uint8,
    )


def cifar(count, fine=False):
    key = "fine_labels" if fine else "labels"
    return pickle.dumps(
        {"data": pixels(count, 3072).numpy(), key: [i % 10 for i in range(count)]}
    )


def svhn(count):
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(
        file,
        {
            "X": pixels(32, 32, 3, count).numpy(),
            "y": [[i % 10 + 1] for i in range(count)],
        },
    )
    return file.getvalue()


def contents(key):
    """Files of the set by their paths below the folder of the data, a few samples each."""
    paths = COLLECTIONS[key].files
    if key.endswith("MNIST"):
        return dict(zip(paths, files().values(), strict=True))
    if key.endswith("CIFAR10"):
        names = pickle.dumps({"label_names": list(SOURCES[key].classes)})
        return {path: names if path.endswith("meta") else cifar(6) for path in paths}
    if key.endswith("CIFAR100"):
        names = pickle.dumps({"fine_label_names": list(SOURCES[key].classes)})
        return {
            path: names if path.endswith("meta") else cifar(30, True) for path in paths
        }
    if key.endswith("SVHN"):
        return {path: svhn(20) for path in paths}
    ids = bytes(i % 10 + 1 for i in range(20))
    names = "\n".join(SOURCES[key].classes).encode()
    images = pixels(20, 27648).numpy().tobytes()
    return {
        path: names if "names" in path else ids if "_y" in path else images
        for path in paths
    }


def md5(content):
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def at_hand(tmp_path, monkeypatch):
    """Puts a small set into a folder, with torchvision told its checksums; returns the folder."""

    def put(key):
        from app.util.torchvision_import import import_torchvision

        cls = getattr(import_torchvision("datasets"), COLLECTIONS[key].cls)
        written = contents(key)
        for path, content in written.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        sums = {
            path.rpartition("/")[2]: md5(content) for path, content in written.items()
        }
        if hasattr(cls, "split_list"):
            parts = {
                part: [url, name, sums.get(name, "")]
                for part, (url, name, _) in cls.split_list.items()
            }
            monkeypatch.setattr(cls, "split_list", parts)
        elif hasattr(cls, "train_list"):
            for name in ("train_list", "test_list"):
                kept = [
                    [file, sums[file]] for file, _ in getattr(cls, name) if file in sums
                ]
                monkeypatch.setattr(cls, name, kept)
            if hasattr(cls, "meta"):
                monkeypatch.setattr(
                    cls, "meta", {**cls.meta, "md5": sums[cls.meta["filename"]]}
                )
        return tmp_path

    return put


def theirs(key, root, train):
    from app.util.torchvision_import import import_torchvision

    cls = getattr(import_torchvision("datasets"), COLLECTIONS[key].cls)
    by_name = key.endswith(("SVHN", "STL10"))
    return cls(
        root,
        **({"split": "train" if train else "test"} if by_name else {"train": train}),
    )


@pytest.mark.parametrize("key", SETS)
def test_a_set_is_read_as_torchvision_reads_it(key, at_hand):
    import numpy as np
    import torch

    root = at_hand(key)
    data = load(DataConfig(key), root)
    assert data.info.input_shape == SOURCES[key].shape and data.info.dtype == "float32"
    for train, part in ((True, data.train), (False, data.val)):
        other = theirs(key, root, train)
        inputs, labels = next(part.batches([torch.arange(len(part))]))
        pictures = torch.stack(
            [
                torch.from_numpy(np.array(picture)).float().div(255)
                for picture, _ in other
            ]
        )
        pictures = (
            pictures.unsqueeze(1)
            if pictures.ndim == 3
            else pictures.permute(0, 3, 1, 2)
        )
        assert torch.equal(inputs, pictures) and labels.tolist() == [
            label for _, label in other
        ]


@pytest.mark.parametrize("key", SETS)
def test_a_run_is_the_run_of_the_script(key, at_hand, run_script):
    spec = SOURCES[key]
    size = spec.shape[0] * spec.shape[1] * spec.shape[2]
    folder = at_hand(key)
    data = DataConfig(key, test_fraction=0.5)
    a_job = Job(
        linear(size, len(spec.classes), spec.shape),
        data,
        job(epochs=1, batch_size=8).training,
        str(folder),
    )
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
    _, ended = run_script(replace(a_job, data_root=str(folder / "elsewhere")))
    assert "--data" in str(
        ended
    ) and f"torchvision.datasets.{COLLECTIONS[key].cls}(" in str(ended)


@pytest.mark.parametrize("key", SETS)
def test_nothing_is_fetched_by_itself_and_the_size_is_said(key, tmp_path):
    with pytest.raises(
        NotDownloadedError, match=f"{SOURCES[key].megabytes:.1f} MB from "
    ):
        load(DataConfig(key), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_cut_off_is_told(at_hand):
    root = at_hand("torchvision.STL10")
    file = root / "stl10_binary" / "train_X.bin"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(DataError, match="Download them again"):
        load(DataConfig("torchvision.STL10"), root)


def packed(entries):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize(
    "key", ["torchvision.CIFAR10", "torchvision.SVHN", "torchvision.KMNIST"]
)
def test_download_fetches_checks_and_unpacks(key, tmp_path, server, monkeypatch):
    import gzip

    from app.util.torchvision_import import import_torchvision

    mirror, url = server
    collection, written = COLLECTIONS[key], contents(key)
    cls = getattr(import_torchvision("datasets"), collection.cls)
    for archive in collection.archives:
        own = {
            path: content
            for path, content in written.items()
            if path.rpartition("/")[2] in archive.files
        }
        content = packed(own) if archive.kind == TAR else next(iter(own.values()))
        content = gzip.compress(content) if archive.kind == "gzip" else content
        (mirror / archive.name).write_bytes(content)
    sums = {
        archive.name: md5((mirror / archive.name).read_bytes())
        for archive in collection.archives
    }
    if hasattr(cls, "mirrors"):
        monkeypatch.setattr(cls, "mirrors", [url])
        monkeypatch.setattr(cls, "resources", list(sums.items()))
    elif hasattr(cls, "split_list"):
        parts = {
            part: [url + name, name, sums.get(name, "")]
            for part, (_, name, _) in cls.split_list.items()
        }
        monkeypatch.setattr(cls, "split_list", parts)
    else:
        monkeypatch.setattr(cls, "url", url + collection.archives[0].name)
        monkeypatch.setattr(cls, "tgz_md5", sums[collection.archives[0].name])
    root = tmp_path / "data"
    download(key, addresses(key), root)
    assert is_present(key, root)
    assert {path: (root / path).read_bytes() for path in written} == written
    assert sum(path.is_file() for path in root.rglob("*")) == len(written)


def test_an_archive_writes_nothing_but_what_is_wanted(tmp_path, server):
    mirror, url = server
    content = packed({"../../evil": b"x", "a/wanted": b"yes", "a/other": b"no"})
    (mirror / "a.tar.gz").write_bytes(content)
    archive = Archive("a.tar.gz", md5(content), len(content), TAR, ("wanted",))
    fetch([archive], [url], tmp_path / "in" / "it", lambda *_: None, never)
    assert [
        path.name
        for path in tmp_path.rglob("*")
        if path.is_file() and mirror not in path.parents
    ] == ["wanted"]
    with pytest.raises(DownloadError, match="gone is missing in it"):
        fetch(
            [replace(archive, members=("gone",))],
            [url],
            tmp_path / "b",
            lambda *_: None,
            never,
        )
