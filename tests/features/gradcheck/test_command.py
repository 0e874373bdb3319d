"""`tapedeck autograd --gradcheck`: of a layer, a function, a model; the exit code says whether it passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.main import main
from app.util import resources
from tests.support.needs import needs

NETS = """import torch
from torch import nn

def net():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

def wrong(x):
    return Wrong.apply(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 2)

    def forward(self, x):
        return self.first(x)
"""


@pytest.fixture
def nets(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(NETS)
    return str(tmp_path / "nets.py")


def check(*words: str) -> int:
    return main(["autograd", *words])


@needs("snippets")
def test_a_layer_and_a_function_are_checked_and_a_wrong_gradient_is_exit_1(
    nets: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trust", "--input", "5x4", "--gradcheck", "2"]
    assert check(f"{nets}:net", *words) == 0
    text = capsys.readouterr().out
    assert "layer 2 is correct" in text and "fine: weight, all 3 elements" in text
    assert check(f"{nets}:wrong", "--trust", "--input", "3", "--gradcheck") == 1
    assert "wrong" in capsys.readouterr().out


def test_a_model_is_checked(nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trust", "--train", "--input", "5x3", "--gradcheck", "first"]
    assert check(f"{nets}:Model", *words) == 0
    assert "The gradient of layer first is correct" in capsys.readouterr().out


@needs("snippets")
def test_a_layer_that_is_not_there_and_a_snippet_are_refused(
    nets: str, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = str(resources.path("examples", "digits.tape"))
    assert check(digits, "--batch", "2", "--gradcheck", "nope") == 1
    assert "The network has no layer nope" in capsys.readouterr().err
    assert check(nets, "--trust", "--gradcheck") == 2
    assert "--gradcheck needs a network or a function" in capsys.readouterr().err
