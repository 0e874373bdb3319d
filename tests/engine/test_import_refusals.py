"""Models that cannot be a drawing of layers are refused with the cause and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.import_process import import_file
from app.engine.requests.import_model import ImportModel, ModelImportError, ModelInput, ModelSource
from tests.support import own_code

TEXT = """import torch
from torch import nn


class Cycle(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = nn.Linear(2, 2)
        self.child.parent = self

    def forward(self, x):
        return self.child(x)


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [nn.Linear(2, 2), nn.Linear(2, 2)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def traced():
    return torch.jit.trace(nn.Linear(2, 2), torch.randn(1, 2))


def quantised():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), {nn.Linear}, dtype=torch.qint8)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Cycle", "child.parent is a module that holds it"),
        ("Hidden", r"blocks\[0\], blocks\[1\] are not registered"),
        ("traced", "TorchScript, which holds no Python code"),
        ("quantised", "its weights are packed"),
    ],
)
def test_it_is_refused_with_its_cause(tmp_path: Path, name: str, words: str) -> None:
    file = tmp_path / "net.py"
    file.write_text(TEXT)
    own_code.trust(f"{file}:{name}")
    with pytest.raises(ModelImportError, match=words):
        import_file(ImportModel(ModelSource(str(file), name, name.islower()), {}, (ModelInput((2, 2)),)), tmp_path)
