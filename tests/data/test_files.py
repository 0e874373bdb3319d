"""Own files: tables, tensors, pictures and texts are read, what is bad is named, and runs are the script's."""

from __future__ import annotations

import json
import os

import pytest
from msgspec.structs import replace

from app import cli
from app.data.config import DataConfig
from app.data.loaders import load, read_spec
from app.data.own_files import cache
from app.data.sources import DataError, spec_of
from app.data.spec import ReadingCancelledError
from app.project.file import read, write
from app.project.project import Project
from app.source.generated import InputSpec
from app.training.config import Choice
from app.training.control import Control
from app.training.events import Finished
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.data.test_sources import linear
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import job, net

TABLE = "length,kind,name,species\n" + "".join(
    f"{i / 7:.3f},{'abc'[i % 3]},n{i},{('cat', 'dog')[i % 4 == 0]}\n" for i in range(60)
)


def csv(folder, text=TABLE, **options):
    (folder / "t.csv").write_text(text)
    return DataConfig(
        "file.csv", path=str(folder / "t.csv"), options=FrozenMap(options)
    )


def test_a_table_is_looked_through(tmp_path):
    spec = read_spec(csv(tmp_path))
    assert spec.columns == (
        "length",
        "kind=a",
        "kind=b",
        "kind=c",
    ) and spec.classes == ("cat", "dog")
    assert spec.per_class == (45, 15) and spec.notes == (
        "name is ignored: it has 60 different texts.",
    )
    assert (
        spec.task == "classes" and spec.shape == (4,) and spec.all_columns[2] == "name"
    )
    chosen = read_spec(csv(tmp_path, inputs=("kind",), target="length"))
    assert (
        chosen.columns == ("kind=a", "kind=b", "kind=c")
        and chosen.task == "values"
        and chosen.label_shape == (1,)
    )


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_the_separator_is_found(tmp_path, separator):
    assert (
        read_spec(csv(tmp_path, TABLE.replace(",", separator))).columns[0] == "length"
    )


BAD = "a,b,y\n1,2,0\n1,2\n3,nan,1\n\n4,,1\n5,x,0\n" + "".join(
    f"{i},{i},{i % 2}\n" for i in range(60)
)


def test_bad_rows_are_named_and_stop_or_are_skipped(tmp_path):
    config = csv(tmp_path, BAD)
    assert read_spec(config).bad == (
        "row 3: 2 fields instead of 3",
        "row 4, b: nan is not finite",
        "row 6, b is empty",
        "row 7, b: 'x' is not a number",
    )
    with pytest.raises(
        DataError,
        match="4 samples of t.csv cannot be read: row 3: 2 fields instead of 3; row 4",
    ):
        load(config)
    assert len(load(replace(config, bad="skip", validation_fraction=0.0)).train) == 61


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a,b\n", {}, "has no rows"),
        ("a\n1\n", {}, "one column"),
        ("a,b\n1,2\n", {}, "one row"),
        ("a,b\n1,2\n", {"target": "c"}, "no column “c”"),
        ("a,b\n1,2\n", {"target": "a", "inputs": ("a",)}, "the target and an input"),
        ("a,b\nx,\n", {}, "b is ignored: it is empty"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path, text, options, words):
    config = csv(tmp_path, text, **options)
    with pytest.raises(DataError, match=words):
        read_spec(config)
    with pytest.raises(DataError, match=words):
        spec_of(config)


def test_a_file_that_changes_is_read_anew(tmp_path):
    config = csv(tmp_path)
    assert not spec_of(config).is_read
    read_spec(config)
    assert spec_of(config).count == 60
    (tmp_path / "t.csv").write_text(TABLE + "1,a,n,cat\n")
    assert not spec_of(config).is_read and read_spec(config).count == 61
    os.remove(tmp_path / "t.csv")
    with pytest.raises(DataError, match="does not exist"):
        read_spec(config)


def tensors(folder, kind, inputs, labels, **options):
    import numpy as np
    import torch

    path = folder / f"d.{kind}"
    if kind == "pt":
        torch.save({"x": inputs, "y": labels}, path)
    elif kind == "npz":
        np.savez(path, x=inputs.numpy(), y=labels.numpy())
    else:
        np.save(path, inputs.numpy())
        np.save(folder / "l.npy", labels.numpy())
        options["labels_file"] = str(folder / "l.npy")
    return DataConfig("file.tensors", path=str(path), options=FrozenMap(options))


@pytest.mark.parametrize("kind", ["pt", "npz", "npy"])
def test_tensors_are_read_whatever_file_they_are_in(tmp_path, kind):
    import torch

    spec = read_spec(
        tensors(
            tmp_path, kind, torch.rand(20, 3, dtype=torch.float64), torch.arange(20) % 4
        )
    )
    assert (spec.shape, spec.task, spec.per_class, spec.dtype) == (
        (3,),
        "classes",
        (5, 5, 5, 5),
        "float32",
    )


def test_what_tensors_are_for_is_told_by_the_labels(tmp_path):
    import torch

    values = read_spec(tensors(tmp_path, "pt", torch.rand(20, 3), torch.rand(20)))
    assert values.task == "values" and values.label_shape == (1,)
    tokens = read_spec(
        tensors(
            tmp_path, "pt", torch.ones(20, 5, dtype=torch.int64), torch.full((20, 5), 6)
        )
    )
    assert (
        tokens.task == "tokens" and tokens.dtype == "int64" and len(tokens.classes) == 7
    )
    inputs = torch.rand(20, 3)
    inputs[4, 1] = float("nan")
    assert (
        read_spec(tensors(tmp_path, "pt", inputs, torch.arange(20)))
        .bad[0]
        .startswith("sample 4: ")
    )


def test_a_file_that_would_run_something_is_not_read(tmp_path):
    import pickle

    (tmp_path / "d.pt").write_bytes(pickle.dumps(os.system, protocol=2))
    with pytest.raises(DataError, match="Not a tensor file"):
        read_spec(DataConfig("file.tensors", path=str(tmp_path / "d.pt")))
    (tmp_path / "d.npz").write_bytes(pickle.dumps(os.system))
    with pytest.raises(DataError, match="not an .npz file"):
        read_spec(DataConfig("file.tensors", path=str(tmp_path / "d.npz")))


def pictures(folder, **options):
    from PIL import Image

    for number in range(24):
        place = folder / "p" / ("cats" if number % 3 else "dogs")
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10 + number, 12), (number * 10, 0, 255)).save(
            place / f"{number:02}.png"
        )
    options = {"size": (6, 5), **options}
    return DataConfig(
        "file.pictures", path=str(folder / "p"), options=FrozenMap(options)
    )


def test_pictures_are_resized_and_broken_ones_named(tmp_path):
    config = pictures(tmp_path)
    spec = read_spec(config)
    assert (spec.shape, spec.classes, spec.per_class) == (
        (3, 6, 5),
        ("cats", "dogs"),
        (16, 8),
    )
    data = load(config)
    inputs, _ = data.batch(4)
    assert inputs.shape == (4, 3, 6, 5) and 0 <= inputs.min() and inputs.max() == 1
    whole = (tmp_path / "p" / "dogs" / "00.png").read_bytes()
    (tmp_path / "p" / "dogs" / "99.png").write_bytes(whole[:40])
    (bad,) = read_spec(config).bad
    assert bad.startswith("dogs/99.png: ")
    assert read_spec(pictures(tmp_path, colour=False)).shape == (1, 6, 5)


def test_reading_can_be_stopped_and_begun_again(tmp_path):
    config, seen = pictures(tmp_path), []

    def watch(done, total, name):
        seen.append((done, total, name))
        if done == 3:
            raise ReadingCancelledError

    with pytest.raises(ReadingCancelledError):
        read_spec(config, watch)
    assert seen[0] == (0, 24, "01.png") and cache.recall(config) is None
    assert read_spec(config).count == 24


def text(folder, context=8):
    (folder / "t.txt").write_text(
        "to be, or not to be: that is the question. " * 20, encoding="utf-8"
    )
    return DataConfig(
        "file.text", path=str(folder / "t.txt"), options=FrozenMap(context=context)
    )


def test_a_text_is_cut_into_pieces_whose_last_ones_are_held_out(tmp_path):
    config = replace(text(tmp_path), validation_fraction=0.25)
    spec, data = read_spec(config), load(config)
    assert (
        spec.task == "tokens"
        and spec.shape == spec.label_shape == (8,)
        and spec.count == 859 // 8
    )
    letters = "".join(spec.classes)
    inputs, labels = data.batch(1)
    assert (
        "".join(letters[i] for i in inputs[0]) == "to be, o"
        and "".join(letters[i] for i in labels[0]) == "o be, or"
    )
    assert data.info.validation_count == round(spec.count * 0.25)
    (tmp_path / "t.txt").write_bytes(b"good line\nb\xffd line\ngood line\n")
    assert read_spec(config).bad == ("line 2: it is not UTF-8 text",)


def test_paths_are_kept_beside_the_project(tmp_path):
    project = Project(data=csv(tmp_path))
    write(project, tmp_path / "p.tape")
    assert '"path": "t.csv"' in (tmp_path / "p.tape").read_text()
    assert read(tmp_path / "p.tape").data == project.data


def values(folder, kind, **options):
    import torch

    inputs = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    return tensors(folder, kind, inputs, inputs.sum(1), **options)


FULL = FrozenMap(full=True, log_input=True)
RUNS = {
    "classes of a table": (csv, {}),
    "a table weighed": (lambda folder: replace(csv(folder), class_weights=True), {}),
    "a table with bad rows": (lambda folder: replace(csv(folder, BAD), bad="skip"), {}),
    "values of a table": (
        lambda folder: csv(folder, target="length"),
        {"loss": Choice("MSELoss"), "mixup": 0.3},
    ),
    "pt": (
        lambda folder: values(folder, "pt", standardise=True),
        {"loss": Choice("L1Loss")},
    ),
    "npz": (lambda folder: values(folder, "npz"), {"loss": Choice("MSELoss")}),
    "npy": (lambda folder: values(folder, "npy"), {"loss": Choice("HuberLoss")}),
    "counts of a table": (
        lambda folder: csv(folder, target="length"),
        {"loss": Choice("PoissonNLLLoss", FULL)},
    ),
    "pictures": (pictures, {"channels_last": True}),
    "a text": (text, {}),
    "a text, one-hot": (text, {"loss": Choice("BCEWithLogitsLoss")}),
}


def fitting(spec):
    """A small net from what the data give to what the loss wants."""
    if spec.task == "tokens":
        count = len(spec.classes)
        init = [
            f"self.emb = nn.Embedding({count}, 8)",
            f"self.fc = nn.Linear(8, {count})",
        ]
        source = net(init, ["return self.fc(self.emb(x))"], spec.shape)
        return replace(source, inputs=(InputSpec("x", spec.shape, "int64"),))
    size = 1
    for side in spec.shape:
        size *= side
    return linear(size, len(spec.classes) or spec.label_shape[0], spec.shape)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_run_of_the_script(name, tmp_path, run_script):
    make, training = RUNS[name]
    data = make(tmp_path)
    a_job = job(
        fitting(read_spec(data)), data=data, epochs=2, batch_size=16, **training
    )
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
    assert '"steps"' in lines[-1]


def test_the_script_stops_at_bad_rows_too(tmp_path, run_script):
    data = replace(csv(tmp_path, BAD), bad="skip")
    a_job = job(fitting(read_spec(data)), data=replace(data, bad="stop"))
    _, ended = run_script(a_job)
    assert "row 3: 2 fields instead of 3" in str(ended)
    assert "row 3: 2 fields instead of 3" in app_lines(a_job)[-1]


def test_a_loss_of_classes_is_refused_for_values(tmp_path):
    data = csv(tmp_path, target="length")
    assert (
        "CrossEntropyLoss expects class labels"
        in app_lines(job(fitting(read_spec(data)), data=data))[-1]
    )


def test_a_run_can_be_stopped_while_its_data_are_read(tmp_path):
    control = Control()
    control.stop()
    data = pictures(tmp_path)
    (last,) = train(job(linear(90, 2, (3, 6, 5)), data=data), control)
    assert last == Finished("stopped", 0, 0, 0.0)


def test_the_command_says_what_the_data_are_and_names_every_bad_row(tmp_path, capsys):
    write(Project(data=csv(tmp_path, BAD)), tmp_path / "p.tape")
    assert cli.run(["data", str(tmp_path / "p.tape")]) == 1
    out = capsys.readouterr().out
    assert (
        "61 samples of 2 float32, 2 classes. 49 for training, 12 for validation." in out
    )
    assert (
        "Samples per class: 0: 31, 1: 30." in out
        and "cannot be read: row 6, b is empty" in out
    )
    write(Project(data=replace(csv(tmp_path, BAD), bad="skip")), tmp_path / "p.tape")
    assert cli.run(["data", str(tmp_path / "p.tape"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (
        told["per_class"] == [31, 30]
        and len(told["bad"]) == 4
        and told["batch"]["inputs"][0] == [49, 2]
    )
    write(Project(data=DataConfig("file.csv")), tmp_path / "p.tape")
    assert (
        cli.run(["data", str(tmp_path / "p.tape")]) == 2
        and "no file is chosen" in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", ["values of a table", "a text", "a text, one-hot"])
def test_the_backward_graph_of_a_batch_is_that_of_its_task(name, tmp_path):
    from app.engine.requests.capture import CaptureRequest
    from app.engine.tasks.capture import batch_of

    make, training = RUNS[name]
    data = make(tmp_path)
    tape = batch_of(
        CaptureRequest(job(fitting(read_spec(data)), data=data, **training))
    ).capture()
    assert tape.nodes


def test_pictures_that_would_fill_the_memory_are_refused(tmp_path):
    with pytest.raises(DataError, match="Reduce size"):
        read_spec(pictures(tmp_path, size=(1_000_000, 1_000_000)))


def arrays(folder, **named):
    import numpy as np

    np.savez(folder / "d.npz", **named)
    return DataConfig("file.tensors", path=str(folder / "d.npz"))


def labelled(folder, labels):
    import numpy as np

    return arrays(
        folder,
        x=np.random.default_rng(0).random((60, 3), dtype=np.float32),
        y=np.array(labels),
    )


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([3, 7, 10**7] * 20, ("3", "7", "10000000")),
        ([[2**40], [5], [2**40]] * 20, ("5", str(2**40))),
        (["cat", "dog", "bee"] * 20, ("bee", "cat", "dog")),
        ([b"cat", b"dog", b"bee"] * 20, ("bee", "cat", "dog")),
    ],
)
def test_texts_and_class_ids_with_gaps_are_numbered_and_a_run_is_that_of_the_script(
    tmp_path, run_script, labels, classes
):
    data = labelled(tmp_path, labels)
    spec = read_spec(data)
    assert (
        spec.classes == classes
        and sum(spec.per_class) == 60
        and "are numbered 0 to" in spec.notes[0]
    )
    a_job = job(linear(3, len(classes), (3,)), data=data, epochs=1, batch_size=16)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


def test_class_ids_without_gaps_stay_what_they_are(tmp_path):
    spec = read_spec(labelled(tmp_path, [2, 0, 1] * 20))
    assert (
        spec.classes == ("0", "1", "2")
        and not spec.notes
        and "classes" not in spec.arguments
    )


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_target_of_100_001_different_values_is_refused_with_its_name(tmp_path, kind):
    import numpy as np

    data = arrays(tmp_path, x=np.zeros((100_001, 1), "f4"), y=np.arange(100_001))
    if kind == "csv":
        data = csv(tmp_path, "x,y\n" + "".join(f"{i},t{i}\n" for i in range(100_001)))
    with pytest.raises(
        DataError, match="“y” has 100,001 different classes in 100,001 samples"
    ):
        read_spec(data)


def test_complex_arrays_texts_records_and_members_that_are_no_arrays_are_refused(
    tmp_path,
):
    import zipfile

    import numpy as np
    import torch

    y = np.arange(6) % 2
    for x, words in (
        (np.ones((6, 2)) * 1j, "“x” holds complex numbers"),
        (np.array([["a", "b"]] * 6), "“x” holds values of type <U1"),
        (np.zeros(6, [("a", "f4")]), "“x” holds values of type"),
        (np.full((6, 1), 2**63, "u8"), "“x” holds integers above"),
        (np.zeros((0, 2)), "do not match"),
    ):
        with pytest.raises(DataError, match=words):
            read_spec(arrays(tmp_path, x=x, y=y))
    torch.save(
        {"x": torch.ones(6, 2) * 1j, "y": torch.arange(6) % 2}, tmp_path / "d.pt"
    )
    with pytest.raises(DataError, match="“x” holds complex numbers"):
        read_spec(DataConfig("file.tensors", path=str(tmp_path / "d.pt")))
    config = arrays(tmp_path, x=np.ones((6, 2)))
    with zipfile.ZipFile(tmp_path / "d.npz", "a") as archive:
        archive.writestr("y", "no array")
    with pytest.raises(DataError, match="“y” is not an array"):
        read_spec(config)


@pytest.mark.parametrize("keep", ["memory", "disk"])
def test_a_picture_that_is_too_large_and_a_pipe_are_bad_pictures_with_their_names(
    tmp_path, keep
):
    from tests.slow.damaged_data import _png

    config = pictures(tmp_path, keep=keep)
    (tmp_path / "p" / "cats" / "huge.png").write_bytes(_png(50_000, 50_000))
    os.mkfifo(tmp_path / "p" / "dogs" / "pipe.png")
    spec = read_spec(config)
    assert sum(spec.per_class) == 24
    assert spec.bad == (
        "cats/huge.png: it has more than 178,956,970 pixels; replace it by a smaller copy",
        "dogs/pipe.png: it is not a regular file",
    )


def test_pipes_and_paths_with_a_nul_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="it is a named pipe"):
        read_spec(DataConfig("file.csv", path=str(tmp_path / "pipe.csv")))
    for source in ("file.csv", "file.dataset", "file.pictures"):
        with pytest.raises(DataError, match="NUL character"):
            read_spec(DataConfig(source, path=f"{tmp_path}/a\0.py"))


def test_a_quotation_that_never_ends_is_refused_at_its_line(tmp_path):
    with pytest.raises(DataError, match="line 62: a quotation mark"):
        read_spec(csv(tmp_path, TABLE + '1,a,n,"cat\n' + TABLE))
    assert read_spec(csv(tmp_path, TABLE + '1,a,n,"a\ncat"\n')).classes == (
        "a\ncat",
        "cat",
        "dog",
    )
