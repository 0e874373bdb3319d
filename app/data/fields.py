"""Several tensors of the same samples, by name. The exported `train.py` contains `Fields` verbatim."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Fields:
    """Several tensors of the same samples by name, (N, ...) each; indexing and moving apply to all of them."""

    def __init__(self, parts: Mapping[str, "Tensor"]) -> None:
        self.parts = dict(parts)

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, str):
            return self.parts[at]
        return Fields({name: tensor[at] for name, tensor in self.parts.items()})

    def with_(self, name: str, tensor: "Tensor") -> "Fields":
        return Fields({**self.parts, name: tensor})

    def to(self, device: Any) -> "Fields":
        return Fields({name: tensor.to(device) for name, tensor in self.parts.items()})

    @property
    def device(self) -> Any:
        return next(iter(self.parts.values())).device
