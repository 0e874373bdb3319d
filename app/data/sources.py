"""The data that a project can train on, and what is known of them before they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.data.config import DataConfig
from app.data.samples import TensorSamples
from app.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import Tensor


class DataError(Exception):
    """Data that cannot be used; the text says which, why and what to do."""


class UnknownSource(DataError):
    def __init__(self, key: str) -> None:
        super().__init__(f"There is no data source “{key}”. Choose one of: {', '.join(SOURCES)}.")


class NotDownloaded(DataError):
    """The files are not in the folder, and nothing is fetched unless somebody asks for it."""

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        super().__init__(
            f"{spec.label} is not in {folder}. It is a download of {spec.megabytes:.1f} MB from {spec.host}, "
            "and nothing is downloaded unless you ask for it."
        )


@dataclass(frozen=True)
class SourceSpec:
    """What is known of a source without reading it.

    `shape` is one sample, without the batch. `own_split` means that its authors chose the validation samples, so
    that `DataConfig.validation_fraction` is not used. `download_bytes` is 0 for data that need no download.
    """

    key: str
    label: str
    summary: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    count: int
    dtype: str = "float32"
    own_split: bool = False
    download_bytes: int = 0
    host: str = ""

    @property
    def megabytes(self) -> float:
        return self.download_bytes / 1e6


@dataclass(frozen=True)
class DataInfo:
    """What was read: shapes without the batch, torch's name of the dtype, counts of samples.

    `task` is "classes", "values" or "tokens", see `app.training.metrics.Task`.
    """

    source: str
    label: str
    input_shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    train_count: int
    validation_count: int
    task: str = "classes"
    labels_per_sample: int = 1


@dataclass(frozen=True)
class Dataset:
    """All samples as tensors: inputs (N, *shape) and class ids (N,), for training and for validation."""

    train_inputs: Tensor
    train_labels: Tensor
    val_inputs: Tensor
    val_labels: Tensor
    info: DataInfo

    @property
    def train(self) -> TensorSamples:
        """What is trained on."""
        return TensorSamples(self.train_inputs, self.train_labels)

    @property
    def val(self) -> TensorSamples:
        """What is held out."""
        return TensorSamples(self.val_inputs, self.val_labels)

    def to(self, device: str) -> Dataset:
        """The same data on another device; nothing is copied if they are there already."""
        return Dataset(
            self.train_inputs.to(device),
            self.train_labels.to(device),
            self.val_inputs.to(device),
            self.val_labels.to(device),
            self.info,
        )

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """The first `size` training samples and their class ids, for looking inside."""
        return self.train_inputs[:size], self.train_labels[:size]


DIGITS = "sklearn.digits"
MNIST = "torchvision.MNIST"
_TEN_DIGITS = tuple("0123456789")

SOURCES: FrozenMap[str, SourceSpec] = FrozenMap(
    {
        DIGITS: SourceSpec(
            DIGITS,
            "Handwritten digits (scikit-learn)",
            "1,797 real 8×8 images that come with scikit-learn; nothing is downloaded.",
            (1, 8, 8),
            _TEN_DIGITS,
            1797,
        ),
        MNIST: SourceSpec(
            MNIST,
            "MNIST (torchvision)",
            "70,000 handwritten digits of 28×28: 60,000 to train on, 10,000 to validate, as their authors split them.",
            (1, 28, 28),
            _TEN_DIGITS,
            70_000,
            own_split=True,
            download_bytes=11_594_722,
            host="ossci-datasets.s3.amazonaws.com (PyTorch's mirror)",
        ),
    }
)

MNIST_PARTS = ("train", "t10k")
MNIST_FILES = tuple(f"{part}-{kind}-ubyte" for part in MNIST_PARTS for kind in ("images-idx3", "labels-idx1"))


def spec_of(config: DataConfig) -> SourceSpec:
    """The source that `config` names. Raises UnknownSource."""
    if config.source not in SOURCES:
        raise UnknownSource(config.source)
    return SOURCES[config.source]


def default_root() -> Path:
    """The folder where downloaded data are kept unless the user names another."""
    return Path.home() / ".cache" / "tapedeck" / "data"


def is_present(source: str, root: str | Path | None = None) -> bool:
    """Whether the files of `source` can be read without a download."""
    if not SOURCES[source].download_bytes:
        return True
    raw = Path(root or default_root()) / "MNIST" / "raw"
    return all((raw / name).is_file() for name in MNIST_FILES)


def load(config: DataConfig, root: str | Path | None = None) -> Dataset:
    """Read the data of `config` and split them.

    Raises UnknownSource, NotDownloaded, or DataError for files that are damaged or a split that leaves nothing.
    """
    spec = spec_of(config)
    if not spec.own_split and not 0 <= config.validation_fraction < 1:
        raise DataError(f"validation_fraction is {config.validation_fraction}; it must be at least 0 and below 1.")
    tensors = _LOADERS[spec.key](config, Path(root) if root else default_root())
    train_inputs, train_labels, val_inputs, val_labels = tensors
    if not len(train_inputs):
        raise DataError(f"{spec.label}: no sample is left to train on. Make validation_fraction smaller.")
    info = DataInfo(
        spec.key,
        spec.label,
        tuple(train_inputs.shape[1:]),
        str(train_inputs.dtype).removeprefix("torch."),
        spec.classes,
        len(train_inputs),
        len(val_inputs),
    )
    return Dataset(train_inputs, train_labels, val_inputs, val_labels, info)


Four = tuple["Tensor", "Tensor", "Tensor", "Tensor"]


def _load_digits(config: DataConfig, root: Path) -> Four:
    from app.data.readers import read_digits
    from app.data.splits import stratified_split

    inputs, labels = read_digits()
    train, held_out = stratified_split(labels, config.validation_fraction, config.split_seed)
    return inputs[train], labels[train], inputs[held_out], labels[held_out]


def _load_mnist(config: DataConfig, root: Path) -> Four:
    from app.data.readers import read_mnist

    if not is_present(MNIST, root):
        raise NotDownloaded(SOURCES[MNIST], root)
    try:
        return (*read_mnist(root, "train"), *read_mnist(root, "t10k"))
    except (ValueError, OSError) as error:
        raise DataError(f"The MNIST files in {root} cannot be read: {error}. Download them anew.") from error


_LOADERS: dict[str, Callable[[DataConfig, Path], Four]] = {DIGITS: _load_digits, MNIST: _load_mnist}
