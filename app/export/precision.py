"""The precision of what is compared: the dtypes of tensors, and what rounding may cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_BETWEEN = " and "
# Differences of two runs of the same code, since threads change the order of sums: none of whole numbers.
_ALLOWED = {"float64": 1e-10, "complex128": 1e-10, "float32": 1e-5, "complex64": 1e-5}
_ALLOWED_ELSE = 1e-2  # half and bfloat16
_WHOLE = ("int", "uint", "bool")


def dtypes_of(tensors: Iterable[Tensor], default: str) -> str:
    """Return the dtypes of tensors as text, "float16 and float32": those that round, or else those there are.

    `default` is returned where there are no tensors.
    """
    names = dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in tensors)
    rounding = [name for name in names if not name.startswith(_WHOLE)]
    return _BETWEEN.join(rounding or names) or default


def allowed(dtypes: str) -> float:
    """Return the relative difference that rounding explains, in the coarsest of such dtypes.

    >>> allowed("float32"), allowed("float32 and bfloat16"), allowed("int8")
    (1e-05, 0.01, 0.0)
    """
    return max(
        0.0 if name.startswith(_WHOLE) else _ALLOWED.get(name, _ALLOWED_ELSE)
        for name in dtypes.split(_BETWEEN)
    )
