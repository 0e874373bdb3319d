"""A drawing becomes code, the code a file, the file a model, and the model a drawing: the same one up to names."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from app.builder.blocks import Block
from app.builder.graph import Node
from app.features.importing.compute.pipeline import project_of
from app.features.importing.values import ModelImportError
from app.project import file
from app.project.project import Project
from app.source.compiled import make_module
from app.source.generated import Source
from app.sources.spec import InputSpec
from app.util.frozen import FrozenMap
from tests.support.builder_nets import chain
from tests.support.builder_sheets import Row, row_of, sheet
from tests.support.round_trip_nets import code_of, drawn, form

_numbers = itertools.count()
# A seed has no smaller one.
PHASES = tuple(phase for phase in Phase if phase is not Phase.shrink)


def model_in(path: Path, source: Source) -> nn.Module:
    """The model that a file with the text defines."""
    path.write_text(source.text, encoding="utf-8")
    name = f"round_trip_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.Net()


def imported(model: nn.Module, source: Source) -> Project:
    inputs = tuple(InputSpec((2, *spec.shape), spec.dtype) for spec in source.inputs)
    project = project_of(model, inputs, "Net")
    again = file.loads(file.dumps(project))
    assert again == project
    return again


def leaves(value: object) -> list[torch.Tensor]:
    return (
        [value]
        if isinstance(value, torch.Tensor)
        else [leaf for item in value for leaf in leaves(item)]
    )


def outputs(net: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What a net gives; nothing where a matrix drawn at random has no such factorization."""
    try:
        return leaves(net(*inputs))
    except torch.linalg.LinAlgError:
        return []


def held(project: Project, folder: Path) -> None:
    """Take a drawing round, and hold what comes back against it."""
    first = code_of(project)
    assert not first.errors, [problem.message for problem in first.errors]
    model = model_in(folder / "model.py", first.source)
    back = imported(model, first.source)
    second = code_of(back)
    assert not second.errors, [
        (problem.message, problem.reason) for problem in second.errors
    ]
    ours = make_module(second.source)
    ours.load_state_dict(model.state_dict(), strict=True)
    inputs = [
        torch.randn(2, *spec.shape, dtype=getattr(torch, spec.dtype))
        for spec in first.source.inputs
    ]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a layer thinks of an unusual shape
        mine, theirs = (outputs(net.eval(), inputs) for net in (ours, model))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert form(second, ours) == form(first, model), (
        first.source.text,
        second.source.text,
    )


@settings(max_examples=8, derandomize=True, phases=PHASES)
@given(st.integers(0, 2**32))
def test_a_random_drawing_comes_back(tmp_path: Path, seed: int) -> None:
    held(drawn(seed), tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        "torch.pow(x, 2.0)",
        "torch.where(x > 0, x, 2.0)",
        "torch.remainder(x, 2.0)",
        "torch.float_power(x, 2)",
        "torch.bitwise_and(x.long(), 1)",
    ],
)
def test_functions_that_take_a_number_first_do_not_end_the_process(
    tmp_path: Path, call: str
) -> None:
    head = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n"
    model = model_in(tmp_path / "model.py", Source(f"{head}        return {call}\n"))
    try:
        project = project_of(model, (InputSpec((2, 6)),), "Net")
    except ModelImportError as error:
        assert "Net" in str(error)
    else:
        assert len(project.graph.nodes) >= 3


# --- Larger than Python likes to follow: its limit is 1,000 calls in calls


LONG = 1050


def test_a_long_chain_comes_back(tmp_path: Path) -> None:
    held(Project(graph=chain(LONG)), tmp_path)


def test_a_long_chain_in_a_block_comes_back(tmp_path: Path) -> None:
    inner = chain(LONG)
    block = Block("Long", inner.with_node(Node("in", "input", "x")))
    held(
        Project(
            graph=row_of([("b", "block.Long", "long")], (4,)),
            blocks=FrozenMap(Long=block),
        ),
        tmp_path,
    )


def test_a_wide_drawing_comes_back(tmp_path: Path) -> None:
    rows: list[Row] = [
        ("x", "input", "x", {"shape": (4,)}),
        ("c", "torch.cat", "all", {"dim": 1}),
    ]
    rows.append(("o", "output", "y"))
    rows += [(f"n{i}", "nn.ReLU", f"act{i}") for i in range(LONG)]
    wires = " ".join(f"x>n{i} n{i}>c.tensors" for i in range(LONG))
    held(Project(graph=sheet(rows, f"{wires} c>o")), tmp_path)


def test_blocks_in_blocks_in_blocks_come_back(tmp_path: Path) -> None:
    deepest = 60
    blocks = {
        "B0": Block("B0", row_of([("a", "nn.Linear", "fc", {"out_features": 4})]))
    }
    for number in range(1, deepest):
        inner = row_of(
            [("a", f"block.B{number - 1}", "inner"), ("b", "nn.ReLU", "act")]
        )
        blocks[f"B{number}"] = Block(f"B{number}", inner)
    graph = row_of([("a", f"block.B{deepest - 1}", "outermost")], (4,))
    held(Project(graph=graph, blocks=FrozenMap(blocks)), tmp_path)
