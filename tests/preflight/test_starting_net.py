"""A net for chosen data runs on them at once, is of their kind, and replaces nothing that was built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.builder.literals import DType
from app.data.config import DataConfig
from app.data.loaders import read_spec
from app.preflight import preflight, starting_net
from app.project.project import Project
from app.util.frozen import FrozenMap


def houses(folder: Path) -> DataConfig:
    rows = "".join(
        f"{40 + i},{1 + i % 5},{1950 + i % 70},{100_000 + 3_000 * i}\n"
        for i in range(120)
    )
    (folder / "houses.csv").write_text(f"area,rooms,year,price\n{rows}")
    return DataConfig("file.csv", path=str(folder / "houses.csv"))


def irises(folder: Path) -> DataConfig:
    rows = "".join(f"{i % 7},{i % 5},{'ab'[i % 2]}\n" for i in range(60))
    (folder / "t.csv").write_text(f"x,y,kind\n{rows}")
    return DataConfig("file.csv", path=str(folder / "t.csv"))


def pictures(folder: Path) -> DataConfig:
    for kind, value in (("dark", 40), ("light", 200)):
        (folder / "pictures" / kind).mkdir(parents=True)
        for i in range(8):
            pixels = np.full((20, 24, 3), value + i, np.uint8)
            Image.fromarray(pixels).save(folder / "pictures" / kind / f"{i}.png")
    return DataConfig("file.pictures", path=str(folder / "pictures"))


def text(folder: Path) -> DataConfig:
    (folder / "t.txt").write_text("the quick brown fox jumps over the lazy dog. " * 80)
    return DataConfig("file.text", path=str(folder / "t.txt"))


def series(folder: Path) -> DataConfig:
    values = np.random.default_rng(0).normal(size=(40, 3, 50)).astype(np.float32)
    np.savez(folder / "s.npz", x=values, y=np.arange(40) % 4)
    return DataConfig("file.tensors", path=str(folder / "s.npz"))


def built_in(source: str):
    return lambda _folder: DataConfig(source)


KINDS = {
    "a table of values": (houses, "nn.Linear", "MSELoss"),
    "a table of classes": (irises, "nn.Linear", "CrossEntropyLoss"),
    "an image folder": (pictures, "nn.Conv2d", "CrossEntropyLoss"),
    "a text": (text, "nn.TransformerEncoderLayer", "CrossEntropyLoss"),
    "series": (series, "nn.Conv1d", "CrossEntropyLoss"),
    "two moons": (built_in("made.moons"), "nn.Linear", "CrossEntropyLoss"),
    "digits": (built_in("sklearn.digits"), "nn.Conv2d", "CrossEntropyLoss"),
    "pairs": (built_in("made.pairs"), "torch.cat", "CrossEntropyLoss"),
    "masks": (built_in("made.shapes"), "nn.Conv2d", "BCEWithLogitsLoss"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_net_for_data_is_of_their_kind_and_fits_them(
    name: str, tmp_path: Path
) -> None:
    make, op, loss = KINDS[name]
    data = make(tmp_path)
    read_spec(data)
    project = starting_net.start(Project(data=data))
    assert op in project.graph.ops and project.training.loss.name == loss
    read_spec(project.data)
    analysis = analyse(project.graph)
    assert not analysis.problems
    problems = preflight.problems(project, analysis)
    assert not problems, [(problem.message, problem.reason) for problem in problems]


def test_values_far_from_1_are_standardised_and_measured_as_values(
    tmp_path: Path,
) -> None:
    data = houses(tmp_path)
    read_spec(data)
    project = starting_net.start(Project(data=data))
    assert project.data.options["standardise_target"] is True
    assert project.training.metrics == ("mae", "r2")
    assert project.training.epochs == 200, "96 samples are two steps an epoch"


def test_a_net_that_somebody_built_is_neither_replaced_nor_offered_another() -> None:
    bare = Project(data=DataConfig("made.moons"))
    assert "a multilayer perceptron" in starting_net.offer(bare).lower()
    built, _ = edits.add(bare, catalog(), "nn.Linear", (0, 0))
    assert starting_net.offer(built) == "" and starting_net.start(built) is built


def test_the_only_input_follows_the_data_and_a_net_keeps_its_own() -> None:
    project, node = edits.add(
        Project(data=DataConfig("made.moons")), catalog(), "input", (0, 0)
    )
    assert starting_net.with_fitting_input(project).graph.nodes[node].params == (
        FrozenMap(shape=(2,), dtype=DType("float32"))
    )
    built, _ = edits.add_behind(project, catalog(), "nn.Linear", node, (0, 0))
    assert starting_net.with_fitting_input(built) is built
