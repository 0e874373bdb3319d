"""Order of the layers that a search lists: first those that fit the shape there, or the kind of a node. Qt-free."""

from __future__ import annotations

import re
from collections.abc import Iterable

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.value_types import TensorType, ValueType

_DIMENSIONS = re.compile(r"([123])d$")
# Categories that usually follow a tensor with this many dimensions, the batch counted; of any more as of four.
_USUAL = {
    2: ("linear", "act", "norm", "drop"),
    3: ("seq", "conv", "act", "norm", "linear"),
    4: ("conv", "act", "norm", "shape"),
}


def by_shape(
    catalog: Catalog, keys: Iterable[str], value: ValueType | None
) -> list[str]:
    """Sort ops by how well they fit a value: layers of another number of dimensions (`Conv1d` on pictures) are
    last."""
    if not isinstance(value, TensorType):
        return list(keys)
    rank = len(value.shape)
    usual = _USUAL[min(max(rank, 2), 4)]

    def cost(key: str) -> tuple[int, int, int]:
        spec = catalog[key]
        misfit = not _takes(spec, rank)
        category_rank = (
            usual.index(spec.category) if spec.category in usual else len(usual)
        )
        return misfit, category_rank, spec.kind != "module"

    return sorted(keys, key=cost)


def by_kind(catalog: Catalog, op: str) -> list[str]:
    """Sort all ops by how alike they are to one: of its category and kind first, itself last of those."""
    reference = catalog.get(op)
    if reference is None:
        return list(catalog)

    def cost(key: str) -> tuple[bool, bool, bool, bool]:
        spec = catalog[key]
        ports = (len(spec.inputs), len(spec.outputs)) != (
            len(reference.inputs),
            len(reference.outputs),
        )
        return (
            spec.category != reference.category,
            ports,
            key == op,
            spec.kind != reference.kind,
        )

    return sorted(catalog, key=cost)


def _takes(spec: OpSpec, rank: int) -> bool:
    """Return whether an op is for tensors of this many dimensions, by its name."""
    named = _DIMENSIONS.search(spec.label)
    if named is None:
        return True
    flat = (
        spec.category in ("norm", "drop") and named[1] == "1"
    )  # BatchNorm1d takes N×C as well
    return rank == int(named[1]) + 2 or (flat and rank == 2)
