"""Read known datasets into tensors. The exported `train.py` contains these functions verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def read_digits() -> tuple[Tensor, Tensor]:
    """Read scikit-learn's handwritten digits: images (1797, 1, 8, 8) in [0, 1] and class ids (1797,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32).div(16).unsqueeze(1)
    return images, torch.from_numpy(digits.target).to(torch.int64)


def read_table(name: str) -> tuple[Tensor, Tensor]:
    """Read a table of scikit-learn, such as "iris": values (N, columns) and class ids (N,)."""
    from sklearn import datasets

    table = getattr(datasets, f"load_{name}")()
    return torch.from_numpy(table.data).to(torch.float32), torch.from_numpy(
        table.target
    ).to(torch.int64)


def make_points(
    name: str, count: int, noise: float, seed: int, **options: float
) -> tuple[Tensor, Tensor]:
    """Generate points (N, 2) of two classes (N,) with scikit-learn: `name` is "moons" or "circles"."""
    from sklearn import datasets

    points, ids = getattr(datasets, f"make_{name}")(
        count, noise=noise, random_state=seed, **options
    )
    return torch.from_numpy(points).to(torch.float32), torch.from_numpy(ids).to(
        torch.int64
    )


def read_points(points: str) -> tuple[Tensor, Tensor]:
    """Read points (N, 2) and class ids (N,) of a text, `x y class` for each with a semicolon between two."""
    rows = [row.split() for row in points.split(";") if row.strip()]
    places = torch.tensor([[float(x), float(y)] for x, y, _ in rows])
    return places, torch.tensor([int(label) for *_, label in rows])


def make_noise(
    shape: tuple[int, ...], classes: int, count: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Generate random samples (N, *shape) and class ids (N,)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator), torch.arange(
        count
    ) % classes


def make_fields(
    fields: dict[str, tuple[tuple[int, ...], str, int]],
    targets: dict[str, tuple[str, tuple[int, ...], int]],
    count: int,
    seed: int,
) -> tuple[dict[str, Tensor], Any]:
    """Generate random inputs of several shapes and dtypes, with random targets.

    An input (N, *shape) is float32 of a normal distribution, int64 below its bound, or bool. A target is class ids
    (N,), class ids (N, *shape) of "tokens", or float32 (N, *shape) of "values"; several are in a dictionary.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs, labels = {}, {}
    for name, (shape, dtype, bound) in fields.items():
        if dtype == "float32":
            inputs[name] = torch.randn(count, *shape, generator=generator)
        else:
            drawn = torch.randint(
                bound if dtype == "int64" else 2, (count, *shape), generator=generator
            )
            inputs[name] = drawn if dtype == "int64" else drawn == 1
    for name, (task, shape, classes) in targets.items():
        if task == "classes":
            labels[name] = torch.arange(count) % classes
        elif task == "tokens":
            labels[name] = torch.randint(classes, (count, *shape), generator=generator)
        else:
            labels[name] = torch.randn(count, *shape, generator=generator)
    return inputs, labels if len(labels) > 1 else next(iter(labels.values()))


def make_pairs(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Draw pairs of scikit-learn's handwritten digits, by turns of different and of the same digit.

    `first` and `second` are images (N, 1, 8, 8) in [0, 1]; the class ids (N,) are 1 where both are the same digit.
    """
    images, digits = read_digits()
    generator = torch.Generator().manual_seed(seed)
    same = torch.arange(count) % 2
    first = torch.randint(len(images), (count,), generator=generator)
    others = (digits[first] + torch.randint(1, 10, (count,), generator=generator)) % 10
    second_digits = torch.where(same == 1, digits[first], others)
    keys = torch.rand(count, len(images), generator=generator)
    second = keys.masked_fill(digits[None] != second_digits[:, None], -1.0).argmax(1)
    return {"first": images[first], "second": images[second]}, same


def make_shapes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Generate images for segmentation: one to three bright ellipses and rectangles on noise.

    The pictures (N, 1, 64, 64) are in [0, 1]; the masks (N, 1, 64, 64) float32 are 1 in a shape and 0 beside it.
    """
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.arange(64.0).view(1, 64, 1), torch.arange(64.0).view(1, 1, 64)
    masks = torch.zeros(count, 64, 64, dtype=torch.bool)
    for number in range(3):
        drawn = torch.rand(6, count, 1, 1, generator=generator)
        down, along = (
            (rows - 8 - 48 * drawn[0]) / (4 + 10 * drawn[1]),
            (columns - 8 - 48 * drawn[2]) / (4 + 10 * drawn[3]),
        )
        ellipse, rectangle = (
            down**2 + along**2 <= 1,
            torch.maximum(down.abs(), along.abs()) <= 1,
        )
        masks |= torch.where(drawn[4] < 0.5, ellipse, rectangle) & (
            (drawn[5] < 0.5) | (number == 0)
        )
    pictures = 0.6 * torch.rand(count, 64, 64, generator=generator) + 0.4 * masks
    return pictures.unsqueeze(1), masks.unsqueeze(1).to(torch.float32)


def make_dates(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Write random dates as people do, "3 march 1997", and as ISO 8601 does, "1997-03-03".

    `written` are the characters of the first (N, 18) int64, padded by 0; `padding` (N, 18) is True where it is padded;
    `so_far` are those of the second (N, 10) int64, one place late: 11 is the start. The labels (N, 10) are those of the
    second: 0 to 9 for the digits, 10 for "-".
    """
    months = "january february march april may june july august september october november december".split()
    letters = {
        letter: number
        for number, letter in enumerate("\0 0123456789abcdefghijklmnopqrstuvwxyz,")
    }
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        torch.randint(low, high, (count,), generator=generator).tolist()
        for low, high in ((1900, 2100), (0, 12), (1, 29), (0, 3))
    ]
    written, iso = (
        torch.zeros(count, 18, dtype=torch.int64),
        torch.zeros(count, 10, dtype=torch.int64),
    )
    for row, (year, month, day, form) in enumerate(zip(*drawn, strict=True)):
        name = months[month]
        text = (
            f"{day} {name} {year}",
            f"{name} {day}, {year}",
            f"{day} {name[:3]} {year}",
        )[form]
        written[row, : len(text)] = torch.tensor([letters[letter] for letter in text])
        date = f"{year:04}-{month + 1:02}-{day:02}"
        iso[row] = torch.tensor(["0123456789-".index(letter) for letter in date])
    so_far = torch.cat((torch.full((count, 1), 11), iso[:, :-1]), 1)
    return {"written": written, "padding": written == 0, "so_far": so_far}, iso


def read_idx(path: Path) -> Tensor:
    """Read an unpacked IDX file (MNIST's format) as a uint8 tensor with the shape of its header. Raises OSError, and
    ValueError for another format or a truncated file."""
    data = bytearray(path.read_bytes())
    zeros, kind, dimensions = struct.unpack_from(">HBB", data)
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    start, size = 4 + 4 * dimensions, torch.Size(shape).numel()
    if (zeros, kind) != (0, 8) or len(data) != start + size:
        raise ValueError(f"{path} is not a whole IDX file of bytes")
    return torch.frombuffer(data, dtype=torch.uint8, offset=start).reshape(shape)


def read_mnist(raw: Path, subset: str) -> tuple[Tensor, Tensor]:
    """Read an MNIST-like dataset: images (N, 1, 28, 28) in [0, 1] and class ids (N,). `subset` is "train" or "t10k"."""
    images = read_idx(raw / f"{subset}-images-idx3-ubyte")
    labels = read_idx(raw / f"{subset}-labels-idx1-ubyte")
    return images.to(torch.float32).div(255).unsqueeze(1), labels.to(torch.int64)


def read_cifar(folder: Path, name: str, train: bool) -> tuple[Tensor, Tensor]:
    """Read CIFAR10 or CIFAR100 with torchvision: images (N, 3, 32, 32) uint8 and class ids (N,)."""
    from torchvision import datasets

    data = getattr(datasets, name)(folder, train=train)
    return torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(
        data.targets
    )


def read_svhn(path: Path) -> tuple[Tensor, Tensor]:
    """Read a part of SVHN in MATLAB's format: images (N, 3, 32, 32) uint8 and class ids (N,); the digit 0 is stored as
    10."""
    from scipy.io import loadmat

    data = loadmat(path)
    images, ids = (
        torch.from_numpy(data["X"]),
        torch.from_numpy(data["y"]).flatten().to(torch.int64),
    )
    return images.permute(3, 2, 0, 1).contiguous(), ids % 10


def read_stl10(folder: Path, subset: str) -> tuple[Tensor, Tensor]:
    """Read a part of STL10, "train" or "test": images (N, 3, 96, 96) uint8, stored column by column, and class ids
    (N,)."""
    images = torch.frombuffer(
        bytearray((folder / f"{subset}_X.bin").read_bytes()), dtype=torch.uint8
    )
    ids = torch.frombuffer(
        bytearray((folder / f"{subset}_y.bin").read_bytes()), dtype=torch.uint8
    )
    return images.reshape(-1, 3, 96, 96).transpose(2, 3).contiguous(), ids.to(
        torch.int64
    ) - 1


def as_floats(samples: Tensor) -> Tensor:
    """Convert uint8 images of any shape to float32 in [0, 1]."""
    return samples.to(torch.float32).div(255)
