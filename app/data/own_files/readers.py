"""Read the user's files into tensors. The exported `train.py` contains these functions verbatim.

Each returns inputs, labels, and the unreadable samples by row or file, which the tensors leave out. torch is imported
at the top since the code runs alone in that script: import this module lazily.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from app.data.own_files.tables import alone


def read_tensors(
    path: Path,
    inputs: str | Sequence[str],
    labels: Sequence[str],
    classes: Mapping[str, Sequence[Any]] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> tuple[Any, Any, list[str]]:
    """Read tensors of a .npz or .pt file by name, or of two .npy files; non-finite samples are bad.

    Several inputs and the labels of several targets are dictionaries by name. `classes` are the values of a target that
    stand for class 0, 1, ..., ascending, for labels that are not such numbers already. `kinds` are "one_hot", rows of
    one 1 that become class ids, or "values", numbers of any dtype to predict. Samples of the class id -100 are left
    out; among the labels of positions it stays, and -1 becomes it. Raises ValueError for anything but a tensor.
    """
    input_names = [inputs] if isinstance(inputs, str) else list(inputs)
    if path.suffix == ".pt":
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
        loaded = (
            loaded
            if isinstance(loaded, dict)
            else {str(number): value for number, value in enumerate(loaded)}
        )
        raw_arrays = {name: loaded[name] for name in (*input_names, *labels)}
    else:
        if path.suffix == ".npy":
            raw_arrays = {
                name: np.load(Path(name or path), allow_pickle=False)
                for name in (*input_names, *labels)
            }
        else:
            with np.load(path, allow_pickle=False) as arrays:
                raw_arrays = {name: arrays[name] for name in (*input_names, *labels)}
    samples, targets = (
        {name: tensor_of(raw_arrays[name], name) for name in input_names},
        {},
    )
    for name in labels:
        values, kind = (classes or {}).get(name), (kinds or {}).get(name)
        if kind == "one_hot":
            targets[name] = tensor_of(raw_arrays[name], name).to(torch.uint8).argmax(1)
        elif kind == "values":
            targets[name] = tensor_of(raw_arrays[name], name).to(torch.float32)
        else:
            targets[name] = (
                tensor_of(raw_arrays[name], name)
                if values is None
                else class_ids(raw_arrays[name], values)
            )
    good = torch.ones((), dtype=torch.bool)
    for name, loaded in samples.items():
        for target in targets.values():
            if loaded.ndim == 0 or target.ndim == 0 or len(loaded) != len(target):
                raise ValueError(
                    f"{tuple(loaded.shape)} inputs do not match {tuple(target.shape)} labels"
                )
        if not loaded.numel():
            raise ValueError(f"inputs of shape {tuple(loaded.shape)} contain no sample")
        good = good & (
            loaded.flatten(1).isfinite().all(1)
            if loaded.ndim > 1
            else loaded.isfinite()
        )
        if len(input_names) > 1:
            samples[name] = field_of(loaded)
        elif loaded.dtype != torch.uint8:
            samples[name] = loaded.to(kind_of(loaded))
    labelled = torch.ones((), dtype=torch.bool)
    for name, target in targets.items():
        target = target.to(kind_of(target))
        if target.is_floating_point():
            target = target.unsqueeze(1) if target.ndim == 1 else target
        elif target.ndim == 2 and target.shape[1] == 1:
            target = target.flatten()
        good &= (
            target.flatten(1).isfinite().all(1)
            if target.ndim > 1
            else target.isfinite()
        )
        if not target.is_floating_point():
            raw = np.asarray(raw_arrays[name])
            if target.ndim > 1:
                target = torch.where(target == -1, -100, target)
            elif raw.dtype.kind == "i" and raw.size == len(target):
                labelled = labelled & torch.from_numpy(raw.reshape(len(target)) != -100)
            good &= (
                ((target >= 0) | ((target == -100) & (target.ndim > 1)))
                .reshape(len(target), -1)
                .all(1)
            )
        targets[name] = target
    good = good | ~labelled  # those are no faults
    fault = "a value that is not finite, or a class below 0"
    bad = [
        f"sample {number}: {fault}" for number in (~good).nonzero().flatten().tolist()
    ]
    good = good & labelled
    if not good.all():
        samples, targets = (
            {name: tensor[good] for name, tensor in parts.items()}
            for parts in (samples, targets)
        )
    return alone(samples), alone(targets), bad


def tensor_of(values: Any, name: str) -> Tensor:
    """Convert a NumPy array or tensor of real numbers to a tensor. Raises ValueError for anything else."""
    subject = f"“{name}”" if name else "the file"
    if not hasattr(values, "dtype"):
        raise ValueError(f"{subject} is not an array")
    kind = "" if isinstance(values, Tensor) else values.dtype.kind
    if kind == "c" or (isinstance(values, Tensor) and values.is_complex()):
        raise ValueError(
            f"{subject} holds complex numbers; save real and imaginary parts as two channels of real ones"
        )
    if isinstance(values, Tensor):
        return values
    if kind not in "biuf":
        raise ValueError(
            f"{subject} holds values of type {values.dtype}; a tensor needs integers, floats or booleans"
        )
    if kind == "u" and values.size and values.max() > 2**63 - 1:
        raise ValueError(
            f"{subject} holds integers above 2^63 - 1, which int64 cannot hold"
        )
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="), copy=False))


def class_ids(values: Any, class_values: Sequence[Any]) -> Tensor:
    """Map labels to class ids (N,) int64: the index of each in the sorted `class_values`; -1 if unknown."""
    values, among = np.asarray(values), np.asarray(class_values)
    values = (values.astype(str) if values.dtype.kind == "S" else values).reshape(
        len(values)
    )
    positions = np.searchsorted(among, values).clip(max=len(among) - 1)
    return torch.from_numpy(np.where(among[positions] == values, positions, -1))


def kind_of(values: Tensor) -> torch.dtype:
    """Return float32 for floating point dtypes, int64 for integers."""
    return (
        torch.float32
        if values.is_floating_point() or values.dtype == torch.bool
        else torch.int64
    )


def label_kind(label: Tensor) -> torch.dtype:
    """Return the dtype of a sample's label as a target: one boolean is a class, several are values."""
    return (
        torch.int64
        if label.dtype == torch.bool and label.numel() == 1
        else kind_of(label)
    )


def field_of(values: Tensor) -> Tensor:
    """Convert one of several inputs: bytes to floats in [0, 1], others to `kind_of`; masks of booleans stay."""
    if values.dtype == torch.uint8:
        return values.to(torch.float32).div(255)
    return values if values.dtype == torch.bool else values.to(kind_of(values))


def read_text(
    path: Path, characters: str, context: int
) -> tuple[Tensor, Tensor, list[str]]:
    """Split a text into sequences of `context` characters: token ids (N, context), and those of the next characters."""
    numbers, ids, bad = (
        {letter: number for number, letter in enumerate(characters)},
        [],
        [],
    )
    for line, raw in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            ids += [numbers[letter] for letter in raw.decode("utf-8")]
        except (UnicodeDecodeError, KeyError):
            bad.append(f"line {line}: it is not UTF-8 text")
    pieces = max((len(ids) - 1) // context, 0)
    text = torch.tensor(ids[: pieces * context + 1], dtype=torch.int64)
    return text[:-1].reshape(pieces, context), text[1:].reshape(pieces, context), bad


class Careful(Dataset[Any]):
    """A map-style dataset that returns an error message instead of a sample that fails to load."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> Any:
        try:
            return self.dataset[number]
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def read_dataset(
    dataset: Any,
    workers: int,
    timeout: float,
    watch: Callable[[int, int, str], None] | None = None,
    guard: Callable[[], Any] = nullcontext,
    keep: bool = True,
) -> tuple[Any, Any, list[str]]:
    """Read all samples of a Dataset, map-style or iterable: inputs (N, ...) and labels (N, ...), in dataset order.

    Without `keep` the indices of the samples (N,) are returned instead of the inputs. Several inputs and several
    targets are dictionaries by name, see `parts_of`; several inputs without `keep` raise ValueError. Of several
    targets, samples may have different numbers of rows, such as boxes, see `filled`. Samples whose only label is -100
    are left out. A DataLoader reads them with
    `workers` processes; its random numbers are the same each time.
    """
    iterable = isinstance(dataset, IterableDataset)
    workers = 0 if iterable else workers  # each worker would yield the whole iterable
    loader = DataLoader(
        dataset if iterable else Careful(dataset),
        batch_size=64,
        collate_fn=list,
        num_workers=workers,
        timeout=timeout if workers else 0,
        multiprocessing_context="spawn" if workers else None,
        generator=torch.Generator().manual_seed(0),
    )
    inputs: dict[str, list[Tensor]] = {}
    labels: dict[str, list[Tensor]] = {}
    bad: list[str] = []
    known_shapes: tuple[Any, ...] = ()
    sample_shape: Sequence[int] = ()
    total, done, waiting = 0 if iterable else len(dataset), 0, iter(loader)
    while True:
        with guard():
            torch.manual_seed(done)
            samples = next(waiting, None)
        if samples is None:
            break
        for number, sample in enumerate(samples, done):
            try:
                if isinstance(sample, str):
                    raise ValueError(sample)
                values, label = parts_of(sample)
                ragged = len(label) > 1
                parts = {
                    **values,
                    **{
                        f"{name} of the targets": target
                        for name, target in label.items()
                    },
                }
                shapes = tuple(
                    (
                        name,
                        component.shape
                        if name in values or not ragged or not component.ndim
                        else component.shape[1:],
                    )
                    for name, component in parts.items()
                )
                if not inputs:
                    sample_shape = next(iter(values.values())).shape
                    inputs, labels, known_shapes = (
                        {n: [] for n in values},
                        {n: [] for n in label},
                        shapes,
                    )
                if shapes != known_shapes:
                    shapes_text = ", ".join(
                        str(tuple(component.shape)) for component in parts.values()
                    )
                    raise ValueError(
                        f"its shape is {shapes_text}, not that of the first sample"
                    )
            except (ValueError, TypeError, IndexError, KeyError, RuntimeError) as error:
                bad.append(f"sample {number}: {error}")
                continue
            if not keep and len(values) > 1:
                raise ValueError(
                    "samples with several inputs are held in memory: set keep to memory"
                )
            for name, tensor in values.items():
                inputs[name].append(tensor if keep else torch.tensor(number))
            for name, tensor in label.items():
                labels[name].append(tensor)
        done += len(samples)
        if watch is not None:
            watch(done, max(total, done), "samples")
    if not inputs:
        return torch.empty(0), torch.empty(0), bad
    read = {name: torch.stack(tensors) for name, tensors in inputs.items()}
    if len(read) > 1:
        read = {name: field_of(stacked) for name, stacked in read.items()}
    else:
        read = {
            name: stacked
            if stacked.dtype == torch.uint8
            else stacked.to(kind_of(stacked))
            for name, stacked in read.items()
        }
    targets = {
        name: filled(
            [
                sample_label.to(label_kind(sample_label))
                for sample_label in sample_labels
            ]
        )
        for name, sample_labels in labels.items()
    }
    targets = {
        name: target_values(stacked, sample_shape) for name, stacked in targets.items()
    }
    labelled = torch.ones(len(next(iter(targets.values()))), dtype=torch.bool)
    for target_labels in targets.values():
        if target_labels.ndim == 1:
            labelled &= target_labels != -100
    if not labelled.all():
        read, targets = (
            {name: stacked[labelled] for name, stacked in parts.items()}
            for parts in (read, targets)
        )
    return alone(read), alone(targets), bad


def target_values(labels: Tensor, sample_shape: Sequence[int]) -> Tensor:
    """Return labels (N, ...) as targets of samples of the shape `sample_shape`: numbers as (N, ...) with an axis for
    them, several labels of 0 and 1 as numbers; -1 of a place as -100, which torch's losses ignore."""
    if labels.is_floating_point():
        return labels.unsqueeze(1) if labels.ndim == 1 else labels
    if labels.ndim == 2 and labels.shape[1] == 1:
        return labels.flatten()
    if (
        labels.ndim == 2
        and tuple(labels.shape[1:]) != tuple(sample_shape[-1:])
        and bool(((labels == 0) | (labels == 1)).all())
    ):
        return labels.to(torch.float32)
    return torch.where(labels == -1, -100, labels) if labels.ndim > 1 else labels


def filled(parts: Sequence[Tensor]) -> Tensor:
    """Stack tensors, those with fewer rows filled up: with NaN, or -100, which torch's losses ignore, for integers."""
    most = max(len(tensor) if tensor.ndim else 0 for tensor in parts)
    if all(not tensor.ndim or len(tensor) == most for tensor in parts):
        return torch.stack(list(parts))
    value = math.nan if parts[0].is_floating_point() else -100
    return torch.stack(
        [
            torch.cat(
                [
                    tensor,
                    tensor.new_full((most - len(tensor), *tensor.shape[1:]), value),
                ]
            )
            for tensor in parts
        ]
    )


def parts_of(sample: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the inputs and the targets of a sample by name.

    It is a pair of inputs and targets, each of which may be a tuple of tensors or a dictionary; or one dictionary, in
    which targets are called labels, label, targets, target or y; or a tensor of floats alone, which is its own target.
    Raises ValueError if a dictionary has no target, or nothing else, and for a tensor of integers alone.
    """
    if isinstance(sample, Mapping):
        names = [
            name
            for name in sample
            if str(name).lower() in ("labels", "label", "targets", "target", "y")
        ]
        if not names or len(names) == len(sample):
            raise ValueError(
                f"its dictionary has {', '.join(map(str, sample))}: call the target labels"
            )
        chosen = {name: sample[name] for name in names}
        sample = (
            {name: tensor for name, tensor in sample.items() if name not in chosen},
            chosen,
        )
    sample = (sample,) if hasattr(sample, "ndim") else sample
    sample_inputs = sample[0]
    if len(sample) == 1:
        sample_inputs = torch.as_tensor(sample_inputs)
        if not sample_inputs.is_floating_point():
            raise ValueError(
                f"it is {sample_inputs.dtype} alone: return a pair of input and target"
            )
        return {"input": sample_inputs}, {"target": sample_inputs}
    if isinstance(sample_inputs, tuple) and any(
        getattr(tensor, "ndim", 0) for tensor in sample_inputs
    ):  # else a row of numbers
        sample_inputs = {
            f"input {number}": tensor for number, tensor in enumerate(sample_inputs, 1)
        }
    inputs = (
        sample_inputs
        if isinstance(sample_inputs, Mapping)
        else {"input": sample_inputs}
    )
    return {
        str(name): torch.as_tensor(tensor) for name, tensor in inputs.items()
    }, targets_of(sample[1])


def targets_of(target: Any) -> dict[str, Tensor]:
    """Return the targets of a sample by name; a single one is named "target"."""
    if isinstance(target, Mapping):
        return {str(name): torch.as_tensor(tensor) for name, tensor in target.items()}
    if isinstance(target, tuple):
        return {
            f"target {number}": torch.as_tensor(tensor)
            for number, tensor in enumerate(target, 1)
        }
    return {"target": torch.as_tensor(target)}
