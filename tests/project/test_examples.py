"""The bundled examples: each opens, checks clean, runs, and is what the script makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.arrange import DEFAULT
from app.data.loaders import load
from app.data.spec import NotDownloadedError
from app.preflight import preflight
from app.project.custom_layers import ops_of
from app.project.file import dumps, loads, read
from app.project.project import Project
from app.runs import store
from app.runs.recorder import Recorder
from app.training.events import EpochDone, Failed, Started, StepDone
from app.training.loop import train
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from scripts.make_examples import EXAMPLES

FILES = sorted(resource_path("examples").glob("*.tape"))
OFFLINE = [
    "MLP on digits",
    "Residual net on digits",
    "Transformer on digits",
    "U-Net",
    "digits",
]

each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_there_are_eight_beside_the_one_that_opens_first() -> None:
    assert {path.stem for path in FILES} == {
        "digits",
        *(make().name for make in EXAMPLES),
    } and len(FILES) == 9


@each
def test_it_opens_and_saves_equal_and_bears_the_name_of_its_file(path: Path) -> None:
    project = read(path)
    assert loads(dumps(project)) == project
    assert project.name == path.stem


@each
def test_it_checks_clean(path: Path) -> None:
    project = read(path)
    analysis = analyse(project.graph, ops_of(project))
    assert analysis.problems == ()
    assert not preflight.problems(project, analysis)


@each
def test_its_code_runs_and_every_parameter_gets_a_gradient(path: Path) -> None:
    import torch

    from app.source.compiled import load_class, random_inputs

    project = read(path)
    analysis = analyse(project.graph, ops_of(project))
    torch.manual_seed(0)
    model = load_class(analysis.source)()
    answer = model(*random_inputs(analysis.source, 3))
    kind = analysis.output_type()
    assert kind is not None and tuple(answer.shape) == kind.with_batch(3)
    answer.square().sum().backward()
    assert (
        sum(parameter.numel() for parameter in model.parameters())
        == analysis.total_parameters
    )
    assert all(parameter.grad is not None for parameter in model.parameters())


@each
def test_every_node_has_a_place_of_its_own(path: Path) -> None:
    project = read(path)
    for sheet in (project, *project.blocks.values()):
        assert set(sheet.positions) == set(sheet.graph.nodes)
        places = sorted(sheet.positions.values())
        for i, (x, y) in enumerate(places):
            for other_x, other_y in places[i + 1 :]:
                assert (
                    abs(x - other_x) >= DEFAULT.width
                    or abs(y - other_y) >= DEFAULT.height
                )


def without_places(project: Project) -> FrozenMap:
    return FrozenMap(
        {
            name: replace(block, positions=FrozenMap())
            for name, block in project.blocks.items()
        }
    )


@pytest.mark.parametrize("make", EXAMPLES, ids=lambda make: make.__name__)
def test_the_file_is_what_the_script_makes(make: Callable[[], Project]) -> None:
    made = make()
    kept = read(resource_path("examples", f"{made.name}.tape"))
    assert replace(
        kept, positions=made.positions, blocks=without_places(kept)
    ) == replace(made, blocks=without_places(made))


@pytest.mark.parametrize("name", ["MNIST net", "CIFAR-10 net"])
def test_what_is_not_downloaded_trains_on_a_stand_in_that_says_so(
    name: str, tmp_path: Path
) -> None:
    project = read(resource_path("examples", f"{name}.tape"))
    project = replace(
        project,
        training=replace(project.training, epochs=1, max_steps=25, device="cpu"),
    )
    job = preflight.job(project, analyse(project.graph, ops_of(project)), str(tmp_path))
    events = list(train(job))
    started = events[0]
    assert isinstance(started, Started) and started.stand_in.startswith(
        "This is a stand-in for "
    )
    assert any(isinstance(event, EpochDone) for event in events)
    recorder = Recorder(
        store.begin(tmp_path / "runs", project), project, job.source.text
    )
    recorder.begin()
    for event in events:
        recorder.take(event)
    recorder.close()
    assert store.listed(tmp_path / "runs")[0].record.tags == ("stand-in",)
    with pytest.raises(NotDownloadedError):
        load(replace(project.data, options=FrozenMap()), tmp_path)


@pytest.mark.parametrize("name", OFFLINE)
def test_one_epoch_brings_the_loss_down(name: str) -> None:
    project = read(resource_path("examples", f"{name}.tape"))
    project = replace(
        project, training=replace(project.training, epochs=1, device="cpu")
    )
    events = list(
        train(preflight.job(project, analyse(project.graph, ops_of(project))))
    )
    assert not [event for event in events if isinstance(event, Failed)]
    first = next(event.loss for event in events if isinstance(event, StepDone))
    (epoch,) = (event for event in events if isinstance(event, EpochDone))
    assert (
        epoch.train_loss < first
        and epoch.val_loss is not None
        and epoch.val_loss < first
    )
