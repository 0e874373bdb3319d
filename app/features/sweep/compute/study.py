"""The study of a sweep: Optuna's, in the sweep's folder, asked for trials and told how they went. The runs are ours."""

from __future__ import annotations

import json
import math
import os
import statistics
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import optuna
from optuna import pruners, samplers
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from app.features.sweep.compute.runs import analysis_of, prepared
from app.features.sweep.values import (
    TAG,
    Search,
    State,
    SweepError,
    SweepSetting,
    SweepTable,
    Trial,
    TrialRow,
    name_of,
    next_tag,
    parse_values,
    values_in,
)
from app.project import file, file_lock
from app.project.project import Project
from app.runs import store
from app.runs.record import RunError
from app.runs.store import Kept
from app.util.frozen import FrozenMap

JOURNAL, PROJECT, LOCK = "journal.log", "project.tape", ".lock"
SEARCH, RUNS, SEEDS, NOTE = "search", "runs", "seeds", "note"  # attributes
NUMBERED = ("grid", "qmc")  # samplers that count in the journal how far they are
STATES: dict[TrialState, State] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}

optuna.logging.set_verbosity(optuna.logging.ERROR)


class _Journal(JournalFileBackend):
    """A journal whose earlier lines hold no state of CMA-ES: it is a pickle, and a file may be anybody's."""

    def __init__(self, path: Path) -> None:
        self._guard = JournalFileOpenLock(str(path))
        super().__init__(str(path), self._guard)
        self._path = path
        self._earlier = path.read_bytes().count(b"\n")

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        for number, log in enumerate(
            super().read_logs(log_number_from), log_number_from
        ):
            attributes = log.get("system_attr") or {}
            pickled = any(name.startswith("cma:") for name in attributes)
            earlier = number < self._earlier
            yield (
                {**log, "system_attr": {"dropped": ""}} if pickled and earlier else log
            )

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines; on the disk at once are only those that a trial begins or ends with, which a power cut may
        not undo.
        """
        self._guard.acquire()
        try:
            with self._path.open("ab") as journal:
                lines = [json.dumps(log, separators=(",", ":")) for log in logs]
                journal.write("".join(f"{line}\n" for line in lines).encode())
                journal.flush()
                if any("state" in log for log in logs):
                    os.fsync(journal.fileno())
        finally:
            self._guard.release()


class _Grid(samplers.GridSampler):
    """Ends when it is asked no more: after the last combination Optuna's would stop its own loop, which is not used."""

    def after_trial(self, *_trial: object) -> None:
        pass


class Study:
    """A sweep in its folder. With `hold` this process alone makes its trials, until `close`.

    Raises SweepError for a folder without a sweep, or that another process holds, and OSError.
    """

    def __init__(self, folder: Path, *, hold: bool = False) -> None:
        self.folder, self.tag = folder, folder.name
        path = folder / JOURNAL
        if not path.is_file():
            raise SweepError(f"{folder} holds no sweep")
        self._lock: file_lock.Lock | None = None
        if hold:
            try:
                self._lock = file_lock.Lock(folder / LOCK)
            except file_lock.FileLockError as error:
                raise SweepError(
                    f"{self.tag} is in progress in another process"
                ) from error
            _repair(path)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", "The reported value is ignored")
        storage = JournalStorage(_Journal(path))
        try:
            self.study = optuna.load_study(study_name=None, storage=storage)
            search, made = self.search, len(self.trials)
        except (KeyError, ValueError, msgspec.ValidationError) as error:
            raise SweepError(f"{path} cannot be read: {error}") from error
        self.study.sampler = sampler_of(search, made)
        self._running: dict[int, optuna.Trial] = {}
        self._left = deque[FrozenTrial]()  # begun by a process that was killed
        if hold:
            try:
                self.project = file.read(folder / PROJECT)
                self.study.pruner = pruner_of(search, self.project.training.epochs)
                self._analysis = analysis_of(self.project)
                self._recover()
            except BaseException:
                self.close()
                raise

    @classmethod
    def begin(cls, runs: Path, project: Project, search: Search) -> Study:
        """Make the folder of a new sweep among the runs of a project. Raises OSError."""
        runs.mkdir(parents=True, exist_ok=True)
        tags = [tag for run in store.listed(runs) for tag in run.record.tags]
        folder = runs / next_tag([*tags, *(inside.name for inside in runs.iterdir())])
        folder.mkdir()
        file.write(project, folder / PROJECT)
        storage = JournalStorage(_Journal(_made(folder / JOURNAL)))
        study = optuna.create_study(study_name=folder.name, storage=storage)
        study.set_user_attr(SEARCH, msgspec.to_builtins(search))
        return cls(folder, hold=True)

    def close(self) -> None:
        """Let another process go on with it."""
        if self._lock is not None:
            self._lock.release()

    @property
    def search(self) -> Search:
        """What is searched for now; another process may change it."""
        return msgspec.convert(self.study.user_attrs[SEARCH], Search)

    @property
    def trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def change(self, search: Search) -> None:
        """Search differently from the next trial on. Raises SweepError for a list of values that trials have had."""
        search.check()
        before = {setting.name: setting for setting in self.search.settings}
        for setting in search.settings:
            old = distribution(before.get(setting.name, setting))
            try:
                check_distribution_compatibility(old, distribution(setting))
            except ValueError:
                raise SweepError(
                    f"{setting.name}: only bounds can be changed amid a sweep; begin a new one for other values",
                    setting.name,
                ) from None
        self.study.set_user_attr(SEARCH, msgspec.to_builtins(search))

    def add(self, values: Mapping[str, Any]) -> None:
        """Have a trial with these values made next, one more than was asked for. Raises SweepError."""
        search = self.search
        for setting in search.settings:
            value = values.get(setting.name)
            within = value in setting.values
            if setting.bounds is not None and type(value) in (int, float):
                low, high = setting.bounds
                within = low <= value <= high
            if not within:
                raise SweepError(
                    f"{setting.name} is {value}; it must be of {setting.text}",
                    setting.name,
                )
        self.study.enqueue_trial(dict(values))
        more = msgspec.structs.replace(search, trials=search.count + 1)
        self.study.set_user_attr(SEARCH, msgspec.to_builtins(more))

    # -- trials -------------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Take up the trials that a process which was killed has left; what has no values yet has failed."""
        names = {setting.name for setting in self.search.settings}
        for trial in self.study.get_trials(False, (TrialState.RUNNING,)):
            if names <= set(trial.params):
                self._left.append(trial)
            else:
                self.study.tell(trial.number, state=TrialState.FAIL)

    def next(self) -> Trial | None:
        """Return the next trial, begun; None when all are. One whose net does not work has failed by then, and
        says why in its `problem`.
        """
        search = self.search
        if self._left:
            frozen = self._left.popleft()
            trial = optuna.Trial(self.study, frozen._trial_id)
        elif self._made() < search.count:
            trial = self.study.ask({s.name: distribution(s) for s in search.settings})
        else:
            return None
        self._running[trial.number] = trial
        values = FrozenMap({s.name: trial.params[s.name] for s in search.settings})
        name, runs = name_of(values, search), tuple(trial.user_attrs.get(RUNS, ()))
        try:
            project, analysis = prepared(self.project, self._analysis, values)
        except SweepError as error:
            problem, same = str(error), (self.project, self._analysis)
            self.end(trial.number, "failed", note=problem)
            return Trial(trial.number, name, *same, problem=problem)
        return Trial(trial.number, name, project, analysis, runs)

    def _made(self) -> int:
        """Return how many trials have begun, without those that were lost before they had values."""
        return sum(
            trial.state != TrialState.WAITING
            and (trial.state != TrialState.FAIL or NOTE in trial.user_attrs)
            for trial in self.trials
        )

    def _begun(self, number: int) -> optuna.Trial:
        """Return a trial that has begun, also one that a process before this one began."""
        if number not in self._running:
            frozen = next(trial for trial in self.trials if trial.number == number)
            self._left = deque(left for left in self._left if left.number != number)
            self._running[number] = optuna.Trial(self.study, frozen._trial_id)
        return self._running[number]

    def note_run(self, number: int, seed: int, run: int) -> None:
        """Note the number of a trial's run with its `seed`-th seed, from 0."""
        trial = self._begun(number)
        trial.set_user_attr(RUNS, [*trial.user_attrs.get(RUNS, [])[:seed], run])

    def report(self, number: int, step: int, loss: float) -> bool:
        """Note the loss after an epoch, or of a seed; return whether the trial is to be pruned there."""
        trial = self._begun(number)
        trial.report(loss, step)
        return trial.should_prune()

    def end(
        self, number: int, state: State, losses: Sequence[float] = (), note: str = ""
    ) -> None:
        """Note how a trial ended, with the loss of each seed."""
        trial = self._begun(number)
        del self._running[number]
        trial.set_user_attr(NOTE, note)
        if state == "done":
            trial.set_user_attr(SEEDS, list(losses))
            self.study.tell(trial, statistics.fmean(losses))
            return
        if state == "pruned":  # its runs say so too
            for run in trial.user_attrs.get(RUNS, [])[-1:]:
                with suppress(RunError, OSError):
                    store.annotate(store.find(self.folder.parent, str(run)), note=note)
        ended = TrialState.PRUNED if state == "pruned" else TrialState.FAIL
        self.study.tell(trial, state=ended)


def _made(path: Path) -> Path:
    path.touch()
    return path


def _repair(path: Path) -> None:
    """Remove what a kill or a power cut amid writing left: half a line, and the lock of the journal."""
    Path(f"{path}.lock").unlink(missing_ok=True)
    whole = 0
    with path.open("rb+") as journal:
        for line in journal:
            with suppress(ValueError):
                json.loads(line if line.endswith(b"\n") else b"")
                whole += len(line)
                continue
            break
        journal.truncate(whole)


def distribution(setting: SweepSetting) -> BaseDistribution:
    """Return the distribution of a setting."""
    if setting.bounds is None:
        return CategoricalDistribution(setting.values)
    low, high = setting.bounds
    if type(low) is int and type(high) is int:
        return IntDistribution(low, high, setting.log, int(setting.step or 1))
    return FloatDistribution(low, high, setting.log, setting.step)


def sampler_of(search: Search, made: int = 0) -> samplers.BaseSampler:
    """Return the sampler of a search. One that goes on after `made` trials draws other numbers than those before."""
    seed = search.seed + (0 if search.sampler in NUMBERED else made)
    match search.sampler:
        case "grid":
            grid = {setting.name: setting.values for setting in search.settings}
            return _Grid(grid, seed)
        case "random":
            return samplers.RandomSampler(seed)
        case "gp":
            return samplers.GPSampler(seed=seed)
        case "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case "qmc":
            return samplers.QMCSampler(seed=seed, warn_independent_sampling=False)
    return samplers.TPESampler(seed=seed)


def pruner_of(search: Search, epochs: int) -> pruners.BasePruner:
    """Return the pruner of a search."""
    match search.pruner:
        case "median":
            return pruners.MedianPruner()
        case "hyperband":
            return pruners.HyperbandPruner(max_resource=epochs)
        case "wilcoxon":
            return pruners.WilcoxonPruner()
    return pruners.NopPruner()


# -- tables -----------------------------------------------------------------------------------------------------------


def tags_in(runs: Path) -> tuple[str, ...]:
    """Return the sweeps among the runs of a project, the newest first; those of before are tags of runs alone."""
    tags = {tag for run in store.listed(runs) for tag in run.record.tags}
    tags |= {journal.parent.name for journal in runs.glob(f"*/{JOURNAL}")}
    numbers = [tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG)]
    newest = sorted({int(n) for n in numbers if n.isdecimal()}, reverse=True)
    return tuple(f"{TAG}{number}" for number in newest)


def table(runs: Path, tag: str, tags: tuple[str, ...] = ()) -> SweepTable:
    """Return a sweep with its trials. Raises SweepError and OSError."""
    stored = store.listed(runs)
    if not (runs / tag / JOURNAL).exists():
        return _of_runs(tag, [run for run in stored if tag in run.record.tags], tags)
    study = Study(runs / tag)
    search = study.search
    by_number = {run.record.number: run for run in stored}
    rows = tuple(_row(trial, search, by_number) for trial in study.trials)
    held = file_lock.is_held(runs / tag / LOCK)
    shares = _importance(study.study)
    return SweepTable(tag, search, rows, shares, verdict(rows), held, tags)


def _row(trial: FrozenTrial, search: Search, runs: Mapping[int, Kept]) -> TrialRow:
    attributes = trial.user_attrs
    numbers = tuple(attributes.get(RUNS, ()))
    values = trial.params or trial.system_attrs.get("fixed_params", {})
    state, reported = STATES[trial.state], trial.intermediate_values
    value = trial.value if state == "done" else min(reported.values(), default=None)
    row = TrialRow(
        trial.number,
        state,
        FrozenMap(values),
        value,
        tuple(attributes.get(SEEDS, ())),
        attributes.get(NOTE, ""),
        numbers,
    )
    return _measured(row, [runs[number] for number in numbers if number in runs])


def _measured(row: TrialRow, runs: Sequence[Kept]) -> TrialRow:
    """Return a trial with what its last run measured."""
    if not runs:
        return row
    record = runs[-1].record
    summary, begun = record.summary, record.beginning
    return msgspec.structs.replace(
        row,
        accuracy=summary.best_accuracy,
        parameters=begun.parameters if begun is not None else None,
        bytes=_weights(runs[-1]),
        milliseconds=1000 * summary.seconds / summary.steps if summary.steps else None,
    )


def _weights(run: Kept) -> float | None:
    """Return the bytes of a checkpoint: weights and optimizer state."""
    sizes = [path.stat().st_size for path in run.checkpoints.glob("*.pt")]
    return max(sizes, default=None)


def _of_runs(tag: str, runs: Sequence[Kept], tags: tuple[str, ...]) -> SweepTable:
    """Return a sweep that was made of runs alone, whose names have their values."""
    rows = []
    study = optuna.create_study()
    named = [(run, values_in(run.record.name)) for run in reversed(runs)]
    lists = {
        name: sorted({str(values[name]) for _, values in named if name in values})
        for name in dict.fromkeys(name for _, values in named for name in values)
    }
    settings = tuple(parse_values(name, ",".join(of)) for name, of in lists.items())
    states: dict[str, State] = {"done": "done", "running": "running"}
    for number, (run, values) in enumerate(named):
        loss, state = run.record.summary.best_loss, states.get(run.state, "failed")
        note = run.record.ending.message if run.record.ending is not None else ""
        row = TrialRow(number, state, FrozenMap(values), loss, note=note)
        row = msgspec.structs.replace(row, runs=(run.record.number,))
        rows.append(_measured(row, [run]))
        if state == "done" and loss is not None:
            chosen = {s.name: distribution(s) for s in settings if s.name in values}
            study.add_trial(
                optuna.create_trial(params=values, distributions=chosen, value=loss)
            )
    search = Search(settings, trials=len(rows))
    return SweepTable(
        tag, search, tuple(rows), _importance(study), tags=tags, of_runs=True
    )


def _importance(study: optuna.Study) -> FrozenMap[str, float]:
    """Return the share of each setting in the spread of the losses; none for too few trials."""
    with (
        suppress(ValueError, RuntimeError, UserWarning),  # of too few trials
        warnings.catch_warnings(action="error"),
    ):
        shares = optuna.importance.get_param_importances(study)
        return FrozenMap({name: share for name, share in shares.items() if share})
    return FrozenMap()


def verdict(rows: Sequence[TrialRow]) -> str:
    """Say whether the best trial is the best beyond the spread of its seeds; "" for trials of one seed."""
    done = [row for row in rows if row.value is not None and len(row.seeds) > 1]
    if len(done) < 2:
        return ""
    best, following = sorted(done, key=lambda row: row.value or 0.0)[:2]
    error = math.hypot(
        *(
            statistics.stdev(row.seeds) / len(row.seeds) ** 0.5
            for row in (best, following)
        )
    )
    apart = (following.value or 0.0) - (best.value or 0.0)
    seeds = f"the spread of {len(best.seeds)} seeds"
    if apart > 2 * error:
        return f"Trial {best.number} is the best beyond {seeds}."
    return f"Trial {following.number} may be as good as trial {best.number}: they differ by less than {seeds}."
