"""Files that import packages: what is done before they run, and what the recorder of constructors leaves as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import run

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
    return run(["import", f"{folder / 'net.py'}:Net", "--input", "2x3", "-o", str(folder / "net.tape"), "--trust"])


@pytest.mark.parametrize(("package", "text"), [("torchvision", BROKEN), ("scripted", SCRIPTED)])
def test_a_file_that_imports_a_package_runs_as_it_does_in_python(package: str, text: str, tmp_path: Path) -> None:
    assert imported(tmp_path, package, text) == 0
    assert (tmp_path / "net.tape").is_file()
