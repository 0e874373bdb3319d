"""What a model does beside its calls is drawn, kept in a node of its own code, or refused: it is not lost unsaid."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from app import import_child, model_import, own_layers, project_file
from app.builder.analysis import analyse
from app.model_import import ImportFailed, ModelInput, ModelSource, project_of
from app.project import Project
from app.source import make_module
from tests import silent_nets

SHAPE = (3, 4)
TEXT = Path(silent_nets.__file__).read_text()
SKIPPED = {"Net", "Body", "Target", "Energy", "Held", "Symmetric", "Powered", "Backwards", "Straight", "Scaled"}
NETS = [name for name, kind in vars(silent_nets).items() if isinstance(kind, type) and issubclass(kind, nn.Module)
        and kind.__module__ == silent_nets.__name__ and name not in SKIPPED]  # fmt: skip


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None) -> Iterator[Path]:
    """A file of one's own that is trusted for the time of a test."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    file = tmp_path / "nets.py"
    file.write_text(TEXT)
    yield file
    sys.modules.pop("nets", None)


def seeded(seed: int = 3) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def made(file: Path, name: str) -> nn.Module:
    """What the process that runs a file does first."""
    seeded(0)
    return model_import.make_from_file(ModelSource(str(file), name), {})


def drawn(file: Path, model: nn.Module, shape: tuple[int, ...] = SHAPE) -> Project:
    """And what it does then."""
    project = project_of(model, (ModelInput(shape),), type(model).__name__, own=import_child._own_classes(file))
    return project_file.loads(project_file.dumps(project))


def net_of(project: Project) -> nn.Module:
    answer = analyse(project.graph, own_layers.ops_of(project))
    assert not answer.errors, [(problem.message, problem.reason) for problem in answer.errors]
    return make_module(answer.source)


def leaves(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]


def told(net: nn.Module, training: bool, batch: int) -> list[tuple[str, object]]:
    """Outputs, what asks for a gradient, the gradients and the state, at each of three calls."""
    net.train(training)
    found: list[tuple[str, object]] = []
    for call in range(3):
        seeded(call)
        given = torch.randn(batch, *SHAPE[1:], dtype=torch.float64).requires_grad_()
        net.zero_grad()
        try:
            values = leaves(net(given * 1.0))
        finally:
            asked = torch.is_grad_enabled()
            torch.set_grad_enabled(True)
        found += [(f"call {call}: gradients", asked), (f"call {call}: outputs", len(values))]
        found += [(f"call {call}: output {i}", value.detach().double()) for i, value in enumerate(values)]
        found += [(f"call {call}: output {i} asks", value.requires_grad) for i, value in enumerate(values)]
        learnt = [value.square().mean() for value in values if value.requires_grad]
        if learnt:
            sum(learnt).backward()
        found.append((f"call {call}: input.grad", given.grad))
        found += [(f"call {call}: {name}.grad", one.grad) for name, one in net.named_parameters()]
        found += [(f"call {call}: {name}", value.double()) for name, value in net.state_dict().items()]
    return found


def differing(mine: nn.Module, theirs: nn.Module, batches: tuple[int, ...]) -> list[str]:
    """In what a net differs from its source, in double precision."""
    order = [list(dict(net.named_parameters())) for net in (mine, theirs)]
    asked = [[one.requires_grad for one in net.parameters()] for net in (mine, theirs)]
    keys = [list(net.state_dict()) for net in (mine, theirs)]
    found = [word for word, (a, b) in zip(("order", "requires_grad", "keys"), (order, asked, keys), strict=True)
             if a != b]  # fmt: skip
    for training in (True, False):
        for batch in batches:
            rows = [told(copy.deepcopy(net).double(), training, batch) for net in (mine, theirs)]
            where = f"{'train' if training else 'eval'}, batch of {batch}"
            if [name for name, _ in rows[0]] != [name for name, _ in rows[1]]:
                found.append(f"{where}: other facts")
                continue
            found += [f"{where}: {name}" for (name, a), (_, b) in zip(*rows, strict=True) if not same(a, b)]
    return found


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one, other, 1e-9, 1e-12, equal_nan=True)
    return one is other or (not isinstance(one, torch.Tensor) and one == other)


def report(file: Path, name: str, batches: tuple[int, ...] = (3, 5)) -> tuple[str, list[str], tuple[str, ...]]:
    model = made(file, name)
    state = copy.deepcopy(model.state_dict())
    try:
        project = drawn(file, model)
    except ImportFailed as error:
        return "refused", [], (str(error),)
    kept = any(node.op.startswith("custom.") for graph in (project.graph, *(b.graph for b in project.blocks.values()))
               for node in graph.nodes.values())  # fmt: skip
    net = net_of(project)
    net.load_state_dict(state)
    theirs = made(file, name)  # what the import left behind in it is no part of it
    theirs.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return "kept" if kept else "drawn", differing(net, theirs, batches), model_import.remarks(project)


DRAWN = """
    AsksGradient Frozen FrozenInPart FrozenParameter FrozenTied FrozenUnused OrderOfUse PartlyFrozen TiedLater
""".split()


@pytest.mark.parametrize("name", DRAWN)
def test_a_model_is_drawn_as_the_net_that_it_is(name: str, own: Path) -> None:
    kind, found, said = report(own, name)
    assert (kind, found) == ("drawn", []), said
