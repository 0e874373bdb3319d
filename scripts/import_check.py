"""Whether an import with its defaults is the source model: its export and the model are run without Tapedeck, and
compared.

The exported class loads the exported weights strictly, which have to be the model's own, key by key. Then outputs
(float32 in eval; float64 in eval and in training) and the gradients of every parameter (float64) are compared with the
model's, with the same seed. Parameters that start equal everywhere (zeros of a head, ones of a norm) are made different
before, as a net that starts with zeros gives zeros whatever it does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.builder.analysis import analyse
from app.export.layers import write_model
from app.export.weights import save_safetensors
from app.export.weights_choice import weights_to_export
from app.project import custom_layers
from app.project import file as project_file

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"float32": 1e-5, "float64": 1e-10, "gradients": 1e-10, "buffers": 1e-10}
COLUMNS = (
    "model",
    "input",
    "verdict",
    "nodes",
    "blocks",
    "lines",
    "import s",
    "code s",
    "float32",
    "float64",
    "gradients",
    "buffers",
    "why",
)

# Run in a clean process: no Tapedeck, only the file with the net and `maker.py`, which makes the model and its inputs.
CHECK = '''
import importlib.util, json, sys
import torch
sys.path.insert(0, folder)
import maker
spec = importlib.util.spec_from_file_location("net", folder + "/model.py")
net = importlib.util.module_from_spec(spec); spec.loader.exec_module(net)
from safetensors.torch import load_file
torch.manual_seed(0)
theirs, inputs = maker.make(), maker.inputs()
ours, weights = net.Net(), load_file(folder + "/weights.safetensors")
ours.load_state_dict(weights, strict=True)
state = theirs.state_dict()
assert set(state) == set(weights), f"other keys: {sorted(set(state) ^ set(weights))[:3]}"
other = [k for k, v in state.items() if v.dtype != weights[k].dtype or not torch.equal(v, weights[k])]
assert not other, f"{len(other)} exported tensors are not the model's: {other[:3]}"
del weights, state
for name, p in theirs.named_parameters():
    if p.is_floating_point() and p.numel() > 1 and bool((p == p.flatten()[0]).all()):
        torch.nn.init.uniform_(p, 0.5, 1.5) if p.flatten()[0] == 1 else torch.nn.init.normal_(p, 0, 0.1)
for module in theirs.modules():
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
        torch.nn.init.normal_(module.running_mean, 0, 0.1)

def share():
    """Load strictly what theirs holds: parameters by reference, as two sets of large ones may not fit."""
    assert one_tensor(ours) == one_tensor(theirs), "other names are one tensor"
    mine = {id(p): torch.nn.Parameter(p.detach(), p.requires_grad) for p in theirs.parameters()}
    state = theirs.state_dict(keep_vars=True)
    ours.load_state_dict({k: mine[id(v)] if id(v) in mine else v.clone() for k, v in state.items()}, assign=True)

def one_tensor(model):
    """The names of parameters that are one tensor, in groups."""
    groups = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(p), set()).add(name)
    return sorted(map(sorted, groups.values()))

def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key])]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (tuple, list)) else []

def run(model, given, seed):
    torch.manual_seed(seed)
    return leaves(model(*given))

def apart(a, b):
    shapes = [[tuple(value.shape) for value in values] for values in (a, b)]
    assert shapes[0] == shapes[1] and shapes[0], f"shapes {shapes[0]} and not {shapes[1]}"
    for x, y in zip(a, b):
        assert x.dtype == y.dtype and bool(torch.isfinite(y).all()), f"{x.dtype} for {y.dtype}, or no finite value"
    found = [(x - y).abs().max() / y.abs().max().clamp_min(1e-30) if y.is_floating_point() else (x != y).any()
             for x, y in zip(a, b) if y.numel()]
    return max(map(float, found))

def backward(values):
    of = lambda v: torch.randn(v.shape, dtype=v.dtype, generator=torch.Generator().manual_seed(5))
    sum((v * of(v)).sum() for v in values if v.requires_grad).backward()

share()
theirs.eval(); ours.eval()
with torch.no_grad():
    found = {"float32": apart(run(ours, inputs, 2), run(theirs, inputs, 2)), "float64": 0.0, "gradients": 0.0,
             "buffers": 0.0}
theirs.double(); ours.double(); share()
inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
for mode in ("eval", "train"):
    theirs.train(mode == "train"); ours.train(mode == "train")
    wanted = run(theirs, inputs, 3)
    backward(wanted)
    other = {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    scale = max(float(g.abs().max()) for g in other.values())
    reached, hooks = {}, []
    def compared(name):
        def hook(p):
            whole = max(float(other[name].abs().max()), 1e-6 * scale)
            reached[name] = float((p.grad - other[name]).abs().max()) / whole
            p.grad = None  # at once: two sets of large gradients may not fit
        return hook
    for name, p in ours.named_parameters():
        if p.requires_grad:
            hooks.append(p.register_post_accumulate_grad_hook(compared(name)))
    got = run(ours, inputs, 3)
    found["float64"] = max(found["float64"], apart(got, wanted))
    backward(got)
    assert set(reached) == set(other), f"gradients reach {sorted(set(reached) ^ set(other))[:3]} in one alone"
    found["gradients"] = max(found["gradients"], max(reached.values()))
    for hook in hooks:
        hook.remove()
    theirs.zero_grad()
    one, two = dict(ours.named_buffers()), dict(theirs.named_buffers())
    kept = theirs.state_dict().keys() & two.keys()
    found["buffers"] = max([found["buffers"], *(float((one[n].double() - two[n].double()).abs().max()) for n in kept)])
    del wanted, got, other
assert all(value == value for value in found.values()), "not a number"
print(json.dumps(found))
'''


# Makes torchvision importable where its compiled operators are missing, and forgets Tapedeck again.
PREPARED = """
import sys
sys.modules.pop("app", None)
sys.path.insert(0, {root!r})
from app.util.torchvision_import import import_torchvision
import_torchvision("models")
sys.path.remove({root!r})
for name in [n for n in sys.modules if n == "app" or n.startswith("app.")]:
    del sys.modules[name]
sys.modules["app"] = None
"""

# The process that the comparisons are forked from: it has torch and what `first` imports, and nothing of Tapedeck.
SERVER = """
import os, sys, traceback
sys.modules["app"] = None
import torch
torch.set_num_threads(1)
exec(compile(sys.argv[1], "first", "exec"))
assert not [name for name, module in sys.modules.items() if name.partition(".")[0] == "app" and module is not None]
print("ready", flush=True)
for line in sys.stdin:
    folder = line.strip()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        with open(folder + "/told", "w") as told:
            os.dup2(told.fileno(), 1), os.dup2(told.fileno(), 2)
        code = 1
        try:
            exec(compile(sys.argv[2], "check", "exec"), {"folder": folder})
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    print(status, flush=True)
"""


class Clean:
    """A process without Tapedeck, in which `first` (Python) has been run, that compares one net after the other."""

    def __init__(self, first: str) -> None:
        command = [
            sys.executable,
            "-P",
            "-c",
            SERVER,
            first,
            CHECK,
        ]  # -P: nothing that lies about
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tempfile.gettempdir(),
        )
        while (line := self._line()) != "ready":
            if not line:
                raise RuntimeError("the comparing process did not start")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def compared(self, folder: str) -> dict[str, float]:
        """The differences between `model.py` and what `maker.py` makes. Raises ValueError with the last words."""
        assert self._process.stdin is not None
        print(folder, file=self._process.stdin, flush=True)
        status = self._line()
        lines = (Path(folder) / "told").read_text("utf-8").strip().splitlines() or [
            "it said nothing"
        ]
        if status != "0":
            raise ValueError(
                lines[-1]
                if lines[-1] != "it said nothing"
                else f"the comparison ended with {status}"
            )
        found: dict[str, float] = json.loads(lines[-1])
        return found


def drawn_row(row: dict[str, Any], file: Path, maker: str, clean: Clean) -> None:
    """Fill a row with what an imported project is and how its export compares with the model that `maker` (Python)
    makes.

    Raises whatever goes wrong; the row says how far it came.
    """
    project = project_file.read(file)
    custom_layers.admit(project, True)
    row["nodes"] = len(project.graph.nodes) + sum(
        len(block.graph.nodes) for block in project.blocks.values()
    )
    row["blocks"] = len(project.blocks)
    began = time.perf_counter()
    analysis = analyse(project.graph, custom_layers.ops_of(project))
    row["code s"] = f"{time.perf_counter() - began:.2f}"
    if analysis.errors:
        raise ValueError(f"{analysis.errors[0].message}. {analysis.errors[0].reason}")
    row["lines"] = analysis.source.text.count("\n")
    with tempfile.TemporaryDirectory() as folder:
        write_model(analysis.source, Path(folder) / "model.py")
        chosen = weights_to_export(
            analysis.source, project.training.seed, start=project.training.start
        )
        save_safetensors(chosen.state_dict, Path(folder) / "weights.safetensors")
        del chosen
        (Path(folder) / "maker.py").write_text(maker)
        found = clean.compared(folder)
    row |= {key: f"{value:.0e}" if value else "0" for key, value in found.items()}
    bad = [key for key, limit in LIMITS.items() if found[key] > limit]
    row["why"] = " ".join(f"{key} differ by {found[key]:.1e}" for key in bad)
    row["verdict"] = "differs" if bad else "passes"


class Table:
    """A table of a Markdown file that is its own memory: rows that are there are not made again.

    `head` is the text above it, with `{passed}` and `{whole}` in it, or makes that text of all rows.
    """

    def __init__(
        self,
        file: Path,
        head: str | Callable[[dict[str, dict[str, Any]]], str],
        columns: tuple[str, ...] = COLUMNS,
    ) -> None:
        self._file, self._head, self._columns = file, head, columns
        self.rows: dict[str, dict[str, Any]] = {}
        self._read()

    def _read(self) -> None:
        text = self._file.read_text("utf-8") if self._file.is_file() else ""
        lines = [
            line.strip("|").split("|")
            for line in text.splitlines()
            if line.startswith("|")
        ]
        cells = [[cell.strip() for cell in line] for line in lines]
        for row in cells[2:]:
            self.rows[row[0]] = dict(zip(cells[0], row, strict=True))

    def put(self, row: Mapping[str, Any], order: list[str]) -> None:
        """Write the file with this row in it, the rows in the order of their names in `order`."""
        self._read()  # another run may have put rows there meanwhile
        self.rows[row["model"]] = {
            column: str(row.get(column, "")) for column in self._columns
        }
        names = sorted(
            self.rows,
            key=lambda name: order.index(name) if name in order else len(order),
        )
        lines = [
            self._heading(),
            "",
            _line(self._columns),
            _line(["---"] * len(self._columns)),
        ]
        lines += [
            _line([self.rows[name][column] for column in self._columns])
            for name in names
        ]
        self._file.parent.mkdir(exist_ok=True)
        self._file.write_text("\n".join(lines) + "\n", "utf-8")

    def _heading(self) -> str:
        if callable(self._head):
            return self._head(self.rows)
        passed = sum(row["verdict"] == "passes" for row in self.rows.values())
        return self._head.format(passed=passed, whole=len(self.rows))

    def told(self, name: str) -> str:
        """A row as a line of a terminal."""
        row = self.rows[name]
        numbers = " ".join(f"{row[key]:>6}" for key in COLUMNS[3:12])
        return f"{name:34} {row['verdict']:8} {numbers}  {row['why']}"


def _line(cells: Any) -> str:
    return (
        "| "
        + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells)
        + " |"
    )
