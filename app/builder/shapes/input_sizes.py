"""Trial of other input sizes: whether the net runs with them, its outputs and its cost.

The list of sizes lives as long as the window and is not stored in the project.
"""

from __future__ import annotations

import re

from msgspec import Struct

from app.util.errors import CodedError
from app.util.language import tr

Shape = tuple[int, ...]

MOST_DIMENSIONS, LARGEST = 6, 1_000_000
PICTURES = ((1, 28, 28), (1, 32, 32), (3, 32, 32), (3, 224, 224))


class ShapeError(CodedError, ValueError):
    """A text that is not a shape of a sample; the message says why."""


class Tried(Struct, frozen=True):
    """Result of one input size.

    `outputs` are name and shape of each output. On failure, `node` is the first failing call, `name` its name and
    `words` the reason; `node` is "" for an error of the whole graph. Parameters and FLOPs are None on failure, or
    without a count.
    """

    shape: Shape
    runs: bool
    outputs: tuple[tuple[str, str], ...] = ()
    node: str | None = None
    name: str = ""
    words: str = ""
    parameters: int | None = None
    multiply_adds: int | None = None

    @property
    def came_out(self) -> str:
        """`N×10`, or `logits N×10, mask N×1×8×8` where there are several."""
        if len(self.outputs) == 1:
            return self.outputs[0][1]
        return ", ".join(f"{name} {shape}" for name, shape in self.outputs)


def read_shape(text: str) -> Shape:
    """Parse the shape of a sample. Raises ShapeError.

    >>> read_shape("3×224×224"), read_shape("1x28x28"), read_shape("(16, 64)"), read_shape("784")
    ((3, 224, 224), (1, 28, 28), (16, 64), (784,))
    """
    bare = re.sub(r"^\s*[(\[]|[)\]]\s*$", "", text).strip().strip(",")
    bare = re.sub(r"^[NnBb]\s*[×x*,]\s*", "", bare)  # without the batch
    parts = re.split(r"\s*[×xX*,]\s*|\s+", bare) if bare else []
    if not parts or not all(re.fullmatch(r"[0-9]{1,9}", piece) for piece in parts):
        text = tr("Enter a shape without the batch, such as 3×224×224.")
        raise ShapeError(text)
    shape = tuple(map(int, parts))
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeError(tr("At most {most} dimensions here.", most=MOST_DIMENSIONS))
    if not all(1 <= size <= LARGEST for size in shape):
        raise ShapeError(tr("Each size is 1 to {most:,}.", most=LARGEST))
    return shape


def usual(shape: Shape) -> tuple[Shape, ...]:
    """Suggest sizes to try: common picture sizes, or half and twice the sequence length."""
    if len(shape) == 3:
        return tuple(size for size in PICTURES if size != shape)
    if not shape:
        return ()
    return tuple(
        dict.fromkeys(
            (n, *shape[1:])
            for n in (shape[0] // 2, shape[0] * 2)
            if n and n != shape[0]
        )
    )
