"""The weights of one layer of a sharded model, without the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from app.features.opened import cli
from app.features.opened.cli import weight_lines, weights_of
from app.sources.spec import SourceError


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    one = {
        "layers.0.a.weight": torch.randn(7, 5),
        "layers.0.a.bias": torch.randn(7).bfloat16(),
        "head": torch.ones(3),
    }
    two = {
        "layers.1.a.weight": torch.randn(7, 5),
        "layers.10.a.weight": torch.randn(2, 2),
    }
    places = {}
    for number, tensors in enumerate((one, two)):
        save_file(tensors, tmp_path / f"part{number}.safetensors")
        places |= dict.fromkeys(tensors, f"part{number}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": places})
    )
    torch.save(one, tmp_path / "one.pt")
    return tmp_path


def test_a_layer_is_described_as_torch_does_and_no_other_shard_is_opened(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "PIECE", 16)  # several pieces a tensor
    (shards / "part1.safetensors").write_bytes(b"not read")
    known = torch.load(shards / "one.pt", weights_only=True)
    found = {one.name: one for one in weights_of(shards, "layers.0")}
    assert found.keys() == {"layers.0.a.weight", "layers.0.a.bias"}
    for name, one in found.items():
        wide = known[name].double()
        assert (one.shape, one.dtype) == (
            tuple(wide.shape),
            str(known[name].dtype).removeprefix("torch."),
        )
        wanted = (wide.mean(), wide.std(correction=0), wide.min(), wide.max())
        assert (one.mean, one.std, one.least, one.greatest) == pytest.approx(
            [float(value) for value in wanted]
        )
    assert weight_lines(shards, "head") == [
        "head  3 float32  mean 1.00, std 0, from 1.00 to 1.00"
    ]
    with pytest.raises(
        SourceError, match=r"part1\.safetensors is not a safetensors file"
    ):
        weights_of(shards, "layers.1")


def test_a_layer_that_is_not_there_and_a_folder_without_weights_are_said(
    shards: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        SourceError, match=r"has no weights of layers\.2; there are head, layers\.0\.a"
    ):
        weights_of(shards, "layers.2")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="has neither"):
        weights_of(tmp_path / "empty", "a")
