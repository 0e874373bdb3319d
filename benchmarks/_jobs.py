"""The nets that training is measured with, as project files. Noise stands for MNIST and photos: nothing is fetched."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from app.project.project import Project

PICTURES = "made.fake"


def digits() -> Project:
    """The bundled example: convolutions on pictures of 8×8."""
    return _example("digits.tape")


def mnist() -> Project:
    """The bundled MNIST net, on noise of MNIST's shape."""
    return _on_noise(_example("MNIST net.tape"), (1, 28, 28), 3000)


def mlp() -> Project:
    """Three Linear layers of 64 on the digits: steps so short that everything beside them shows."""
    from torch import nn

    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    return _of_module(net, "mlp", (1, 8, 8))


def resnet18() -> Project:
    """torchvision's resnet18 with 10 classes, batches of 16, on noise of 3×224×224."""
    from app.util.torchvision_import import import_torchvision

    net = import_torchvision("models").resnet18(num_classes=10)
    project = _on_noise(_of_module(net, "resnet18", (3, 224, 224)), (3, 224, 224), 200)
    return replace(project, training=replace(project.training, batch_size=16))


# Name: the project, and its epochs in a full and in a short measurement; the first of them warms up.
NETS = {
    "digits net": (digits, 40, 6),
    "3-layer MLP of 64": (mlp, 600, 20),
    "MNIST net": (mnist, 60, 3),
    "resnet18 at batch 16": (resnet18, 3, 2),
}


def write(name: str, folder: Path) -> Path:
    """The project file of one of `NETS`."""
    from app.project import file

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "net.tape"
    file.write(NETS[name][0](), path)
    return path


def _example(name: str) -> Project:
    from app.project import file
    from app.util.resources import path

    return file.read(path("examples", name))


def _of_module(net: object, name: str, shape: tuple[int, ...]) -> Project:
    from app.features.importing.compute.pipeline import project_of
    from app.sources.spec import InputSpec

    return project_of(net, (InputSpec((2, *shape), "float32"),), name)


def _on_noise(project: Project, shape: tuple[int, ...], count: int) -> Project:
    from app.util.frozen import FrozenMap

    options = FrozenMap(shape=shape, classes=10, count=count)
    # The transforms are those of the photos; noise needs none, and the script then does without torchvision.
    plain = {"train_transforms": (), "eval_transforms": ()}
    return replace(
        project, data=replace(project.data, source=PICTURES, options=options, **plain)
    )
