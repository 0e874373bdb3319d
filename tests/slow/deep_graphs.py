"""Two `.pt2` files that are hard to draw: modules within modules, and a very long chain; seconds for each.

    python -m tests.slow.deep_graphs

Each has to be drawn within a bound.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from app.cli import run

SIZES = [{"as_int": 2}, {"as_int": 4}]
BOUND = 60.0  # seconds for each on a busy machine


def node(number: int, stack: str) -> dict[str, Any]:
    """Describe a relu of the value before it, in the modules of `stack`."""
    return {
        "target": "torch.ops.aten.relu.default",
        "inputs": [
            {"name": "self", "arg": {"as_tensor": {"name": f"v{number}"}}, "kind": 1}
        ],
        "outputs": [{"as_tensor": {"name": f"v{number + 1}"}}],
        "metadata": {"nn_module_stack": stack},
    }


def write(path: Path, nodes: list[dict[str, Any]]) -> None:
    """Write a file with these nodes, each of which takes the value of the one before."""
    values = {
        f"v{number}": {"dtype": 7, "sizes": SIZES, "requires_grad": False}
        for number in range(len(nodes) + 1)
    }
    ends = {
        "input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "v0"}}}}],
        "output_specs": [
            {"user_output": {"arg": {"as_tensor": {"name": f"v{len(nodes)}"}}}}
        ],
    }
    module = {"graph": {"nodes": nodes, "tensor_values": values}, "signature": ends}
    program = {"graph_module": module, "schema_version": {"major": 8, "minor": 20}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/models/model.json", json.dumps(program))


def write_deep(path: Path, nodes: int = 20, levels: int = 300) -> None:
    """Write a file whose nodes each lie within `levels` modules of their own."""
    write(path, [node(number, _stack(f"m{number}", levels)) for number in range(nodes)])


def _stack(root: str, levels: int) -> str:
    paths = [".".join([root, *["m"] * level]) for level in range(levels)]
    return ";".join(f"key{level},{path},net.Part" for level, path in enumerate(paths))


def write_chain(path: Path, nodes: int = 200_000) -> None:
    """Write a file of nodes one after another, in no module."""
    write(path, [node(number, "L__self__,,net.Net") for number in range(nodes)])


def seconds(path: Path) -> float:
    """Return the seconds that `tapedeck draw` takes for a file; infinity where it fails."""
    began = time.monotonic()
    status = run(["draw", str(path), "--out", str(path.with_suffix(".svg"))])
    return time.monotonic() - began if status == 0 else float("inf")


def main() -> int:
    """Print a row for each file; return 1 if one takes longer than its bound."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (
            ("20 nodes, 300 levels of modules", write_deep),
            ("200,000 nodes in a chain", write_chain),
        ):
            path = Path(folder, "net.pt2")
            make(path)
            rows.append((name, seconds(path)))
    for name, taken in rows:
        print(f"{name:34} {taken:7.1f} s of at most {BOUND:.0f} s")
    return int(any(taken > BOUND for _, taken in rows))


if __name__ == "__main__":
    sys.exit(main())
