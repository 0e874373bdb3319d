"""A sweep on the digits net that is killed again and again: is any trial stuck, and is the best relived bit for bit?

    python -m tests.slow.optuna_sweeps --trials 200 --kills 20

Another sweep, which nobody disturbs, is held against Optuna alone with the same sampler and seed, and its time beside
that of its runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from app.features.sweep.compute.study import JOURNAL, Study, table
from app.main import main as tapedeck
from app.runs import store
from app.util.resources import path as resource_path

SPACE = ("lr=1e-3..1e-1:log", "fc1.out_features=8..64", "epochs=8")
LIMIT = 0.05  # of the trials' own time


def killed(net: Path, trials: int, kills: int, chance: random.Random) -> int:
    """Sweep, and kill the process at random moments; return how often it was killed."""
    begin = [*_space(), "--trials", str(trials), "--pruner", "median"]
    count, runs = 0, store.runs_beside(net)
    while True:
        more = ["--resume"] if (runs / "sweep-1" / JOURNAL).exists() else begin
        command = [sys.executable, "-u", "-m", "app.main", "sweep", str(net), *more]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            left = chance.randint(2, 3 * trials // (kills + 1))  # lines
            for line in process.stdout:
                left -= line.startswith(("epoch", "sweep-1,"))
                if not left and count < kills:
                    time.sleep(chance.random() / 10)
                    process.send_signal(signal.SIGKILL)
                    count += 1
                    break
            else:
                process.wait()
                if process.returncode == 0:
                    return count
                raise RuntimeError(f"the sweep ended with {process.returncode}")


def _space() -> list[str]:
    options = [part for setting in SPACE for part in ("--space", setting)]
    return [*options, "--device", "cpu"]


def relived(net: Path, folder: Path) -> bool:
    """Train the best trial's run again from what is stored of it; return whether all losses are equal."""
    runs = store.runs_beside(net)
    done = [row for row in table(runs, "sweep-1").trials if row.state == "done"]
    best = min(done, key=lambda row: row.value or 0.0)
    run = store.find(runs, str(best.runs[-1]))
    with contextlib.redirect_stdout(io.StringIO()):
        tapedeck(["train", str(run.folder / store.PROJECT), "--out", str(folder)])
    (again,) = store.listed(folder / "runs")
    ours, theirs = store.history_of(run), store.history_of(again)
    return min(ours.epochs["val_loss"].tolist()) == best.value and all(
        ours_of[name].tolist() == theirs_of[name].tolist()
        for ours_of, theirs_of, name in (
            (ours.steps, theirs.steps, "loss"),
            (ours.epochs, theirs.epochs, "val_loss"),
        )
    )


def undisturbed(net: Path, trials: int) -> tuple[bool, float]:
    """Sweep in this process; return whether Optuna alone makes the same trials, and the share of the time it takes."""
    spent = [0.0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                spent[0] += time.perf_counter() - begun

        return call

    methods = {name: getattr(Study, name) for name in ("next", "report", "end")}
    for name, method in methods.items():
        setattr(Study, name, timed(method))
    begun = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            tapedeck(["sweep", str(net), *_space(), "--trials", str(trials)])
    finally:
        whole = time.perf_counter() - begun
        for name, method in methods.items():
            setattr(Study, name, method)
    rows = table(store.runs_beside(net), "sweep-1").trials

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("lr", 1e-3, 1e-1, log=True)
        trial.suggest_int("fc1.out_features", 8, 64)
        trial.suggest_categorical("epochs", [8])
        return rows[trial.number].value or 0.0

    alone = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    alone.optimize(objective, n_trials=trials)
    same = [dict(row.values) for row in rows] == [
        trial.params for trial in alone.trials
    ]
    return same, spent[0] / (whole - spent[0])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    example = resource_path("examples", "MLP on digits.tape").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        nets = [Path(folder) / name / "net.tape" for name in ("killed", "whole")]
        for net in nets:
            net.parent.mkdir()
            net.write_bytes(example)
        begun = time.monotonic()
        chance = random.Random(options.seed)
        kills = killed(nets[0], options.trials, options.kills, chance)
        seconds = time.monotonic() - begun
        states = Counter(
            row.state for row in table(store.runs_beside(nets[0]), "sweep-1").trials
        )
        stuck = states["running"] + states["waiting"]
        same_best = relived(nets[0], Path(folder) / "again")
        print(
            f"{options.trials} trials, {kills} kills, {seconds:.0f} s: {dict(states)}"
        )
        print(f"stuck: {stuck}; the best relived: {same_best}", flush=True)
        same_trials, share = undisturbed(nets[1], options.trials)
    print(
        f"undisturbed: the trials of Optuna alone: {same_trials}; overhead {share:.1%}"
    )
    fine = (
        not stuck
        and kills == options.kills
        and same_best
        and same_trials
        and share <= LIMIT
    )
    return 0 if fine and states["done"] + states["pruned"] == options.trials else 1


if __name__ == "__main__":
    sys.exit(main())
