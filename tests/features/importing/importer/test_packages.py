"""Files that import packages: what is done before they run, and what the recorder of constructors leaves as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import run
from app.project import file
from tests.support.needs import needs

# A torchvision such as a wheel for CUDA is beside a torch for the CPU: its own import asks for an operator that is not
# there.
BROKEN = """
import torch
from torchvision import extension

if not torch._C._dispatch_has_kernel("torchvision::nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
VALUE = 3
"""
NET = """
import {package}
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.fc = nn.Linear(3, width)

    def forward(self, x):
        return self.fc(x) * {package}.VALUE
"""
SCRIPTED = """
import torch
from torch import nn

@torch.jit.interface
class Face(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass

class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

doubled = torch.jit.script(Doubled())
VALUE = 3
"""


def imported(folder: Path, package: str, text: str) -> int:
    """What `tapedeck import` of a file answers that imports a package."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(text)
    (folder / package / "extension.py").write_text("")
    (folder / "net.py").write_text(NET.format(package=package))
    return run(
        [
            "import",
            f"{folder / 'net.py'}:Net",
            "--input",
            "2x3",
            "-o",
            str(folder / "net.tape"),
            "--trust",
        ]
    )


@pytest.mark.parametrize(
    ("package", "text"), [("torchvision", BROKEN), ("scripted", SCRIPTED)]
)
def test_a_file_that_imports_a_package_runs_as_it_does_in_python(
    package: str, text: str, tmp_path: Path
) -> None:
    assert imported(tmp_path, package, text) == 0
    assert (tmp_path / "net.tape").is_file()


LAYERS = """
from dataclasses import dataclass, field

import torch
from torch import nn

@dataclass
class Config:
    width: int = 2
    scales: list = field(default_factory=lambda: [1.0])
    act: type = nn.ReLU

class Configured(nn.Module):
    def __init__(self, config, number=0, after=None):
        super().__init__()
        self.fc, self.act, self.after = nn.Linear(config.width, config.width), config.act(), after
        self.scale = config.scales[number]

    def forward(self, x):
        y = self.act(self.fc(x)) * self.scale
        return self.after(y) if float(x.sum()) > 0 else y

class Dropped(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training:
            return x
        return x / (1 - self.p) * (torch.rand(x.shape[0], 1) + 1 - self.p).floor()

class Signed(nn.Module):
    def __init__(self, width, scale=0.5, act=nn.ReLU, *, steps: int = 1):
        super().__init__()
        self.fc, self.act = nn.Linear(width, width), act()
        self.scale, self.steps = scale, steps

    def forward(self, x, shift=None):
        y = self.act(self.fc(x)) if float(x.sum()) > 0 else self.fc(x) * self.scale
        y = y * self.steps
        return y if shift is None else y + shift

class _Halves(nn.Module):
    def forward(self, x):
        low, high = x.chunk(2, -1)
        if float(x.sum()) > 0:
            return low, high * 2
        return low, high
"""
USING = """
import torch
from torch import nn
from signs.layers import Signed, _Halves

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.part, self.halves = nn.Linear(4, 4), Signed(4, 0.25, steps=3), _Halves()
        self.last = Signed(2, act=nn.{act})

    def forward(self, x):
        low, high = self.halves(self.part(self.first(x), x))
        return self.last(low + high)
"""


@pytest.fixture
def installed(
    installed_packages: Path, tmp_path: Path, nothing_trusted: None, forked_trials: None
) -> Path:
    """A person's folder beside one in which a package is installed."""
    package = installed_packages / "signs"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "layers.py").write_text(LAYERS)
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


@needs("export")
def test_a_class_of_an_installed_package_is_one_node_and_the_rest_is_drawn(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / "net.py").write_text(USING.format(act="ReLU"))
    out = installed / "net.tape"
    assert (
        run(
            [
                "import",
                f"{installed / 'net.py'}:Net",
                "--input",
                "2x4",
                "-o",
                str(out),
                "--trust",
            ]
        )
        == 0
    )
    told = capsys.readouterr().out
    assert "outputs, gradients and buffers equal in eval and train mode" in told
    assert (
        "part (Signed) is one node, run by its own code: what it does depends on the values"
        in told
    )
    project = file.read(out)
    ops = [node.op for node in project.graph.nodes.values()]
    assert (
        ops.count("custom.signs_Signed:Signed") == 2
        and ops.count("custom.signs_Halves:Halves") == 1
    )
    assert {Path(name).name for name in project.layer_files} == {
        "signs_Signed.py",
        "signs_Halves.py",
    }
    assert all(Path(name).parent == installed for name in project.layer_files)
    code = installed / "exported" / "model.py"
    code.parent.mkdir()
    assert (
        run(["export", str(out), "--code", str(code)]) == 0
    )  # trust is not asked for again
    assert "from signs_Signed import Signed\n" in code.read_text()
    assert "Signed(4, scale=0.25, steps=3)" in code.read_text()
    assert (
        "from signs.layers import Signed"
        in (code.parent / "signs_Signed.py").read_text()
    )


CONFIGURED = """
from functools import partial
from torch import nn
from signs.layers import Config, Configured, Dropped

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        one, other = Config(4, [0.5, 2.0], nn.GELU), Config(4, [3.0], partial(nn.ELU, alpha=0.5))
        self.first, self.second = Configured(one, after=nn.Tanh()), Configured(one, 1, nn.Linear(4, 4))
        self.last = Configured(other, after=nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.drop = Dropped(0.5)
        self.drop.prepared = True  # by a helper, read by none of its code

    def forward(self, x):
        return x + self.drop(self.last(self.second(self.first(x))))
"""


def test_a_class_of_a_package_keeps_its_configuration_and_what_it_does_in_one_mode_alone(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / "net.py").write_text(CONFIGURED)
    out = installed / "net.tape"
    assert (
        run(
            [
                "import",
                f"{installed / 'net.py'}:Net",
                "--input",
                "2x4",
                "-o",
                str(out),
                "--trust",
            ]
        )
        == 0
    )
    assert (
        "outputs, gradients and buffers equal in eval and train mode"
        in capsys.readouterr().out
    )
    project = file.read(out)
    texts = {Path(name).name: Path(name).read_text() for name in project.layer_files}
    assert (
        len(texts) == 4
        and len(
            [node for node in project.graph.nodes.values() if "Configured" in node.op]
        )
        == 3
    )
    assert [
        node.params["p"]
        for node in project.graph.nodes.values()
        if "Dropped" in node.op
    ] == [0.5]
    assert (
        "signs.layers.Config(width=4, scales=[0.5, 2.0], act=torch.nn.GELU)"
        in "".join(texts.values())
    )


def test_why_a_class_of_a_package_is_no_node_is_said_as_it_is(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / "net.py").write_text(
        USING.format(act="Identity or (lambda: nn.Identity())")
        .replace("act=nn.Identity or ", "act=")
        .replace("forward(self, x):", "forward(self, *xs):\n        (x,) = xs")
    )
    out = installed / "net.tape"
    found = run(
        [
            "import",
            f"{installed / 'net.py'}:Net",
            "--input",
            "2x4",
            "-o",
            str(out),
            "--trust",
        ]
    )
    assert found == 1 and "constructed with act, and " in capsys.readouterr().err
