"""What `.pt2` files hold beside plain nodes: open sizes, branches, newer schemas; and what files that are none are."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from app.observe.observation import Observation
from app.sources import pt2_file
from app.sources.spec import SourceError


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.cond(
            x.sum() > 0, lambda x: self.fc(x).relu(), lambda x: x.cos() * 2, (x,)
        )
        return torch.cat([chosen, x])[:-1]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    program = torch.export.export(
        Branches(), (torch.ones(3, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    torch.export.save(program, path)
    return path


def rewritten(path: Path, folder: Path, change: Callable[[Any], object]) -> Path:
    """Write a file whose program `change` has changed."""
    made = folder / "changed.pt2"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("models/model.json"):
                program = json.loads(data)
                change(program)
                data = json.dumps(program).encode()
            target.writestr(name, data)
    return made


def wires(observation: Observation) -> set[tuple[str, str]]:
    calls = observation.calls
    return {
        (calls[flow.source].name, calls[flow.target].name) for flow in observation.flows
    }


def test_an_open_size_is_drawn_as_its_symbol(exported: Path) -> None:
    observation = pt2_file.read(exported)
    x = next(call for call in observation.calls if call.kind == "input")
    ((symbol, columns),) = (one.shape for one in x.outputs)
    assert isinstance(symbol, str) and symbol.isidentifier() and columns == 4
    shapes = {
        call.name: call.outputs[0].shape for call in observation.calls if call.outputs
    }
    assert shapes["cat"] == (f"2*{symbol}", 4) and shapes["slice"] == (
        f"2*{symbol} - 1",
        4,
    )
    assert (
        f"Open sizes are written as the file names them: {symbol}."
        in observation.remarks
    )


def test_an_expression_of_a_size_is_read_and_not_run(
    exported: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    expression = f"__import__('pathlib').Path({str(marker)!r}).touch()"

    def change(program: Any) -> None:
        for meta in program["graph_module"]["graph"]["tensor_values"].values():
            meta["sizes"][:1] = [{"as_expr": {"expr_str": expression}}]

    assert pt2_file.read(rewritten(exported, tmp_path, change)).calls
    assert not marker.exists()


def test_both_branches_of_a_cond_are_drawn_with_what_they_read(exported: Path) -> None:
    observation = pt2_file.read(exported)
    between = {
        ("linear", "relu"),
        ("relu", "cond"),
        ("cos", "mul"),
        ("mul", "cond"),
        ("gt", "cond"),
        ("cond", "cat"),
    }
    assert between <= wires(observation)
    assert {"cond: true_fn", "cond: false_fn"} <= {
        call.op for call in observation.calls if call.kind == "module"
    }
    readers = {
        observation.calls[flow.target].name
        for flow in observation.flows
        if flow.source == 0
    }
    assert {"linear", "cos"} <= readers
    linear = next(call for call in observation.calls if call.name == "linear")
    assert set(linear.parameters) == {"fc.weight", "fc.bias"}


def test_a_newer_schema_is_said_with_the_cure(exported: Path, tmp_path: Path) -> None:
    def newer(program: Any) -> None:
        program["schema_version"] = {"major": 99, "minor": 1}

    def unreadable(program: Any) -> None:
        newer(program)
        program["graph_module"]["graph"]["vertices"] = program["graph_module"][
            "graph"
        ].pop("nodes")

    said = "version 99.1 of torch's export schema, newer than .* Update Tapedeck, or export with an older torch"
    remarks = pt2_file.read(rewritten(exported, tmp_path, newer)).remarks
    assert any("version 99.1 of torch's export schema" in remark for remark in remarks)
    with pytest.raises(SourceError, match=said):
        pt2_file.read(rewritten(exported, tmp_path, unreadable))


def test_a_file_that_is_no_program_is_refused_with_what_it_is(
    exported: Path, tmp_path: Path
) -> None:
    data, path = exported.read_bytes(), tmp_path / "net.pt2"

    def refusal(content: bytes) -> str:
        path.write_bytes(content)
        with pytest.raises(SourceError) as refused:
            pt2_file.read(path)
        return str(refused.value)

    assert "it is empty" in refusal(b"")
    assert "which is a zip archive. Write it with torch.export.save" in refusal(
        b"neither"
    )
    assert "is not complete: the end of its archive is missing" in refusal(
        data[: len(data) // 2]
    )
    start = data.index(b"models/model.json") + 200
    assert "its archive is damaged" in refusal(
        data[:start] + bytes(40) + data[start + 40 :]
    )
    torch.save({"w": torch.ones(2)}, path)
    assert "it is a file of torch.save or TorchScript" in refusal(path.read_bytes())
