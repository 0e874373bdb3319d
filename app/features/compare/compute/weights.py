"""Weights of two models: copied from one to the other, compared by initialisation and by distance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from msgspec import Struct
from torch import Tensor, nn

from app.features.compare.values import Distance
from app.util import module_tree
from app.util.formatting import significant
from tapedeck import devices

SIGMAS = 8.0  # of the difference of two samples' mean or spread, beyond which they were drawn differently
LEAST = 16  # elements from which a sample tells its spread


class InitialDifference(Struct, frozen=True):
    """A parameter that both models initialise differently; `path` is its module in A."""

    path: str
    text: str


def tensors_of(
    a: nn.Module, b: nn.Module, pairs: Sequence[tuple[str, str]], buffers: bool = True
) -> Iterator[tuple[str, str, str, Tensor, Tensor]]:
    """Yield the path in A and in B, the name and both tensors, for every tensor that two matched modules have under one
    name."""
    ours, theirs = (
        dict(module_tree.named_modules(a)),
        dict(module_tree.named_modules(b)),
    )
    for path_a, path_b in pairs:
        module_a, other = ours.get(path_a), theirs.get(path_b)
        if module_a is None or other is None:
            continue
        mine: dict[str, Tensor | None] = {
            **module_a._parameters,
            **(module_a._buffers if buffers else {}),
        }
        yours: dict[str, Tensor | None] = {
            **other._parameters,
            **(other._buffers if buffers else {}),
        }
        for name, tensor in mine.items():
            twin = yours.get(name)
            if tensor is not None and twin is not None:
                yield path_a, path_b, name, tensor, twin


def fill_constants(model: nn.Module) -> int:
    """Draw other values for parameters and running statistics that are constant, and return how many: a scale of ones
    or a bias of zeros hides what is wrong with it."""
    generator = torch.Generator().manual_seed(0)
    count = 0
    with torch.no_grad():
        for module in module_tree.modules(model):
            running = [
                buffer
                for name, buffer in module._buffers.items()
                if buffer is not None and name.startswith("running_")
            ]
            for tensor in (*module._parameters.values(), *running):
                if (
                    tensor is None
                    or not tensor.is_floating_point()
                    or tensor.numel() < 2
                ):
                    continue
                if bool((tensor == tensor.flatten()[0]).all()):
                    noise = torch.rand(
                        tensor.shape, dtype=torch.float64, generator=generator
                    )
                    tensor.add_(0.2 * noise.to(tensor.dtype).to(tensor.device))
                    count += 1
    return count


def initial_differences(
    a: nn.Module, b: nn.Module, pairs: Sequence[tuple[str, str]]
) -> list[InitialDifference]:
    """List the parameters that both models draw from different distributions, or of which one is a constant."""
    return [
        InitialDifference(path, f"{name} is initialised with {description}")
        for path, _, name, tensor, other in tensors_of(a, b, pairs, buffers=False)
        if tensor.shape == other.shape
        and tensor.is_floating_point()
        and (description := _drawn_differently(tensor, other))
    ]


def _drawn_differently(a: Tensor, b: Tensor) -> str:
    """Describe how the values of two tensors are distributed, if that differs; "" if one distribution explains both."""
    a, b = (devices.doubled(values.detach()).flatten() for values in (a, b))
    if torch.equal(a, b) or not a.numel():
        return ""
    deviation, other = float(a.std(correction=0)), float(b.std(correction=0))
    mean, others = float(a.mean()), float(b.mean())
    means = f"{significant(mean, 3)} → {significant(others, 3)}"
    if a.numel() == 1 and not (_is_round(mean) and _is_round(others)):
        return ""  # one number that was drawn
    if not deviation and not other:
        return means
    description = f"standard deviation {significant(deviation, 3)} → {significant(other, 3)}, mean {means}"
    if not deviation or not other:
        return description if a.numel() > 1 else ""
    ratio = float((a @ b) / (a @ a))
    if a.numel() >= 4 and float((b - ratio * a).norm()) < 1e-6 * float(b.norm()):
        return f"{description}: {significant(ratio, 4)} times the same numbers"
    if a.numel() < LEAST:
        return ""
    apart = abs(math.log(other / deviation)) > SIGMAS / math.sqrt(a.numel())
    shifted = abs(mean - others) > SIGMAS * math.hypot(deviation, other) / math.sqrt(
        a.numel()
    )
    return description if apart or shifted else ""


def _is_round(value: float) -> bool:
    """Return whether a number has at most three decimals, so that it was hardly drawn at random.

    >>> _is_round(0.1), _is_round(-0.0743921)
    (True, False)
    """
    return math.isclose(value, round(value, 3), rel_tol=1e-6, abs_tol=1e-12)


def share(a: nn.Module, b: nn.Module, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Give B the parameters and buffers of A where matched modules have one of that name and shape; return the names in
    B of those that got none."""
    left = {
        name
        for name, _ in (
            *module_tree.named_parameters(b, remove_duplicate=False),
            *module_tree.named_buffers(b),
        )
    }
    with torch.no_grad():
        for _, path, name, tensor, other in tensors_of(a, b, pairs):
            if tensor.shape == other.shape:
                other.copy_(tensor)
                left.discard(f"{path}.{name}" if path else name)
    tied: dict[int, list[str]] = {}
    for name, parameter in module_tree.named_parameters(b, remove_duplicate=False):
        tied.setdefault(id(parameter), []).append(name)
    got = {
        name for names in tied.values() if not left.issuperset(names) for name in names
    }
    return sorted(left - got)


def distances(
    a: nn.Module, b: nn.Module, pairs: Sequence[tuple[str, str]]
) -> tuple[Distance, ...]:
    """Return how far the parameters and buffers of each matched module are apart."""
    tensor_pairs: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = {}
    for path_a, path_b, _, tensor, other in tensors_of(a, b, pairs):
        tensor_pairs.setdefault((path_a, path_b), []).append(
            (tensor.detach(), other.detach())
        )
    return tuple(distance(a, b, tensors) for (a, b), tensors in tensor_pairs.items())


def state_distances(
    a: Mapping[str, Tensor], b: Mapping[str, Tensor]
) -> tuple[Distance, ...]:
    """Return how far the tensors of two state_dicts are apart, module by module, by name; those of other shapes are
    infinitely far."""
    tensor_pairs: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, tensor in a.items():
        if name in b:
            tensor_pairs.setdefault(name.rpartition(".")[0], []).append(
                (tensor, b[name])
            )
    return tuple(
        distance(path, path, tensors) for path, tensors in tensor_pairs.items()
    )


def distance(a: str, b: str, tensors: Sequence[tuple[Tensor, Tensor]]) -> Distance:
    """Return how far the tensors of two matched layers are apart; those of other shapes are infinitely far."""
    if any(first.shape != other.shape for first, other in tensors):
        return Distance(a, b, math.inf, math.inf, 0, 0)
    square = norm = 0.0
    differing = count = 0
    for tensor, other in tensors:
        x, y = (devices.doubled(values) for values in (tensor, other.to(tensor.device)))
        square += float((y - x).square().sum())
        norm += float(x.square().sum())
        differing += int((x != y).sum())
        count += x.numel()
    apart, size = math.sqrt(square), math.sqrt(norm)
    return Distance(
        a,
        b,
        apart,
        apart / size if size else (math.inf if apart else 0.0),
        differing,
        count,
    )
