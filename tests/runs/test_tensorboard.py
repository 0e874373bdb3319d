"""A run as TensorBoard event files, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.project.project import Project
from app.runs import store, tensorboard
from app.runs.recorder import Recorder
from app.training.control import Control
from app.training.events import StepDone
from app.training.loop import train
from tests.support.training_jobs import CONV_NET, job, losses, run

pytest.importorskip("tensorboard")


def read(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(
        str(folder), size_guidance=dict.fromkeys(("scalars", "histograms", "images"), 0)
    )
    read.Reload()
    return read


def test_a_run_is_written_as_it_goes_on_and_again_when_it_is_kept(
    tmp_path: Path,
) -> None:
    import torch

    a_job = job(CONV_NET, epochs=2, batch_size=128, save_every=5)
    whole = losses(run(a_job))
    project = Project("digits", data=a_job.data, training=a_job.training)
    kept = store.begin(tmp_path / "runs", project)
    recorder = Recorder(
        kept,
        project,
        a_job.source.text,
        watch=lambda folder: tensorboard.watch(folder, a_job),
    )
    assert recorder.begin() == ""
    events, control = [], Control()
    for event in train(a_job, control, folder=recorder.checkpoints):
        recorder.take(event)
        events.append(event)
    recorder.close()
    assert losses(events) == whole, (
        "writing for TensorBoard leaves no trace in the numbers"
    )

    exported = tensorboard.export(recorder.kept, a_job, tmp_path / "exported")
    state = torch.load(kept.checkpoints / "last.pt", weights_only=True)["model"]
    for folder in (kept.folder / tensorboard.FOLDER, exported):
        found = read(folder)
        tags = found.Tags()
        assert {tag.split("/")[0] for tag in tags["scalars"]} == {
            "loss",
            "accuracy",
            "rate",
            "gradient norm",
            "update over weight",
            "memory",
        }
        train_loss = found.Scalars("loss/train")
        assert [scalar.step for scalar in train_loss] == [
            e.step for e in events if isinstance(e, StepDone)
        ]
        assert np.array_equal(
            np.float32([scalar.value for scalar in train_loss]), np.float32(whole)
        )
        assert [scalar.step for scalar in found.Scalars("accuracy/validation")] == [
            12,
            24,
        ]
        (pictures, *_) = found.Images("batch/samples")
        assert (pictures.width, pictures.height) >= (8, 8)
        assert tags["graph"] and any(
            "conv1" in node.name for node in _graph(found).node
        )
        assert {"gradients/conv1", "activations/conv1", "weights/conv1"} <= set(
            tags["histograms"]
        )
        last = found.Histograms("weights/conv1.weight")[-1]
        assert last.step == 24
        assert last.histogram_value.num == state["conv1.weight"].numel()
        assert last.histogram_value.max == pytest.approx(
            state["conv1.weight"].max().item()
        )


def _graph(found):
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    graph = found.Graph()
    return graph if not isinstance(graph, bytes) else GraphDef.FromString(graph)


def test_without_tensorboard_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from app.runs.record import RunError

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RunError, match=r"pip install tapedeck-torch\[tensorboard\]"):
        tensorboard.writer(tmp_path / "events")
    a_job = job(epochs=1)
    kept = store.begin(tmp_path, Project("digits"))
    recorder = Recorder(
        kept,
        Project("digits"),
        "",
        watch=lambda folder: tensorboard.watch(folder, a_job),
    )
    assert recorder.begin() == "", "the run is kept all the same"
    told = [recorder.take(event) for event in train(a_job)]
    recorder.close()
    assert "pip install" in told[0].problem and told[1:] == [None] * len(told[1:])
    assert recorder.kept.state == "done"
