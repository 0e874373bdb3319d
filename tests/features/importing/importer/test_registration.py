"""An imported net registers its parameters as its model does, so that an optimizer's state and a seed mean the same."""

from __future__ import annotations

import copy

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
from app.features.importing import task
from app.features.importing.compute.pipeline import project_of
from app.project.project import Project
from app.source.compiled import make_module
from app.sources.spec import InputSpec
from tests.support.silent_nets import FrozenInPart, OrderOfUse

INPUT = (InputSpec((3, 4)),)


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
    model = task.make_torchvision(name, {})
    project = project_of(model, (task.usual_input(name),), name)
    with torch.device("meta"):
        assert names(net_of(project)) == names(model)


def test_an_optimizers_state_falls_on_the_same_parameters_and_a_seed_gives_the_same_start() -> (
    None
):
    torch.manual_seed(4)
    model = OrderOfUse()
    torch.manual_seed(4)
    ours = net_of(project_of(model, INPUT, "OrderOfUse"))
    for (name, mine), (_, theirs) in zip(
        ours.named_parameters(), model.named_parameters(), strict=True
    ):
        assert torch.equal(mine, theirs) or name in ("scale", "bias"), name
    optimizers = [torch.optim.Adam(net.parameters()) for net in (ours, model)]
    model(torch.ones(3, 4)).sum().backward()
    optimizers[1].step()
    optimizers[0].load_state_dict(optimizers[1].state_dict())
    moments = {id(one): state["exp_avg"] for one, state in optimizers[0].state.items()}
    for (name, mine), (_, theirs) in zip(
        ours.named_parameters(), model.named_parameters(), strict=True
    ):
        if theirs.grad is not None:
            assert torch.allclose(moments[id(mine)], 0.1 * theirs.grad), name


def test_a_drawing_in_the_order_of_its_calls_says_nothing_of_the_order() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    project = project_of(model, INPUT, "Plain")
    assert not any(node.order for node in project.graph.nodes.values())


def test_blocks_that_are_expanded_and_made_stay_where_they_were_registered() -> None:
    model = OrderOfUse()
    project = project_of(model, INPUT, "OrderOfUse")
    blocks = [
        key for key, node in project.graph.nodes.items() if node.op.startswith("block.")
    ]
    for key in blocks:
        project = expand(project, NETWORK, with_blocks(catalog(), project.blocks), key)[
            0
        ]
    there = [
        "scale",
        "bias",
        "head",
        "second",
        "first",
        "second1",
        "first1",
        "stem",
        "spare",
    ]
    assert registered(net_of(project)) == there
    stem = next(key for key, node in project.graph.nodes.items() if node.name == "stem")
    taken = [stem, project.graph.out_of(stem)[0].target]
    again, made = make_block(
        project, NETWORK, with_blocks(catalog(), project.blocks), taken, "Stem"
    )
    there[there.index("stem")] = again.graph.nodes[made].name
    assert registered(net_of(again)) == there


def test_of_equal_blocks_only_the_frozen_one_is_frozen_and_thaws_by_one_click() -> None:
    project = project_of(FrozenInPart(), INPUT, "FrozenInPart")
    frozen = [node.name for node in project.graph.nodes.values() if node.frozen]
    assert frozen == ["layers.0"] and len(project.blocks) == 1
    thawed = edits.flagged(
        project,
        [next(key for key, n in project.graph.nodes.items() if n.frozen)],
        "frozen",
        False,
    )
    assert all(one.requires_grad for one in net_of(thawed).parameters())


class Mixer(nn.Module):
    """Registered in another order than called, with a block in it and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.gate = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (
            self.out(self.norm((x * self.gate(x)).transpose(1, 2)).transpose(1, 2)) + x
        )


class Tied(nn.Module):
    """A language model whose head is its embedding, with places in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 11)
        self.blocks = nn.ModuleList([Mixer(), Mixer(), Mixer()])
        self.embed, self.drop = nn.Embedding(11, 8), nn.Dropout(0.2)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("places", torch.linspace(0, 1, 48).view(6, 8))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.embed(ids) + self.places[: ids.shape[1]]) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def trained(
    net: nn.Module, optimizer: torch.optim.Optimizer, steps: range
) -> list[torch.Tensor]:
    """Train on random tokens, and return the loss of each step."""
    losses = []
    for step in steps:
        torch.manual_seed(step)
        ids = torch.randint(0, 11, (5, 6))
        loss = nn.functional.cross_entropy(
            net(ids).flatten(0, 1), ids.roll(1, 1).flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def test_an_adam_state_goes_on_in_the_imported_net_to_the_bit() -> None:
    torch.manual_seed(1)
    model = Tied()
    ours = net_of(project_of(model, (InputSpec((5, 6), "int64"),), "Tied"))
    theirs = torch.optim.Adam(model.parameters(), 0.01, weight_decay=0.1, amsgrad=True)
    mine = torch.optim.Adam(ours.parameters(), 0.5)
    trained(model, theirs, range(3))
    ours.load_state_dict(model.state_dict(), strict=True)
    mine.load_state_dict(
        copy.deepcopy(theirs.state_dict())
    )  # its tensors are taken as they are
    for one, other in zip(
        trained(ours, mine, range(3, 8)),
        trained(model, theirs, range(3, 8)),
        strict=True,
    ):
        assert torch.equal(one, other)
    for key, value in model.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value), key
    states = [
        [optimizer.state[one] for one in net.parameters()]
        for optimizer, net in ((mine, ours), (theirs, model))
    ]
    assert len(states[0]) == len(set(model.parameters())) == 21
    for one, other in zip(*states, strict=True):
        assert all(
            torch.equal(one[name], other[name])
            for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")
        )
