"""A search: the trials are those of Optuna alone, and a kill at any moment leaves nothing stuck and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from msgspec.structs import replace

from app.features.sweep.compute.study import JOURNAL, Study, table, tags_in
from app.features.sweep.values import Search, SweepError, parse_values
from app.main import main
from app.project import file
from app.project.project import Project
from app.runs import store
from app.util.resources import path as resource

SPACE = (
    parse_values("lr", "1e-4..1e-1:log"),
    parse_values("fc1.out_features", "8..32:8"),
)
TPE = Search(SPACE, "tpe", trials=14, seed=7)

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def project() -> Project:
    return file.read(resource("examples", "MLP on digits.tape"))


def loss(values: dict[str, float]) -> float:
    return (values["lr"] - 0.01) ** 2 + 1 / values["fc1.out_features"]


def search(study: Study, most: int = 99) -> list[dict[str, float]]:
    """Make trials without training any; return their values."""
    made = list[dict[str, float]]()
    while len(made) < most and (trial := study.next()) is not None:
        lr = trial.project.training.optimizer.params["lr"]
        fc1 = next(n for n in trial.project.graph.nodes.values() if n.name == "fc1")
        values = {"lr": lr, "fc1.out_features": fc1.params["out_features"]}
        made.append(values)
        study.report(trial.number, 1, loss(values))
        study.end(trial.number, "done", [loss(values)])
    return made


@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "cmaes", "gp"])
def test_the_trials_are_those_of_optuna_alone_with_the_same_sampler_and_seed(
    sampler: str, project: Project, tmp_path: Path
) -> None:
    alone = {
        "tpe": optuna.samplers.TPESampler(seed=7),
        "random": optuna.samplers.RandomSampler(seed=7),
        "qmc": optuna.samplers.QMCSampler(seed=7),
        "cmaes": optuna.samplers.CmaEsSampler(seed=7),
        "gp": optuna.samplers.GPSampler(seed=7),
    }[sampler]
    theirs = optuna.create_study(sampler=alone)

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        width = trial.suggest_int("fc1.out_features", 8, 32, step=8)
        return loss({"lr": lr, "fc1.out_features": width})

    theirs.optimize(objective, n_trials=14)
    study = Study.begin(tmp_path, project, replace(TPE, sampler=sampler))
    assert search(study) == [trial.params for trial in theirs.trials]
    study.close()


def test_a_grid_is_each_combination_once_however_often_it_is_taken_up(
    project: Project, tmp_path: Path
) -> None:
    settings = (
        parse_values("lr", "0.1,0.01"),
        parse_values("fc1.out_features", "8,16,24"),
    )
    study = Study.begin(tmp_path, project, Search(settings))
    made = search(study, 2)
    study.close()
    again = Study(study.folder, hold=True)
    made += search(again)
    again.close()
    every = {(lr, width) for lr in (0.1, 0.01) for width in (8, 16, 24)}
    assert len(made) == 6 and {tuple(values.values()) for values in made} == every


def test_a_width_that_breaks_the_next_layer_is_a_failed_trial_that_says_so(
    project: Project, tmp_path: Path
) -> None:
    second = next(n for n in project.graph.nodes.values() if n.name == "fc2")
    fixed = replace(
        project, graph=project.graph.with_param(second.id, "in_features", 64)
    )
    study = Study.begin(tmp_path, fixed, replace(TPE, trials=2))
    trial = study.next()
    assert trial is not None and "fc2" in trial.problem
    row = table(tmp_path, study.tag).trials[0]
    assert row.state == "failed" and row.note == trial.problem
    study.close()


def test_a_trial_is_added_by_hand_and_bounds_are_moved_amid_the_search(
    project: Project, tmp_path: Path
) -> None:
    study = Study.begin(tmp_path, project, replace(TPE, trials=3))
    search(study, 1)
    other = Study(study.folder)  # a window beside it
    with pytest.raises(SweepError, match="lr is 5"):
        other.add({"lr": 5.0, "fc1.out_features": 8})
    other.add({"lr": 0.02, "fc1.out_features": 24})
    moved = (parse_values("lr", "0.05..0.06:log"), SPACE[1])
    other.change(replace(other.search, settings=moved))
    with pytest.raises(SweepError, match="only bounds can be changed"):
        other.change(replace(other.search, settings=(parse_values("lr", "1,2"),)))
    rest = search(study)
    assert rest[0] == {"lr": 0.02, "fc1.out_features": 24} and len(rest) == 3
    assert all(0.05 <= values["lr"] <= 0.06 for values in rest[1:])
    with pytest.raises(SweepError, match="in another process"):
        Study(study.folder, hold=True)
    study.close()


def test_no_pickle_of_a_file_is_read(project: Project, tmp_path: Path) -> None:
    study = Study.begin(tmp_path, project, replace(TPE, sampler="cmaes", trials=20))
    search(study, 12)
    study.close()
    text = (study.folder / JOURNAL).read_text()
    assert "cma:" in text, "there is one"
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "read").encode() + b"'\ntR."
    lines = []
    for line in text.splitlines():
        log = json.loads(line)
        for name in log.get("system_attr", {}):
            if name.startswith("cma:") and "optimizer" in name:
                log["system_attr"][name] = evil.hex()
        lines.append(json.dumps(log))
    (study.folder / JOURNAL).write_text("\n".join(lines) + "\n")
    again = Study(study.folder, hold=True)
    assert len(search(again)) == 8 and not (tmp_path / "read").exists()
    again.close()


def test_sweeps_of_before_are_read_from_their_runs(
    project: Project, tmp_path: Path
) -> None:
    for lr, best in ((0.1, 0.5), (0.01, 0.25)):
        kept = store.begin(tmp_path, project, name=f"lr {lr}", tags=("sweep-4",))
        summary = replace(kept.record.summary, best_loss=best)
        store.changed(kept, summary=summary, state="done")
    assert tags_in(tmp_path) == ("sweep-4",)
    rows = table(tmp_path, "sweep-4").trials
    assert [(row.values["lr"], row.value, row.runs) for row in rows] == [
        (0.1, 0.5, (1,)),
        (0.01, 0.25, (2,)),
    ]


def test_a_killed_sweep_is_resumed_and_the_best_is_relived_bit_for_bit(
    tmp_path: Path,
) -> None:
    """The long form is `python -m tests.slow.optuna_sweeps`."""
    net = tmp_path / "net.tape"
    net.write_bytes(resource("examples", "MLP on digits.tape").read_bytes())
    options = ["--space", "lr=1e-3..1e-1:log", "--space", "fc1.out_features=8..32"]
    options += ["--space", "epochs=3", "--trials", "5", "--device", "cpu"]
    command = [sys.executable, "-u", "-m", "app.main", "sweep", str(net), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:  # amid the second trial
        seen += line.startswith("epoch 1/")
        if seen == 2:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    runs = store.runs_beside(net)
    with (runs / "sweep-1" / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code": 4, "wor')  # half a line
    (runs / "sweep-1" / f"{JOURNAL}.lock").touch()
    assert table(runs, "sweep-1").trials[1].state == "running"
    assert main(["sweep", str(net), "--resume", "--sampler", "qmc"]) == 2
    assert main(["sweep", str(net), "--resume", "--json"]) == 0
    rows = table(runs, "sweep-1").trials
    assert [row.state for row in rows] == ["done"] * 5
    best = min(rows, key=lambda row: row.value or 9)
    run = store.find(runs, str(best.runs[0]))
    again = tmp_path / "again"
    assert main(["train", str(run.folder / "project.tape"), "--out", str(again)]) == 0
    ours, theirs = (
        store.history_of(one) for one in (run, store.listed(again / "runs")[0])
    )
    for name in ("train_loss", "val_loss"):
        assert ours.epochs[name].tolist() == theirs.epochs[name].tolist()
    assert ours.steps["loss"].tolist() == theirs.steps["loss"].tolist()
    assert min(ours.epochs["val_loss"].tolist()) == best.value


def test_bad_trials_are_pruned_at_an_epoch_and_can_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = tmp_path / "net.tape"
    net.write_bytes(resource("examples", "MLP on digits.tape").read_bytes())
    options = ["--space", "lr=1e-9,0.01", "--space", "seed=0,1,2,3,4"]
    options += ["--space", "epochs=3", "--pruner", "median", "--device", "cpu"]
    assert main(["sweep", str(net), *options]) == 0
    assert "pruned at epoch 1 of 3" in capsys.readouterr().out
    runs = store.runs_beside(net)
    pruned = [row for row in table(runs, "sweep-1").trials if row.state == "pruned"]
    pruned = [row for row in pruned if row.values["lr"] == 1e-9]
    run = store.find(runs, str(pruned[0].runs[0]))
    assert run.record.note == "pruned at epoch 1 of 3" and run.state == "stopped"
    resumed = [
        "train",
        str(run.folder / "project.tape"),
        "--resume",
        str(run.checkpoints),
    ]
    assert main([*resumed, "--out", str(tmp_path / "rest")]) == 0
    assert "epoch 3/3" in capsys.readouterr().out


def test_several_trials_at_once_and_seeds_with_their_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = tmp_path / "net.tape"
    net.write_bytes(resource("examples", "MLP on digits.tape").read_bytes())
    options = ["--space", "lr=1e-9,0.01", "--space", "max_steps=30", "--seeds", "2"]
    assert main(["sweep", str(net), *options, "--jobs", "2", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "of 2 seeds" in out and "is the best beyond the spread of 2 seeds" in out
    rows = table(store.runs_beside(net), "sweep-1").trials
    assert {len(row.seeds) for row in rows} == {2} and len(rows) == 2
    assert sorted(number for row in rows for number in row.runs) == [1, 2, 3, 4]


def test_the_search_as_a_script_makes_the_same_trials_with_the_same_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net, script = tmp_path / "net.tape", tmp_path / "search.py"
    net.write_bytes(resource("examples", "MLP on digits.tape").read_bytes())
    options = ["--space", "lr=1e-3..1e-1:log", "--space", "fc1.out_features=8..32:8"]
    options += ["--space", "optimizer=Adam,SGD", "--space", "max_steps=20"]
    command = ["sweep", str(net), *options, "--trials", "3", "--device", "cpu"]
    assert main([*command, "--script", str(script)]) == 0
    assert not store.runs_beside(net).exists() and main(command) == 0
    run = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    rows = table(store.runs_beside(net), "sweep-1").trials
    best = min(rows, key=lambda row: row.value or 9)
    expected = f"best: trial {best.number}, loss {best.value!r}, {dict(best.values)}"
    assert run.stdout.splitlines()[-1] == expected
    assert "tapedeck" not in script.read_text().lower()
