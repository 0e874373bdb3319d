"""The processes that a run is split between: the part that each has of a batch, and what all of them agree on.

The arithmetic is that of the exported `train.py --processes N`, operation for operation. They meet over a file in a
folder that is its owner's alone, and talk over the loopback interface.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from app.training.job import Job, JobError
from app.training.launch import on_loopback
from app.training.setup.weighted_losses import is_weighed
from app.util import tensor_files
from app.util.formatting import counted

if TYPE_CHECKING:
    from app.training.config import Choice
    from app.training.task import Task

GO, WAIT, STOP = range(3)

# Groups that this process was in. One whose last reference goes joins its threads while it holds the interpreter's
# lock, and such a thread may be about to free a tensor, for which it needs that lock: the process would hang. So a
# group lasts as long as its process, which ends without running destructors.
_PARTED: list[object] = []


class Decision(NamedTuple):
    """What the first process decides before a step: to go, wait or stop, whether a checkpoint for revisiting is due
    after the step, and whether a loss that is not finite pauses the run.
    """

    turn: int
    checkpoint: bool = False
    pauses_at_not_finite: bool = False


class Ranks:
    """This process among the `count` of a run, the `rank`-th from 0. All of them call the same methods in the same
    order.

    `portion` is the weight that the loss of this process's part of the current batch has in their mean; `portions` are
    further weights of the losses of several outputs, None for a single loss.
    """

    def __init__(self, rank: int, count: int, store: Path) -> None:
        self.rank, self.count, self._store = rank, count, store
        self._device = torch.device("cpu")
        self.portion: float | Tensor = 1.0
        self.portions: dict[str, float | Tensor] | None = None

    @property
    def note(self) -> str:
        return f"On {self.count} processes, each with its part of every batch."

    def join(self, device: str) -> str:
        """Meet the others; return the device of this one: a GPU for each, or the CPU for all."""
        rank = str(self.rank)
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(self.count)}
        os.environ |= on_loopback()
        if device != "cpu":
            if (present := torch.accelerator.device_count()) < self.count:
                raise JobError(
                    f"{self.count} processes need a device each, and there {'is' if present == 1 else 'are'} {present} "
                    f"beside the CPU: train on cpu, or with {counted(present, 'process', 'processes')}."
                )
            device = f"{device.partition(':')[0]}:{self.rank}"
            torch.accelerator.set_device_index(device)
        self._device = torch.device(device)
        distributed.init_process_group(
            distributed.get_default_backend_for_device(device),
            store=distributed.FileStore(str(self._store), self.count),
            rank=self.rank,
            world_size=self.count,
        )
        return device

    def leave(self) -> None:
        """Wait for the others, and part."""
        distributed.barrier()
        _PARTED.append(distributed.group.WORLD)
        distributed.destroy_process_group()

    # --- The net

    def synchronised(self, model: nn.Module) -> nn.Module:
        """Return the model with batch normalization over the whole batch, where the device supports it."""
        if self._device.type == "cpu":
            return model
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return converted

    def averaged(self, model: nn.Module) -> nn.Module:
        """Return the module whose backward averages the gradients of the model over the processes."""
        return nn.parallel.DistributedDataParallel(model)

    # --- A batch

    def split(self, job: Job, task: Task, loss: nn.Module, samples: Any) -> None:
        """Prepare for the batches of a job; `samples` are all training samples."""
        while hasattr(
            samples, "samples"
        ):  # its labels are those of the dataset that it wraps
            samples = samples.samples
        self._labels = samples.labels
        self._rows = getattr(task, "rows", ())
        self._choice, self._loss = job.training.loss, loss
        self._balanced = job.data.class_weights

    def part(self, batch: Tensor) -> Tensor:
        """Return the samples of a batch (N,) for this process; one sample where none is left for it."""
        part = batch.tensor_split(self.count)[self.rank]
        return part if len(part) else batch[:1]

    def weigh(self, batch: Tensor) -> None:
        """Set the weight of this process's part of a batch."""
        batch = batch.to(self._device)
        part = batch.tensor_split(self.count)[self.rank]
        self.portion = self.count * len(part) / len(batch)
        if self._rows:
            self.portions = self._portions(self.part(batch), batch)
        elif not len(part):
            return
        elif is_weighed(self._choice, self._balanced):
            weights: Any = self._loss.weight
            whole = weights[self._labels[batch]].sum()
            self.portion = self.count * weights[self._labels[part]].sum() / whole
        elif _is_sum(self._choice):
            self.portion = float(self.count)

    def _portions(self, part: Tensor, batch: Tensor) -> dict[str, float | Tensor]:
        portions: dict[str, float | Tensor] = {}
        losses: Any = self._loss.losses
        for row, loss in zip(self._rows, losses, strict=True):
            if _is_sum(row.given.loss):
                portions[row.given.output] = len(batch) / len(part)
            elif is_weighed(row.given.loss, self._balanced):
                labels = self._labels
                labels = labels if isinstance(labels, Tensor) else labels[row.target]
                weights = loss.weight
                mean = weights[labels[batch]].mean()
                portions[row.given.output] = weights[labels[part]].mean() / mean
        return portions

    # --- What all agree on

    def total(self, value: Tensor) -> Tensor:
        """Return the sum over the processes."""
        value = value.detach().clone()
        distributed.all_reduce(value)
        return value

    def sum_of(self, count: Tensor | int) -> int:
        """Return the sum of a number of each process."""
        return int(self.total(torch.as_tensor(count, device=self._device)))

    def mean(self, loss: Tensor) -> Tensor:
        """Return the loss of the whole batch: the mean over the processes."""
        return self.total(loss) / self.count

    def agreed(self, value: float) -> float:
        """Return the value of the first process."""
        mine = torch.tensor(0.0 if self.rank else value, dtype=torch.float64)
        bits = mine.view(torch.int64).to(self._device)  # not every device has float64
        return self.total(bits).cpu().view(torch.float64).item()

    def decided(self, decision: Decision) -> Decision:
        """Return the decision of the first process."""
        numbers = torch.tensor(decision, dtype=torch.int64, device=self._device)
        turn, *others = self.total(numbers * (not self.rank)).tolist()
        return Decision(turn, *map(bool, others))

    def of_all(self, mine: Any) -> list[Any]:
        """Return a value of every process, by rank; it is sent as tensors and loaded with weights_only."""
        file = io.BytesIO()
        torch.save(mine, file)
        data = torch.frombuffer(file.getbuffer(), dtype=torch.uint8).to(self._device)
        sizes = torch.zeros(self.count, dtype=torch.int64, device=self._device)
        sizes[self.rank] = len(data)
        lengths = self.total(sizes).tolist()
        padded = nn.functional.pad(data, (0, max(lengths) - len(data)))
        values = [torch.empty_like(padded) for _ in lengths]
        distributed.all_gather(values, padded)
        return [
            tensor_files.load_bytes(value[:length].cpu().numpy().tobytes())
            for value, length in zip(values, lengths, strict=True)
        ]


def _is_sum(loss: Choice) -> bool:
    return loss.params.get("reduction") == "sum"
