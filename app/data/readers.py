"""Reading data into tensors. The exported `train.py` carries these functions word for word.

torch is imported at the top because the texts stand alone in that script: import this module lazily.
"""

import struct
from pathlib import Path

import torch
from torch import Tensor


def read_digits() -> tuple[Tensor, Tensor]:
    """scikit-learn's handwritten digits: images (1797, 1, 8, 8) in [0, 1] and class ids (1797,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32).div(16).unsqueeze(1)
    return images, torch.from_numpy(digits.target).to(torch.int64)


def read_table(name: str) -> tuple[Tensor, Tensor]:
    """A table of scikit-learn's, such as "iris": values (N, columns) and class ids (N,)."""
    from sklearn import datasets

    table = getattr(datasets, f"load_{name}")()
    return torch.from_numpy(table.data).to(torch.float32), torch.from_numpy(table.target).to(torch.int64)


def make_points(name: str, count: int, noise: float, seed: int, **options: float) -> tuple[Tensor, Tensor]:
    """Points (N, 2) of two classes (N,), made by scikit-learn: `name` is "moons" or "circles"."""
    from sklearn import datasets

    points, ids = getattr(datasets, f"make_{name}")(count, noise=noise, random_state=seed, **options)
    return torch.from_numpy(points).to(torch.float32), torch.from_numpy(ids).to(torch.int64)


def make_noise(shape: tuple[int, ...], classes: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples (N, *shape) of noise and class ids (N,): there is nothing to learn in them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator), torch.arange(count) % classes


def read_idx(path: Path) -> Tensor:
    """A file of MNIST's IDX format, unpacked, as a uint8 tensor of the shape that its header tells."""
    data = bytearray(path.read_bytes())
    zeros, kind, dimensions = struct.unpack_from(">HBB", data)
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    start, size = 4 + 4 * dimensions, torch.Size(shape).numel()
    if (zeros, kind) != (0, 8) or len(data) != start + size:
        raise ValueError(f"{path} is not a whole IDX file of bytes")
    return torch.frombuffer(data, dtype=torch.uint8, offset=start).reshape(shape)


def read_mnist(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """MNIST as torchvision keeps it: images (N, 1, 28, 28) in [0, 1] and class ids (N,). `part`: "train" or "t10k"."""
    raw = folder / "MNIST" / "raw"
    images = read_idx(raw / f"{part}-images-idx3-ubyte")
    labels = read_idx(raw / f"{part}-labels-idx1-ubyte")
    return images.to(torch.float32).div(255).unsqueeze(1), labels.to(torch.int64)
