"""Several targets of the same samples. The exported `train.py` contains `with_input` verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from torch import Tensor

from app.data.fields import Fields
from app.data.spec import DataInfo, TargetInfo

if TYPE_CHECKING:
    from app.data.samples import Samples


def first(tensors: Any) -> Tensor:
    """Return the first of several inputs or targets, or the only one."""
    only: Tensor = (
        next(iter(tensors.parts.values())) if isinstance(tensors, Fields) else tensors
    )
    return only


class WithInput(Struct, frozen=True):
    """Samples with their inputs as an additional target; a single target is named ""."""

    samples: "Samples"
    name: str

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Any]]:
        for inputs, labels in self.samples.batches(chunks):
            yield inputs, with_input(labels, self.name, inputs)

    def to(self, device: str) -> "WithInput":
        return WithInput(self.samples.to(device), self.name)


def with_input(labels: Any, name: str, inputs: Tensor) -> Fields:
    """Add the inputs to the targets of a batch."""
    targets = labels if isinstance(labels, Fields) else Fields({"": labels})
    return targets.with_(name, inputs)


class WithTargets(Struct, frozen=True):
    """Samples with some of their targets as additional inputs; an only input is named "", an only target `only`."""

    samples: "Samples"
    names: tuple[str, ...]
    only: str

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Any, Any]]:
        for inputs, labels in self.samples.batches(chunks):
            yield with_targets(inputs, labels, self.names, self.only), labels

    def to(self, device: str) -> "WithTargets":
        return WithTargets(self.samples.to(device), self.names, self.only)


def with_targets(inputs: Any, labels: Any, names: Iterable[str], only: str) -> Fields:
    """Add targets to the inputs of a batch, see `WithTargets`."""
    fields = inputs if isinstance(inputs, Fields) else Fields({"": inputs})
    for name in names:
        fields = fields.with_(
            name,
            labels[name] if isinstance(labels, Fields) and name != only else labels,
        )
    return fields


Make = Callable[[TargetInfo], Tensor]


def synthetic_targets(info: DataInfo, inputs: Tensor, name: str, make: Make) -> Any:
    """Create synthetic labels, each target by `make`; the inputs are added under `name`, "" for none."""
    targets = info.known_targets
    labels: Any = (
        Fields({target.name: make(target) for target in targets})
        if len(targets) > 1
        else make(targets[0])
    )
    return with_input(labels, name, inputs) if name else labels
