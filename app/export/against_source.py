"""Reference outputs of a source model, recorded at import, and comparison of an exported class with them.

The program records with this, and the clean process of a certificate runs this file next to `measure.py`; so it imports
only the standard library, torch and safetensors.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from app.export import measure
elif "app.export.measure" in sys.modules or __name__.endswith(".export.against_source"):
    from app.export import measure
else:
    measure = sys.modules["__main__"]  # the clean process runs it

FORMAT = "1"
LARGEST = 32 * 2**20  # bytes of a reference
GROUPS = ("outputs", "gradients", "buffers")
Tensors = dict[str, torch.Tensor]
# By key of the state_dict: a mean, and how far values lie from it at most.
Probe = Mapping[str, tuple[float, float]]


def change(net: torch.nn.Module, probe: Probe) -> None:
    """Give parameters and buffers the values that a probe has for them."""
    with torch.no_grad():
        state = net.state_dict()
        for key, (mean, most) in probe.items():
            tensor = state[key]
            tensor.copy_(
                (mean + most * measure.noise(key, tensor.numel())).reshape(tensor.shape)
            )


def packed(cases: Sequence[Mapping[str, Any]]) -> tuple[Tensors, list[dict[str, Any]]]:
    """Pack the tensors of cases by name for a file, with the metadata of each.

    A case has `train`, `seed`, its `inputs` and the `record` of `measure.step_of`, with large tensors as sketches.
    """
    tensors: Tensors = {}
    metadata: list[dict[str, Any]] = []
    for number, case in enumerate(cases):
        record = case["record"]
        lists = {"inputs": [f"{index}" for index in range(len(case["inputs"]))]}
        tensors |= {
            f"{number}/inputs/{index}": value.contiguous()
            for index, value in enumerate(case["inputs"])
        }
        for group in GROUPS:
            values = record.get(group, {})
            lists[group] = list(values)
            tensors |= {
                f"{number}/{group}/{index}": value.detach().clone().contiguous()
                for index, value in enumerate(values.values())
                if value is not None
            }
        odd = measure.odd_numbers({**record["outputs"], **record.get("gradients", {})})
        metadata.append(
            {
                "train": case["train"],
                "seed": case["seed"],
                "odd": odd,
                "refused": record.get("refused", ""),
                **lists,
            }
        )
    return tensors, metadata


def hashes(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Hash dtype, shape and bytes of every tensor."""
    digests = {}
    for key, value in state.items():
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest = hashlib.sha256(f"{value.dtype} {tuple(value.shape)} ".encode())
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
        digests[key] = digest.hexdigest()
    return digests


def compared(
    ask: Mapping[str, Any], make: Callable[[], torch.nn.Module]
) -> dict[str, Any]:
    """Compare the class created by `make` with the reference in `ask`, with the source model's weights."""
    from safetensors import safe_open

    question = ask["source"]
    with safe_open(question["reference"], "pt") as file:
        facts = json.loads(file.metadata()["tapedeck"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    cases = [
        _case(make, question["weights"], facts, tensors, number)
        for number in range(len(facts["cases"]))
    ]
    return {
        "torch": facts["torch"],
        "dtype": facts["dtype"],
        "cases": cases,
        **_values(make, question, facts),
    }


def _values(
    make: Callable[[], torch.nn.Module],
    question: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Compare weights and buffers with those of the source model: their number, and the names that differ."""
    expected = facts["values"]
    try:
        state = _with_values(make(), question["weights"], {}).state_dict()
    except Exception as error:  # keys or shapes that do not fit
        return {"values": len(expected), "other": [measure.error_text(error)]}
    mine = hashes({key: value for key, value in state.items() if key in expected})
    return {
        "values": len(expected),
        "other": [key for key, value in expected.items() if mine.get(key) != value],
    }


def _case(
    make: Callable[[], torch.nn.Module],
    weights: str,
    facts: Mapping[str, Any],
    tensors: Tensors,
    number: int,
) -> dict[str, Any]:
    case = facts["cases"][number]
    inputs = {
        f"input {index + 1}": tensors[f"{number}/inputs/{index}"]
        for index in range(len(case["inputs"]))
    }
    backward = bool(case["gradients"])
    answer: dict[str, Any] = {"train": case["train"], "odd": case["odd"]}
    try:
        net = _with_values(make(), weights, facts["probe"])
        net = net.double() if facts["dtype"] == "float64" else net
        mine = measure.step_of(
            net,
            inputs,
            case["seed"],
            train=case["train"],
            double=False,
            backward=backward,
        )
    except Exception as error:  # an error of the exported class is the finding
        return answer | {"stops": measure.error_text(error)}
    if bool(mine.get("refused")) != bool(case["refused"]):
        return answer | {
            "stops": mine.get("refused")
            or f"backward runs, but fails in the source model: {case['refused']}"
        }
    for group in GROUPS:
        expected = {
            name: tensors.get(f"{number}/{group}/{index}")
            for index, name in enumerate(case[group])
        }
        measured = dict(mine.get(group, {}))
        if group == "outputs":  # a source model may nest them differently
            if len(measured) != len(expected):
                return answer | {
                    "stops": f"it returns {len(measured)} tensors instead of {len(expected)}"
                }
            measured = dict(zip(expected, measured.values(), strict=True))
        elif group == "buffers":
            measured = {
                name: value for name, value in measured.items() if name in expected
            }
        answer[group] = measure.compare(
            {name: measure.sketch(value) for name, value in measured.items()}, expected
        )
    return answer


def _with_values(net: torch.nn.Module, weights: str, probe: Probe) -> torch.nn.Module:
    """Load the values that the source model had when it was recorded."""
    from safetensors.torch import load_file

    tensors = load_file(weights) if weights else {}
    net.load_state_dict({**net.state_dict(), **tensors}, strict=True)
    change(net, probe)
    return net


def file_of(path: Path, tensors: Tensors, facts: Mapping[str, Any]) -> None:
    """Write a reference."""
    from safetensors.torch import save_file

    save_file(
        tensors,
        path,
        metadata={
            "tapedeck": json.dumps(
                {"format": FORMAT, "torch": torch.__version__, **facts}
            )
        },
    )
