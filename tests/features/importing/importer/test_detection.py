"""Models that detect have ends that no drawing has; the net in them is a net like any other."""

from __future__ import annotations

import pytest
import torch

from app.builder.analysis import analyse
from app.features.importing.compute.pipeline import project_of
from app.features.importing.task import known_models, make_torchvision
from app.features.importing.values import ModelImportError
from app.project import custom_layers
from app.source.compiled import make_module
from app.sources.spec import InputSpec, parse_source


def test_a_model_that_detects_is_refused_with_the_name_of_the_net_in_it() -> None:
    with pytest.raises(
        ModelImportError,
        match=r"list of dicts .* torchvision:fasterrcnn_resnet50_fpn\.backbone",
    ):
        make_torchvision("fasterrcnn_resnet50_fpn", {})


def test_the_net_in_a_model_that_detects_is_drawn_with_its_feature_maps() -> None:
    name = parse_source(
        "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn.backbone"
    ).name
    model = make_torchvision(name, {}).eval()
    project = project_of(model, (InputSpec((1, 3, 64, 64)),), name)
    source = analyse(project.graph, custom_layers.ops_of(project)).source
    ours = make_module(source).eval()
    ours.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        mine, theirs = ours(x), model(x)
    assert list(mine) == list(theirs)
    for key, value in theirs.items():
        torch.testing.assert_close(mine[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "source", ["torchvision:resnet18.layer1", "torchvision:resnet18.layer1.0"]
)
def test_a_part_of_a_model_can_be_imported(source) -> None:
    model = make_torchvision(parse_source(source).name, {}, empty=True)
    assert project_of(model, (InputSpec((1, 64, 8, 8)),), "it").graph.nodes


@pytest.mark.parametrize("name", [".layer1", "resnet18.a-b"])
def test_what_is_no_part_is_refused(name: str) -> None:
    with pytest.raises(ModelImportError):
        make_torchvision(name, {}, empty=True)


def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelImportError, match="nowhere"):
        make_torchvision("resnet18.nowhere", {}, empty=True)


def test_the_list_has_what_can_be_imported() -> None:
    names = {one.name: one.kind for one in known_models()}
    assert (
        names["fasterrcnn_resnet50_fpn.backbone"] == "detection"
        and "fasterrcnn_resnet50_fpn" not in names
    )
