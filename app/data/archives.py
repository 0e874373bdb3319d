"""Archives of downloadable datasets: URLs, checksums, and local paths.

URLs and checksums are taken from torchvision at download time (`addresses`); sizes are known before.
"""

from __future__ import annotations

from msgspec import Struct

from app.util.frozen import FrozenMap

GZIP, TAR, PLAIN = "gzip", "tar", "plain"
_IDX = tuple(
    f"{prefix}-{kind}-ubyte"
    for prefix in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)


class Archive(Struct, frozen=True):
    """One file to download; `size` in bytes, `md5` as in torchvision.

    `kind` is "gzip" for one compressed file, "tar" for an archive of `members`, "plain" for a file used as it is.
    """

    name: str
    md5: str
    size: int
    kind: str = GZIP
    members: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the extracted files."""
        return self.members or (
            self.name.removesuffix(".gz") if self.kind == GZIP else self.name,
        )


class Addresses(Struct, frozen=True):
    """The archives of a data set with their checksums, and the addresses to try in front of their names."""

    archives: tuple[Archive, ...]
    mirrors: tuple[str, ...]


class Collection(Struct, frozen=True):
    """The archives of a data set; `cls` is its class in torchvision.datasets, `folder` where its files lie."""

    cls: str
    folder: str
    archives: tuple[Archive, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Paths below the folder of the data."""
        start = f"{self.folder}/" if self.folder else ""
        return tuple(
            start + file for archive in self.archives for file in archive.files
        )

    @property
    def size(self) -> int:
        return sum(archive.size for archive in self.archives)


def _idx(name: str, *sizes: int) -> Collection:
    archives = tuple(
        Archive(f"{file}.gz", "", size) for file, size in zip(_IDX, sizes, strict=True)
    )
    return Collection(name, f"{name}/raw", archives)


def _tar(
    cls: str, folder: str, name: str, size: int, members: tuple[str, ...]
) -> Collection:
    # The folder is inside the archive.
    return Collection(cls, folder, (Archive(name, "", size, TAR, members),))


COLLECTIONS: FrozenMap[str, Collection] = FrozenMap(
    {
        "torchvision.MNIST": _idx("MNIST", 9_912_422, 28_881, 1_648_877, 4_542),
        "torchvision.FashionMNIST": _idx(
            "FashionMNIST", 26_421_880, 29_515, 4_422_102, 5_148
        ),
        "torchvision.KMNIST": _idx("KMNIST", 18_165_135, 29_497, 3_041_136, 5_120),
        "torchvision.CIFAR10": _tar(
            "CIFAR10",
            "cifar-10-batches-py",
            "cifar-10-python.tar.gz",
            170_498_071,
            (
                *(f"data_batch_{number}" for number in range(1, 6)),
                "test_batch",
                "batches.meta",
            ),
        ),
        "torchvision.CIFAR100": _tar(
            "CIFAR100",
            "cifar-100-python",
            "cifar-100-python.tar.gz",
            169_001_437,
            ("train", "test", "meta"),
        ),
        "torchvision.SVHN": Collection(
            "SVHN",
            "",
            (
                Archive("train_32x32.mat", "", 182_040_794, PLAIN),
                Archive("test_32x32.mat", "", 64_275_384, PLAIN),
            ),
        ),
        "torchvision.STL10": _tar(
            "STL10",
            "stl10_binary",
            "stl10_binary.tar.gz",
            2_640_397_119,
            (
                "train_X.bin",
                "train_y.bin",
                "test_X.bin",
                "test_y.bin",
                "class_names.txt",
            ),
        ),
    }
)
