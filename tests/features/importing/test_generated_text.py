"""The text of an imported net is formatted, uses what it imports, and is the net for other sizes too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from app.builder.analysis import analyse
from app.features.importing.compute.pipeline import project_of
from app.features.importing.task import make_torchvision
from app.project import custom_layers
from app.source.compiled import make_module
from app.source.generated import Source
from app.sources.spec import InputSpec
from tests.builder.test_generated_text import hold_clean

MODELS = {
    "resnet50": (2, 3, 64, 64),
    "densenet121": (2, 3, 64, 64),
    "swin_t": (1, 3, 56, 56),
    "convnext_tiny": (2, 3, 64, 64),
    "mobilenet_v3_small": (2, 3, 64, 64),
    "googlenet": (2, 3, 64, 64),
    "shufflenet_v2_x0_5": (2, 3, 64, 64),
    "fasterrcnn_mobilenet_v3_large_320_fpn.backbone": (2, 3, 64, 64),
}


def of_model(name: str) -> Source:
    project = project_of(
        make_torchvision(name, {}, empty=True), (InputSpec(MODELS[name]),), name
    )
    return analyse(project.graph, custom_layers.ops_of(project)).source


@pytest.mark.parametrize("name", MODELS)
def test_the_text_is_formatted_and_uses_all_that_it_imports_and_makes(
    name: str,
) -> None:
    hold_clean(of_model(name))


class Windows(nn.Module):
    """Cuts a picture into windows of a size of its own."""

    def __init__(self, side: int, channels: int) -> None:
        super().__init__()
        self.side = side
        self.mix = nn.Parameter(torch.randn(side * side, side * side))
        self.bias = nn.Parameter(torch.randn(2 * channels, channels))

    def forward(self, x):
        n, c, h, w = x.shape
        down, right = (
            (self.side - h % self.side) % self.side,
            (self.side - w % self.side) % self.side,
        )
        y = F.pad(x, (0, right, 0, down))
        high, wide = y.shape[2] // self.side, y.shape[3] // self.side
        y = y.reshape(n, c, high, self.side, wide, self.side).permute(0, 1, 2, 4, 3, 5)
        y = (y.reshape(n, c, high * wide, self.side**2) @ self.mix).reshape(
            n, c, high, wide, self.side, self.side
        )
        y = y.permute(0, 1, 2, 4, 3, 5).reshape(
            n, c, high * self.side, wide * self.side
        )
        kept = torch.zeros(h, w, device=x.device)
        kept[:-1, 1:] = 1
        return y[:, :, :h, :w] * kept + F.conv2d(
            x, (self.bias[: self.bias.shape[1]])[:, :, None, None]
        )


def test_the_text_is_the_net_for_other_sizes_than_those_of_the_import() -> None:
    model = nn.Sequential(
        Windows(4, 3), Windows(5, 3), nn.Conv2d(3, 6, 3, stride=2), Windows(3, 6)
    ).double()
    project = project_of(model, (InputSpec((1, 3, 18, 18), "float64"),), "windows")
    source = analyse(project.graph, custom_layers.ops_of(project)).source
    assert source.text.count("class ") == 2 and ".clone()" not in source.text
    ours = make_module(source).double()
    ours.load_state_dict(model.state_dict(), strict=True)
    for shape in ((1, 3, 18, 18), (3, 3, 21, 30)):
        x = torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(ours(x), model(x), rtol=1e-10, atol=1e-12)


class Normed(nn.Module):
    """A normalization by hand, of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale, self.shift = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.channels = channels

    def forward(self, x):
        x = F.layer_norm(
            x.permute(0, 2, 3, 1), (self.channels,), self.scale, self.shift, 1e-6
        )
        return x.permute(0, 3, 1, 2)


def test_a_size_of_one_dimension_stays_one_where_a_function_wants_it() -> None:
    model = nn.Sequential(Normed(3), nn.Conv2d(3, 6, 1), Normed(6)).double()
    project = project_of(model, (InputSpec((2, 3, 4, 4), "float64"),), "normed")
    source = analyse(project.graph, custom_layers.ops_of(project)).source
    assert source.text.count("class ") == 2
    ours = make_module(source).double()
    ours.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(ours(x), model(x), rtol=1e-10, atol=1e-12)
