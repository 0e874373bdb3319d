"""A person's own Dataset class: nothing of it runs untrusted, and what it gives is a run and the script's run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch.utils.data import IterableDataset

from app.data.config import DataConfig
from app.data.loaders import read_spec
from app.data.own_files import dataset_class
from app.data.own_files.survey import survey_dataset
from app.data.sources import DataError, options_of
from app.export.script_reading import reading_of
from app.export.train_script import write_start
from app.project import custom_layers
from app.project.project import Project
from app.source import layer_files
from app.util.frozen import FrozenMap
from tests.data.test_files import fitting
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import job

TEXT = """\
import os

import torch
from torch.utils.data import Dataset, IterableDataset


class Squares(Dataset):
    def __len__(self):
        return 90

    def __getitem__(self, number):
        if number == BROKEN:
            raise OSError("no such picture")
        return torch.rand(3) + number % 2, number % 2


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(70):
            yield torch.full((2, 2), number / 70), torch.tensor(number / 7)


class Sized(Squares):
    def __init__(self, root, *, size=90):
        assert root == "root"
        self.size = size

    def __len__(self):
        return self.size


class Dying(Squares):
    def __getitem__(self, number):
        os._exit(3)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes the file and trusts it; the config of one of its classes."""

    def make(name="Squares", broken=-1, trusted=True, **options):
        folder = tmp_path / f"v{broken}"
        folder.mkdir(exist_ok=True)
        path = folder / "my_data.py"
        path.write_text(TEXT.replace("BROKEN", str(broken)))
        if trusted:
            layer_files.allow(dataset_class.file_of(path).sha256, tried=True)
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop("my_data", None)  # that of a script that was run before
        return DataConfig(
            "file.dataset", path=str(path), options=FrozenMap(dataset=name, **options)
        )

    return make


@pytest.mark.usefixtures("forked_trials")
def test_nothing_of_a_file_runs_before_it_is_trusted(file):
    config = file(broken=11, trusted=False)
    with pytest.raises(DataError, match="not trusted yet"):
        read_spec(config)
    assert dataset_class.trusted(config) == []
    custom_layers.admit(Project(data=config), True)
    assert read_spec(config).count == 89 and len(dataset_class.trusted(config)) == 1


def test_a_map_style_dataset_is_read_and_bad_samples_are_named(file):
    spec = read_spec(file(broken=7))
    assert (spec.shape, spec.task, spec.per_class) == ((3,), "classes", (45, 44))
    assert spec.bad == ("sample 7: OSError: no such picture",)


def test_an_iterable_dataset_is_read_to_its_end(file):
    spec = read_spec(file("Stream"))
    assert (spec.shape, spec.task, spec.count, spec.label_shape) == (
        (2, 2),
        "values",
        70,
        (1,),
    )


def test_workers_read_the_same(file):
    from app.data.loaders import read_files

    alone = read_files(file(), lambda *_: None)
    helped = read_files(file(workers=1), lambda *_: None)
    assert (
        torch.equal(alone.labels, helped.labels)
        and alone.inputs.shape == helped.inputs.shape
    )


def test_a_worker_that_dies_is_told(file):
    with pytest.raises(DataError, match="my_data.py cannot be read: DataLoader worker"):
        read_spec(file("Dying", workers=1))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Nothing", "has no Dataset “Nothing”. It has: Squares, Stream, Sized, Dying"),
        ("", "has 4 Dataset classes"),
    ],
)
def test_which_class_is_asked(file, name, words):
    with pytest.raises(DataError, match=words):
        read_spec(file(name))


def test_a_class_gets_the_literals_that_it_is_written_with(file):
    config = file('Sized("root", size=70)')
    assert read_spec(config).count == 70
    assert reading_of(
        job(fitting(read_spec(config)), data=config), read_spec(config)
    ).call.startswith("read_dataset(Sized('root', size=70), ")
    for text in (
        "Sized(__import__('os'))",
        "Sized(*[1])",
        "Sized(**{})",
        "a.b()",
        "Sized(",
    ):
        with pytest.raises(DataError, match=r"literals, such as|without \*\*"):
            dataset_class.parse_call(text)
    with pytest.raises(
        DataError, match=r"Sized\('other'\) of my_data.py fails: AssertionError"
    ):
        read_spec(file("Sized('other')"))


@pytest.mark.parametrize("broken", [-1, 7])
def test_a_run_is_the_run_of_the_script(
    file, broken, tmp_path, run_script, monkeypatch
):
    import sys

    data = replace(file(broken=broken), bad="skip")
    a_job = job(fitting(read_spec(data)), data=data, epochs=2, batch_size=16)
    monkeypatch.delitem(sys.modules, "my_data", raising=False)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
    (written,) = write_start(a_job, tmp_path / "train.py")
    assert (
        written == tmp_path / "my_data.py"
        and written.read_text() == Path(data.path).read_text()
    )


def test_samples_that_are_not_kept_are_had_batch_by_batch_in_the_script_too(
    file, run_script, tmp_path
):
    """What they draw is drawn in the order of the batches, and goes on after a checkpoint."""
    from app.training.checkpoints import checkpoint
    from app.training.config import Choice
    from app.training.loop import train
    from tests.support.training_jobs import losses

    config = replace(file(broken=11, keep="disk"), bad="skip")
    spec = read_spec(config)
    assert (
        "not held in memory" in spec.notes[0]
        and "workers" not in spec.notes[0]
        and spec.count == 89
    )
    many = survey_dataset(Path(config.path), {**options_of(config), "workers": 2})
    assert "in its own thread" in many.notes[0]
    a_job = job(
        fitting(spec),
        data=config,
        epochs=2,
        batch_size=16,
        save_every=3,
        loss=Choice("CrossEntropyLoss"),
    )
    ours = app_lines(a_job)
    write_start(a_job, tmp_path / "train.py")
    lines, ended = run_script(a_job, "--json")
    assert ended is None and [line for line in lines if '"saved"' not in line] == ours
    kept = replace(a_job.data, options=FrozenMap(dataset="Squares"))
    assert ours != app_lines(replace(a_job, data=kept)), "those are drawn once"
    whole = losses(list(train(a_job, folder=tmp_path / "c")))
    rest = list(train(a_job, resume=tmp_path / "c" / checkpoint.step_file(6)))
    assert losses(rest) == whole[6:]


def test_an_iterable_dataset_is_streamed_in_its_own_order(file, run_script, tmp_path):
    from app.data.loaders import load
    from app.data.streams import InOrder
    from app.training.checkpoints import checkpoint
    from app.training.config import Choice
    from app.training.loop import train
    from tests.support.training_jobs import losses

    config = file("Stream", keep="disk")
    spec = read_spec(config)
    many = survey_dataset(Path(config.path), {**options_of(config), "workers": 2})
    assert "their own order" in many.notes[0] and "is ignored" in many.notes[1]
    with pytest.raises(DataError, match="Disable shuffle"):
        load(config)
    config = replace(config, shuffle=False)
    a_job = job(
        fitting(spec),
        data=config,
        epochs=2,
        batch_size=16,
        save_every=3,
        loss=Choice("MSELoss"),
    )
    data = load(config)
    assert isinstance(data.train.inputs, InOrder)
    assert float(data.train.inputs[slice(3, 4)].mean()) == pytest.approx(3 / 70)
    assert float(
        next(data.val.batches([data.train.inputs.numbers[:1]]))[0].mean()
    ) == pytest.approx(56 / 70)
    write_start(a_job, tmp_path / "train.py")
    ours = app_lines(a_job)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and [line for line in lines if '"saved"' not in line] == ours
    theirs, _ = run_script(
        a_job,
        "--json",
        "--resume",
        str(tmp_path / "checkpoints" / checkpoint.step_file(6)),
    )
    steps = [line for line in ours if '"step", ' in line]
    assert [line for line in theirs if '"step", ' in line] == steps[6:]
    whole = losses(list(train(a_job, folder=tmp_path / "c")))
    rest = list(train(a_job, resume=tmp_path / "c" / checkpoint.step_file(6)))
    assert losses(rest) == whole[6:]


@pytest.fixture
def iterable(tmp_path, monkeypatch):
    """Writes a file with an iterable dataset and trusts it; its config, with the samples left on the disk."""

    def make(*lines):
        text = "import random\n\nimport numpy as np\nimport torch\nfrom torch.utils.data import IterableDataset\n\n\n"
        path = tmp_path / "my_stream.py"
        path.write_text(
            text
            + "class Own(IterableDataset):\n"
            + "".join(f"    {line}\n" for line in lines)
        )
        layer_files.allow(dataset_class.file_of(path).sha256, tried=True)
        monkeypatch.syspath_prepend(str(tmp_path))
        sys.modules.pop("my_stream", None)
        return DataConfig(
            "file.dataset",
            path=str(path),
            options=FrozenMap(keep="disk"),
            bad="skip",
            shuffle=False,
        )

    return make


@pytest.mark.parametrize("shuffled", [True, False])
def test_an_iterable_dataset_that_shuffles_itself_is_refused_at_its_first_wrong_label(
    iterable, shuffled
):
    """The labels were read in another order: a run would learn with those of other samples."""
    from app.training.config import Choice
    from app.training.events import Failed, Finished, StepDone
    from tests.support.training_jobs import run

    config = iterable(
        "def __iter__(self):",
        f"    order = torch.randperm(62) + 8 if {shuffled} else torch.arange(8, 70)",
        "    for number in [*range(8), *order.tolist()]:",
        "        yield torch.full((3,), number / 70), number / 7",
    )
    events = run(
        job(
            fitting(read_spec(config)),
            data=config,
            epochs=2,
            batch_size=4,
            loss=Choice("MSELoss"),
        )
    )
    if not shuffled:
        assert isinstance(events[-1], Finished)
        return
    failed = events[-1]
    assert isinstance(failed, Failed) and failed.kind == "data"
    assert [event.step for event in events if isinstance(event, StepDone)] == [1, 2], (
        "those were in their order"
    )
    assert failed.message.startswith("Sample 8 has another label")
    assert (
        "in another order" in failed.message and "a seeded generator" in failed.message
    )


def test_a_dataset_whose_first_label_is_another_each_time_is_refused_when_it_is_read(
    iterable,
):
    lines = (
        "def __iter__(self):",
        "    for _ in range(9):",
        "        yield torch.zeros(3), random.random()",
    )
    with pytest.raises(
        DataError, match="Sample 0 has another label.*keep the samples in memory"
    ):
        read_spec(iterable(*lines))


LABELS = {
    "number": lambda i: i % 3,
    "float64": lambda i: np.float64(i) / 3,
    "bool": lambda i: i % 3 == 0,
    "none known": lambda i: float("nan") if i % 2 else i / 3,
    "tensor": lambda i: torch.tensor([[i, float("nan")], [float("inf"), 1.0]]),
    "half": lambda i: torch.tensor(i / 3, dtype=torch.float16),
    "tuple": lambda i: (1, torch.tensor([i / 3])),
    "names": lambda i: {"kind": i % 3, "box": [i / 7, float("nan")]},
    "one name": lambda i: {"kind": i},
}


@pytest.mark.parametrize("kind", LABELS)
def test_each_sample_comes_with_the_label_that_was_read_before(kind):
    """Bad samples are left out of the labels, and the others keep theirs."""
    from app.data.streams import SampleLostError, stream_dataset

    class Own(IterableDataset):
        order = range(12)

        def __iter__(self):
            for number, i in enumerate(self.order):
                yield torch.zeros(2 if number in (1, 6) else 3) + i, LABELS[kind](i)

    own = Own()
    samples, _, bad = stream_dataset(own, 0, 0.0, False)
    assert len(bad) == 2 and samples.ahead([])[torch.arange(10)][:, 0].tolist() == [
        0,
        2,
        3,
        4,
        5,
        7,
        8,
        9,
        10,
        11,
    ]
    part = samples.part(torch.arange(6, 10)).ahead([])
    assert part[torch.arange(4)][:, 0].tolist() == [8, 9, 10, 11]
    own.order = [*range(9), 10, 9, 11]
    assert part[torch.tensor([0])][:, 0].tolist() == [8]
    with pytest.raises(SampleLostError, match="Sample 9 has another label"):
        part[torch.tensor([1])]
    own.order = range(10)
    with pytest.raises(SampleLostError, match="Sample 11 no longer exists"):
        part.ahead([])[torch.tensor([3])]


def test_what_is_drawn_of_numpy_and_random_goes_on_after_a_checkpoint(
    iterable, run_script, tmp_path
):
    """Samples that are passed over draw too, and so does the dataset when it begins."""
    from app.training.checkpoints import checkpoint
    from app.training.config import Choice
    from app.training.loop import train
    from tests.support.training_jobs import losses

    config = iterable(
        "def __iter__(self):",
        "    random.random(), np.random.rand(), torch.rand(())",
        "    return self.samples()",
        "",
        "def samples(self):",
        "    for number in range(70):",
        "        drawn = random.random() + np.random.rand() + np.random.normal() + torch.rand(2 + (number == 33))",
        "        yield drawn + number / 70, number / 7",
    )
    spec = read_spec(config)
    assert len(spec.bad) == 1
    a_job = job(
        fitting(spec),
        data=config,
        epochs=2,
        batch_size=16,
        save_every=3,
        loss=Choice("MSELoss"),
    )
    whole = losses(list(train(a_job, folder=tmp_path / "c")))
    for step in (3, 6):
        rest = list(train(a_job, resume=tmp_path / "c" / checkpoint.step_file(step)))
        assert losses(rest) == whole[step:]
    write_start(a_job, tmp_path / "train.py")
    ours = [line for line in app_lines(a_job) if '"step", ' in line]
    lines, ended = run_script(a_job, "--json")
    assert ended is None and [line for line in lines if '"step", ' in line] == ours
    lines, _ = run_script(
        a_job,
        "--json",
        "--resume",
        str(tmp_path / "checkpoints" / checkpoint.step_file(6)),
    )
    assert [line for line in lines if '"step", ' in line] == ours[6:]


def test_a_dataset_whose_target_is_a_tuple_has_several_targets(
    tmp_path, monkeypatch, run_script
):
    from app.training.config import Choice, OutputLoss
    from app.training.events import Finished, LossParts
    from tests.support.training_jobs import net, run

    path = tmp_path / "pairs.py"
    path.write_text(
        "import torch\nfrom torch.utils.data import Dataset\n\n\nclass Pairs(Dataset):\n"
        "    def __len__(self):\n        return 40\n\n"
        "    def __getitem__(self, i):\n        return torch.full((3,), i / 40), (i % 2, torch.tensor([i / 40, 1.0]))\n"
    )
    layer_files.allow(dataset_class.file_of(path).sha256, tried=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = DataConfig("file.dataset", path=str(path))
    assert [(one.name, one.task) for one in read_spec(config).targets] == [
        ("target 1", "classes"),
        ("target 2", "values"),
    ]
    source = replace(
        net(
            ["self.kind = nn.Linear(3, 2)", "self.box = nn.Linear(3, 2)"],
            ["return self.kind(x), self.box(x)"],
            (3,),
        ),
        outputs=("kind", "box"),
    )
    rows = (
        OutputLoss("kind", Choice("CrossEntropyLoss"), 1.0, "target 1"),
        OutputLoss("box", Choice("MSELoss"), 5.0, "target 2"),
    )
    a_job = job(source, data=config, epochs=1, batch_size=16, losses=rows)
    events = run(a_job)
    assert isinstance(events[-1], Finished), events[-1]
    assert [event.outputs for event in events if isinstance(event, LossParts)][0] == (
        "kind",
        "box",
    )
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
