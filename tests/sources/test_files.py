"""Graphs of files: drawn as the file describes them, and without running anything of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from app.observe.observe import observe
from app.sources import onnx_file, pt2_file
from app.sources.spec import SourceError


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(torch.relu(self.a(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(Block(), Block(), Block())
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, *, scale: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(self.parts(x)), "x": x * scale}


class Runs:
    """What a pickle runs when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> object:
        return Path.touch, (self._marker,)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    net, x, scale = Net().eval(), torch.ones(3, 4), {"scale": torch.ones(4)}
    program = torch.export.export(net, (x,), scale)
    torch.export.save(program, folder / "net.pt2")
    torch.onnx.export(
        net, (x,), folder / "net.onnx", kwargs=scale, dynamo=True, verbose=False
    )
    return folder


@pytest.mark.parametrize("name", ["net.pt2", "net.onnx"])
def test_a_file_gives_the_modules_shapes_and_edges_of_the_model_that_was_exported(
    files: Path, name: str
) -> None:
    found = (pt2_file if name.endswith("pt2") else onnx_file).read(files / name)
    live = observe(Net().eval(), (torch.ones(3, 4),), {"scale": torch.ones(4)})
    modules = {
        call.path: (
            [one.shape for one in call.inputs],
            [one.shape for one in call.outputs],
        )
        for call in live.calls
        if call.kind == "module" and call.path
    }
    assert modules == {
        call.path: (
            [one.shape for one in call.inputs],
            [one.shape for one in call.outputs],
        )
        for call in found.calls
        if call.kind == "module" and call.path
    }
    relu = next(call for call in found.calls if call.name.lower() == "relu")
    assert Path(relu.file) == Path(__file__) and relu.line and relu.path == "parts.0"
    linear = next(call for call in found.calls if call.parameters)
    assert linear.parameters == ("parts.0.a.weight", "parts.0.a.bias")


@pytest.mark.parametrize("name", ["net.pt2", "net.onnx"])
def test_a_file_that_is_none_is_refused_in_a_line(tmp_path: Path, name: str) -> None:
    read = (pt2_file if name.endswith("pt2") else onnx_file).read
    with pytest.raises(SourceError, match="there is no file"):
        read(tmp_path / name)
    for data in (b"", b"neither", b"PK\x03\x04"):
        (tmp_path / name).write_bytes(data)
        if name.endswith("onnx") and not data:
            continue  # an empty message is a model without nodes
        with pytest.raises(SourceError, match="is no"):
            read(tmp_path / name)
