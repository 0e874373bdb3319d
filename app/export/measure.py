"""Measurement of a net for inputs and a seed: outputs, gradients of a loss, buffers; and comparison of two
measurements.

The program measures its own net with this, and a clean process runs this file (`python -I measure.py ask.json`) to
measure the exported one. So it imports only the standard library and torch.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from types import CodeType, ModuleType

# Differences of gradients smaller than this fraction of the largest are relative to the fraction: gradients that are 0
# but for rounding, as those of a bias before a BatchNorm, are noise.
FLOOR = 1e-3
# A tensor larger than WHOLE is sketched by SAMPLES of its numbers and one weighted sum, in rows of FOLD.
WHOLE, SAMPLES, FOLD = 1024, 128, 65_537
CHUNK = 2**22

Tensors = Mapping[str, "torch.Tensor | None"]
Record = dict[str, Any]


# --- Measuring


def seed_everything(seed: int) -> None:
    """Seed the CPU generators of torch, Python's random, and numpy if it is imported."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of an output with their path: `out`, `[0]`, `aux[1]`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, dict | type):
        value = {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    else:
        yield path or "output", value


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """Convert floating-point numbers to double precision; integers and bools stay unchanged."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def outputs_of(
    net: torch.nn.Module, inputs: Mapping[str, torch.Tensor], seed: int
) -> Record:
    """Run the net in eval mode, in its own dtype. Raises whatever the net raises."""
    net.eval()
    seed_everything(seed)
    with torch.no_grad():
        return _split(net(*(value.clone() for value in inputs.values())))


def step_of(
    net: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    seed: int,
    *,
    train: bool,
    double: bool,
    backward: bool,
    call: Callable[..., Any] | None = None,
) -> Record:
    """Run one step without an optimizer: outputs, gradients of parameters and inputs, and the buffers after it.

    The loss is the sum of all floating outputs, weighted with pseudo-random numbers from `seed`. If backward fails,
    `refused` has torch's message. `call` is called instead of the net. Raises whatever its forward raises.
    """
    net.train(train)
    net.zero_grad(set_to_none=True)
    tensors = {
        name: doubled(value) if double else value for name, value in inputs.items()
    }
    able = {
        name: value.clone().requires_grad_()
        for name, value in tensors.items()
        if _differentiable(value)
    }
    seed_everything(seed)
    with torch.enable_grad():
        # A net may modify its input in place, which torch forbids for a leaf, but not for a clone.
        value = (call or net)(
            *(
                (able[name] if name in able else value).clone()
                for name, value in tensors.items()
            )
        )
        record = _split(value)
        if backward:
            try:
                _loss(value, seed).backward()
            except Exception as error:  # an error in backward is the finding
                record["refused"] = error_text(error)
                return record
    record["gradients"] = {
        **{name: _dense(parameter.grad) for name, parameter in net.named_parameters()},
        **{f"input {name}": _dense(leaf.grad) for name, leaf in able.items()},
    }
    record["buffers"] = {
        name: buffer.detach().clone() for name, buffer in net.named_buffers()
    }
    return record


def error_text(error: BaseException) -> str:
    """Format an error in one line: torch often gives the reason in the first and the location in the second."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return (
        f"{type(error).__name__}: {' '.join(lines[:2])}"
        if lines
        else type(error).__name__
    )


def _differentiable(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _split(value: Any) -> Record:
    """Split an output into copied tensors and the repr of other leaves."""
    path_leaves = list(leaves(value))
    tensors = {
        path: leaf.detach().clone()
        for path, leaf in path_leaves
        if isinstance(leaf, torch.Tensor)
    }
    others = {
        path: repr(leaf)
        for path, leaf in path_leaves
        if not isinstance(leaf, torch.Tensor)
    }
    return {"outputs": tensors, "others": others}


def _loss(value: Any, seed: int) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64, requires_grad=True)
    tensors = (
        leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)
    )  # a drawing returns no other
    for number, leaf in enumerate(tensors):
        if leaf.requires_grad:
            plain = torch.view_as_real(leaf) if leaf.is_complex() else leaf
            weights = noise(f"loss {seed} {number}", plain.numel()).reshape(plain.shape)
            total = total + (plain * weights.to(plain.dtype)).sum().double()
    return total


def _dense(gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is None:
        return None
    return gradient if gradient.layout == torch.strided else gradient.to_dense()


# --- Numbers that are the same on every machine


def noise(key: str, count: int) -> torch.Tensor:
    """Make `count` numbers (float64) of magnitudes from 1/4 to 1 and both signs from the hash of a key.

    They are computed with whole numbers, so no version of torch and no processor gives others.
    """
    start = int.from_bytes(
        hashlib.sha256(key.encode()).digest()[:8], "little", signed=True
    )
    numbers = torch.empty(count, dtype=torch.float64)
    for at in range(0, count, CHUNK):
        x = torch.arange(at, min(at + CHUNK, count)) * -7046029254386353131 + start
        for shift, factor in (
            (30, -4658895280553007687),
            (27, -7723592293110705685),
            (31, 1),
        ):  # splitmix64
            x = (x ^ ((x >> shift) & (2 ** (64 - shift) - 1))) * factor
        numbers[at : at + CHUNK] = ((x >> 11) & (2**53 - 1)) * (0.75 * 2.0**-53) + 0.25
        numbers[at : at + CHUNK] *= (x & 1) * 2 - 1
    return numbers


def sketch(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Sketch a tensor by a few numbers (float64) of the same magnitude; a difference in any element changes the sketch.

    Small ones are returned unchanged. Non-finite elements are sketched by position.
    """
    if tensor is not None and tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor is None or tensor.numel() <= WHOLE:
        return tensor
    flat = _real(tensor.detach()).reshape(-1)
    positions, folded = torch.arange(SAMPLES) * (flat.numel() // SAMPLES), _folded(flat)
    if folded.isfinite():
        return torch.cat([flat[positions], folded])
    odd = (flat.isnan().double(), flat.isposinf().double(), flat.isneginf().double())
    flat = flat.nan_to_num(0.0, 0.0, 0.0)
    return torch.cat([flat[positions], *map(_folded, (flat, *odd))])


@functools.cache
def _fold_weights() -> torch.Tensor:
    """Return the weights of one row, cached."""
    return noise("fold", FOLD)


def _folded(flat: torch.Tensor) -> torch.Tensor:
    """Return a weighted sum of all numbers, of the same magnitude."""
    rows = flat.numel() // FOLD
    weights, rest = _fold_weights(), flat[rows * FOLD :]
    total = rest @ weights[: rest.numel()]
    if rows:
        total = total + (flat[: rows * FOLD].reshape(rows, FOLD) @ weights) @ noise(
            "rows", rows
        )
    return (total / flat.numel() ** 0.5).reshape(1)


# --- Comparing


def compare(mine: Tensors, expected: Tensors) -> Record:
    """Compare `mine` with `expected`: `largest` is the relative difference, at `worst`, None if it is not numeric.

    `odd` describes non-finite numbers of either, "" if all are finite.
    """
    names = {*mine, *expected}
    comparison: Record = {
        "count": len(expected),
        "equal": True,
        "largest": 0.0,
        "worst": "",
        "words": "",
        "empty": sum(value is None for value in expected.values()),
        "odd": next(
            (
                description
                for tensors in (expected, mine)
                if (description := odd_numbers(tensors))
            ),
            "",
        ),
    }
    floor = FLOOR * max(
        (_size(value) for value in expected.values() if value is not None), default=0.0
    )
    for name in sorted(names):
        if (name in mine) != (name in expected):
            description, apart, equal = (
                "is missing" if name in expected else "should not exist",
                0.0,
                False,
            )
        else:
            description, apart, equal = _apart(mine[name], expected[name], floor)
        comparison["equal"] = comparison["equal"] and equal
        if description and not comparison["words"]:
            comparison.update(largest=None, worst=name, words=description)
        elif comparison["largest"] is not None and apart > comparison["largest"]:
            comparison.update(largest=apart, worst=name)
    return comparison


def odd_numbers(tensors: Tensors) -> str:
    """Describe non-finite numbers: `3 of 8 numbers of output are NaN`; "" if all are finite."""
    for name, value in tensors.items():
        if value is not None and (value.is_floating_point() or value.is_complex()):
            wrong = value.numel() - int(value.isfinite().sum())
            if wrong:
                kind = "NaN" if bool(value.isnan().any()) else "infinite"
                return f"{wrong:,} of {value.numel():,} numbers of {name} {'is' if wrong == 1 else 'are'} {kind}"
    return ""


def _apart(
    a: torch.Tensor | None, b: torch.Tensor | None, floor: float
) -> tuple[str, float, bool]:
    """Return a description of a non-numeric difference, the relative difference, and whether both are bitwise equal."""
    if a is None or b is None:
        description = (
            "has no gradient and should have one"
            if a is None
            else "has a gradient and should have none"
        )
        return ("", 0.0, True) if a is b else (description, 0.0, False)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"is {_kind(a)} and should be {_kind(b)}", 0.0, False
    if torch.equal(_bits(a), _bits(b)):
        return "", 0.0, True
    a, b = _real(a), _real(b)
    scale = max(_size(b), floor)
    numbers = ~(a.isnan() & b.isnan()) & (a != b)
    a, b = a[numbers], b[numbers]
    if not (a.isfinite() & b.isfinite()).all():
        return "differs in which values are finite", 0.0, False
    if not a.numel():  # 0 and -0, or two kinds of NaN
        return "", 0.0, False
    if not scale:
        return "should be 0 everywhere and is not", 0.0, False
    return "", float((a - b).abs().max()) / scale, False


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return (
        torch.view_as_real(tensor).double() if tensor.is_complex() else tensor.double()
    )


def _size(tensor: torch.Tensor) -> float:
    values = _real(tensor).abs()
    values = values[torch.isfinite(values)]
    return float(values.max()) if values.numel() else 0.0


def _kind(tensor: torch.Tensor) -> str:
    shape = (
        "×".join(map(str, tensor.shape)) or "scalar"
    )  # `shape_text` is the program's, which is not there
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape}"


# --- In the clean process


class _Loader(SourceFileLoader):
    """Compiles the file itself, since a bytecode cache may be of another text."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def imported(name: str, path: str) -> ModuleType:
    """Run a file as the module `name`, which others can then import."""
    spec = importlib.util.spec_from_file_location(
        name, path, loader=_Loader(name, path)
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make_class(ask: Record) -> type[torch.nn.Module]:
    """Reload the exported class, with seeded generators."""
    seed_everything(ask["seed"])
    for path in ask["layers"]:
        imported(os.path.splitext(os.path.basename(path))[0], path)
    seed_everything(ask["seed"])
    net_class: type[torch.nn.Module] = getattr(
        imported("model", ask["model"]), ask["class"]
    )
    return net_class


def make_net(ask: Record) -> torch.nn.Module:
    """Create the exported net with its exported weights."""
    net = make_class(ask)()
    if ask["weights"].endswith(".safetensors"):
        from safetensors.torch import load_file

        state = load_file(ask["weights"])
    else:
        state = torch.load(ask["weights"], map_location="cpu", weights_only=True)
    net.load_state_dict(state, strict=True)
    return net


def sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def begin(path: str) -> Record:
    """Read the question, and block the modules that the exported files must do without."""
    with open(path, encoding="utf-8") as file:
        ask: Record = json.load(file)
    for name in ask["barred"]:
        sys.modules[name] = None  # type: ignore[assignment]
    torch.set_num_threads(ask["threads"])
    # Output of a layer must not mix with the answer.
    sys.stdout = sys.stderr
    return ask


def report_progress(ask: Record, message: str) -> None:
    """Report progress to the waiting process."""
    Path(ask["progress"]).write_text(message, encoding="utf-8")


def main(path: str) -> None:
    ask = begin(path)
    report_progress(ask, "Loading the files in a clean process")
    files = {
        name: sha256(name) for name in (ask["model"], *ask["layers"], ask["weights"])
    }
    net = make_net(ask)
    inputs = torch.load(ask["inputs"], weights_only=True)
    answer: Record = {"torch": torch.__version__, "files": files, "stages": []}
    for stage in ask["stages"]:
        report_progress(ask, f"Clean process: {stage['words']}")
        if stage["fresh"]:
            net = make_net(ask)
        answer["stages"].append(_stage(ask, stage, net, inputs))
    if ask.get("source"):
        report_progress(ask, "Clean process: the source model's outputs and gradients")
        del net
        beside = imported(
            "against_source", str(Path(__file__).with_name("against_source.py"))
        )
        answer["source"] = beside.compared(ask, lambda: make_class(ask)())
    Path(ask["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def _stage(
    ask: Record, stage: Record, net: torch.nn.Module, inputs: Mapping[str, torch.Tensor]
) -> Record:
    if stage["kind"] == "outputs":
        record = outputs_of(net, inputs, ask["seed"])
    else:
        if stage["double"]:
            net.double()
        train, double, backward = (
            stage["kind"] == "train",
            stage["double"],
            stage["backward"],
        )
        record = step_of(
            net, inputs, ask["seed"], train=train, double=double, backward=backward
        )
    expected = torch.load(stage["file"], weights_only=True, mmap=True)
    groups = [
        group for group in ("outputs", "gradients", "buffers") if group in expected
    ]
    comparisons: Record = {
        group: compare(record.get(group, {}), expected[group]) for group in groups
    }
    if "refused" in record and "refused" not in expected:
        comparisons["refused"] = record["refused"]
    if record["others"] != expected["others"]:
        comparisons["outputs"].update(
            equal=False,
            largest=None,
            worst="output",
            words="contains other objects besides tensors",
        )
    return comparisons


def run_job(job: Callable[[str], None]) -> int:
    """Run a job and return the exit code; the last line on stderr is the error."""
    try:
        job(sys.argv[1])
    except Exception as error:  # any error of the exported files is the answer
        traceback.print_exc()
        print(error_text(error), file=sys.__stderr__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run_job(main))
