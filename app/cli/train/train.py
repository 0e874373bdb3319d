"""`tapedeck train`: train without a window, stored in a folder, with stop and resume."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from app.cli import console, failures, nets, settings
from app.cli.train import run_results, surgeries
from app.cli.train.run_output import CLEARED, JsonLines, ProgressBar, RunOutput
from app.data.loaders import read_spec
from app.engine import dispatch
from app.engine.dispatch import control_for
from app.engine.placement import RunPlacement
from app.preflight import preflight
from app.preflight.setting_checks import target_scale
from app.project.weights.start_weights import summary
from app.runs import compare, resume, store
from app.runs import resume as going_on
from app.runs.checkpoint_files import measured
from app.runs.record import Changed, Parent, RunError
from app.runs.recorder import Recorder
from app.training import loop
from app.training.checkpoints.checkpoint import CheckpointError, stage_of, step_of
from app.training.checkpoints.disk_estimate import estimated_bytes
from app.training.checkpoints.save_report import SaveReport
from app.training.control import Control
from app.training.events import Failed, Finished, Noticed, Saved, Started
from app.training.history import History
from app.util import shelf
from app.util.formatting import bytes_text, counted

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.project.project import Project
    from app.runs.store import Kept
    from app.training.events import Event
    from app.training.job import Job

# --- `tapedeck train --resume`: the settings are those of the run that is resumed, with what the command changes


class Resumed(Struct, frozen=True):
    """What a command resumes: a checkpoint, and the stored run that it is of.

    `run` is None for a checkpoint that lies elsewhere, `path` for the start of the run, before its first checkpoint.
    """

    run: Kept | None
    path: Path | None


def find(options: argparse.Namespace) -> Resumed | None:
    """Return what --resume names, with --leave-out from before the first of these steps. Raises CommandError."""
    if options.resume is None:
        return None
    try:
        path = resume.find_checkpoint(options.resume, console.warn)
        run = resume.run_of(path)
        if run is not None and run.goes_on:
            raise RunError(f"{run.folder} is in use by a running run. Stop it first.")
        if options.leave_out:
            return Resumed(
                run, _before(options.resume, path, run, min(options.leave_out))
            )
    except (RunError, CheckpointError) as error:
        raise console.CommandError(str(error)) from error
    return Resumed(run, path)


def _before(named: Path, path: Path, run: Kept | None, step: int) -> Path | None:
    """Return the checkpoint to resume from so that the batch of a step can be left out; None for the run's start.

    Raises CheckpointError and CommandError.
    """
    if named.is_file():
        if (at := step_of(path)[0]) >= step:
            raise console.CommandError(
                f"{path} is of step {at:,}; to leave out step {step:,} pass one before it"
            )
        return path
    nearest = resume.nearest(run, step - 1, console.warn) if run is not None else path
    if nearest is None and run is not None and run.record.changed is not None:
        raise console.CommandError(
            f"{run.record.title} has its settings since step {run.record.changed.step:,}; to leave out step {step:,} "
            f"resume {run.record.parent.run if run.record.parent is not None else 'the run before it'}"
        )
    return nearest


def with_settings_of(
    resumed: Resumed, project: Project, options: argparse.Namespace
) -> Project:
    """Return the project with the settings of the run, and on top those of --on and --set. Raises CommandError."""
    if resumed.run is None:
        console.warn(
            f"{resumed.path} is of no stored run: the settings are those of {options.project}"
        )
        return project
    record = resumed.run.record
    try:
        stored = store.project_of(resumed.run)
    except RunError as error:
        raise console.CommandError(str(error)) from error
    training = stored.training
    if record.beginning is not None:  # its first steps are recomputed with this seed
        training = replace(training, seed=record.beginning.seed)
    before = replace(project, training=training, data=stored.data)
    now = settings.with_settings(before, options)
    now = settings.with_loss(now, options) if options.loss is not None else now
    differences = compare.differences(now, project)
    named = {"epochs", "device", "seed", "save_every", "revisit_seconds", "leave_out"}
    if texts := [
        f"{name} {ours}, not {theirs}"
        for name, (ours, theirs) in differences.items()
        if name not in named
    ]:
        console.warn(
            f"the settings are those of {record.title}: {'; '.join(texts)} as in {options.project}; --set takes others"
        )
    return now


def open_store(
    resumed: Resumed, project: Project, job: Job, options: argparse.Namespace
) -> tuple[Recorder, Path | None, Job]:
    """Return the store of a resumed run, its checkpoint, and the job with the surgeries of the run and the command.

    It is that of the run itself if it lies in the output folder and nothing is changed, else a new one with this run as
    its parent. Raises CommandError.
    """
    run, path, runs = resumed.run, resumed.path, options.out / "runs"
    try:
        projects, job = surgeries.stored(
            run, project, job, str(options.data) if options.data else None
        )
        projects, job = surgeries.planned(options, projects, job)
        if path is None:
            recorder, job = _from_the_start(resumed, projects[0], job, options)
            surgeries.plan(recorder, projects, job.stages, 1)
            return recorder, None, job
        changed = _changed(resumed, project)
        resume.check(job, path)
        stage = stage_of(path)
        with console.writing(options.out):
            same = run is not None and run.folder.parent.resolve() == runs.resolve()
            if run is not None and same and changed is None and not options.leave_out:
                stored_run = run
            else:
                stored_run = store.begin(runs, project, _parent(run, path))
                if run is not None:
                    stored_run = resume.continued(stored_run, run, path, changed)
                else:
                    store.keep_begin(path, stored_run)
            position = resume.going_on(stored_run, path)
    except (RunError, CheckpointError) as error:
        raise console.CommandError(str(error)) from error
    if position.epochs >= job.training.epochs:
        console.warn(
            f"{path.name} is at epoch {position.epochs} of {job.training.epochs}: nothing is left to train; "
            "pass --epochs with more"
        )
    recorder = Recorder(
        stored_run,
        projects[stage - 1],
        job.at_stage(stage).source.text,
        lambda: position,
    )
    surgeries.plan(recorder, projects, job.stages, stage)
    return recorder, path, resume.with_begin(job, stored_run)


def _from_the_start(
    resumed: Resumed, project: Project, job: Job, options: argparse.Namespace
) -> tuple[Recorder, Job]:
    """Return the store of a run that repeats another one from its start, as it leaves out a batch before the first
    checkpoint.
    """
    run = resumed.run
    with console.writing(options.out):
        stored_run = store.begin(options.out / "runs", project, _parent(run, None))
    if run is not None:
        console.warn(
            f"{run.record.title} has no checkpoint before step {min(options.leave_out):,}: a new run repeats "
            "it from its start"
        )
    return Recorder(stored_run, project, job.source.text), job


def _parent(run: Kept | None, path: Path | None) -> Parent:
    """Return the record of what a run continues; `path` is None for the start of the other run."""
    step = step_of(path)[0] if path is not None else 0
    return Parent(
        run.record.title if run is not None else str(path),
        path.name if path is not None else "",
        step,
    )


def _changed(resumed: Resumed, project: Project) -> Changed | None:
    """Return the settings that the command changes, and say so; None without any. Raises RunError."""
    run, path = resumed.run, resumed.path
    if run is None or path is None:
        return None
    before = store.project_of(run)
    resume.check_changes(run, before, project)
    changes = resume.changes(before, project)
    if not changes:
        return None
    step = step_of(path)[0]
    texts = "; ".join(
        f"{name} is {now} (before: {old})" for name, (old, now) in changes.items()
    )
    console.warn(
        f"since step {step:,}: {texts}; this is a new run, with {run.record.title} as its parent"
    )
    return Changed(step, changes)


def run(options: argparse.Namespace) -> int:
    """Train to the end, and write the results."""
    placement = _execution_target(options)
    resume = find(options)
    project = nets.read(options)
    if resume is not None:
        project = with_settings_of(resume, project, options)
    project = _with_options(project, options)
    analysis = nets.sound(project)
    _warn_of_scale(project)
    data = str(options.data) if options.data and options.at is None else None
    job = preflight.job(project, analysis, data)
    if job.training.start is not None and not options.json:
        print(summary(job.training.start, job.source))
    if options.at is not None:
        for module in shelf.modules("cli.train_elsewhere"):
            status: int = import_module(module).train(options, job)
            return status
        raise console.CommandError("--at needs the feature places, which is not there")
    folder: Path = options.out
    if options.surgery and placement is not None and placement.processes > 1:
        raise console.CommandError(
            "--surgery is not supported with --processes; omit one of them"
        )
    recorder, checkpoint, job = _open_store(resume, project, job, options)
    if not options.json:
        _say_disk(job, analysis.total_parameters)
    job = _as_before(job, project, checkpoint)
    control = Control() if placement is None else control_for(placement)
    with interruptible(control):
        out: RunOutput = (
            JsonLines() if options.json else ProgressBar(project.training.epochs)
        )
        history, last, unread = watch(
            job, control, out, recorder, checkpoint, placement
        )
    if isinstance(last, Finished) and (
        late := [step for step in options.leave_out if step > last.steps]
    ):
        _warn(
            f"--leave-out {late[0]:,}: the run ended at step {last.steps:,}, and no batch of such a step was read"
        )
    last_stage = max((cut.stage for cut in history.cuts), default=1)
    if isinstance(last, Finished):
        surgeries.warn_of(job.stages[last_stage - 1 :], last.steps, "ended at")
    job = replace(job, stages=job.stages[: last_stage - 1])
    problem = ""
    begun = history.started.resumed_at if history.started is not None else 0
    if isinstance(last, Failed) and (
        control.result is None or control.result.step == begun
    ):
        problem = f"No step was taken, so no weights, code or curves were written to {folder}."
    elif (
        control.result is not None
        and (weights := control.result.state_dict) is not None
    ):
        ended = control.result.step
        best = run_results.best_of(recorder, ended)
        failed = last if isinstance(last, Failed) else None
        results = run_results.leave(
            recorder.project, job, weights, history, folder, best, failed
        )
        if results.missing:
            problem = results.problem(run_results.rescued(results, weights, recorder))
        elif not options.json:
            names = ", ".join(results.names)
            print(
                f"{folder}: {names}; run {recorder.kept.record.number} is stored in {recorder.kept.folder}"
            )
            for line in run_results.which_weights(history, results, failed is not None):
                print(line)
            _say_kept(recorder.checkpoints)
    if unread is None:
        _report(project, analysis, job, history, control, options.json)
    if isinstance(last, Failed):
        of_files = (
            last.kind == "data" or last.kind == "job" and not last.step
        )  # a file, or a setting of the run
        raise console.CommandError(
            failures.describe_failure(last, options.traceback, problem),
            2 if of_files else 1,
        )
    if problem:
        raise console.CommandError(problem)
    if unread is not None:
        raise unread
    return 0


def _execution_target(options: argparse.Namespace) -> RunPlacement | None:
    """Return where the run is executed; None for this process."""
    count = options.processes or 1
    return RunPlacement(count) if count > 1 or options.own_process else None


def _with_options(project: Project, options: argparse.Namespace) -> Project:

    chosen = {
        name: getattr(options, name)
        for name in ("epochs", "device", "seed", "save_every", "revisit_seconds")
    }
    training = replace(
        project.training,
        **{name: value for name, value in chosen.items() if value is not None},
    )
    left_out = tuple(sorted({*training.leave_out, *options.leave_out}))
    training = replace(training, leave_out=left_out)
    if options.device is not None and options.at is None:
        settings.device(options.device)
    return replace(project, training=training)


def _warn_of_scale(project: Project) -> None:
    """Warn of values to predict that are far from the outputs a net begins with."""
    for problem in target_scale(project, read_spec(project.data)):
        _warn(
            f"{problem.message}. {problem.reason} --set data.options.standardise_target=true standardises it"
        )


def _report(
    project: Project,
    analysis: Analysis,
    job: Job,
    history: History,
    control: Control,
    as_json: bool,
) -> None:
    """Print what features say of a run that has ended, as a sentence or an event."""
    weights = control.result.state_dict if control.result is not None else None
    for name in shelf.modules("run_report"):
        fields = import_module(name).report(project, analysis, job, history, weights)
        if fields is not None:
            print(
                json.dumps(fields, ensure_ascii=False)
                if as_json
                else console.printable(fields["sentence"])
            )


def _say_disk(job: Job, parameters: int) -> None:
    """Print an estimate of the size of the checkpoints for revisiting."""
    if within := job.training.revisit_seconds:
        size = bytes_text(estimated_bytes(job.training, parameters))
        print(
            f"checkpoints for revisiting: one every {within / 2:g} s or sooner, each about {size} (estimate)"
        )


def _say_kept(folder: Path) -> None:
    """Print the size of the checkpoints for revisiting."""
    use = measured(folder)
    if use.to_revisit:
        print(
            f"{counted(use.to_revisit, 'checkpoint')} for revisiting: {bytes_text(use.bytes)} in {folder}"
        )


def _open_store(
    resume: Resumed | None, project: Project, job: Job, options: argparse.Namespace
) -> tuple[Recorder, Path | None, Job]:
    """Return the store of the run, the checkpoint to resume from, and the job with the surgeries of the command."""
    if resume is not None:
        return open_store(resume, project, job, options)
    projects, job = surgeries.planned(options, (project,), job)
    with console.writing(options.out):
        recorder = Recorder(
            store.begin(options.out / "runs", project), project, job.source.text
        )
    surgeries.plan(recorder, projects, job.stages, 1)
    return recorder, None, job


def _warn(message: str) -> None:
    """Print a line to stderr, over a progress bar if necessary."""

    print(
        f"{CLEARED * sys.stderr.isatty()}tapedeck: {console.printable(message)}",
        file=sys.stderr,
    )


def _tell_saved(saves: SaveReport, event: Event | None) -> None:
    """Report the first failing checkpoint, and the recovery."""
    if isinstance(event, Saved) and (message := saves.message_for(event)):
        _warn(message)


def _as_before(job: Job, project: Project, resume: Path | None) -> Job:
    """Restore the number of threads of a resumed run."""
    return going_on.as_before(job, project, resume) if resume is not None else job


def _events(
    job: Job,
    control: Control,
    folder: Path | None,
    resume: Path | None,
    placement: RunPlacement | None,
) -> Iterator[Event]:
    if placement is None:
        return loop.train(job, control, folder=folder, resume=resume)
    return dispatch.train(job, control, placement, folder=folder, resume=resume)


def watch(
    job: Job,
    control: Control,
    out: RunOutput,
    recorder: Recorder,
    resume: Path | None,
    placement: RunPlacement | None,
) -> tuple[Any, Event, OSError | None]:
    """Run the job to its end; return the history, the last event, and the error of a stdout that was closed."""
    recorder.threads = job.training.threads
    recorder.processes = placement.processes if placement is not None else 1
    problem = recorder.begin()
    history = (
        store.history_of(recorder.kept)
        if resume is not None and not problem
        else History()
    )
    last: Event | None = None
    unread: OSError | None = None
    saves = SaveReport()
    try:
        checkpoint_folder = None if problem else recorder.checkpoints
        for last in _events(job, control, checkpoint_folder, resume, placement):
            history.add(last)
            if isinstance(last, Started):
                if last.changed:
                    _warn(last.changed)
                count = last.epochs * last.steps_per_epoch
                surgeries.warn_of(
                    [stage for stage in job.stages if stage.step >= count],
                    count,
                    "has steps up to",
                )
            if isinstance(last, Noticed):
                _warn(last.message)
            _tell_saved(saves, recorder.take(last))
            _tell_saved(saves, last)
            # Without requested checkpoints the output equals that of the exported script.
            if not isinstance(last, Saved) or last.problem or job.training.save_every:
                try:
                    out.show(last)
                except OSError as error:  # the reader is gone: the run is stopped and saved, and `cli.run` reports it
                    unread = error
                    control.stop()
    finally:
        recorder.close()
    _tell_saved(saves, recorder.unsaid())
    if message := saves.at_end():
        _warn(message)
    assert last is not None
    return history, last, unread


@contextmanager
def interruptible(control: Control) -> Iterator[None]:
    """Stop the run on Ctrl+C after the current step, keeping its weights; exit on the second one."""

    def stop(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print(
            "\ntapedeck: stopping; the trained weights will be saved", file=sys.stderr
        )
        control.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
