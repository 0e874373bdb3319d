"""Other sizes for an input, tried on paper: does the net run with them, what comes out, and what does it cost then.

Which sizes a person has listed is kept for as long as the window is open, and not with the project: they are a question
about the drawing, not a part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Shape = tuple[int, ...]

MOST_DIMENSIONS, LARGEST = 6, 1_000_000
PICTURES = ((1, 28, 28), (1, 32, 32), (3, 32, 32), (3, 224, 224))


class ShapeError(ValueError):
    """A text that is no shape of a sample; the message says why."""


@dataclass(frozen=True)
class Tried:
    """One size and what becomes of it.

    `outputs` are (name, shape) of what the network returns. Where it fails, `node` is the first call that does, of all
    in running order, `name` what it is called and `words` why; "" for what is wrong with the drawing as a whole.
    Parameters and multiply-adds are None where it fails, or where nothing is counted.
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
    """A sample's shape as people write it. Raises ShapeError.

    >>> read_shape("3×224×224"), read_shape("1x28x28"), read_shape("(16, 64)"), read_shape("784")
    ((3, 224, 224), (1, 28, 28), (16, 64), (784,))
    """
    bare = re.sub(r"^\s*[(\[]|[)\]]\s*$", "", text).strip().strip(",")
    bare = re.sub(r"^[NnBb]\s*[×x*,]\s*", "", bare)  # the batch is never a part of it
    parts = re.split(r"\s*[×xX*,]\s*|\s+", bare) if bare else []
    if not parts or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise ShapeError("Enter a shape without the batch, such as 3×224×224.")
    shape = tuple(map(int, parts))
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeError(f"At most {MOST_DIMENSIONS} dimensions here.")
    if not all(1 <= size <= LARGEST for size in shape):
        raise ShapeError(f"Each size is 1 to {LARGEST:,}.")
    return shape


def usual(shape: Shape) -> tuple[Shape, ...]:
    """Sizes worth trying beside one: those of well known pictures, or half and twice as long a sequence."""
    if len(shape) == 3:
        return tuple(size for size in PICTURES if size != shape)
    if not shape:
        return ()
    return tuple(dict.fromkeys((n, *shape[1:]) for n in (shape[0] // 2, shape[0] * 2) if n and n != shape[0]))
