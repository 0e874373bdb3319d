"""Models that cannot be a drawing of layers are refused with the cause and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import run
from app.engine.import_process import import_file
from app.engine.requests.import_model import ImportModel, ModelImportError
from app.sources.spec import InputSpec, SourceSpec
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


QUANTISED = """
import torch
from torch import nn
from torch.ao.quantization import DeQuantStub, QuantStub, convert, get_default_qconfig, prepare, quantize_dynamic


def linear():
    return nn.Sequential(quantize_dynamic(nn.Sequential(nn.Linear(4, 4)).eval(), {nn.Linear}), nn.Linear(4, 2))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = quantize_dynamic(nn.Sequential(nn.LSTM(4, 4)).eval(), {nn.LSTM})[0], nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rnn(x[None])[0][0])


def recurrent():
    return Recurrent()


def static():
    body = nn.Sequential(QuantStub(), nn.Linear(4, 4), DeQuantStub()).eval()
    body.qconfig = get_default_qconfig(torch.backends.quantized.engine)
    prepare(body, inplace=True)
    body(torch.randn(8, 4))
    return nn.Sequential(convert(body), nn.Linear(4, 2))
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "path"), [("linear", "0.0"), ("recurrent", "rnn"), ("static", "0.1")]
)
def test_a_quantised_part_is_drawn_as_a_box_and_not_trained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    path: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(QUANTISED)
    model = [f"net.py:{name}()", "--trust", "--input", "2x4"]
    assert run(["draw", *model, "--out", "n.svg"]) == 0
    assert (
        run(["import", *model, "--observe", "--synthetic-data", "--out", "n.tape"]) == 0
    )
    assert run(["train", "n.tape", "--out", "run"]) != 0
    assert (
        f"{path} is quantised: its packed int8 weights have no gradient"
        in capsys.readouterr().err
    )
