"""A search as a script that needs Optuna and torch alone: for each trial it writes and runs the files of a run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any

from app.builder.results import Analysis
from app.export.train_script import training_script
from app.features.sweep.compute.runs import prepared
from app.features.sweep.values import Search, SweepError, SweepSetting
from app.preflight import preflight
from app.project.project import Project
from app.util.frozen import FrozenMap

MOST = 256  # variants of the files
PROBE = (
    0.3819660112501051  # of the way between bounds: a number that stands nowhere else
)
SCRIPT = '''"""Search for the best settings with Optuna: python {name}

Each trial is a folder of `trials` with the model and its training script; the losses of its epochs are read from what
that prints. Plain PyTorch; it needs torch, optuna and what the training script reads its data with.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import optuna

# By name: choices, or the bounds, whether by their logarithm, and the step.
SPACE = {space}
# Settings whose values change more of the files than a number, which has a mark there.
VARIED = {varied}
TRIALS, SEED, SEEDS = {trials}, {seed}, {seeds}
PRUNES = {prunes}


def suggested(trial, name):
    of = SPACE[name]
    if isinstance(of, list):
        return trial.suggest_categorical(name, of)
    low, high, log, step = of
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log, step=step or 1)
    return trial.suggest_float(name, low, high, log=log, step=step)


def losses(trial, folder, seed, reports):
    command = [sys.executable, "train.py", "--json", "--seed", str(seed)]
    with subprocess.Popen(command[: None if SEEDS > 1 else -2], cwd=folder, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            event = json.loads(line) if line.startswith("{{") else {{}}
            if event.get("event") != "epoch":
                continue
            loss = event["train_loss"] if event["val_loss"] is None else event["val_loss"]
            yield loss
            if reports:
                trial.report(loss, event["epoch"])
                if trial.should_prune():
                    run.kill()
                    raise optuna.TrialPruned
    if run.returncode:
        raise RuntimeError(f"train.py in {{folder}} ended with {{run.returncode}}")


def objective(trial):
    values = {{name: suggested(trial, name) for name in SPACE}}
    files = FILES[json.dumps([values[name] for name in VARIED])]
    if files is None:
        raise RuntimeError("the shapes of the net do not fit with these values")
    folder = Path("trials") / f"{{trial.number:04}}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        for setting, value in values.items():
            text = text.replace(f"<<{{setting}}>>", repr(value))
        (folder / name).write_text(text, encoding="utf-8")
    return fmean(min(losses(trial, folder, SEED + i, PRUNES and not i)) for i in range(SEEDS))


FILES = {files}

if __name__ == "__main__":
    study = optuna.create_study(sampler=optuna.samplers.{sampler}, pruner=optuna.pruners.{pruner})
    study.optimize(objective, n_trials=TRIALS, catch=(RuntimeError,))
    print(f"best: trial {{study.best_trial.number}}, loss {{study.best_value!r}}, {{study.best_params}}")
'''
PRUNERS = {
    "none": "NopPruner()",
    "median": "MedianPruner()",
    "hyperband": "HyperbandPruner(max_resource={epochs})",
}
SAMPLERS = {
    "grid": "GridSampler(SPACE, {seed})",
    "random": "RandomSampler({seed})",
    "tpe": "TPESampler(seed={seed})",
    "gp": "GPSampler(seed={seed})",
    "cmaes": "CmaEsSampler(seed={seed})",
    "qmc": "QMCSampler(seed={seed})",
}


def script_of(project: Project, analysis: Analysis, search: Search, name: str) -> str:
    """Return the text of the script. Raises SweepError for a search that cannot be written so."""
    if search.pruner not in PRUNERS:
        raise SweepError(f"a script has no pruner {search.pruner}; choose another")
    probes = {setting.name: _probe(setting) for setting in search.settings}
    numbers = [s for s in search.settings if _is_a_number(project, analysis, s, probes)]
    varied = [setting for setting in search.settings if setting not in numbers]
    values_of = {setting.name: _values(setting) for setting in varied}
    variants = list(itertools.product(*values_of.values()))
    if len(variants) > MOST:
        raise SweepError(
            f"{', '.join(values_of)} make {len(variants):,} variants of the script, which has at most {MOST}; "
            "list fewer values, or give a step"
        )
    files = dict[str, dict[str, str] | None]()
    for chosen in variants:
        try:
            values = {**probes, **dict(zip(values_of, chosen, strict=True))}
            files[json.dumps(chosen)] = _files(project, analysis, values, numbers)
        except SweepError:
            files[json.dumps(chosen)] = None  # a trial that fails
    space = {
        s.name: list(s.values) if s.bounds is None else (*s.bounds, s.log, s.step)
        for s in search.settings
    }
    epochs = project.training.epochs
    return SCRIPT.format(
        name=name,
        space=pformat(space, sort_dicts=False),
        varied=list(values_of),
        trials=search.count,
        seed=project.training.seed,
        seeds=search.seeds,
        prunes=search.prunes_at_epochs,
        files=pformat(files, sort_dicts=False, width=116),
        sampler=SAMPLERS[search.sampler].format(seed=search.seed),
        pruner=PRUNERS[search.pruner].format(epochs=epochs),
    )


def _values(setting: SweepSetting) -> tuple[Any, ...]:
    """Return all values of a setting. Raises SweepError for too many."""
    if setting.bounds is None:
        return setting.values
    low, high = setting.bounds
    if type(low) is not int or type(high) is not int:
        raise SweepError(
            f"{setting.name} changes more of a script than a number; list its values"
        )
    return tuple(range(low, high + 1, int(setting.step or 1)))


def _probe(setting: SweepSetting) -> Any:
    if setting.bounds is None:
        return setting.values[0]
    low, high = setting.bounds
    between = low + PROBE * (high - low)
    return int(between) if type(low) is int and type(high) is int else between


def _is_a_number(
    project: Project,
    analysis: Analysis,
    setting: SweepSetting,
    probes: Mapping[str, Any],
) -> bool:
    """Return whether another value of a setting changes nothing in the files but that number."""
    if setting.bounds is None:
        return False
    marked = _files(project, analysis, probes, [setting])
    mark = f"<<{setting.name}>>"
    for value in setting.bounds:
        try:
            files = _files(project, analysis, {**probes, setting.name: value}, ())
        except SweepError:
            return False
        if files != {n: text.replace(mark, repr(value)) for n, text in marked.items()}:
            return False
    return any(mark in text for text in marked.values())


def _files(
    project: Project,
    analysis: Analysis,
    values: Mapping[str, Any],
    marked: Sequence[SweepSetting],
) -> dict[str, str]:
    """Return the files of a trial, with a mark for the number of each setting that is `marked`. Raises SweepError."""
    trial, net = prepared(project, analysis, FrozenMap(values))
    job = preflight.job(trial, net)
    files = {"model.py": job.source.text, "train.py": training_script(job, "model")}
    for setting in marked:
        value, mark = repr(values[setting.name]), f"<<{setting.name}>>"
        files = {name: text.replace(value, mark) for name, text in files.items()}
    return files
