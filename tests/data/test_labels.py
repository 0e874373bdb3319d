"""Labels as arrays have them: class ids, texts, booleans, one-hot rows, probabilities, and those to be ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.data.config import DataConfig
from app.data.loaders import read_files
from app.util.frozen import FrozenMap
from tests.data.test_files import fitting
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import job

COUNT = 24
IDS = np.arange(COUNT) % 3
ONE_HOT = np.eye(3, dtype=np.int64)[IDS]


def arrays(
    folder: Path, labels: Any, kind: str = "npz", inputs: Any = None, **options: Any
) -> DataConfig:
    path = folder / f"d.{kind}"
    x = (
        np.random.default_rng(0).random((COUNT, 4), dtype=np.float32)
        if inputs is None
        else inputs
    )
    if kind == "pt":
        torch.save({"x": torch.from_numpy(x), "y": torch.from_numpy(labels)}, path)
    else:
        np.savez(path, x=x, y=labels)
    return DataConfig("file.tensors", path=str(path), options=FrozenMap(options))


@pytest.mark.parametrize("kind", ["npz", "pt"])
@pytest.mark.parametrize(
    ("labels", "classes", "ids", "words"),
    [
        (ONE_HOT, "012", IDS, "y is one-hot, and is read as 3 classes"),
        (
            ONE_HOT.astype(np.float32),
            "012",
            IDS,
            "y is one-hot, and is read as 3 classes",
        ),
        (ONE_HOT == 1, "012", IDS, "y is one-hot, and is read as 3 classes"),
        (
            IDS == 1,
            ("False", "True"),
            IDS == 1,
            "booleans (False, True) are numbered 0 to 1",
        ),
        (
            (IDS == 1)[:, None],
            ("False", "True"),
            IDS == 1,
            "booleans (False, True) are numbered 0 to 1",
        ),
        (
            IDS - 1,
            ("-1", "0", "1"),
            IDS,
            "class ids below 0 (-1, 0, 1) are numbered 0 to 2",
        ),
        (
            2 * (IDS > 0) - 1,
            ("-1", "1"),
            IDS > 0,
            "class ids below 0 (-1, 1) are numbered 0 to 1",
        ),
        (IDS.astype(np.int8), "012", IDS, ""),
    ],
)
def test_labels_become_class_ids_and_it_is_said_how(
    tmp_path, kind, labels, classes, ids, words
):
    read = read_files(arrays(tmp_path, labels, kind), lambda *_: None)
    assert (
        read.spec.task == "classes"
        and read.spec.classes == tuple(classes)
        and not read.spec.bad
    )
    assert read.labels.tolist() == ids.astype(int).tolist() and words in " ".join(
        read.spec.notes
    )


def test_a_class_that_no_row_has_stays_a_class(tmp_path):
    read = read_files(arrays(tmp_path, np.eye(5, dtype=np.uint8)[IDS]), lambda *_: None)
    assert read.spec.classes == tuple("01234") and read.spec.per_class == (
        8,
        8,
        8,
        0,
        0,
    )


def test_samples_of_the_label_that_losses_ignore_are_left_out_and_counted(tmp_path):
    labels = np.where(np.arange(COUNT) < 4, -100, IDS)
    read = read_files(arrays(tmp_path, labels), lambda *_: None)
    assert (
        read.labels.tolist() == IDS[4:].tolist()
        and len(read.inputs) == COUNT - 4
        and not read.spec.bad
    )
    assert read.spec.classes == tuple("012") and "4 of label -100" in read.spec.notes[0]


def test_labels_of_positions_keep_those_that_losses_ignore(tmp_path):
    tokens = np.arange(COUNT * 5).reshape(COUNT, 5) % 7
    read = read_files(
        arrays(tmp_path, np.where(tokens == 3, -100, tokens), inputs=tokens),
        lambda *_: None,
    )
    assert (
        read.spec.task == "tokens"
        and not read.spec.bad
        and int(read.labels.min()) == -100
    )
    padded = read_files(
        arrays(tmp_path, np.where(tokens == 3, -1, tokens), inputs=tokens),
        lambda *_: None,
    )
    assert (
        torch.equal(padded.labels, read.labels)
        and "-1 is read as -100" in padded.spec.notes[0]
    )


def test_probabilities_stay_what_they_are(tmp_path):
    shares = np.full((COUNT, 3), 0.1, np.float32) + 0.7 * ONE_HOT.astype(np.float32)
    read = read_files(arrays(tmp_path, shares), lambda *_: None)
    assert read.spec.task == "values" and read.labels.tolist() == shares.tolist()
    assert "probabilities of 3 classes" in read.spec.notes[0]


@pytest.mark.parametrize("labels", [IDS, IDS == 1, IDS.astype(np.float64)])
def test_the_task_says_whether_numbers_are_classes_or_values(tmp_path, labels):
    values = read_files(arrays(tmp_path, labels, task="values"), lambda *_: None)
    assert (
        values.spec.task == "values"
        and values.labels.flatten().tolist() == labels.astype(float).tolist()
    )
    classes = read_files(arrays(tmp_path, labels, task="classes"), lambda *_: None)
    assert (
        classes.spec.task == "classes"
        and classes.labels.tolist() == labels.astype(int).tolist()
    )


@pytest.mark.parametrize(
    "labels", [ONE_HOT, IDS == 1, IDS - 1, np.where(IDS == 2, -100, IDS)]
)
def test_a_run_on_such_labels_is_the_run_of_the_script(tmp_path, run_script, labels):
    data = arrays(tmp_path, labels)
    a_job = job(
        fitting(read_files(data, lambda *_: None).spec),
        data=data,
        epochs=1,
        batch_size=8,
    )
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
