"""`tapedeck sweep`: trial after trial, or several at once, of a search over settings and numbers of the drawing."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from app.builder.results import Analysis
from app.cli import console, nets, settings
from app.cli import run_table as listing
from app.cli.train import train
from app.cli.train.run_output import ProgressBar, RunOutput
from app.engine.dispatch import control_for
from app.engine.placement import RunPlacement
from app.features.sweep.compute import runs
from app.features.sweep.compute.script import script_of
from app.features.sweep.compute.study import JOURNAL, Study, table, tags_in
from app.features.sweep.values import (
    Search,
    State,
    SweepError,
    SweepSetting,
    Trial,
    parse_values,
)
from app.preflight import preflight
from app.project.project import Project
from app.runs import resume, store
from app.runs.list_columns import named, ordered
from app.runs.record import RunError
from app.runs.recorder import Recorder
from app.runs.store import Kept
from app.training.control import Control
from app.training.events import EpochDone, Event, Failed
from app.util import atomic
from app.util.formatting import counted


def run(options: argparse.Namespace) -> int:
    """Make the trials, and print them with the best first; return 1 if one failed."""
    if options.script is not None:
        return _write_script(options)
    study = _opened(options)
    sweep = _Sweep(study, options)
    try:
        with train.interruptible(sweep), ThreadPoolExecutor(options.jobs) as pool:
            if options.jobs == 1:
                sweep.work()
            else:
                for done in [pool.submit(sweep.work) for _ in range(options.jobs)]:
                    done.result()
    finally:
        study.close()
    _print_best(options, study)
    count = study.search.count
    if sweep.stopping:
        console.warn(
            f"the sweep was stopped after {sweep.done:,} of {counted(count, 'trial')}; "
            f"tapedeck sweep {options.project} --resume {study.tag} goes on"
        )
    return int(sweep.failed > 0)


# -- the search -------------------------------------------------------------------------------------------------------


def _write_script(options: argparse.Namespace) -> int:
    """Write the search as a script. Raises CommandError."""
    console.can_be_written(options.script, (".py",), "a script ends in")
    project, search, analysis = _checked(options, _settings(options))
    try:
        text = script_of(project, analysis, search, options.script.name)
    except SweepError as error:
        raise console.CommandError(f"--script: {error}") from error
    with console.writing(options.script):
        atomic.write_text(options.script, text)
    return 0


def _opened(options: argparse.Namespace) -> Study:
    """Return the study of a new sweep, all of whose settings are checked, or of the one to resume. Raises
    CommandError.
    """
    wanted = _settings(options)
    folder = store.runs_beside(options.project)
    if options.resume is not None:
        nets.read(options)  # which trusts its files
        return _resumed(options, folder, wanted)
    project, search, _ = _checked(options, wanted)
    with console.writing(folder):
        return Study.begin(folder, project, search)


def _settings(options: argparse.Namespace) -> tuple[SweepSetting, ...]:
    return tuple(map(_setting, options.settings))


def _checked(
    options: argparse.Namespace, wanted: tuple[SweepSetting, ...]
) -> tuple[Project, Search, Analysis]:
    """Return the project, the search and the net's analysis, when all of it is checked. Raises CommandError."""
    project = nets.read(options)
    if not wanted:
        raise console.CommandError(
            "name what varies: --space lr=1e-4..1e-1:log, or --resume a sweep"
        )
    if options.device is not None:
        settings.device(options.device)
        training = replace(project.training, device=options.device)
        project = replace(project, training=training)
    settings.read_data(project)
    analysis = nets.sound(project, alone=True)
    search = _search(options, wanted)
    try:
        runs.check(project, analysis, search)
    except SweepError as error:
        raise console.CommandError(f"--space {error}") from error
    return project, search, analysis


def _search(options: argparse.Namespace, wanted: tuple[SweepSetting, ...]) -> Search:
    """Return what the options say of the search. Raises CommandError."""
    trials = options.trials or options.random
    bounded = [setting.name for setting in wanted if setting.bounds is not None]
    if bounded and trials is None:
        raise console.CommandError(
            f"--space {bounded[0]} gives bounds, which only --trials N or --random N draws between; list its values"
        )
    drawn = "random" if options.random else "tpe" if trials else "grid"
    sampler = options.sampler or drawn
    if sampler != "grid" and trials is None:
        raise console.CommandError(
            f"--sampler {sampler} goes on for ever; pass --trials N"
        )
    return Search(
        wanted,
        sampler,
        options.pruner or "none",
        trials,
        options.seed,
        options.seeds or 1,
    )


def _resumed(
    options: argparse.Namespace, folder: Path, wanted: tuple[SweepSetting, ...]
) -> Study:
    """Return the study to resume, with what the options change. Raises CommandError."""
    kept = ("sampler", "pruner", "seeds", "random", "device")
    if refused := [f"--{name}" for name in kept if getattr(options, name) is not None]:
        raise console.CommandError(
            f"{', '.join(refused)} stay as they are in a sweep that goes on; omit them, or begin a new sweep"
        )
    tags = [tag for tag in tags_in(folder) if (folder / tag / JOURNAL).exists()]
    tag = options.resume or next(iter(tags), "")
    if tag not in tags:
        names = ", ".join(tags) or "none"
        raise console.CommandError(
            f"--resume {tag}: there is no such sweep; there are {names}"
        )
    study = Study(folder / tag, hold=True)
    settings.read_data(study.project)
    analysis = nets.sound(study.project, alone=True)
    changed = {setting.name: setting for setting in (*study.search.settings, *wanted)}
    search = replace(study.search, settings=tuple(changed.values()))
    if options.trials is not None:
        search = replace(search, trials=options.trials)
    try:
        if search != study.search:
            runs.check(study.project, analysis, search)
            study.change(search)
    except SweepError as error:
        study.close()
        raise console.CommandError(f"--space {error}") from error
    return study


def _setting(text: str) -> SweepSetting:
    """Parse an argument of --space. Raises CommandError."""
    name, is_set, values = (piece.strip() for piece in text.partition("="))
    if not (name and is_set and values):
        raise console.CommandError(
            f"--space {text}: write a setting and its values, as lr=0.1,0.01"
        )
    try:
        return parse_values(name, values)
    except SweepError as error:
        raise console.CommandError(f"--space {error}") from error


# -- the trials -------------------------------------------------------------------------------------------------------


class _Sweep(Control):
    """Trains the trials of a study; stopping it stops those that are trained, which `--resume` takes up."""

    def __init__(self, study: Study, options: argparse.Namespace) -> None:
        super().__init__()
        self._study, self._options = study, options
        self._turn = threading.Lock()  # of the study
        self._controls = set[Control]()
        alone = options.jobs == 1 and not options.own_process
        self._placement = None if alone else RunPlacement(1)
        self._shared = options.jobs > 1
        self._root = str(options.data) if options.data else None
        self.done = self.failed = 0

    def stop(self) -> None:
        super().stop()
        for control in tuple(self._controls):
            control.stop()

    def work(self) -> None:
        """Make trials until none is left."""
        while not self.stopping:
            with self._turn:
                trial = self._study.next()
            if trial is None:
                return
            count = self._study.search.count
            self._say(
                f"{self._study.tag}, trial {trial.number} ({trial.number + 1} of {count}): {trial.name}"
            )
            if trial.problem:
                self.failed += 1
                console.warn(trial.problem)
            else:
                self._make(trial)
            self.done += not self.stopping

    def _say(self, text: str) -> None:
        if not self._options.json:
            print(console.printable(text), flush=True)

    def _make(self, trial: Trial) -> None:
        """Train a trial with each of its seeds, until it is pruned, fails or is stopped."""
        search, losses = self._study.search, list[float]()
        for index in range(search.seeds):
            seed = trial.project.training.seed + index
            training = replace(trial.project.training, seed=seed)
            if self._shared and not training.threads:
                share = max(1, (os.cpu_count() or 1) // self._options.jobs)
                training = replace(training, threads=share)
            project = replace(trial.project, training=training)
            name = trial.name if not index else f"{trial.name}, seed {seed}"
            watcher = _Watcher(self, trial.number, search, index, training.epochs)
            last = self._train(trial, index, project, name, watcher)
            if self.stopping and not isinstance(last, Failed):
                return  # the trial stays begun, and is taken up
            if isinstance(last, Failed):
                self.failed += 1
                console.warn(f"{trial.name}: {last.message}")
                self._end(trial.number, "failed", note=last.message)
                return
            if watcher.pruned:
                self._say(watcher.pruned)
                self._end(trial.number, "pruned", note=watcher.pruned)
                return
            losses.append(watcher.best)
            if search.pruner == "wilcoxon" and index + 1 < search.seeds:
                with self._turn:
                    worse = self._study.report(trial.number, index, watcher.best)
                if worse:
                    note = f"pruned after seed {index + 1} of {search.seeds}"
                    self._say(note)
                    self._end(trial.number, "pruned", note=note)
                    return
        if not all(map(math.isfinite, losses)):
            self._end(trial.number, "failed", note="no epoch was finished")
            return
        self._end(trial.number, "done", losses)
        if len(losses) > 1:
            spread = statistics.stdev(losses)
            self._say(
                f"loss {statistics.fmean(losses):.4g} ± {spread:.2g} of {len(losses)} seeds"
            )

    def _end(
        self, number: int, state: State, losses: Sequence[float] = (), note: str = ""
    ) -> None:
        with self._turn:
            self._study.end(number, state, losses, note)

    def report(self, number: int, epoch: int, loss: float) -> bool:
        """Note the loss after an epoch; return whether the trial is to be pruned there."""
        with self._turn:
            return self._study.report(number, epoch, loss)

    def _train(
        self, trial: Trial, index: int, project: Project, name: str, out: _Watcher
    ) -> Event:
        """Train one run of a trial, or the rest of it; return its last event."""
        job = preflight.job(project, trial.analysis, self._root)
        folder, path = self._study.folder.parent, None
        earlier = trial.resumed[index] if index < len(trial.resumed) else 0
        recorder, path = _continued(folder, earlier, project, job.source.text)
        if recorder is None:
            with console.writing(folder), self._turn:
                tags = (self._study.tag,)
                new = store.begin(folder, project, None, name[: store.MOST_NAME], tags)
                self._study.note_run(trial.number, index, new.record.number)
            recorder = Recorder(new, project, job.source.text)
        elif path is not None:
            job = resume.as_before(job, project, path)
        control = Control() if self._placement is None else control_for(self._placement)
        out.control = control
        self._controls.add(control)
        if self.stopping:
            control.stop()
        quiet = self._options.json or self._shared
        out.shown = None if quiet else ProgressBar(project.training.epochs)
        history, last, unread = train.watch(
            job, control, out, recorder, path, self._placement
        )
        self._controls.discard(control)
        out.take_up(history.epochs["val_loss"], history.epochs["train_loss"])
        if unread is not None:
            raise unread
        return last


class _Watcher(RunOutput):
    """Reports each epoch of a run to the study, and stops it where the trial is pruned."""

    def __init__(
        self, sweep: _Sweep, number: int, search: Search, index: int, epochs: int
    ) -> None:
        self.control = Control()
        self.shown: RunOutput | None = None
        self.best, self.pruned = math.inf, ""
        self._sweep, self._number, self._epochs = sweep, number, epochs
        self._reports = not index and search.prunes_at_epochs

    def show(self, event: Event) -> None:
        if self.shown is not None:
            self.shown.show(event)
        if not isinstance(event, EpochDone) or not self._reports or self.pruned:
            return
        loss = event.train_loss if event.val_loss is None else event.val_loss
        if (
            self._sweep.report(self._number, event.epoch, loss)
            and event.epoch < self._epochs
        ):
            self.pruned = f"pruned at epoch {event.epoch} of {self._epochs}"
            self.control.stop()

    def take_up(self, validation: Any, training: Any) -> None:
        """Take the smallest loss of all epochs, those before a kill as well."""
        finite = [loss for loss in validation.tolist() if math.isfinite(loss)]
        finite = finite or [x for x in training.tolist() if math.isfinite(x)]
        self.best = min(finite, default=math.inf)


def _continued(
    folder: Path, number: int, project: Project, source: str
) -> tuple[Recorder | None, Path | None]:
    """Return the store of a run that was cut off, and its newest checkpoint; (None, None) where it begins again."""
    try:
        stored_run = store.find(folder, str(number)) if number else None
        if stored_run is None:
            return None, None
        path = resume.newest(stored_run)
        position = resume.going_on(stored_run, path)
    except RunError:
        return None, None
    return Recorder(stored_run, project, source, lambda: position), path


# -- the end ----------------------------------------------------------------------------------------------------------


def _print_best(options: argparse.Namespace, study: Study) -> None:
    """Print the runs, the smallest validation loss first, and what the trials say of one another."""
    folder = study.folder.parent
    shown = table(folder, study.tag)
    trials = {number: trial for trial in shown.trials for number in trial.runs}
    stored = [run for run in store.listed(folder) if run.record.number in trials]
    ranked: list[Kept] = ordered(stored, named("best_loss"), False, listing.listed)
    if options.json:
        for kept in ranked:
            trial = msgspec.to_builtins(trials[kept.record.number], enc_hook=dict)
            line = {**listing.plain(kept), "trial": trial}
            print(json.dumps(line, ensure_ascii=False))
        return
    if ranked:
        listing.print_table(ranked)
    if shown.importance:
        shares = (f"{name} {share:.0%}" for name, share in shown.importance.items())
        print(f"share in the spread of the losses: {', '.join(shares)}")
    if shown.verdict:
        print(shown.verdict)
