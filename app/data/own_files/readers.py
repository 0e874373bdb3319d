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
    wanted = [inputs] if isinstance(inputs, str) else list(inputs)
    if path.suffix == ".pt":
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
        held = (
            held
            if isinstance(held, dict)
            else {str(number): value for number, value in enumerate(held)}
        )
        found = {name: held[name] for name in (*wanted, *labels)}
    else:
        if path.suffix == ".npy":
            found = {
                name: np.load(Path(name or path), allow_pickle=False)
                for name in (*wanted, *labels)
            }
        else:
            with np.load(path, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in (*wanted, *labels)}
    samples, given = {name: tensor_of(found[name], name) for name in wanted}, {}
    for name in labels:
        values, kind = (classes or {}).get(name), (kinds or {}).get(name)
        if kind == "one_hot":
            given[name] = tensor_of(found[name], name).to(torch.uint8).argmax(1)
        elif kind == "values":
            given[name] = tensor_of(found[name], name).to(torch.float32)
        else:
            given[name] = (
                tensor_of(found[name], name)
                if values is None
                else class_ids(found[name], values)
            )
    good = torch.ones((), dtype=torch.bool)
    for name, held in samples.items():
        for known in given.values():
            if held.ndim == 0 or known.ndim == 0 or len(held) != len(known):
                raise ValueError(
                    f"{tuple(held.shape)} inputs do not match {tuple(known.shape)} labels"
                )
        if not held.numel():
            raise ValueError(f"inputs of shape {tuple(held.shape)} contain no sample")
        good = good & (
            held.flatten(1).isfinite().all(1) if held.ndim > 1 else held.isfinite()
        )
        if len(wanted) > 1:
            samples[name] = field_of(held)
        elif held.dtype != torch.uint8:
            samples[name] = held.to(kind_of(held))
    labelled = torch.ones((), dtype=torch.bool)
    for name, known in given.items():
        known = known.to(kind_of(known))
        if known.is_floating_point():
            known = known.unsqueeze(1) if known.ndim == 1 else known
        elif known.ndim == 2 and known.shape[1] == 1:
            known = known.flatten()
        good &= (
            known.flatten(1).isfinite().all(1) if known.ndim > 1 else known.isfinite()
        )
        if not known.is_floating_point():
            raw = np.asarray(found[name])
            if known.ndim > 1:
                known = torch.where(known == -1, -100, known)
            elif raw.dtype.kind == "i" and raw.size == len(known):
                labelled = labelled & torch.from_numpy(raw.reshape(len(known)) != -100)
            good &= (
                ((known >= 0) | ((known == -100) & (known.ndim > 1)))
                .reshape(len(known), -1)
                .all(1)
            )
        given[name] = known
    good = good | ~labelled  # those are no faults
    words = "a value that is not finite, or a class below 0"
    bad = [
        f"sample {number}: {words}" for number in (~good).nonzero().flatten().tolist()
    ]
    good = good & labelled
    if not good.all():
        samples, given = (
            {name: one[good] for name, one in parts.items()}
            for parts in (samples, given)
        )
    return alone(samples), alone(given), bad


def tensor_of(values: Any, name: str) -> Tensor:
    """Convert a NumPy array or tensor of real numbers to a tensor. Raises ValueError for anything else."""
    what = f"“{name}”" if name else "the file"
    if not hasattr(values, "dtype"):
        raise ValueError(f"{what} is not an array")
    kind = "" if isinstance(values, Tensor) else values.dtype.kind
    if kind == "c" or (isinstance(values, Tensor) and values.is_complex()):
        raise ValueError(
            f"{what} holds complex numbers; save real and imaginary parts as two channels of real ones"
        )
    if isinstance(values, Tensor):
        return values
    if kind not in "biuf":
        raise ValueError(
            f"{what} holds values of type {values.dtype}; a tensor needs integers, floats or booleans"
        )
    if kind == "u" and values.size and values.max() > 2**63 - 1:
        raise ValueError(
            f"{what} holds integers above 2^63 - 1, which int64 cannot hold"
        )
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="), copy=False))


def class_ids(values: Any, known: Sequence[Any]) -> Tensor:
    """Map labels to class ids (N,) int64: the index of each in the sorted `known`; -1 if unknown."""
    values, among = np.asarray(values), np.asarray(known)
    values = (values.astype(str) if values.dtype.kind == "S" else values).reshape(
        len(values)
    )
    places = np.searchsorted(among, values).clip(max=len(among) - 1)
    return torch.from_numpy(np.where(among[places] == values, places, -1))


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
    each: Sequence[int] = ()
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
                    **{f"{name} of the targets": one for name, one in label.items()},
                }
                shapes = tuple(
                    (
                        name,
                        one.shape
                        if name in values or not ragged or not one.ndim
                        else one.shape[1:],
                    )
                    for name, one in parts.items()
                )
                if not inputs:
                    each = next(iter(values.values())).shape
                    inputs, labels, known_shapes = (
                        {n: [] for n in values},
                        {n: [] for n in label},
                        shapes,
                    )
                if shapes != known_shapes:
                    told = ", ".join(str(tuple(one.shape)) for one in parts.values())
                    raise ValueError(
                        f"its shape is {told}, not that of the first sample"
                    )
            except (ValueError, TypeError, IndexError, KeyError, RuntimeError) as error:
                bad.append(f"sample {number}: {error}")
                continue
            if not keep and len(values) > 1:
                raise ValueError(
                    "samples with several inputs are held in memory: set keep to memory"
                )
            for name, one in values.items():
                inputs[name].append(one if keep else torch.tensor(number))
            for name, one in label.items():
                labels[name].append(one)
        done += len(samples)
        if watch is not None:
            watch(done, max(total, done), "samples")
    if not inputs:
        return torch.empty(0), torch.empty(0), bad
    read = {name: torch.stack(held) for name, held in inputs.items()}
    if len(read) > 1:
        read = {name: field_of(held) for name, held in read.items()}
    else:
        read = {
            name: one if one.dtype == torch.uint8 else one.to(kind_of(one))
            for name, one in read.items()
        }
    given = {
        name: filled([one.to(label_kind(one)) for one in known])
        for name, known in labels.items()
    }
    given = {name: target_values(known, each) for name, known in given.items()}
    labelled = torch.ones(len(next(iter(given.values()))), dtype=torch.bool)
    for known in given.values():
        if known.ndim == 1:
            labelled &= known != -100
    if not labelled.all():
        read, given = (
            {name: one[labelled] for name, one in parts.items()}
            for parts in (read, given)
        )
    return alone(read), alone(given), bad


def target_values(labels: Tensor, each: Sequence[int]) -> Tensor:
    """Return labels (N, ...) as targets of samples of the shape `each`: numbers as (N, ...) with an axis for them,
    several labels of 0 and 1 as numbers; -1 of a place as -100, which torch's losses ignore."""
    if labels.is_floating_point():
        return labels.unsqueeze(1) if labels.ndim == 1 else labels
    if labels.ndim == 2 and labels.shape[1] == 1:
        return labels.flatten()
    if (
        labels.ndim == 2
        and tuple(labels.shape[1:]) != tuple(each[-1:])
        and bool(((labels == 0) | (labels == 1)).all())
    ):
        return labels.to(torch.float32)
    return torch.where(labels == -1, -100, labels) if labels.ndim > 1 else labels


def filled(parts: Sequence[Tensor]) -> Tensor:
    """Stack tensors, those with fewer rows filled up: with NaN, or -100, which torch's losses ignore, for integers."""
    most = max(len(one) if one.ndim else 0 for one in parts)
    if all(not one.ndim or len(one) == most for one in parts):
        return torch.stack(list(parts))
    value = math.nan if parts[0].is_floating_point() else -100
    return torch.stack(
        [
            torch.cat([one, one.new_full((most - len(one), *one.shape[1:]), value)])
            for one in parts
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
            {name: one for name, one in sample.items() if name not in chosen},
            chosen,
        )
    sample = (sample,) if hasattr(sample, "ndim") else sample
    given = sample[0]
    if len(sample) == 1:
        given = torch.as_tensor(given)
        if not given.is_floating_point():
            raise ValueError(
                f"it is {given.dtype} alone: return a pair of input and target"
            )
        return {"input": given}, {"target": given}
    if isinstance(given, tuple) and any(
        getattr(one, "ndim", 0) for one in given
    ):  # else a row of numbers
        given = {f"input {number}": one for number, one in enumerate(given, 1)}
    inputs = given if isinstance(given, Mapping) else {"input": given}
    return {
        str(name): torch.as_tensor(one) for name, one in inputs.items()
    }, targets_of(sample[1])


def targets_of(target: Any) -> dict[str, Tensor]:
    """Return the targets of a sample by name; a single one is named "target"."""
    if isinstance(target, Mapping):
        return {str(name): torch.as_tensor(one) for name, one in target.items()}
    if isinstance(target, tuple):
        return {
            f"target {number}": torch.as_tensor(one)
            for number, one in enumerate(target, 1)
        }
    return {"target": torch.as_tensor(target)}
