"""An imported net registers its parameters as its model does, so that an optimizer's state and a seed mean the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.builder.edits.blocks import NETWORK
from app.builder.edits.expand_block import expand
from app.builder.edits.make_block import make_block
from app.engine.requests.import_model import ModelInput
from app.engine.tasks import import_model
from app.engine.tasks.import_model import project_of
from app.project.project import Project
from app.source.compiled import make_module
from tests.support.silent_nets import FrozenInPart, OrderOfUse

INPUT = (ModelInput((3, 4)),)


def net_of(project: Project) -> nn.Module:
    answer = analyse(project.graph, with_blocks(catalog(), project.blocks))
    assert not answer.errors
    return make_module(answer.source)


def names(net: nn.Module) -> list[str]:
    return [name for name, _ in net.named_parameters()]


def registered(net: nn.Module) -> list[str]:
    return list(dict.fromkeys(name.partition(".")[0] for name in names(net)))


# Of these the modules are not registered in the order in which they are called.
@pytest.mark.parametrize("name", ["vit_b_16", "googlenet", "convnext_tiny"])
def test_the_parameters_of_torchvisions_models_keep_their_order(name: str) -> None:
    model = import_model.make_torchvision(name, {})
    project = project_of(model, (import_model.usual_input(name),), name)
    with torch.device("meta"):
        assert names(net_of(project)) == names(model)


def test_an_optimizers_state_falls_on_the_same_parameters_and_a_seed_gives_the_same_start() -> None:
    torch.manual_seed(4)
    model = OrderOfUse()
    torch.manual_seed(4)
    ours = net_of(project_of(model, INPUT, "OrderOfUse"))
    for (name, mine), (_, theirs) in zip(ours.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(mine, theirs) or name in ("scale", "bias"), name
    optimizers = [torch.optim.Adam(net.parameters()) for net in (ours, model)]
    model(torch.ones(3, 4)).sum().backward()
    optimizers[1].step()
    optimizers[0].load_state_dict(optimizers[1].state_dict())
    moments = {id(one): state["exp_avg"] for one, state in optimizers[0].state.items()}
    for (name, mine), (_, theirs) in zip(ours.named_parameters(), model.named_parameters(), strict=True):
        if theirs.grad is not None:
            assert torch.allclose(moments[id(mine)], 0.1 * theirs.grad), name


def test_a_drawing_in_the_order_of_its_calls_says_nothing_of_the_order() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    project = project_of(model, INPUT, "Plain")
    assert not any(node.order for node in project.graph.nodes.values())


def test_blocks_that_are_expanded_and_made_stay_where_they_were_registered() -> None:
    model = OrderOfUse()
    project = project_of(model, INPUT, "OrderOfUse")
    blocks = [key for key, node in project.graph.nodes.items() if node.op.startswith("block.")]
    for key in blocks:
        project = expand(project, NETWORK, with_blocks(catalog(), project.blocks), key)[0]
    there = ["scale", "bias", "head", "second", "first", "second1", "first1", "stem", "spare"]
    assert registered(net_of(project)) == there
    stem = next(key for key, node in project.graph.nodes.items() if node.name == "stem")
    taken = [stem, project.graph.out_of(stem)[0].target]
    again, made = make_block(project, NETWORK, with_blocks(catalog(), project.blocks), taken, "Stem")
    there[there.index("stem")] = again.graph.nodes[made].name
    assert registered(net_of(again)) == there


def test_of_equal_blocks_only_the_frozen_one_is_frozen_and_thaws_by_one_click() -> None:
    project = project_of(FrozenInPart(), INPUT, "FrozenInPart")
    frozen = [node.name for node in project.graph.nodes.values() if node.frozen]
    assert frozen == ["layers.0"] and len(project.blocks) == 1
    thawed = edits.flagged(project, [next(key for key, n in project.graph.nodes.items() if n.frozen)], "frozen", False)
    assert all(one.requires_grad for one in net_of(thawed).parameters())
