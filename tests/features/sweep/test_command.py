"""`tapedeck sweep`: the runs that it makes, their order and tags, and what it refuses before any begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.main import main
from app.runs import store
from app.util.resources import path as resource

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    found = tmp_path / "net.tape"
    found.write_bytes(resource("examples", "MLP on digits.tape").read_bytes())
    return found


def test_a_grid_becomes_runs_beside_the_project_that_are_listed_with_the_best_first(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = [
        "sweep",
        str(project),
        "--set",
        "max_steps=3",
        "--set",
        "batch_size=64",
        "--device",
        "cpu",
        "--json",
    ]
    assert main([*sweep, "--set", "lr=1e-9,0.01"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    runs = store.listed(store.runs_beside(project))
    by_loss = sorted(runs, key=lambda kept: kept.record.summary.best_loss)
    assert len(runs) == 2 and [run["number"] for run in told] == [
        kept.record.number for kept in by_loss
    ]
    assert {kept.record.tags for kept in runs} == {("sweep-1",)}
    assert {kept.record.name for kept in runs} == {"lr 1e-09", "lr 0.01"}, (
        "what is the same in all is left out"
    )
    assert (
        main(
            [
                *sweep,
                "--set",
                "optimizer=SGD",
                "--set",
                "lr=1e-4:1e-1",
                "--random",
                "1",
                "--seed",
                "5",
            ]
        )
        == 0
    )
    newest = store.listed(store.runs_beside(project))[0]
    assert (
        newest.record.tags == ("sweep-2",) and newest.record.settings.optimizer == "SGD"
    )
    assert newest.record.name.startswith("lr 0.0"), "what varies"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["foo=1"], "foo is no setting; there are optimizer, epochs"),
        (["lr"], "write a setting and its values"),
        (["lr=0.1:0.01"], "the smaller first"),
        (["lr=0.01:0.1"], "only --trials N or --random N draws between"),
        (["conv9.out_channels=8,16"], "there is no node conv9; there are"),
        (["fc1.width=8,16"], "fc1 has no width; it has in_features"),
        (["fc1.out_features=8,-1"], "out_features must be at least"),
        (["lr=0.1", "lr=0.2"], "given twice"),
        (["epochs=1", "lr=abc"], "epochs 1, lr abc: Adam: lr cannot be 'abc'"),
        (["batch_size=64,0"], "batch_size 0: batch_size is 0"),
        (["optimizer=Adamm"], "there is no Adamm"),
        (["lr=0.1,,1"], "lr has an empty value"),
        (["seed=1,2,1"], "seed lists 1 twice"),
        (["no_decay=yes"], "it must be True or False"),
        (
            [
                f"seed={','.join(map(str, range(101)))}",
                f"epochs={','.join(map(str, range(1, 101)))}",
            ],
            "at most 10,000",
        ),
        (["optimizer=LBFGS", "accumulate=1,2"], "LBFGS, accumulate 2: LBFGS"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_the_first_run(
    project: Path, settings: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part for one in settings for part in ("--set", one)]
    assert main(["sweep", str(project), *given]) == 2
    assert words in capsys.readouterr().err and not store.runs_beside(project).exists()


def test_without_optuna_one_sentence_says_what_to_install_and_nothing_imports_it(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.sweep.values.find_spec", lambda _name: None)
    assert main(["sweep", str(project), "--set", "lr=0.1,0.01"]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith(
            "sweeps need Optuna, which is not installed: pip install tapedeck-torch[sweeps]"
        )
    )
    ours = "feature", "task", "sweep_command"
    names = ", ".join(f"app.features.sweep.{name}" for name in ours)
    code = f"import sys, app.main, {names}; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
