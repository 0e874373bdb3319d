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
