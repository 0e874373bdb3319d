"""Models that cannot be a drawing of layers are refused with the cause and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import run
from app.features.importing.process import import_file
from app.features.importing.values import ImportModel, ModelImportError
from app.sources.spec import InputSpec, SourceSpec
from tests.support import own_code, quantised_nets

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


def quantised():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), {nn.Linear}, dtype=torch.qint8)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Cycle", "child.parent is a module that holds it"),
        ("Hidden", r"blocks\[0\], blocks\[1\] are not registered"),
        ("quantised", "0 is quantised: its packed int8 weights have no gradient"),
    ],
)
def test_it_is_refused_with_its_cause(tmp_path: Path, name: str, words: str) -> None:
    file = tmp_path / "net.py"
    file.write_text(TEXT)
    own_code.trust(f"{file}:{name}")
    with pytest.raises(ModelImportError, match=words):
        import_file(
            ImportModel(
                SourceSpec("file", str(file), name, name.islower()),
                {},
                (InputSpec((2, 2)),),
            ),
            tmp_path,
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "path"), [("linear", "0.0"), ("recurrent", "rnn"), ("static", "0.1")]
)
def test_a_quantised_part_is_kept_in_its_own_code_and_not_trained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    path: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(quantised_nets.TEXT)
    model = [f"net.py:{name}()", "--trust", "--input", "2x4"]
    assert (
        run(["import", *model, "--observe", "--synthetic-data", "--out", "n.tape"]) == 0
    )
    assert run(["train", "n.tape", "--out", "run"]) != 0
    assert (
        f"{path} is quantised: its packed int8 weights have no gradient"
        in capsys.readouterr().err
    )
