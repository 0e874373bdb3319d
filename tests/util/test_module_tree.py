"""The modules and tensors of a model by what it registered: as torch's own methods, where those can be called."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

from app.util import module_tree


class Hidden(nn.Module):
    """Its lists stand in the place of methods."""

    def __init__(self) -> None:
        super().__init__()
        self.registered = nn.ModuleList([nn.Linear(2, 2), nn.BatchNorm1d(2)])
        self.registered.append(self.registered[0])
        self.modules = self.children = self.parameters = self.buffers = [
            nn.Linear(3, 3)
        ]  # type: ignore[assignment]


class Cycle(nn.Module):
    """A child that holds its parent."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Module()
        self.child.f = nn.Linear(2, 2)
        self.child.parent = self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child.f(x)


@pytest.mark.parametrize("name", ["named_modules", "named_parameters", "named_buffers"])
@pytest.mark.parametrize("once", [True, False])
def test_the_walks_are_those_of_torch(name: str, once: bool) -> None:
    model = nn.Sequential(
        nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    )
    model.append(model[0])
    model[1].append(model[0])
    theirs = list(getattr(model, name)(remove_duplicate=once))
    ours = list(getattr(module_tree, name)(model, remove_duplicate=once))
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    assert all(one is other for (_, one), (_, other) in zip(ours, theirs, strict=True))
    assert list(module_tree.children(model)) == list(model.children())
    assert [*module_tree.parameters(model)] and [*module_tree.buffers(model)]


def test_what_hides_a_method_is_no_hindrance() -> None:
    model = Hidden()
    assert [path for path, _ in module_tree.named_modules(model)] == [
        "",
        "registered",
        "registered.0",
        "registered.1",
    ]
    assert (
        len([*module_tree.parameters(model)]) == 4
        and len([*module_tree.buffers(model)]) == 3
    )
    module_tree.set_mode(model, False)
    assert not any(module.training for module in module_tree.modules(model))


def test_a_child_that_holds_its_parent_and_a_deep_net_end_no_walk() -> None:
    cycle = Cycle()
    assert [
        path for path, _ in module_tree.named_modules(cycle, remove_duplicate=False)
    ] == ["", "child", "child.f"]
    assert (
        module_tree.cycle(cycle) == "child.parent" and module_tree.cycle(Hidden()) == ""
    )
    module_tree.set_mode(cycle, False)
    assert not cycle.child.f.training
    deep: nn.Module = nn.Linear(2, 2)
    for _ in range(3000):
        deep = nn.Sequential(deep)
    assert (
        sum(1 for _ in module_tree.modules(deep)) == 3001
        and len([*module_tree.parameters(deep)]) == 2
    )


def test_the_program_asks_no_model_for_its_modules() -> None:
    """A method that a model hides ends the command with a traceback."""
    asked, looked_at = [], 0
    for file in sorted(Path("app").rglob("*.py")):
        if file.parts[1] == "views":  # widgets have children, and no models are there
            continue
        if file == Path(
            "app/training/surgery/transfer.py"
        ):  # part of exported scripts, for drawn nets alone
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(
                node.func, ast.Attribute
            ):
                continue
            looked_at += 1
            names = ("modules", "named_modules", "children", "named_children")
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if node.func.attr in names and owner not in (
                "module_tree",
                "shelf",
                "self",
            ):
                asked.append(f"{file}:{node.lineno}")
    assert looked_at > 10_000 and asked == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_copy_of_torchscript_has_parameters_of_its_own_that_get_gradients() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(2, 2)), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    made = module_tree.copied(model)
    made(torch.ones(1, 2)).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [
        name for name, parameter in made.named_parameters() if parameter.grad is None
    ] == ["0.bias"]
    assert made[0].weight is made[1].weight


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_calls_of_torchscript_are_seen_by_hooks() -> None:
    model, seen = torch.jit.script(nn.Sequential(nn.Linear(2, 2))), list[str]()
    module_tree.before_call(model, lambda *_: seen.append("before"))
    module_tree.on_call(model, lambda *_: seen.append("after"))
    model(torch.ones(1, 2))
    assert seen == ["before", "after"]
    assert module_tree.submodule(model, "") is model
