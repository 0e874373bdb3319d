"""Import single lines that people write in `forward` and compare each with plain torch.

`python scripts/forward_lines.py` prints a row for every line and the counts; words on the command line choose the lines
that contain them. Each line stands in a net of its own, which is imported as a file of a person is, in a process of its
own. The drawing's code is then held against the net in double precision: outputs and gradients, in evaluation and in
training, with the batch of the import and with another. A line is `equal`, `own node` (drawn as one node of its own
class, and equal), `refused` with a sentence, or `different`; the command fails for a different one, for a drawing with
errors and for a refusal that is no sentence.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from app.builder.analysis import analyse
from app.features.importing import task
from app.features.importing.values import ImportModel, ModelImportError
from app.project import custom_layers
from app.project import file as project_file
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from scripts.forward_lines_list import LINES
from tests.support.own_code import trust

EQUAL, OWN, REFUSED, DIFFERENT = "equal", "own node", "refused", "different"
BATCH, OTHER = 2, 3
NAME = "Net"
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
# What a line may use, and the arguments of forward that it comes from.
_TAKEN = {"x": "x", "h": "x", "i": "i", "p": "p", "q": "p"}
_SHAPES = {"x": ((4, 6), "float32"), "i": ((4,), "int64"), "p": ((3, 8, 8), "float32")}
_HEAD = """import math
from typing import Optional

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.w = nn.Parameter(torch.linspace(-1, 1, 36).view(6, 6))
        self.register_buffer("b", torch.arange(6.0))
        self.dim, self.eps = 6, 1e-5

    def forward(self, {arguments}):
{before}{line}
        return y
"""
_BEFORE = {"x": "        h = self.fc(x)\n", "p": "        q = self.conv(p)\n"}


@dataclass(frozen=True)
class Verdict:
    """What became of a line: one of the four kinds, and the refusal or what differs."""

    line: str
    kind: str
    words: str = ""


def arguments_of(line: str) -> tuple[str, ...]:
    """The arguments of `forward` that a line uses, directly or through a layer."""
    names = set(
        re.findall(r"\b[a-z]\b", re.sub(r"'[^']*'|\"[^\"]*\"|\.\w+|\b\w+=", "", line))
    )
    return tuple(
        name for name in _SHAPES if any(_TAKEN.get(one) == name for one in names)
    ) or ("x",)


def text_of(line: str) -> str:
    """The file of a net that has the line in its forward. Statements are parted by `;;`."""
    given = arguments_of(line)
    lines = "\n".join(f"        {part}" for part in line.split(";;"))
    before = "".join(_BEFORE.get(name, "") for name in given)
    return _HEAD.format(arguments=", ".join(given), before=before, line=lines)


def verdict_of(line: str, folder: Path) -> Verdict:
    """Import a line and compare the drawing with it; files go to `folder`."""
    file = folder / "net.py"
    file.write_text(text_of(line), "utf-8")
    inputs = tuple(
        InputSpec((BATCH, *_SHAPES[name][0]), _SHAPES[name][1])
        for name in arguments_of(line)
    )
    namespace: dict[str, Any] = {}
    exec(compile(file.read_text("utf-8"), str(file), "exec"), namespace)
    torch.manual_seed(0)
    theirs: nn.Module = namespace[NAME]()
    dtype = _runs_in(theirs, inputs)
    trust(f"{file}:{NAME}")
    try:
        project = task.answer(
            ImportModel(SourceSpec("file", str(file), NAME), {}, inputs), folder
        )
    except ModelImportError as error:
        words = str(error)
        return Verdict(line, REFUSED if _is_sentence(words) else DIFFERENT, words)
    project = project_file.loads(project_file.dumps(project))
    custom_layers.admit(project, True)
    analysis = analyse(project.graph, custom_layers.ops_of(project))
    if analysis.errors:
        return Verdict(
            line, DIFFERENT, f"an error in the drawing: {analysis.errors[0].message}"
        )
    ours = make_module(analysis.source)
    words = compared(ours, theirs, inputs, dtype)
    return (
        Verdict(line, DIFFERENT, words)
        if words
        else Verdict(line, OWN if project.layer_files else EQUAL)
    )


def _runs_in(net: nn.Module, inputs: tuple[InputSpec, ...]) -> torch.dtype:
    """Double precision where the line runs in it; some make a tensor of float32 and multiply it with another."""
    try:
        _run(net, _arguments(inputs, BATCH, torch.float64), False, torch.float64)
    except RuntimeError:
        # A line that does not run in this one either is a mistake of the list.
        _run(net, _arguments(inputs, BATCH, torch.float32), False, torch.float32)
        return torch.float32
    return torch.float64


def compared(
    ours: nn.Module,
    theirs: nn.Module,
    inputs: tuple[InputSpec, ...],
    dtype: torch.dtype,
) -> str:
    """What differs between two nets, "" if nothing does."""
    ours.load_state_dict(theirs.state_dict(), strict=True)
    for batch in (BATCH, OTHER):
        for training in (False, True):
            given = _arguments(inputs, batch, dtype)
            wanted = _run(theirs, given, training, dtype)
            try:
                found = _run(ours, given, training, dtype)
            except Exception as error:  # it says what differs
                return f"batch {batch}: {type(error).__name__}: {error}"
            if found.keys() != wanted.keys():
                return f"batch {batch}: {sorted(found.keys() ^ wanted.keys())} in one alone"
            for name, value in wanted.items():
                if words := _apart(found[name], value, TOLERANCES[dtype]):
                    return f"{name}, batch {batch}{', training' if training else ''}: {words}"
    return ""


def _arguments(
    inputs: tuple[InputSpec, ...], batch: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    made = torch.Generator().manual_seed(batch)
    return tuple(
        torch.randn((batch, *one.shape[1:]), generator=made, dtype=dtype)
        if one.dtype == "float32"
        else torch.randint(0, 4, (batch, *one.shape[1:]), generator=made)
        for one in inputs
    )


def _run(
    net: nn.Module, given: tuple[Tensor, ...], training: bool, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Outputs and gradients by name."""
    net.to(dtype).train(training)
    given = tuple(one.clone().requires_grad_(one.is_floating_point()) for one in given)
    net.zero_grad()
    torch.manual_seed(3)
    outputs = _leaves(net(*given))
    found = {f"output {number}": leaf for number, leaf in enumerate(outputs)}
    learnt = [leaf for leaf in outputs if leaf.requires_grad]
    if learnt:
        sum(
            (leaf.abs() * torch.linspace(0.5, 2, leaf.numel()).view(leaf.shape)).sum()
            for leaf in learnt
        ).backward()
    grads = {
        f"gradient of {name}": p.grad
        for name, p in net.named_parameters()
        if p.grad is not None
    }
    grads |= {
        f"gradient of input {n}": one.grad
        for n, one in enumerate(given)
        if one.grad is not None
    }
    return {name: value.detach() for name, value in (found | grads).items()}


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [leaf for item in value for leaf in _leaves(item)]
        if isinstance(value, tuple | list)
        else []
    )


def _apart(found: Tensor, wanted: Tensor, tolerance: float) -> str:
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{tuple(found.shape)} of {found.dtype}, not {tuple(wanted.shape)} of {wanted.dtype}"
    if torch.allclose(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    return f"{(found - wanted).abs().max():.1e} apart"


def _is_sentence(words: str) -> bool:
    """Whether a refusal is for people: no traceback, no address of an object, no name of what stands for a tensor."""
    return bool(words) and not re.search(
        r"Traceback|0x[0-9a-f]{6}|Proxy|<built-in|object at|fx\.", words
    )


def _apart_from_here(line: str) -> Verdict:
    """The verdict, found in a process of its own: some lines end the one that they run in."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        child = os.fork()
        if not child:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1), os.dup2(devnull, 2)
            try:
                found = verdict_of(line, Path(folder))
                told.write_text(f"{found.kind}\n{found.words}", "utf-8")
            except BaseException as error:
                told.write_text(
                    f"{DIFFERENT}\n{type(error).__name__}: {error}", "utf-8"
                )
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status or not told.is_file():
            return Verdict(line, DIFFERENT, f"the process ended with status {status}")
        kind, _, words = told.read_text("utf-8").partition("\n")
        return Verdict(line, kind, " ".join(words.split()))


def _prepare() -> None:
    """Import what every child process would import for itself."""
    from app.features.importing.compute import building  # noqa: F401

    torch.export.export(
        nn.Linear(6, 6),
        (torch.zeros(2, 6),),
        dynamic_shapes=({0: torch.export.Dim.AUTO},),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="only lines that contain one of these")
    parser.add_argument(
        "--only",
        choices=(EQUAL, OWN, REFUSED, DIFFERENT),
        help="print rows of one kind",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    _prepare()
    counts: Counter[str] = Counter()
    for line in LINES:
        if options.parts and not any(part in line for part in options.parts):
            continue
        found = _apart_from_here(line)
        counts[found.kind] += 1
        if options.only in (None, found.kind):
            print(
                f"{found.kind:10} {line}"
                + (f"\n{'':10}   {found.words}" if found.words else ""),
                flush=True,
            )
    rest = ", ".join(
        f"{counts[kind]} {kind}" for kind in (EQUAL, OWN, REFUSED, DIFFERENT)
    )
    print(f"{counts.total()} lines: {rest}")
    return 1 if counts[DIFFERENT] else 0


if __name__ == "__main__":
    sys.exit(main())
