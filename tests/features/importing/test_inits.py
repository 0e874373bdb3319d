"""The initialisation of an imported model: what a start from random weights loses is said, and can be taken over."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from app import cli
from app.builder.analysis import analyse
from app.builder.graph import Init
from app.features.importing import task
from app.features.importing.compute.parity.initial import recording_inits
from app.features.importing.values import ImportModel
from app.project import custom_layers, drawing_digest, file, model_inits
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from app.util.frozen import FrozenMap
from tests.support.own_code import trust

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.init import trunc_normal_

class Unit(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.norm.weight)

    def forward(self, x):
        return x + self.norm(self.conv(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.zeros(1, 4, 6, 6))
        trunc_normal_(self.places, std=0.02)
        self.scale = nn.Parameter(1e-6 * torch.ones(4, 1, 1))
        self.units = nn.Sequential(Unit(), Unit())
        self.plain = nn.Conv2d(4, 4, 1)
        self.used = nn.Linear(6, 6, bias=False)
        self.head = nn.Linear(6, 3)
        with torch.no_grad():
            self.head.weight.mul_(0.5).add_(1)

    def forward(self, x):
        x = self.plain(self.units(x + self.places)) * self.scale
        return self.head(F.linear(x.mean(2), self.used.weight))
"""


def imported(tmp_path: Path, **options: bool) -> file.Project:
    (tmp_path / "nets.py").write_text(TEXT)
    trust(f"{tmp_path / 'nets.py'}:Net")
    source = SourceSpec("file", str(tmp_path / "nets.py"), "Net")
    return task.answer(
        ImportModel(source, {}, (InputSpec((2, 4, 6, 6)),), **options), tmp_path
    )


def source_of(project: file.Project):
    return analyse(project.graph, custom_layers.ops_of(project)).source


def initialised(project: file.Project) -> dict[str, Init | None]:
    with recording_inits() as notes:
        return notes.inits_of(make_module(source_of(project)))


def test_what_is_lost_is_said_taken_over_and_the_net_is_the_same(
    tmp_path: Path,
) -> None:
    project = imported(tmp_path)
    wanted = {
        "places": Init("trunc_normal_", FrozenMap(std=0.02)),
        "scale": Init("constant_", FrozenMap(val=1e-6)),
        "units.0.conv.weight": Init(
            "kaiming_normal_", FrozenMap(mode="fan_out", nonlinearity="relu")
        ),
        "units.1.norm.weight": Init("zeros_"),
        "used.weight": Init("kaiming_uniform_", FrozenMap(a=math.sqrt(5))),
    }
    before = initialised(project)
    assert all(before[key] != init for key, init in wanted.items())
    words = project.notes.splitlines()[-1]
    assert (
        "loses the model's own initialisation of" in words
        and "kaiming_normal_" in words
    )
    assert (
        "of head.weight, which no setting of a node can express" in words
        and "plain" not in words
    )
    file.write(project, tmp_path / "p.tape")
    project = file.read(tmp_path / "p.tape")  # the offer is kept
    after = model_inits.taken_over(project, project.origin.inits)
    assert {key: initialised(after)[key] for key in wanted} == wanted
    assert model_inits.taken_over(after, project.origin.inits) is after
    assert not drawing_digest.imported(
        after, source_of(after)
    ).edited  # outputs of given weights are the same
    file.write(after, tmp_path / "q.tape")
    assert file.read(tmp_path / "q.tape").graph == after.graph


def test_one_option_takes_them_over_at_the_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets.py").write_text(TEXT)
    asked = [
        "import",
        f"{tmp_path / 'nets.py'}:Net",
        "--input",
        "2x4x6x6",
        "--trust",
        "--take-inits",
        "--no-weights",
    ]
    assert cli.run([*asked, "-o", str(tmp_path / "p.tape")]) == 0
    told = capsys.readouterr().out
    assert (
        "equal in eval and train mode" in told
        and "kaiming" not in told
        and "head.weight" in told
    )
    assert initialised(file.read(tmp_path / "p.tape"))["units.1.norm.weight"] == Init(
        "zeros_"
    )


CASES: list[tuple[Callable[[], torch.Tensor], Init | None]] = [
    (lambda: torch.randn(80, 4) * 0.02, Init("normal_", FrozenMap(std=0.02))),
    (lambda: torch.rand(80, 4), Init("uniform_")),
    (
        lambda: torch.empty(80, 4).uniform_(-0.5, 0.5),
        Init("uniform_", FrozenMap(a=-0.5, b=0.5)),
    ),
    (
        lambda: torch.empty(80, 4).normal_(mean=1.0, std=0.1),
        Init("normal_", FrozenMap(mean=1.0, std=0.1)),
    ),
    (lambda: torch.full((80, 4), 0.25), Init("constant_", FrozenMap(val=0.25))),
    (lambda: nn.init.orthogonal_(torch.empty(80, 4)), Init("orthogonal_")),
    (lambda: torch.randn(80, 4).clamp_(-1, 1), None),
    (lambda: torch.randn(80, 4).cumsum(0), None),
    (lambda: torch.cat([torch.zeros(40, 4), torch.randn(40, 4)]), None),
    (lambda: torch.randn(80, 8)[:, :4], None),
]


@pytest.mark.parametrize(("make", "init"), CASES)
def test_what_is_written_into_a_parameter_is_noted_and_nothing_is_guessed(
    make: Callable[[], torch.Tensor], init: Init | None
) -> None:
    plain = nn.init.orthogonal_
    with recording_inits() as notes:
        model = nn.Module()
        model.weight = nn.Parameter(make())
        model.part = nn.Parameter(torch.randn(80, 4))
        with torch.no_grad():
            nn.init.zeros_(model.part[:3])
    assert (
        notes.inits_of(model) == {"weight": init, "part": None}
        and nn.init.orthogonal_ is plain
    )
