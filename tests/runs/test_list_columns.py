"""The list of runs: what its columns say of a run, and what filters and sorting take."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from app.main import main
from app.project import file as project_file
from app.project.project import Project
from app.runs import list_columns, record, store
from app.runs.list_columns import ListedRun
from app.runs.record import RunError, Summary
from app.training.config import Choice, Schedule
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.needs import needs

EXAMPLE = project_file.read(resource_path("examples", "digits.tape"))


def settled(**training: object) -> Project:
    return replace(EXAMPLE, training=replace(EXAMPLE.training, **training))


def of(number: int, best: float | None = None, **training: object) -> ListedRun:
    made = record.new_record(settled(**training), number, "2026-01-02T03:04:05+00:00")
    return ListedRun(made, Summary(epochs=3, steps=69, best_loss=best), "done")


SGD = Choice("SGD", FrozenMap(lr=0.05))
RUNS = [
    of(
        2,
        0.3,
        optimizer=SGD,
        schedule=Schedule(Choice("StepLR", FrozenMap(step_size=1)), "epoch", 5),
        seed=7,
    ),
    ListedRun(
        msgspec.structs.replace(
            of(10, 0.1, batch_size=16).record,
            name="wide",
            tags=("baseline", "night run"),
            note="warm-up helped",
            rates_set=2,
        ),
        Summary(best_accuracy=0.96),
        "stopped",
    ),
    of(1, optimizer=Choice("AdamW")),
]


def shown(run: ListedRun, key: str) -> str:
    return list_columns.BY_KEY[key].shown(run)


def test_columns_have_the_hyperparameters_of_a_run() -> None:
    first, second, third = RUNS
    assert [
        shown(first, key) for key in ("optimizer", "lr", "schedule", "seed", "epochs")
    ] == [
        "SGD",
        "0.05",
        "StepLR, warmup 5",
        "7",
        "3/20",
    ]
    assert (
        shown(second, "lr") == "0.001, set by hand 2×"
        and shown(second, "batch") == "16"
    )
    assert shown(second, "tags") == "baseline, night run" and shown(third, "lr") == "–"
    old = msgspec.structs.replace(first.record, settings=None)  # of an earlier version
    assert shown(ListedRun(old, first.summary, "done"), "lr") == "0.05"


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("", [2, 10, 1]),
        ("lr>0.001", [2]),
        ("lr=1e-3", [10]),
        ("by_hand>0", [10]),
        ("best_accuracy>=95%", [10]),
        ("tags=baseline", [10]),
        ('tags:"night run" helped', [10]),
        ("optimizer:adam", [10, 1]),
        ("optimizer!=SGD state=done", [1]),
        ("steplr", [2]),
        ("nothing of the kind", []),
    ],
)
def test_a_filter_takes_words_and_comparisons(words: str, numbers: list[int]) -> None:
    takes = list_columns.matcher(words)
    assert [run.record.number for run in RUNS if takes(run)] == numbers


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rate>1", "no column “rate”"),
        ("lr>fast", "“fast” is none"),
        ("run<3", "is a text"),
    ],
)
def test_a_filter_that_cannot_be_read_says_why(words: str, said: str) -> None:
    with pytest.raises(RunError, match=said):
        list_columns.matcher(words)


def test_runs_without_a_value_come_last_and_names_count() -> None:
    def numbers(key: str, descending: bool = False) -> list[int]:
        column = list_columns.named(key)
        return [
            run.record.number
            for run in list_columns.ordered(RUNS, column, descending, lambda run: run)
        ]

    assert numbers("best_loss") == numbers("best_loss", descending=True) == [2, 10, 1]
    assert numbers("lr") == [10, 2, 1] and numbers("run") == [1, 2, 10]


@needs("runs")
def test_a_command_annotates_filters_and_sorts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.tape"
    project_file.write(EXAMPLE, path)
    folder = store.runs_beside(path)
    for project in (settled(optimizer=SGD), settled(seed=3)):
        store.begin(folder, project)
    assert (
        main(
            [
                "runs",
                str(path),
                "--run",
                "1",
                "--name",
                "base",
                "--note",
                "plain SGD",
                "--tags",
                "a, b,a",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert (
        "learning rate" in text
        and "base" in text
        and "a, b" in text
        and "\n    plain SGD\n" in text
    )
    assert store.find(folder, "base").record.tags == ("a", "b")
    assert main(["runs", str(path), "--filter", "optimizer=sgd"]) == 0
    assert "base" in (text := capsys.readouterr().out) and "Run 2" not in text
    assert main(["runs", str(path), "--sort", "lr", "--json"]) == 0
    lines = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["columns"]["lr"] for line in lines] == [0.001, 0.05] and lines[1][
        "tags"
    ] == ["a", "b"]
    assert main(["runs", str(path), "--filter", "rate>1"]) == 2
    assert "no column “rate”" in capsys.readouterr().err
    assert (
        main(["runs", str(path), "--tags", "x" * 51]) == 2
        and "at most 50" in capsys.readouterr().err
    )
