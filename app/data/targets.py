"""Several targets of the same samples. The exported `train.py` contains `Targets` verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from app.data.spec import DataInfo, TargetInfo
from app.util.late_dataclass import dataclass

if TYPE_CHECKING:
    from app.data.samples import Samples


class Targets:
    """Several targets by name, (N, ...) each; indexing and moving apply to all of them."""

    def __init__(self, parts: Mapping[str, Tensor]) -> None:
        self.parts = dict(parts)

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, str):
            return self.parts[at]
        return Targets({name: part[at] for name, part in self.parts.items()})

    def with_(self, name: str, part: Tensor) -> "Targets":
        return Targets({**self.parts, name: part})

    def to(self, device: Any) -> "Targets":
        return Targets({name: part.to(device) for name, part in self.parts.items()})


def first(labels: Any) -> Tensor:
    """Return the first target of several, or the only one."""
    given: Tensor = next(iter(labels.parts.values())) if isinstance(labels, Targets) else labels
    return given


@dataclass(frozen=True)
class WithInput:
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


def with_input(labels: Any, name: str, inputs: Tensor) -> Targets:
    """Add the inputs to the targets of a batch."""
    known = labels if isinstance(labels, Targets) else Targets({"": labels})
    return known.with_(name, inputs)


Make = Callable[[TargetInfo], Tensor]


def synthetic_targets(info: DataInfo, inputs: Tensor, name: str, make: Make) -> Any:
    """Create synthetic labels, each target by `make`; the inputs are added under `name`, "" for none."""
    known = info.known_targets
    labels: Any = Targets({one.name: make(one) for one in known}) if len(known) > 1 else make(known[0])
    return with_input(labels, name, inputs) if name else labels
