"""`tapedeck sweep`: run after run over a grid, or a random draw, of settings."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from msgspec.structs import replace

from app.builder.results import Analysis
from app.cli import console, nets, settings
from app.cli import run_table as listing
from app.cli.train import train
from app.cli.train.run_output import ProgressBar, RunOutput
from app.engine.dispatch import control_for
from app.engine.placement import RunPlacement
from app.features.sweep.compute.runs import plan
from app.features.sweep.values import SweepError, SweepSetting, next_tag, parse_values
from app.preflight import preflight
from app.project.project import Project
from app.runs import store
from app.runs.list_columns import named, ordered
from app.runs.recorder import Recorder
from app.runs.store import Kept
from app.training.control import Control
from app.training.events import Event, Failed
from app.training.job import Job


def run(options: argparse.Namespace) -> int:
    """Check the settings of all runs, train them, and print them with the best first; return 1 if one failed."""
    planned = _planned(options)
    folder = store.runs_beside(options.project)
    tag = next_tag(
        tag for stored_run in store.listed(folder) for tag in stored_run.record.tags
    )
    root = str(options.data) if options.data else None
    done, failed, stopped = list[Path](), 0, False
    for number, (name, project, analysis) in enumerate(planned, 1):
        if not options.json:
            print(console.printable(f"{tag}, run {number} of {len(planned)}: {name}"))
        with console.writing(folder):
            new_run = store.begin(
                folder, project, name=name[: store.MOST_NAME], tags=(tag,)
            )
        last, stopped = _train(
            preflight.job(project, analysis, root), project, new_run, options
        )
        done.append(new_run.folder)
        failed += _tell_failure(last, name)
        if stopped:
            break
    _print_best(
        options,
        [
            stored_run
            for stored_run in store.listed(folder)
            if stored_run.folder in done
        ],
    )
    if len(done) < len(planned):
        console.warn(f"the sweep was stopped after {len(done)} of {len(planned)} runs")
    return int(failed > 0)


def _planned(options: argparse.Namespace) -> list[tuple[str, Project, Analysis]]:
    """Return the name and the project of each run, and the net's analysis. Raises CommandError."""
    wanted = [_setting(text, options.random is not None) for text in options.settings]
    project = nets.read(options)
    if options.device is not None:
        settings.device(options.device)
        project = replace(
            project, training=replace(project.training, device=options.device)
        )
    settings.read_data(project)
    analysis = nets.sound(project, alone=True)
    try:
        runs = plan(project, analysis, wanted, options.random, options.seed)
    except SweepError as error:
        raise console.CommandError(f"--set {error}") from error
    return [
        (run.name, replace(project, training=run.training), analysis) for run in runs
    ]


def _setting(text: str, draws: bool) -> SweepSetting:
    """Parse an argument of --set. Raises CommandError."""
    name, is_set, values = (piece.strip() for piece in text.partition("="))
    if not (name and is_set and values):
        raise console.CommandError(
            f"--set {text}: write a setting and its values, as lr=0.1,0.01"
        )
    try:
        setting = parse_values(name, values)
    except SweepError as error:
        raise console.CommandError(f"--set {error}") from error
    if setting.bounds is not None and not draws:
        raise console.CommandError(
            f"--set {name} gives bounds, which only --random N draws between; list its values"
        )
    return setting


def _train(
    job: Job, project: Project, stored_run: Kept, options: argparse.Namespace
) -> tuple[Event, bool]:
    """Train one run into its folder; return its last event, and whether the user stopped it."""
    placement = RunPlacement(1) if options.own_process else None
    control = Control() if placement is None else control_for(placement)
    recorder = Recorder(stored_run, project, job.source.text)
    out: RunOutput = _Silent() if options.json else ProgressBar(project.training.epochs)
    with train.interruptible(control):
        _, last, unread = train.watch(job, control, out, recorder, None, placement)
    if unread is not None:
        raise unread
    return last, control.stopping


class _Silent:
    """Shows nothing of a run: with --json stdout has a line per run."""

    def show(self, _event: Event) -> None:
        pass


def _tell_failure(last: Event, name: str) -> bool:
    """Report a run that failed; the sweep continues with the next."""
    if isinstance(last, Failed):
        console.warn(f"{name}: {last.message}")
    return isinstance(last, Failed)


def _print_best(options: argparse.Namespace, runs: list[Kept]) -> None:
    """Print the runs, the smallest validation loss first."""
    shown = ordered(runs, named("best_loss"), False, listing.listed)
    if options.json:
        for stored_run in shown:
            print(json.dumps(listing.plain(stored_run), ensure_ascii=False))
    elif shown:
        listing.print_table(shown)
