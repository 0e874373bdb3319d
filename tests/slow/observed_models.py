"""Draws public models from one forward pass, plays their backward passes, and redraws what can be.

`python -m tests.slow.observed_models` writes docs/measured/observed_public.md, a row after every model; stopped, it
goes on where it was. Names on the command line are made anew. Each model is made in a process of its own, with a time
limit.

- drawn: it ran to its end under observation, and its picture holds every flow between its boxes;
- played: the tape of its `.loss`, or of the sum of its float outputs, was played node by node, and each gradient equals
  bit for bit the `.grad` of plain torch after another forward of an equal model with the same seed;
- redrawn: `tapedeck import`'s own entry drew it, and held outputs and gradients of the drawing against the model.

The packages are a development check and no dependency: `pip install --no-deps` them in an environment of its own (no
other torch is to come along). What is not installed is said and not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.sources.spec import InputSpec, SourceSpec
from app.util.torchvision_import import import_torchvision
from scripts.import_check import ROOT, Table
from tests.slow.material.observed_list import MODELS, Public
from tests.support import own_code

FILE = ROOT / "docs" / "measured" / "observed_public.md"
HEAD = """# Public models, observed

Made by `python -m tests.slow.observed_models`: {counts}. Small models of public packages, with random weights, each
drawn from one forward pass, its backward pass played, and, where that is possible, redrawn to be edited. *Drawn* counts
calls and the boxes at first. *Played* counts the nodes of the tape and the parameters whose gradients equal the `.grad`
of plain torch bit for bit. *Redrawn* counts the nodes of the drawing, whose outputs and gradients the import held
against those of the model; a node *of their class* is a part that runs its own code, or a layer made for one function.
Of a model that takes lengths or tokens of a picture, a net around it that makes these of its inputs is redrawn. Last
comes why a model was not redrawn."""
COLUMNS = (
    "model",
    "input",
    "verdict",
    "drawn",
    "draw s",
    "played",
    "play s",
    "redrawn",
    "redraw s",
    "why",
)
OWN = "of their class"  # nodes that run a class's own code
LIMIT = 240.0  # seconds for one of the two processes of a model


def observed(public: Public, folder: Path) -> dict[str, Any]:
    """Draw and play a model in this process; the cells of its row."""
    model, args, kwargs = _made(public, folder)
    row: dict[str, Any] = {}
    with _told(row, "draw"):
        row["drawn"] = _drawn(model, args, kwargs, public)
    if "drawn" in row:
        with _told(row, "play"):
            row["played"] = _played(model, args, kwargs, public)
    return row


def _drawn(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], public: Public
) -> str:
    from app.features.opened.folding import to_plain
    from app.features.opened.picture import to_drawing
    from app.observe.observe import observe

    found = observe(model, args, kwargs, train=public.train, name=public.name)
    if found.failed is not None or found.error:
        raise ValueError(found.error)
    if found.remarks:
        raise ValueError(" ".join(found.remarks))
    plain, drawing = to_plain(found), to_drawing(found)
    known = {node["id"] for node in plain["nodes"]}
    assert all({source, target} <= known for source, target in plain["edges"]), (
        "an edge leads nowhere"
    )
    boxes = {box.id for box in drawing.boxes}
    assert all({arrow.source, arrow.target} <= boxes for arrow in drawing.arrows), (
        "an arrow leads nowhere"
    )
    inner = [call.id for call in found.calls if call.kind == "output"]
    reached = {flow.target for flow in found.flows}
    assert any(call in reached for call in inner), "no output comes from anything"
    return f"{len(found.calls)} calls, {len(boxes)} boxes"


def _played(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], public: Public
) -> str:
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    from app.autograd.batch import TrainingBatch
    from app.autograd.playback.playback import Playback
    from app.util import rng
    from app.util.module_tree import temporary_mode

    leaves, form = tree_flatten((args, kwargs))
    places = [
        place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)
    ]

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            given = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            positional, named = tree_unflatten(given, form)
            return self.model(*positional, **named)

    def total(output: Any, _target: Any) -> Any:
        return loss_of(output)

    total.whole = True  # type: ignore[attr-defined]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = TrainingBatch(
        Called(), tuple(leaves[place] for place in places), total, train=public.train
    )
    played = Playback(batch.hold())
    try:
        while played.step() is not None:
            pass
        gradients, nodes = played.gradients, len(played.tape.nodes)
    finally:
        played.release()
    model.load_state_dict(before)
    with rng.borrowed(batch.seed), temporary_mode(model, public.train):
        loss_of(model(*args, **kwargs)).backward()
    wanted = {
        f"model.{name}": one.grad
        for name, one in model.named_parameters()
        if one.grad is not None
    }
    if set(gradients) != set(wanted):
        raise ValueError(
            f"gradients reach {sorted(set(gradients) ^ set(wanted))[:3]} in one alone"
        )
    other = [
        name for name, grad in wanted.items() if not same_bits(gradients[name], grad)
    ]
    if other:
        raise ValueError(f"{len(other)} of {len(wanted)} gradients differ: {other[:3]}")
    if not wanted:
        raise ValueError("no parameter has a gradient")
    return f"{nodes} nodes, {len(wanted)} gradients"


def loss_of(output: Any) -> Any:
    """The loss that a model gives, or the sum of all its float outputs."""
    from app.observe.tensors import tensors_in

    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    floats = [
        one
        for one in tensors_in(output, objects=True)
        if one.requires_grad and one.is_floating_point()
    ]
    return sum(one.float().sum() for one in floats)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two tensors are equal in every bit, NaN included."""
    import torch

    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.layout != torch.strided:
        one, other = one.to_dense(), other.to_dense()
    one, other = (
        each.detach().reshape(-1).contiguous().view(torch.uint8)
        for each in (one, other)
    )
    return torch.equal(one, other)


def redrawn(public: Public, folder: Path) -> dict[str, Any]:
    """Redraw a model in this process with the entry of `tapedeck import`; the cells of its row."""
    from app.features.importing import task, values

    importable = public.importable
    if importable is None:
        return {"why": "not redrawn: it takes more than tensors"}
    text, name = importable
    file = folder / "net.py"
    file.write_text(text)
    row: dict[str, Any] = {}
    with _told(row, "redraw", "not redrawn: "):
        source = SourceSpec(
            "file", str(file), name.removesuffix("()"), name.endswith("()")
        )
        inputs = tuple(InputSpec(one.shape, one.dtype) for one in public.specs)
        own_code.trust(f"{file}:made")
        project = task.answer(values.ImportModel(source, {}, inputs), folder)
        checked = project.origin.checked if project.origin is not None else ""
        if not checked:
            raise ValueError("it was not held against the model")
        graphs = (project.graph, *(block.graph for block in project.blocks.values()))
        nodes = [node.op for graph in graphs for node in graph.nodes.values()]
        own = sum(op.startswith("custom.") for op in nodes)
        row["redrawn"] = f"{len(nodes)} nodes" + (f", {own} {OWN}" if own else "")
    return row


@contextlib.contextmanager
def _told(row: dict[str, Any], step: str, words: str = "") -> Iterator[None]:
    """Note how long a step took, and why it failed if it did."""
    began = time.perf_counter()
    try:
        yield
        row[f"{step} s"] = f"{time.perf_counter() - began:.1f}"
    except Exception as error:  # the reason is a cell of the table
        row["why"] = f"{words}{type(error).__name__}: {error}".replace(
            " ValueError:", ""
        )[:240]


def _made(public: Public, folder: Path) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    file = folder / "maker.py"
    file.write_text(public.maker)
    spec = importlib.util.spec_from_file_location("maker", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules["maker"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args, kwargs = module.inputs()
    return module.make(), args, kwargs


def in_child(
    work: Callable[[Public, Path], dict[str, Any]], public: Public, limit: float = LIMIT
) -> dict[str, Any]:
    """The cells that `work` makes of a model in a child of this process, which is ended after `limit` seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = os.fork()
        if not child:
            _work(work, public, folder)
        ended, status = _waited(child, limit)
        told = folder / "row.json"
        if told.is_file():
            row: dict[str, Any] = json.loads(told.read_text())
            return row
        return {
            "why": f"it ended with {status}"
            if ended
            else f"it had not come to its end after {limit:.0f} s"
        }


def _work(
    work: Callable[[Public, Path], dict[str, Any]], public: Public, folder: Path
) -> None:
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1), os.dup2(nothing.fileno(), 2)
        try:
            row = work(public, folder)
        except BaseException as error:  # its words are for the parent
            row = {"why": f"{type(error).__name__}: {error}"[:240]}
        (folder / "half").write_text(json.dumps(row))
        (folder / "half").rename(folder / "row.json")
    finally:
        os._exit(0)


def _waited(child: int, limit: float) -> tuple[bool, int]:
    """Wait for a child; whether it ended by itself, and how."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return True, status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return False, os.waitpid(child, 0)[1]


def row_of(public: Public, redraw: bool = True) -> dict[str, Any]:
    """One row of the table."""
    sizes = re.sub(r"(?<=\d)x(?=\d)", "×", public.inputs)
    row: dict[str, Any] = {"model": public.name, "input": sizes or "pictures"}
    row |= in_child(observed, public)
    row["verdict"] = (
        "played" if "played" in row else "drawn" if "drawn" in row else "fails"
    )
    if redraw and row["verdict"] == "played":
        row |= in_child(redrawn, public)
        if "redrawn" in row:
            row["verdict"] = "redrawn"
    return row


def counts(rows: dict[str, dict[str, Any]]) -> str:
    """The closing line: how many of how many were drawn, played, redrawn."""
    verdicts = [row["verdict"] for row in rows.values()]
    again = verdicts.count("redrawn")
    played = verdicts.count("played") + again
    drawn = verdicts.count("drawn") + played
    parts = sum(OWN in row.get("redrawn", "") for row in rows.values())
    told = f"{drawn} of {len(rows)} drawn, {played} played with equal gradients, {again} redrawn and certified"
    return f"{told}, {parts} of these with nodes of a class's own code"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="these alone, and anew")
    parser.add_argument("--table", type=Path, default=FILE)
    parser.add_argument("--no-redraw", action="store_true", help="draw and play alone")
    options = parser.parse_args()
    table = Table(options.table, lambda rows: HEAD.format(counts=counts(rows)), COLUMNS)
    order = [public.name for public in MODELS]
    wanted = [
        public
        for public in MODELS
        if (
            public.name in options.models
            if options.models
            else public.name not in table.rows
        )
    ]
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    import_torchvision()
    os.environ["HF_HUB_OFFLINE"] = "1"
    missing = _missing(wanted)
    for public in wanted:
        if not missing & set(public.package.split()):
            row = row_of(public, not options.no_redraw)
            table.put(row, order)
            print(
                f"{public.name:46} {row['verdict']:8} {row.get('why', '')}", flush=True
            )
    if missing:
        print(f"not installed, and not counted: {', '.join(sorted(missing))}")
    print(counts(table.rows))
    return (
        0
        if all(row["verdict"] in ("played", "redrawn") for row in table.rows.values())
        else 1
    )


def _missing(wanted: list[Public]) -> set[str]:
    """Import the packages as an import does, so that a child begins with them; return those that are not there."""
    from app.features.importing.compute.lowering.constructor_args import recording

    found = set()
    with recording():
        for package in dict.fromkeys(
            name for public in wanted for name in public.package.split()
        ):
            try:
                importlib.import_module(package)
            except (
                ImportError,
                OSError,
            ):  # the second: its own library was built for another torch
                found.add(package)
    return found


if __name__ == "__main__":
    sys.exit(main())
