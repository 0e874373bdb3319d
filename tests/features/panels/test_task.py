"""Evaluations of stored runs: written once, read without torch, and done again when the weights are others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from app.engine.client import Engine
from app.features.panels import evaluations
from app.features.panels.values import EvaluateRun, ShowRunSamples
from app.project import file as project_file
from app.runs import store
from app.runs.record import RunError
from app.util.resources import path as resource_path
from app.views.pictures import headless_pictures


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Folder of the runs of the bundled nets by their names: two of a classifier with other splits, one of a U-Net."""
    from app.main import main

    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headless_pictures, "run_pictures", lambda *_: None)
        for name, steps in (("digits", 2), ("U-Net", 4)):
            project = project_file.read(resource_path("examples", f"{name}.tape"))
            short = replace(
                project,
                training=replace(project.training, max_steps=steps, device="cpu"),
            )
            project_file.write(short, folder / f"{name}.tape")
            assert (
                main(
                    ["train", str(folder / f"{name}.tape"), "--out", str(folder / name)]
                )
                == 0
            )
    return folder


@pytest.fixture(scope="module")
def engine():
    made = Engine()
    yield made
    made.close()


def kept_in(folder: Path) -> store.Kept:
    return store.listed(folder / "runs")[0]


def test_an_evaluation_is_stored_and_read_as_it_was(trained: Path, engine) -> None:
    kept = kept_in(trained / "digits")
    assert evaluations.read(kept, "validation") is None
    answer = engine.ask(EvaluateRun(kept.folder, str(trained), "validation")).result(
        120
    )
    found, there = answer.evaluation.found, evaluations.read(kept, "validation")
    assert (
        there is not None
        and there.found.summary() == found.summary()
        and there.space == answer.evaluation.space
    )
    assert there.checkpoint == evaluations.checkpoint_of(kept) and there.unit
    assert there.found.columns.keys() == found.columns.keys()
    assert all(
        np.array_equal(values, found.columns[name])
        for name, values in there.found.columns.items()
    )
    file = kept.folder / "evaluations" / "validation.npz"
    before = file.stat().st_mtime_ns
    again = engine.ask(EvaluateRun(kept.folder, str(trained), "validation")).result(120)
    assert (
        file.stat().st_mtime_ns == before
        and again.evaluation.found.summary() == found.summary()
    )
    (sample,) = engine.ask(ShowRunSamples(again.net, (3,))).result(120)
    assert sample.number == 3 and sample.picture is not None and sample.target is None
    os.utime(kept.checkpoints / "best.pt", ns=(1, 1))
    engine.ask(EvaluateRun(kept.folder, str(trained), "validation")).result(120)
    assert file.stat().st_mtime_ns != before, "the weights are others"


def test_masks_of_a_u_net_are_shown_beside_their_targets(trained: Path, engine) -> None:
    kept = kept_in(trained / "U-Net")
    answer = engine.ask(EvaluateRun(kept.folder, str(trained), "validation")).result(
        120
    )
    samples = engine.ask(ShowRunSamples(answer.net, (0, 1))).result(120)
    for sample in samples:
        assert sample.picture.shape == sample.target.shape == sample.output.shape
        assert set(np.unique(sample.target)) <= {0, 255} and sample.note.startswith(
            ("IoU", "both")
        )


def test_a_damaged_file_says_so_and_a_run_without_checkpoint_too(
    trained: Path, tmp_path: Path, engine
) -> None:
    kept = kept_in(trained / "digits")
    folder = tmp_path / "0001"
    shutil.copytree(kept.folder, folder)
    copy = store.Kept(folder, kept.record)
    (folder / "evaluations").mkdir(exist_ok=True)
    (folder / "evaluations" / "test.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(RunError, match="is not an evaluation"):
        evaluations.read(copy, "test")
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(RunError, match="has no checkpoint with weights to evaluate"):
        engine.ask(EvaluateRun(folder, str(trained), "validation")).result(120)
