"""MNIST: read from files of the real format, fetched only when asked, and never left half on the disk."""

import gzip
import hashlib
import struct
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.data import download as downloads
from app.data.archives import COLLECTIONS, Archive
from app.data.config import DataConfig
from app.data.download import (
    DownloadCancelledError,
    DownloadError,
    download,
    fetch,
    unpack_from,
)
from app.data.download_addresses import addresses
from app.data.loaders import load
from app.data.sources import MNIST, DataError, NotDownloadedError, is_present

CONFIG = DataConfig(source=MNIST)
MNIST_FILES = tuple(name.rpartition("/")[2] for name in COLLECTIONS[MNIST].files)


def idx_images(count: int, offset: int = 0) -> bytes:
    pixels = bytes((offset + i) % 256 for i in range(count * 784))
    return struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + pixels


def idx_labels(count: int) -> bytes:
    return struct.pack(">HBBI", 0, 8, 1, count) + bytes(i % 10 for i in range(count))


def files(train: int = 30, validation: int = 10) -> dict[str, bytes]:
    contents = (
        idx_images(train),
        idx_labels(train),
        idx_images(validation, 7),
        idx_labels(validation),
    )
    return dict(zip(MNIST_FILES, contents, strict=True))


def put(root: Path, contents: dict[str, bytes]) -> None:
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in contents.items():
        (raw / name).write_bytes(content)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    """A mirror on this machine: (folder, url)."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Quiet, directory=str(folder))
    ) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{httpd.server_port}/"
        httpd.shutdown()
        thread.join()


def archive(folder: Path, name: str, content: bytes) -> Archive:
    packed = gzip.compress(content)
    (folder / f"{name}.gz").write_bytes(packed)
    return Archive(f"{name}.gz", hashlib.md5(packed).hexdigest(), len(packed))


def never() -> bool:
    return False


def test_nothing_is_downloaded_by_itself(tmp_path):
    with pytest.raises(NotDownloadedError) as raised:
        load(CONFIG, tmp_path)
    text = str(raised.value)
    assert "11.6 MB" in text and "amazonaws.com" in text and str(tmp_path) in text
    assert list(tmp_path.iterdir()) == []


def test_files_are_read_as_torchvision_reads_them(tmp_path):
    import torch

    from app.util.torchvision_import import import_torchvision

    put(tmp_path, files())
    data = load(CONFIG, tmp_path)
    assert data.info.train_count == 30 and data.info.validation_count == 10
    assert data.info.input_shape == (1, 28, 28)
    theirs = import_torchvision("datasets").MNIST(tmp_path, train=True)
    assert torch.equal(
        (data.train.inputs * 255).round().to(torch.uint8)[:, 0], theirs.data
    )
    assert torch.equal(data.train.labels, theirs.targets)


def test_a_torn_file_is_an_error_that_names_it(tmp_path):
    contents = files()
    contents["train-images-idx3-ubyte"] = contents["train-images-idx3-ubyte"][:-5]
    put(tmp_path, contents)
    with pytest.raises(
        DataError, match="train-images-idx3-ubyte is not a whole IDX file"
    ):
        load(CONFIG, tmp_path)


def test_download_fetches_checks_and_unpacks(tmp_path, server, monkeypatch):
    from app.util.torchvision_import import import_torchvision

    folder, url = server
    archives = [archive(folder, name, content) for name, content in files().items()]
    mnist = import_torchvision("datasets").MNIST
    monkeypatch.setattr(mnist, "mirrors", [url + "absent/", url])
    monkeypatch.setattr(mnist, "resources", [(a.name, a.md5) for a in archives])
    seen = []
    root = tmp_path / "data"
    assert not is_present(MNIST, root)
    download(MNIST, addresses(MNIST), root, lambda *progress: seen.append(progress))
    assert is_present(MNIST, root)
    assert load(CONFIG, root).info.train_count == 30
    done = [step[0] for step in seen]
    assert done == sorted(done) and seen[-1][0] == seen[-1][1] == sum(
        a.size for a in archives
    )
    assert sorted(p.name for p in (root / "MNIST" / "raw").iterdir()) == sorted(
        MNIST_FILES
    )


def test_files_that_are_here_are_taken_from_their_folder(tmp_path, monkeypatch):
    from app.util.torchvision_import import import_torchvision

    folder = tmp_path / "my files"
    folder.mkdir()
    archives = [archive(folder, name, content) for name, content in files().items()]
    mnist = import_torchvision("datasets").MNIST
    monkeypatch.setattr(mnist, "resources", [(a.name, a.md5) for a in archives])
    root = tmp_path / "data"
    with pytest.raises(DownloadError, match="has no train-images-idx3-ubyte.gz"):
        unpack_from(tmp_path, MNIST, addresses(MNIST), root)
    unpack_from(folder, MNIST, addresses(MNIST), root)
    assert load(CONFIG, root).info.train_count == 30


def test_a_wrong_checksum_leaves_no_file(tmp_path, server):
    folder, url = server
    good = archive(folder, "a", b"x" * 1000)
    target = tmp_path / "raw"
    with pytest.raises(DownloadError, match="is damaged"):
        fetch(
            [Archive(good.name, "0" * 32, good.size)],
            [url],
            target,
            lambda *_: None,
            never,
        )
    assert list(target.iterdir()) == []


def test_cancelling_removes_the_unfinished_file(tmp_path, server, monkeypatch):
    monkeypatch.setattr(downloads, "CHUNK", 1024)
    folder, url = server
    import random

    item = archive(folder, "a", random.Random(0).randbytes(100_000))
    target, seen = tmp_path / "raw", []
    with pytest.raises(DownloadCancelledError):
        fetch(
            [item],
            [url],
            target,
            lambda done, *_: seen.append(done),
            lambda: len(seen) >= 3,
        )
    assert len(seen) == 3 and seen[-1] < item.size
    assert list(target.iterdir()) == []


def test_no_mirror_answers_says_what_each_said(tmp_path, server):
    _, url = server
    with pytest.raises(DownloadError) as raised:
        fetch(
            [Archive("gone.gz", "0" * 32, 1)],
            [url, url + "b/"],
            tmp_path / "raw",
            lambda *_: None,
            never,
        )
    assert (
        str(raised.value).count("gone.gz: ") == 2
        and "not found" in str(raised.value).lower()
    )
