"""Proof that what was exported is what was trained: a clean process runs it and compares the outputs, bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from app.rng import borrowed
from app.source import Source, make_module, random_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from app.export.weights import StateDict

# Runs with `python -I`: no folder of ours on the path, no environment variables, no user packages. `app` is barred
# even where it is installed.
_CHILD = """\
import importlib.util, json, os, sys
sys.modules["app"] = None
import torch

model_py, class_name, weights, tensors, threads, seed, *layers = sys.argv[1:]


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [tensor for item in value for tensor in flat(item)]


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def equal(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def difference(a, b):
    if equal(a, b):
        return 0.0
    if a.shape != b.shape or a.dtype != b.dtype:
        return None
    return (a.double() - b.double()).abs().max().item()


def imported(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


torch.set_num_threads(int(threads))
for path in layers:
    imported(os.path.splitext(os.path.basename(path))[0], path)
net = getattr(imported("model", model_py), class_name)()
if weights.endswith(".safetensors"):
    from safetensors.torch import load_file
    state = load_file(weights)
else:
    state = torch.load(weights, map_location="cpu", weights_only=True)
net.load_state_dict(state, strict=True)
net.eval()
saved = torch.load(tensors, weights_only=True)
torch.manual_seed(int(seed))
with torch.inference_mode():
    outputs = flat(net(*saved["inputs"]))
expected = saved["outputs"]
same = len(outputs) == len(expected)
pairs = list(zip(outputs, expected)) if same else []
print(json.dumps({
    "torch": torch.__version__,
    "shapes": [list(o.shape) for o in outputs],
    "equal": same and all(equal(a, b) for a, b in pairs),
    "differences": [difference(a, b) for a, b in pairs],
}))
"""


@dataclass(frozen=True)
class Certificate:
    """Whether the exported files gave the same outputs, bit for bit.

    `max_difference` is the largest absolute difference of any number, None where nothing could be compared.
    `message` is one sentence for the person; `details` what the other process wrote, for a traceback.
    """

    passed: bool
    max_difference: float | None
    message: str
    details: str = ""
    torch_version: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Reference:
    """Inputs and the outputs that the net of the app gives for them in eval mode, on the CPU."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    seed: int = 0


def reference(
    source: Source, state_dict: StateDict, inputs: Sequence[Tensor] | None = None, *, seed: int = 0, batch: int = 4
) -> Reference:
    """What the net of `source` gives for `inputs`, or for `batch` random samples drawn by `seed`.

    Random samples lie in the range that the input states; without one those of whole numbers are all 0 or 1, which
    every embedding has. The generators of a run under way are put back.
    """
    import torch

    with borrowed(seed):
        model = make_module(source)
        model.load_state_dict(dict(state_dict), strict=True)
        model.eval()
        chosen = tuple(inputs) if inputs is not None else random_inputs(source, batch)
        # The other process seeds here too, for a net that draws even in eval mode.
        torch.default_generator.manual_seed(seed)
        with torch.inference_mode():
            outputs = _flat(model(*chosen))
    # Tensors made under inference_mode cannot be saved and used like others.
    return Reference(chosen, tuple(output.clone() for output in outputs), seed)


def certify(
    model_py: str | Path,
    weights: str | Path,
    expected: Reference,
    *,
    class_name: str = "Net",
    layers: Sequence[str | Path] = (),
    timeout: float = 120.0,
) -> Certificate:
    """Run `model_py` with `weights` (`.pt` or `.safetensors`) in a clean Python process and compare the outputs.

    `layers` are the exported files that it imports; nothing else beside it can be found there.

    The process is this Python's, isolated, with torch alone (and safetensors for its own files).
    """
    import torch

    begun = perf_counter()
    with tempfile.TemporaryDirectory(prefix="tapedeck-") as folder:
        tensors = Path(folder) / "expected.pt"
        torch.save({"inputs": list(expected.inputs), "outputs": list(expected.outputs)}, tensors)
        files = [str(Path(model_py).resolve()), class_name, str(Path(weights).resolve()), str(tensors)]
        command = [sys.executable, "-I", "-c", _CHILD, *files, str(torch.get_num_threads()), str(expected.seed),
                   *(str(Path(path).resolve()) for path in layers)]  # fmt: skip
        try:
            # The folder is left to its own, so that nothing beside the app is found by chance.
            run = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=folder, check=False)
        except subprocess.TimeoutExpired:
            return Certificate(False, None, f"The check did not end within {timeout:.0f} seconds.")
    return _verdict(run, perf_counter() - begun)


def _verdict(run: subprocess.CompletedProcess[str], seconds: float) -> Certificate:
    if run.returncode != 0:
        last = run.stderr.strip().splitlines()[-1:] or [f"it ended with code {run.returncode}"]
        text = f"The exported files do not run in a clean Python process: {last[0]}"
        return Certificate(False, None, text, run.stderr, seconds=seconds)
    answer: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    differences = answer["differences"]
    known = [difference for difference in differences if difference is not None]
    largest = max(known) if known and len(known) == len(differences) else None
    if answer["equal"]:
        text = f"A clean Python process with torch {answer['torch']} gives the same outputs, bit for bit."
    elif largest is None:
        text = f"The exported model gives other shapes or dtypes: {answer['shapes']}."
    else:
        text = f"The exported model gives other numbers: the largest difference is {largest:.3g}."
    return Certificate(answer["equal"], largest, text, run.stderr, answer["torch"], seconds)


def _flat(value: Any) -> list[Tensor]:
    """The tensors of an output that is one, or a tuple or a dict of them."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [tensor for item in value for tensor in _flat(item)]
