"""The settings of a resumed run are those of the run; what a command changes is taken, recorded and in the script."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.main import main
from app.project import file
from app.runs import store
from app.training.config import Choice
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support import script_here
from tests.support.needs import needs

pytestmark = pytest.mark.usefixtures("no_pictures")

DIGITS = resource_path("examples", "digits.tape")

NET = """
import torch.nn as nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(2, 2))
"""


def losses(text: str, after: int = 0) -> list[tuple[int, float]]:
    events = [json.loads(line) for line in text.splitlines()]
    return [
        (event["step"], event["loss"])
        for event in events
        if event["event"] == "step" and event["step"] > after
    ]


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Run `tapedeck train` in a folder of its own: its exit code, its losses and what it said."""

    def run(
        out: str, *options: str, project: Path = DIGITS
    ) -> tuple[int, list[tuple[int, float]], str]:
        code = main(
            [
                "train",
                str(project),
                "--out",
                str(tmp_path / out),
                "--device",
                "cpu",
                "--json",
                *options,
            ]
        )
        told = capsys.readouterr()
        return code, losses(told.out), told.err

    return run


def edited(path: Path) -> Path:
    """A project of the same net with other settings."""
    project = file.read(DIGITS)
    training = replace(
        project.training,
        optimizer=Choice("SGD", FrozenMap(lr=0.3)),
        epochs=7,
        batch_size=100,
    )
    file.write(replace(project, training=training), path)
    return path


def test_a_batch_that_is_left_out_before_the_first_checkpoint_repeats_the_run_with_its_settings(
    train, tmp_path
):
    whole = train("a", "--epochs", "1", "--set", "optimizer.params.lr=0.002")[1]
    other = edited(tmp_path / "p.tape")
    code, left, told = train(
        "b", "--resume", str(tmp_path / "a"), "--leave-out", "2", project=other
    )
    assert code == 0 and left[0] == whole[0] and len(left) == len(whole) - 1, (
        "the run's rate, batches and epochs"
    )
    assert (
        "has no checkpoint before step 2" in told
        and "the settings are those of Run 1: " in told
    )
    assert "optimizer.name" in told and "batch_size" in told
    (kept,) = store.listed(tmp_path / "b" / "runs")
    assert (
        kept.record.parent.run,
        kept.record.parent.checkpoint,
        kept.record.parent.step,
    ) == ("Run 1", "", 0)
    assert store.project_of(kept).training.optimizer == Choice(
        "Adam", FrozenMap(lr=0.002)
    )


@needs("revisit")
def test_a_changed_rate_is_taken_recorded_and_in_the_script(train, tmp_path, capsys):
    train("a", "--epochs", "2", "--save-every", "20")
    at = tmp_path / "a" / "runs" / "0001" / "checkpoints" / "step-00000040.pt"
    code, rest, told = train(
        "b", "--resume", str(at), "--set", "optimizer.params.lr=0.5"
    )
    assert code == 0 and "since step 40: optimizer.lr is 0.5 (before: 0.001)" in told
    (kept,) = store.listed(tmp_path / "b" / "runs")
    assert kept.record.changed.step == 40 and kept.record.changed.settings == {
        "optimizer.lr": ("0.001", "0.5")
    }
    assert kept.record.parent.checkpoint == "step-00000040.pt"
    assert "lr=0.5" in (tmp_path / "b" / "train.py").read_text()
    assert script_here.run_script(tmp_path / "b", "--json") is None
    assert losses(capsys.readouterr().out) == rest and rest[0][0] == 41
    # What it saved is resumed as that run, by the program and by its own script.
    last = kept.checkpoints / "last.pt"
    code, more, told = train("c", "--resume", str(last), "--epochs", "3")
    assert code == 0 and "since step" not in told
    script_here.run_script(tmp_path / "c", "--json")
    assert losses(capsys.readouterr().out, after=46) == more
    assert (
        script_here.run_script(
            tmp_path / "b", "--json", "--epochs", "3", "--resume", str(last)
        )
        is None
    )
    assert losses(capsys.readouterr().out) == more
    assert main(["revisit", str(tmp_path / "b"), "--step", "10"]) != 0
    assert "has its settings since step 40" in capsys.readouterr().err
    assert main(["revisit", str(tmp_path / "b"), "--step", "43"]) == 0


def test_a_run_that_is_resumed_with_other_settings_keeps_its_own_folder(
    train, tmp_path
):
    train("a", "--epochs", "1")
    before = sorted(
        path.name
        for path in (tmp_path / "a" / "runs" / "0001" / "checkpoints").iterdir()
    )
    assert (
        train(
            "a",
            "--resume",
            str(tmp_path / "a"),
            "--epochs",
            "2",
            "--set",
            "batch_size=17",
        )[0]
        == 0
    )
    new, old = store.listed(tmp_path / "a" / "runs")
    assert (new.record.number, old.record.number, new.record.parent.run) == (
        2,
        1,
        "Run 1",
    )
    assert (
        sorted(path.name for path in old.checkpoints.iterdir()) == before
        and old.record.epochs == 1
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--seed", "9"], "seed"),
        (["--set", "optimizer.name=AdamW"], "optimizer"),
        (["--set", "one_batch=true"], "one_batch"),
        (["--set", "data.validation_fraction=0.5"], "data.validation_fraction"),
        (["--set", "loss=MultiMarginLoss"], "loss"),
        (["--on", "made.moons"], ""),
    ],
)
def test_what_cannot_be_changed_amid_a_run_is_refused_and_nothing_is_written(
    options, name, train, tmp_path
):
    train("a", "--epochs", "1")
    code, steps, told = train("b", "--resume", str(tmp_path / "a"), *options)
    assert code in (1, 2) and not steps and not (tmp_path / "b").exists()
    assert f" {name} is " in told or not name


def test_data_that_have_grown_are_refused(train, tmp_path):
    rows = ["a,b,y", *(f"{i % 7},{i % 5},{i % 2}" for i in range(200))]
    (tmp_path / "data.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "net.py").write_text(NET)
    options, data = ["--trust", "--input", "2x2"], ["--on", str(tmp_path / "data.csv")]
    model = Path(f"{tmp_path / 'net.py'}:Net")
    code, _, told = train(
        "a",
        *options,
        *data,
        "--set",
        "data.options.target=y",
        "--epochs",
        "1",
        project=model,
    )
    assert code == 0, told
    (tmp_path / "data.csv").write_text("\n".join([*rows, *rows[1:101]]) + "\n")
    code, _, told = train(
        "b", *options, "--resume", str(tmp_path / "a"), "--epochs", "2", project=model
    )
    assert (
        code == 2
        and "data.samples is 160 for training, 40 for validation in the run and not 240"
        in told
    )


def test_the_scale_of_a_target_is_named_with_the_option_that_standardises_it(
    tmp_path, capsys
):
    rows = [
        "a,b,price",
        *(
            f"{i % 7},{i % 5},{100_000 + 2000 * (i % 7) - 900 * (i % 5)}.5"
            for i in range(200)
        ),
    ]
    (tmp_path / "data.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "net.py").write_text(NET.replace("Linear(2, 2)", "Linear(2, 1)"))
    train = [
        "train",
        f"{tmp_path / 'net.py'}:Net",
        "--trust",
        "--input",
        "2x2",
        "--on",
        str(tmp_path / "data.csv"),
        "--set",
        "loss=MSELoss",
        "--set",
        'metrics=["mae"]',
        "--epochs",
        "1",
        "--device",
        "cpu",
    ]
    assert main([*train, "--out", str(tmp_path / "a")]) == 0
    assert (
        "scale of price is far from 1" in (told := capsys.readouterr().err)
        and "standardise_target=true" in told
    )
    assert (
        main(
            [
                *train,
                "--out",
                str(tmp_path / "b"),
                "--set",
                "data.options.standardise_target=true",
            ]
        )
        == 0
    )
    assert "far from 1" not in capsys.readouterr().err
    assert "standardised(labels, training)" in (tmp_path / "b" / "train.py").read_text()
