"""Plants differences into imported nets and asks for a certificate of each: every one has to fail.

A difference is a zeroed buffer, a transposed weight, a NaN, a changed constant or a swapped wire. Constants, wires and
buffers of the code are planted into the text that the program itself runs, so that net and export agree and only the
source model tells; values are planted into the file that the import kept, or into the exported weights alone. What
changes no output and no gradient of either mode is no difference, and is drawn anew.

    python -m tests.slow.planted_differences --count 100
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from app.builder.analysis import analyse
from app.builder.origin import KeptFile, Origin
from app.export.text_files import write_text
from app.export.weights import save_safetensors
from app.features.export.compute.certify import Files, certify
from app.features.export.values import Certificate
from app.features.importing import task
from app.features.importing.values import ImportModel
from app.project import custom_layers
from app.project.drawing_digest import ImportedNet
from app.source.compiled import make_module
from app.source.generated import Source
from app.sources.spec import InputSpec, SourceSpec
from app.training.setup.weights_header import sha256_of
from tests.support import own_code

KINDS = (
    "a zeroed buffer",
    "a transposed weight",
    "a NaN",
    "a changed constant",
    "a swapped wire",
)
NETS = """
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6))
        places = torch.arange(6)
        self.register_buffer("index", (places[:, None] - places[None, :] + 5) % 7)
        self.table = nn.Parameter(torch.randn(11, 2) * 0.1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = F.linear(x, self.qkv.weight, self.qkv.bias).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / 2 + F.embedding(self.index, self.table).permute(2, 0, 1)
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(b, t, c))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, 6, 8) * 0.1)
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("shift", torch.rand(8))
        self.first, self.second, self.norm = Attention(), Attention(), nn.LayerNorm(8)

    def forward(self, x):
        x = x * self.scale + self.places + self.shift
        x = x + self.first(x)
        return self.norm(x + F.dropout(self.second(x), 0.1, self.training))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6, 6)
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.40]).view(1, 3, 1, 1))
        self.norm1.running_mean.uniform_(), self.norm2.running_var.uniform_(0.5, 1.5)
        nn.init.zeros_(self.norm2.weight)

    def forward(self, x):
        x = self.norm1(self.stem(x - self.mean)).relu()
        x = x + self.norm2(self.conv(x)) * 0.7
        return self.fc(F.avg_pool2d(x, 4).flatten(2).mean(2)).tanh() + 0.25
"""
INPUTS = {"Masked": (2, 6, 8), "Residual": (2, 3, 8, 8)}


@dataclass(frozen=True)
class Net:
    """An imported net: its source, where it comes from, and the values that the import kept."""

    name: str
    source: Source
    origin: Origin
    values: Mapping[str, Tensor]


@dataclass(frozen=True)
class Planted:
    """A difference: the text of the class, the values of the project, those of the export, and what was done."""

    kind: str
    words: str
    text: str
    values: Mapping[str, Tensor]
    exported: Mapping[str, Tensor]


def nets(folder: Path) -> list[Net]:
    """The nets, imported with the defaults in this process; their files lie in `folder`."""
    file = folder / "nets.py"
    file.write_text(NETS)
    found = []
    for name, shape in INPUTS.items():
        torch.manual_seed(3)
        own_code.trust(f"{file}:made")
        project = task.answer(
            ImportModel(SourceSpec("file", str(file), name), {}, (InputSpec(shape),)),
            folder,
        )
        origin = project.origin
        assert (
            origin is not None
            and origin.weights is not None
            and origin.reference is not None
        )
        source = analyse(project.graph, custom_layers.ops_of(project)).source
        found.append(Net(name, source, origin, load_file(origin.weights.path)))
    return found


# --- Planting


def plantings(net: Net, kind: str, chance: random.Random) -> Iterator[Planted]:
    """Differences of one kind, without end; they may change nothing."""
    while True:
        if kind in ("a changed constant", "a swapped wire"):
            words, text = _in_text(net.source.text, kind, chance)
            yield Planted(kind, words, text, net.values, net.values)
        elif (
            kind == "a zeroed buffer"
            and chance.random() < 0.5
            and "nn.Buffer(" in net.source.text
        ):
            words, text = _in_text(net.source.text, kind, chance)
            yield Planted(kind, words, text, net.values, net.values)
        else:
            key = chance.choice(
                [
                    key
                    for key, value in net.values.items()
                    if _fits(key, value, kind, net)
                ]
            )
            wrong = dict(net.values) | {key: _changed(net.values[key], kind, chance)}
            alone = (
                chance.random() < 0.5
            )  # in the exported file alone, else in what the import kept
            where = "exported weights" if alone else "kept values"
            yield Planted(
                kind,
                f"{key} of the {where}",
                net.source.text,
                net.values if alone else wrong,
                wrong,
            )


def _fits(key: str, value: Tensor, kind: str, net: Net) -> bool:
    if kind == "a zeroed buffer":
        return bool(value.any()) and key in dict(
            make_module(net.source).named_buffers()
        )
    return value.is_floating_point() and (
        value.dim() >= 2 or kind != "a transposed weight"
    )


def _changed(value: Tensor, kind: str, chance: random.Random) -> Tensor:
    if kind == "a zeroed buffer":
        return torch.zeros_like(value)
    if kind == "a transposed weight":
        return value.transpose(0, 1).reshape(value.shape).contiguous()
    value = value.clone()
    value.view(-1)[chance.randrange(value.numel())] = float("nan")
    return value


def _in_text(text: str, kind: str, chance: random.Random) -> tuple[str, str]:
    """What was changed, and the text with it."""
    tree = ast.parse(text)
    edits = list(
        {
            "a changed constant": _constants,
            "a swapped wire": _wires,
            "a zeroed buffer": _buffers,
        }[kind](tree)
    )
    words, edit = chance.choice(edits)
    edit(chance)
    return words, ast.unparse(tree) + "\n"


Edit = tuple[str, Callable[[random.Random], None]]


def _constants(tree: ast.AST) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):

            def edit(chance: random.Random, node: Any = node) -> None:
                node.value = (
                    node.value + 1
                    if type(node.value) is int
                    else node.value * chance.choice((0.5, 1.5, -1))
                )

            yield f"{node.value} in line {node.lineno}", edit


def _wires(tree: ast.AST) -> Iterator[Edit]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "forward":
            names = {
                node.id
                for node in ast.walk(function)
                if isinstance(node, ast.Name) and node.id not in _MODULES
            }
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Name)
                    and isinstance(node.ctx, ast.Load)
                    and node.id in names
                ):
                    others = sorted(names - {node.id, "self"})
                    if node.id != "self" and others:

                        def edit(
                            chance: random.Random,
                            node: Any = node,
                            others: list[str] = others,
                        ) -> None:
                            node.id = chance.choice(others)

                        yield f"{node.id} in line {node.lineno}", edit


_MODULES = {"torch", "nn", "F", "float"}


def _buffers(tree: ast.AST) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "nn.Buffer":

            def edit(_chance: random.Random, node: ast.Call = node) -> None:
                node.args[0] = ast.parse(
                    f"torch.zeros_like({ast.unparse(node.args[0])})", mode="eval"
                ).body

            yield f"the buffer in line {node.lineno}", edit


# --- Whether it is a difference, told without the program's own comparison


def differs(net: Net, planted: Planted) -> bool:
    """Whether it runs and gives other outputs or gradients, in eval or in train mode."""
    wrong = replace(net.source, text=planted.text)
    for train in (False, True):
        try:
            given = [
                _gave(source, values, net, train)
                for source, values in (
                    (net.source, net.values),
                    (wrong, planted.exported),
                )
            ]
        except Exception:  # one that does not run is found by anybody
            return False
        if any(one.shape != other.shape for one, other in zip(*given, strict=False)):
            return True
        if any(
            not torch.allclose(one, other, rtol=1e-8, atol=1e-12)
            for one, other in zip(*given, strict=True)
        ):
            return True
    return False


def _gave(
    source: Source, values: Mapping[str, Tensor], net: Net, train: bool
) -> list[Tensor]:
    torch.manual_seed(0)
    made: nn.Module = make_module(source)
    made.load_state_dict({**made.state_dict(), **values})
    for parameter in made.parameters():
        if bool(
            (parameter == parameter.flatten()[0]).all()
        ):  # zeros hide what is behind them
            nn.init.uniform_(parameter, 0.5, 1.5)
    made.double().train(train)
    x = torch.randn(INPUTS[net.name], dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    y = made(x)
    (y * torch.rand(y.shape, dtype=y.dtype)).sum().backward()
    return [
        y.detach(),
        *(leaf.grad for leaf in (x, *made.parameters()) if leaf.grad is not None),
    ]


# --- The certificate


def certificate_of(net: Net, planted: Planted, folder: Path) -> Certificate:
    """What the program certifies of it."""
    source, origin = replace(net.source, text=planted.text), net.origin
    if planted.values is not net.values:  # as if the import had kept them
        kept = folder / "kept.safetensors"
        kept.unlink(missing_ok=True)
        save_file(dict(planted.values), kept)
        origin = replace(origin, weights=KeptFile(str(kept), sha256_of(kept)))
    made = make_module(source)
    state = {**made.state_dict(), **planted.values}
    write_text(folder / "model.py", source.text)
    save_safetensors({**state, **planted.exported}, folder / "weights.safetensors")
    files = Files(folder / "model.py", folder / "weights.safetensors")
    return certify(source, copy.deepcopy(state), files, imported=ImportedNet(origin))


def campaign(
    found: list[Net],
    count: int,
    folder: Path,
    tell: Callable[[str], None],
    seed: int = 0,
) -> int:
    """Plant `count` differences, one kind after the other; returns how many certificates passed all the same."""
    chance, passed = random.Random(seed), 0
    for number in range(count):
        net, kind = found[number // len(KINDS) % len(found)], KINDS[number % len(KINDS)]
        planted = next(one for one in plantings(net, kind, chance) if differs(net, one))
        certificate = certificate_of(net, planted, folder)
        passed += certificate.passed
        tell(
            f"{number + 1:>4} {net.name:9} {kind}: {planted.words}: {certificate.lines[0][:150]}"
        )
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = nets(folder)
        for net in found:  # what is untouched must pass, or a failure means nothing
            clean = certificate_of(
                net,
                Planted("nothing", "", net.source.text, net.values, net.values),
                folder,
            )
            print(f"     {net.name:9} untouched: {clean.lines[0]}", flush=True)
            if not clean.passed:
                return 1
        passed = campaign(
            found,
            options.count,
            folder,
            lambda words: print(words, flush=True),
            options.seed,
        )
    print(
        f"{options.count} planted differences: {options.count - passed} certificates failed, {passed} passed"
    )
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
