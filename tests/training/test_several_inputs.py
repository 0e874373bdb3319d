"""Nets with several inputs: each gets a field of the data, in the window, headless and in the exported script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.data.config import DataConfig
from app.data.loaders import load, read_spec
from app.data.preview import preview
from app.data.spec import DataError
from app.engine import dispatch
from app.engine.dispatch import control_for
from app.engine.placement import OWN_PROCESS
from app.engine.requests.capture import CaptureRequest
from app.engine.tasks.capture import batch_of
from app.preflight import preflight
from app.project import file
from app.source import layer_files
from app.source.compiled import make_module
from app.source.generated import InputSpec
from app.training.config import Choice, OutputLoss
from app.training.evaluation.evaluator import Evaluator
from app.training.evaluation.shown_samples import shown
from app.training.events import EpochDone, to_json
from app.training.job import Job, JobError
from app.training.loop import train
from app.training.monitoring.memory_by_layer import estimate
from app.training.setup.prepare import set_up
from app.util.frozen import FrozenMap
from app.util.resources import path as resource
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import example, job, losses, net

# The second input and a mask of booleans; the loss of each of two outputs has a target of its own.
GATED = replace(
    net(
        [
            "self.left = nn.Linear(3, 8)",
            "self.right = nn.Linear(4, 8)",
            "self.drop = nn.Dropout(0.2)",
            "self.kind = nn.Linear(8, 2)",
            "self.size = nn.Linear(8, 1)",
        ],
        [
            "x = torch.tanh(self.left(x) + self.right(values))",
            "x = self.drop(x * gate)",
            "return self.kind(x), self.size(x)",
        ],
        (3,),
    ),
    inputs=(
        InputSpec("x", (3,)),
        InputSpec("values", (4,)),
        InputSpec("gate", (8,), "bool"),
    ),
    outputs=("kind", "size"),
)
GATED = replace(GATED, text=GATED.text.replace("x: torch.Tensor)", "x, values, gate)"))
OF_GATED = (
    OutputLoss("kind", Choice("CrossEntropyLoss"), 1.0, "kind"),
    OutputLoss("size", Choice("MSELoss"), 0.5, "size"),
)
DICTIONARIES = """\
import torch
from torch.utils.data import Dataset


class Gated(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, number):
        torch.manual_seed(number)
        gate = torch.arange(8) <= number % 8
        return {"x": torch.rand(3), "values": torch.randn(4), "gate": gate, "labels": number % 2}
"""


def arrays(folder: Path) -> DataConfig:
    """A file of arrays with three inputs, two of which are called otherwise than those of the net."""
    generator = np.random.default_rng(0)
    kind = generator.integers(0, 2, 90)
    held = {
        "a": generator.random((90, 3), np.float32) + kind[:, None],
        "b": generator.random((90, 4), np.float32),
        "gate": generator.random((90, 8)) < 0.7,
        "kind": kind,
        "size": generator.random(90, np.float32),
    }
    np.savez(folder / "arrays.npz", **held)
    options: Any = FrozenMap(inputs="a, b, gate", labels="kind, size")
    return DataConfig("file.tensors", path=str(folder / "arrays.npz"), options=options)


def dictionaries(folder: Path) -> DataConfig:
    """A trusted Dataset class whose samples are dictionaries."""
    layer_files.allow(layer_files.LayerFile.from_text("gated", DICTIONARIES, "").sha256)
    (folder / "gated.py").write_text(DICTIONARIES)
    return DataConfig("file.dataset", path=str(folder / "gated.py"))


ONE_OUTPUT = replace(
    GATED,
    text=GATED.text.replace("self.kind(x), self.size(x)", "self.kind(x)"),
    outputs=("kind",),
)
SYNTHETIC = DataConfig(
    "made.fields",
    options=FrozenMap(
        fields="x (3,); values (4,) float32; gate (8,) bool",
        count=60,
        targets="kind classes 2; size values (1,)",
    ),
)
RUNS = {
    "pairs": lambda folder: example("Siamese net on digits", 120),
    "pairs, bfloat16 and channels last": lambda folder: example(
        "Siamese net on digits", 120, amp="bfloat16", channels_last=True
    ),
    "dates with masks": lambda folder: example("Encoder-decoder on dates", 96),
    "arrays, two losses": lambda folder: job(
        GATED,
        data=arrays(folder),
        losses=OF_GATED,
        inputs=FrozenMap(x="a", values="b"),
        accumulate=2,
        ema=0.9,
    ),
    "arrays, closure": lambda folder: job(
        GATED,
        data=arrays(folder),
        losses=OF_GATED,
        inputs=FrozenMap(x="a", values="b"),
        optimizer=Choice("LBFGS", FrozenMap(lr=0.1, max_iter=2)),
    ),
    "synthetic fields with two targets": lambda folder: job(
        GATED, data=SYNTHETIC, losses=OF_GATED, metrics=(), batch_size=16
    ),
    "dictionaries of a Dataset class": lambda folder: job(
        ONE_OUTPUT, data=dictionaries(folder)
    ),
}


def window_lines(a_job: Job) -> list[str]:
    """What the thread of the window's run hears from the process that trains."""
    events = dispatch.train(
        a_job, control_for(OWN_PROCESS), OWN_PROCESS, threads=torch.get_num_threads()
    )
    return [line for event in events if (line := to_json(event))]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_run_of_the_script(
    name: str, tmp_path: Path, run_script: Any
) -> None:
    a_job = RUNS[name](tmp_path)
    read_spec(a_job.data)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job) == window_lines(a_job)


def test_the_loss_is_that_of_plain_torch() -> None:
    """The first step of the siamese net, computed by hand from the same samples in the same order."""
    a_job = example("Siamese net on digits", 120)
    data = load(a_job.data)
    torch.manual_seed(a_job.training.seed)
    model = make_module(a_job.source)
    order = torch.randperm(
        len(data.train), generator=torch.Generator().manual_seed(a_job.training.seed)
    )
    first = order[: a_job.training.batch_size]
    held = data.train.inputs  # type: ignore[attr-defined]
    loss = torch.nn.functional.cross_entropy(
        model(held["first"][first], held["second"][first]),
        data.train.labels[first],  # type: ignore[attr-defined]
    )
    assert losses(list(train(a_job)))[0] == loss.item()


def test_the_examples_learn() -> None:
    """More than guessing after two epochs of few samples: the masks and fields are where they belong."""
    events = list(train(example("Encoder-decoder on dates", 600, batch_size=32)))
    accuracy = [event.val_accuracy for event in events if isinstance(event, EpochDone)]
    assert (
        accuracy[-1] is not None and accuracy[-1] > 0.3
    )  # one in eleven would be guessing


def test_padding_is_not_looked_at() -> None:
    """What stands in places that are padding changes no answer."""
    a_job = example("Encoder-decoder on dates", 16)
    inputs, _ = load(a_job.data).batch(8)
    model = make_module(a_job.source).eval()
    other = torch.where(inputs["padding"], 7, inputs["written"])
    assert not torch.equal(other, inputs["written"])
    with torch.inference_mode():
        torch.testing.assert_close(
            model(other, inputs["padding"], inputs["so_far"]),
            model(inputs["written"], inputs["padding"], inputs["so_far"]),
        )


def test_everything_beside_a_run_takes_several_inputs(tmp_path: Path) -> None:
    """The estimate, the tape, the evaluation with its samples, and the first batch."""
    a_job = example("Siamese net on digits", 120)
    info = load(a_job.data).info
    assert estimate(a_job, info) is not None
    assert batch_of(CaptureRequest(a_job)).capture().input_shapes == (
        (64, 1, 8, 8),
        (64, 1, 8, 8),
    )
    evaluator = Evaluator(a_job)
    found = evaluator.evaluate()
    pictures = shown(evaluator, found, [0, 1])
    assert pictures[0].picture is not None and pictures[0].picture.shape == (
        8,
        16,
        3,
    ), "both stand side by side"
    seen = preview(a_job.data, None, 8, lambda *_: None)
    assert seen.pictures[0].shape == (8, 16, 3)
    dates = preview(
        example("Encoder-decoder on dates", 16).data, None, 4, lambda *_: None
    )
    assert dates.texts[0].startswith("written ") and "of 18 true" in dates.texts[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"inputs": FrozenMap(x="a")},
            r"“values” has no field of that name.*a, b, gate",
        ),
        ({"inputs": FrozenMap(x="a", values="c")}, "“values” is set to “c”"),
        (
            {"inputs": FrozenMap(x="b", values="a")},
            r"“x” is 3 float32, and “b” of arrays.npz gives 4 float32",
        ),
        (
            {"inputs": FrozenMap(x="a", values="b"), "mixup": 0.4},
            "mixup blends samples of one input",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_its_cure(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    a_job = job(GATED, data=arrays(tmp_path), losses=OF_GATED, **changed)
    if "values" not in changed["inputs"]:  # nothing can be told by place then
        a_job = replace(
            a_job,
            source=replace(GATED, inputs=(*GATED.inputs, InputSpec("more", (1,)))),
        )
    with pytest.raises(JobError, match=words):
        set_up(a_job, "cpu")


def test_dictionaries_are_held_in_memory(tmp_path: Path) -> None:
    config = replace(dictionaries(tmp_path), options=FrozenMap(keep="disk"))
    with pytest.raises(DataError, match="set keep to memory"):
        read_spec(config)


def test_a_drawing_is_compared_field_by_field() -> None:
    """The problem stands at the input that does not match, and its cure sets that one."""
    project = file.read(resource("examples", "Siamese net on digits.tape"))
    node = next(node for node in project.graph.nodes.values() if node.name == "second")
    graph = project.graph.with_node(
        replace(node, params=node.params.update({"shape": (1, 9, 9)}))
    )
    project = replace(project, graph=graph)
    analysis = analyse(graph, catalog())
    (found,) = [
        one
        for one in preflight.problems(project, analysis)
        if "does not match" in one.message
    ]
    assert found.node == node.id and "second of Pairs of digits" in found.reason
    fit = preflight.fit(project, analysis)
    assert (
        fit is not None and "first N×1×8×8" in fit.data and "second N×1×9×9" in fit.net
    )


def test_the_choice_of_fields_is_kept_in_the_project(tmp_path: Path) -> None:
    project = file.read(resource("examples", "Siamese net on digits.tape"))
    chosen = FrozenMap(first="second", second="first")
    project = replace(project, training=replace(project.training, inputs=chosen))
    file.write(project, tmp_path / "net.tape")
    assert file.read(tmp_path / "net.tape").training.inputs == chosen
