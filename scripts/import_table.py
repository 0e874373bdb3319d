"""Imports torchvision's models and says of each whether the drawing's code is the same net.

`python scripts/import_table.py`. Each model is drawn, saved and opened, and its code run in a process of its own that
has torch and torchvision alone. There the model's weights are loaded strictly, and outputs (float32 and float64) and
gradients (float64) are compared with the model's own, in eval and in train mode with the same seed. What does not pass
stands in the table too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("classification", "segmentation", "video")

# Run in a clean process: no Tapedeck, only the file, the weights and the model to compare with.
CHECK = '''
import importlib.util, json, sys
sys.modules["app"] = None
folder, name, shape = sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3].split("x")))
import torch
torch.set_num_threads(2)
sys.path.insert(0, folder)
import prepared  # makes torchvision importable where its compiled operators are missing
from torchvision import models
spec = importlib.util.spec_from_file_location("net", folder + "/model.py")
net = importlib.util.module_from_spec(spec); spec.loader.exec_module(net)
torch.manual_seed(0)
more = {"weights_backbone": None} if name in models.list_models(module=models.segmentation) else {}
theirs = models.get_model(name, weights=None, **more)
ours = net.Net()
ours.load_state_dict(theirs.state_dict(), strict=True)
for module in theirs.modules():
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        torch.nn.init.uniform_(module.weight, 0.5, 1.5); torch.nn.init.normal_(module.running_mean, 0, 0.1)
ours.load_state_dict(theirs.state_dict(), strict=True)

def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key])]
    return [leaf for item in value if item is not None for leaf in leaves(item)]

def run(model, x, seed):
    torch.manual_seed(seed)
    return leaves(model(x))

def apart(a, b):
    shapes = [[value.shape for value in values] for values in (a, b)]
    assert shapes[0] == shapes[1], shapes
    return max(float((x - y).abs().max() / y.abs().max().clamp_min(1e-30)) for x, y in zip(a, b))

found = {}
torch.manual_seed(1)
x = torch.randn(shape)
for mode in ("eval", "train"):
    for model in (theirs, ours):
        model.train(mode == "train")
    if mode == "eval":
        with torch.no_grad():
            found["float32"] = apart(run(ours, x, 2), run(theirs, x, 2))
    theirs.double(); ours.double()
    y = x.double()
    a, b = run(ours, y, 3), run(theirs, y, 3)
    found[f"{mode} float64"] = apart(a, b)
    torch.manual_seed(4)
    weigh = lambda v: torch.randn(v.shape, dtype=v.dtype, generator=torch.Generator().manual_seed(5))
    for values in (a, b):
        sum((v * weigh(v)).sum() for v in values).backward()
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    used = [n for n in other if other[n].grad is not None]
    assert used == [n for n in other if mine[n].grad is not None], "gradients reach other parameters"
    scale = max(float(other[n].grad.abs().max()) for n in used)
    found[f"{mode} gradients"] = max(float((mine[n].grad - other[n].grad).abs().max()) / scale for n in used)
    if mode == "train":
        one, two = dict(ours.named_buffers()), dict(theirs.named_buffers())
        two = {n: t for n, t in two.items() if n in theirs.state_dict()}
        found["buffers"] = max([float((one[n].double() - t.double()).abs().max()) for n, t in two.items()] or [0.0])
    ours.zero_grad(); theirs.zero_grad()
    theirs.float(); ours.float()
print(json.dumps(found))
'''
PREPARED = """
import sys
sys.modules.pop("app")
sys.path.insert(0, {root!r})
from app.torchvision_import import import_torchvision
import_torchvision()
sys.path.remove({root!r})
for name in [n for n in sys.modules if n == "app" or n.startswith("app.")]:
    del sys.modules[name]
sys.modules["app"] = None
"""
LIMITS = {"float32": 1e-5, "float64": 1e-10, "gradients": 1e-10, "buffers": 1e-8}
# Inputs that are smaller than what the weights are made for, so that a double backward fits.
SMALL = {"vit_h_14": "1x3x224x224", "swin_v2_b": "1x3x256x256", "inception_v3": "2x3x299x299"}


def models_of(group: str) -> Iterator[str]:
    from app.torchvision_import import import_torchvision

    models = import_torchvision("models")
    yield from models.list_models(module={"classification": models}.get(group) or getattr(models, group))


def checked(name: str, video: bool) -> dict[str, Any]:
    """One row of the table."""
    from app import model_import, own_layers, project_file
    from app.builder.analysis import analyse

    usual = model_import.usual_input(name).shape
    shape = SMALL.get(name) or "x".join(map(str, (2, *usual[1:]) if not video else (2, 3, 16, *usual[-2:])))
    row: dict[str, Any] = {"model": name, "input": shape}
    try:
        model = model_import.make_torchvision(name, {})
        began = time.perf_counter()
        project = model_import.project_of(model, (model_import.parse_input(shape),), name)
        row["import s"] = round(time.perf_counter() - began, 2)
        project = project_file.loads(project_file.dumps(project))
        began = time.perf_counter()
        analysis = analyse(project.graph, own_layers.ops_of(project))
        row["code s"] = round(time.perf_counter() - began, 2)
        row["nodes"] = len(project.graph.nodes) + sum(len(block.graph.nodes) for block in project.blocks.values())
        row["blocks"] = len(project.blocks)
        row["lines"] = analysis.source.text.count("\n")
        if analysis.errors:
            raise ValueError(f"{analysis.errors[0].message}. {analysis.errors[0].reason}")
        del model
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model.py").write_text(analysis.source.text)
            (Path(folder) / "prepared.py").write_text(PREPARED.format(root=str(ROOT)))
            command = [sys.executable, "-c", CHECK, folder, name, shape]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, cwd=folder)
        if done.returncode:
            raise ValueError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
        row |= json.loads(done.stdout.strip().splitlines()[-1])
        bad = [key for key in row if key.split()[-1] in LIMITS and row[key] > LIMITS[key.split()[-1]]]
        row["passes"] = not bad
        row["why"] = ", ".join(f"{key} {row[key]:.1e}" for key in bad)
    except Exception as error:  # the reason is a cell of the table
        row["passes"], row["why"] = False, f"{type(error).__name__}: {error}"[:300]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="these alone")
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--out", type=Path, help="a JSON line a model")
    options = parser.parse_args()
    rows = []
    for group in options.group or GROUPS:
        for name in models_of(group):
            if options.models and name not in options.models:
                continue
            row = checked(name, group == "video")
            rows.append(row)
            cells = ("import s", "code s", "nodes", "blocks", "lines")
            numbers = " ".join(f"{row.get(key, '-')!s:>6}" for key in cells)
            print(f"{name:34} {'pass' if row['passes'] else 'FAIL'} {numbers}  {row['why']}", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(f"{sum(row['passes'] for row in rows)} of {len(rows)} pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
