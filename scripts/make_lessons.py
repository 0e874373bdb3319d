"""The projects that lessons begin with, written anew from what is said here: `python scripts/make_lessons.py`.

Each has something that its lesson has found, or changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from app.builder.edits import edits
from app.builder.graph import Init
from app.data.config import DataConfig
from app.project.file import write
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.util.resources import path
from scripts.make_examples import Sketch, laid_out, training


def mlp(*layers: tuple[str, str, Mapping[str, Any]]) -> Sketch:
    """Handwritten digits through these layers: op, name and parameters."""
    net = Sketch((1, 8, 8))
    net.then("nn.Flatten", "flatten")
    for op, name, params in layers:
        net.then(op, name, **params)
    return net


def linear(name: str, size: int) -> tuple[str, str, Mapping[str, Any]]:
    return "nn.Linear", name, {"out_features": size}


def initialised(project: Project, name: str, **inits: Init) -> Project:
    """The parameters of a layer begin otherwise."""
    graph = project.graph
    node = next(node for node in graph.nodes.values() if node.name == name)
    return edits.changed(
        project, graph.with_node(replace(node, inits=FrozenMap(inits)))
    )


def vanishing() -> Project:
    """Weights of one layer begin so small that hardly any gradient comes through it."""
    net = mlp(
        linear("fc1", 64),
        ("nn.Tanh", "tanh1", {}),
        linear("fc2", 64),
        ("nn.Tanh", "tanh2", {}),
        linear("fc3", 64),
        ("nn.Tanh", "tanh3", {}),
        linear("fc4", 10),
    )
    tiny = Init("normal_", FrozenMap(std=0.0001))
    project = net.finish("logits", "Backward", "", training(3), DataConfig())
    return initialised(project, "fc3", weight=tiny)


def overfitting() -> Project:
    """Many weights, few and noisy points."""
    net = Sketch((2,))
    for number in (1, 2):
        net.then("nn.Linear", f"fc{number}", out_features=128)
        net.then("nn.ReLU", f"relu{number}")
    net.then("nn.Linear", "fc3", out_features=2)
    points = FrozenMap(count=120, noise=0.4)
    return net.finish(
        "logits",
        "Overfitting",
        "",
        training(100, lr=0.01),
        DataConfig("made.moons", validation_fraction=0.5, options=points),
    )


def cut() -> Project:
    """What is before the detach does not learn."""
    net = mlp(
        linear("fc1", 64),
        ("nn.ReLU", "relu1", {}),
        linear("fc2", 32),
        ("torch.detach", "detach1", {}),
        ("nn.ReLU", "relu2", {}),
        linear("fc3", 10),
    )
    return net.finish("logits", "Cut", "", training(3), DataConfig())


def other_head() -> Project:
    """Digits behind a last layer for 100 classes."""
    net = mlp(
        linear("fc1", 128),
        ("nn.ReLU", "relu1", {}),
        linear("fc2", 64),
        ("nn.ReLU", "relu2", {}),
        linear("fc3", 100),
    )
    return net.finish("logits", "New head", "", training(3), DataConfig())


def nan_hunt() -> Project:
    """A square root of 0, whose derivative is infinite, and a layer whose units are all below 0."""
    net = Sketch((1, 8, 8))
    pixels = net.then("nn.Flatten", "flatten")
    gain = net.add("parameter", "gain", shape=(64,), fill="ones")
    net.add("operator.mul", "scaled", pixels, gain)
    net.then("torch.sqrt", "root")
    for number in (1, 2, 3):
        net.then("nn.Linear", f"fc{number}", out_features=64)
        net.then("nn.ReLU", f"relu{number}")
    net.then("nn.Linear", "fc4", out_features=10)
    low = Init("constant_", FrozenMap(val=-50.0))
    project = net.finish("logits", "NaN hunt", "", training(3), DataConfig())
    return initialised(project, "fc3", bias=low)


STARTS: dict[str, Callable[[], Project]] = {
    "03-backward-by-hand": vanishing,
    "07-overfitting": overfitting,
    "09-no-grad-and-detach": cut,
    "12-a-new-head": other_head,
    "14-nan-hunt": nan_hunt,
}


def main() -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from app.views.pictures.headless_pictures import application

    held = application()
    for name, make in STARTS.items():
        folder = path("lessons") / name
        folder.mkdir(exist_ok=True)
        write(laid_out(make()), folder / "start.tape")
        print(name)
    held.quit()


if __name__ == "__main__":
    main()
