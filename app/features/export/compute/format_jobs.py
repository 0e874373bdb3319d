"""Writes a PT2 or ONNX file of an exported net, or runs such a file; each in a clean process (`python -I`).

The writer knows the exported class; the runner knows only the file. Imports nothing of the program but `measure.py`, by
path.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from app.export import measure
else:
    # By its path: no folder of the program's is on the path of a clean process.
    _loader = SourceFileLoader(
        "measure", str(Path(__file__).parents[3] / "export" / "measure.py")
    )
    measure = module_from_spec(spec_from_loader("measure", _loader))
    _loader.exec_module(measure)

Inputs = dict[str, torch.Tensor]
Axes = set[tuple[str, int]]  # inputs and their axes


def write(ask: measure.Record, job: str) -> measure.Record:
    """Export the class with its weights to `ask["file"]`, for any batch size if torch can, else for one."""
    measure.report_progress(ask, "Loading the files in a clean process")
    net = measure.make_net(ask).eval()
    inputs: Inputs = torch.load(ask["inputs"], weights_only=True)
    measure.report_progress(ask, "Tracing the network with torch.export")
    axes: Axes = {(name, int(axis)) for name, axis in ask["open"]}
    program, dynamic, why = _exported(net, inputs, axes)
    measure.report_progress(ask, f"Writing {job}")
    answer: measure.Record = {"dynamic": dynamic, "why": why}
    if job == "PT2":
        torch.export.save(program, ask["file"])
    else:
        shapes = _shapes(inputs, axes, dynamic) if dynamic or axes else None
        written = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            dynamic_shapes=shapes,
        )
        assert written is not None
        written.save(ask["file"])
        answer["opset"] = written.model.opset_imports.get("")
    return answer


def _shapes(inputs: Inputs, axes: Axes, any_batch: bool) -> tuple[dict[int, Any], ...]:
    """Make the first dimension of every input the same dynamic batch size if `any_batch`, and `axes` dynamic."""
    batch = {0: torch.export.Dim("batch")} if any_batch else {}
    dynamic = torch.export.Dim.DYNAMIC
    return tuple(
        {**batch, **{axis: dynamic for of, axis in sorted(axes) if of == name}}
        for name in inputs
    )


def _exported(
    net: torch.nn.Module, inputs: Inputs, axes: Axes
) -> tuple[Any, bool, str]:
    try:
        return (
            torch.export.export(
                net, tuple(inputs.values()), dynamic_shapes=_shapes(inputs, axes, True)
            ),
            True,
            "",
        )
    except Exception as error:  # without support for dynamic sizes, export a batch of one and keep the reason
        why = measure.error_text(error)
    single = tuple(value[:1] for value in inputs.values())
    if axes:
        return (
            torch.export.export(
                net, single, dynamic_shapes=_shapes(inputs, axes, False)
            ),
            False,
            why,
        )
    return torch.export.export(net, single), False, why


def run(ask: measure.Record, job: str) -> measure.Record:
    """Run the file for each of the inputs, and compare the results with those of the program's net."""
    measure.report_progress(ask, f"Running the {job} file in a clean process")
    for name in ask["packages"]:
        import_module(name)  # torchvision registers operators that the file may call
    give = _pt2(ask["file"]) if job == "PT2" else _onnx(ask["file"])
    comparisons = []
    for files in ask["compare"]:
        inputs: Inputs = torch.load(files["inputs"], weights_only=True)
        expected = torch.load(files["expected"], weights_only=True)["outputs"]
        measure.seed_everything(ask["seed"])
        values = give(inputs)
        if len(values) != len(expected):
            raise ValueError(
                f"the file gives {len(values)} tensors, the net {len(expected)}"
            )
        comparisons.append(
            measure.compare(dict(zip(expected, values, strict=True)), expected)
        )
    return {"found": comparisons}


def _pt2(file: str) -> Callable[[Inputs], list[torch.Tensor]]:
    net = torch.export.load(file).module()

    def give(inputs: Inputs) -> list[torch.Tensor]:
        with torch.inference_mode():
            value = net(*(value.clone() for value in inputs.values()))
        return [
            leaf for _, leaf in measure.leaves(value) if isinstance(leaf, torch.Tensor)
        ]

    return give


def _onnx(file: str) -> Callable[[Inputs], list[torch.Tensor]]:
    onnxruntime = import_module("onnxruntime")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    # An input that no output depends on is no input of the file.
    input_names = [entry.name for entry in session.get_inputs()]

    def give(inputs: Inputs) -> list[torch.Tensor]:
        return [
            torch.from_numpy(value)
            for value in session.run(
                None, {name: inputs[name].numpy() for name in input_names}
            )
        ]

    return give


def main(path: str) -> None:
    ask = measure.begin(path)
    warnings.simplefilter("ignore")  # stderr is for errors
    answer = write(ask, ask["kind"]) if ask["job"] == "write" else run(ask, ask["kind"])
    answer["torch"] = torch.__version__
    if ask["kind"] == "ONNX" and ask["job"] == "run":
        answer["onnxruntime"] = import_module("onnxruntime").__version__
    Path(ask["answer"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(measure.run_job(main))
