"""Runs of the open project: the deck's buttons, and where events of a run go."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import QObject, QTimer, Signal

from app.builder.blocks import PREFIX, contained
from app.builder.sheet import Sheet
from app.data.sources import is_present
from app.preflight import preflight
from app.project.document import Document
from app.project.file import with_start
from app.project.project import Project
from app.runs.record import Parent, continuing
from app.runs.recorder import Recorder
from app.runs.store import MOST_NAME
from app.training.run_requests import SetRate
from app.util.formatting import grouped_digits, plural
from app.util.language import tr, trn
from app.views.analysis_service import AnalysisService
from app.views.run.run_files import fork_from, resume_from
from app.views.run.session import Run, RunSession, Series
from app.views.run.targets import RunTargets
from app.views.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from app.builder.results import Analysis
    from app.engine.placement import RunPlacement
    from app.engine.requests.runs import Fork, Resumable
    from app.runs.record import Changed
    from app.runs.store import Kept
    from app.training.config import StartWeights
    from app.training.events import Failed, Finished
    from app.training.history import History
    from app.training.job import Job
    from app.views.run.keeper import RunsKeeper


CANNOT_START = "The run cannot start"
NO_SCRIPT = "Start one with tapedeck run --window train.py, or choose Run, Attach to a running job."
STARTS_WHEN = "Starts when {} (F8 cancels)"
RUN = "run"  # key of the run that waits for the network to be checked
LONG = 200  # ms after which a check is shown on the deck


class RunControl(QObject):
    """Starts and controls runs. `blocked_changed(reason)` says why no run can be started ("" when one can), and reports
    a check only if it is slow.

    `download_wanted(source)` is emitted if the run's data are not on this machine; `moved_on(bool)` reports whether the
    drawing differs from the net in training, `edits_offered(bool)` whether that is so of a paused run; `step_changed`
    carries the state of `ScriptStep`, `watch_wanted` the file of a script that is to be watched again; `said` and
    `refused` are messages for the user. A run that is requested while PyTorch is loading or the network is being
    checked starts after that.
    """

    blocked_changed = Signal(str)
    download_wanted = Signal(str)
    moved_on = Signal(bool)
    started = Signal(object)
    said = Signal(str, str)
    refused = Signal(str, str)
    failed = Signal(object)
    step_changed = Signal(str)
    edits_offered = Signal(bool)
    watch_wanted = Signal(object)

    def __init__(
        self,
        document: Document,
        live: AnalysisService,
        session: RunSession,
        settings: Settings,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._document, self._live, self._session, self._settings = (
            document,
            live,
            session,
            settings,
        )
        self.targets = RunTargets(settings, self)
        self._keeper: RunsKeeper | None = None
        self._drawn: dict[int, Project] = {}
        self._left: dict[int, str] = {}  # what the projects of runs were called
        self._told: str | None = None
        self._moved = self._offers = False
        self.moved_on.connect(self._note_moved)
        self._check = QTimer(self, singleShot=True, interval=LONG)
        self._check.timeout.connect(self._tell_blocked)
        live.analysed.connect(self._analysed)
        for ended in (live.torch_failed, live.analysis_failed, document.replaced):
            ended.connect(lambda _told: self._tell_blocked())
        document.changed.connect(self._drawing_changed)
        session.stateChanged.connect(self._state_changed)
        document.leaving.connect(self._leave)
        session.failed.connect(self._failed)
        session.finished.connect(self._finished)

    @property
    def takes_commands(self) -> bool:
        """Return whether the active run is a script of the person's that can be commanded."""
        return self._session.watches and self._session.commands

    @property
    def shows_script(self) -> bool:
        """Return whether the window shows a script, running or not, and no network beside it."""
        return self._session.watched_last and _is_empty(self._document.project)

    @property
    def script_alone(self) -> bool:
        """Return whether the window shows a script that can be commanded, and no network beside it."""
        return self.takes_commands and self.shows_script

    def show_step(self, state: str) -> None:
        """Report whether a step of a script is waited for or held."""
        self.step_changed.emit(state)

    @property
    def blocked(self) -> str:
        """Why no run can be started now, "" if one can."""
        if waits := self._live.unfinished:
            return STARTS_WHEN.format(waits[1]) if self._live.pending(RUN) else waits[0]
        if self._live.failure is not None:
            return self._live.failure[0]
        if self._live.wants:
            return self._live.wants
        count = len(self._live.errors)
        return f"Fix {count} {plural(count, 'error')} to run" if count else ""

    @property
    def waits(self) -> bool:
        """Return whether a run can be requested now that starts later by itself."""
        return self._live.unfinished is not None

    def run(self) -> None:
        """Start, or resume after a pause; in a window of a script alone, watch it again."""
        if self._session.state == "paused":
            self._session.resume()
        elif self._session.state == "left" and _is_empty(self._document.project):
            self.watch_again()
        elif not self._session.active:
            self._start(step=False)

    def pause(self) -> None:
        if self._session.watches and not self._session.commands:
            hint = "Pause and stop it where it was started. Stop here only ends the watching."
            self.refused.emit("This run executes elsewhere", hint)
        self._session.pause()

    def toggle(self) -> None:
        """Space bar of the deck: run or pause."""
        if self._session.state == "running":
            self._session.pause()
        else:
            self.run()

    def step(self) -> None:
        """Run one batch; without a run start one that pauses after its first batch."""
        if self._session.active:
            self._session.step()
        else:
            self._start(step=True)

    def stop(self) -> None:
        """Stop the run, or cancel the one that has not started yet."""
        self._live.forget(RUN)
        self._tell_blocked()
        self._session.stop()

    def set_rate(self, rate: float, group: str = "") -> None:
        """Set the learning rate of a parameter group of the active run; "" is the main one."""
        if self._session.training_thread is None or not self._session.active:
            self.refused.emit(
                "No run is in progress",
                "The next run uses the optimizer's lr, under Training.",
            )
            return
        future = self._session.training_thread.run_between_steps(SetRate(rate, group))
        future.add_done_callback(self._on_rate_set)

    def _on_rate_set(self, future: Future[float]) -> None:
        """Handle the answer, on the thread of the run."""
        if not future.cancelled() and (error := future.exception()) is not None:
            self.refused.emit("The learning rate was not changed", str(error))

    def watch_again(self) -> None:
        """Take up the watching of the newest run again, which continues elsewhere."""
        run = self._session.current
        if run is None or run.watched is None or run.active:
            self.refused.emit("No script can be watched again", NO_SCRIPT)
        else:
            self.watch_wanted.emit(run.watched)

    def interrupt_script(self) -> None:
        """Interrupt the watched script between two steps, as Ctrl+C in its terminal does."""
        self._ask_script(
            "interrupt",
            "The script was not interrupted",
            lambda answer: (
                "The script is interrupted",
                f"As by Ctrl+C in its terminal, after step {grouped_digits(answer['step'])}.",
            ),
        )

    def save_script(self) -> None:
        """Have the watched script save the state_dicts of its models and optimizers."""
        self._ask_script(
            "save",
            "No checkpoint was saved",
            lambda reply: ("Checkpoint saved", str(reply["path"])),
        )

    def describe_batch(self) -> None:
        """Describe what the models of the watched script get with their next forward pass."""
        self._ask_script(
            "batch",
            "The batch was not described",
            lambda reply: (
                f"Next batch of {reply['model']}",
                described((*reply["args"], *reply["kwargs"].items())),
            ),
        )

    def _ask_script(
        self,
        do: str,
        failed: str,
        describe: Callable[[dict[str, Any]], tuple[str, str]],
    ) -> None:
        thread = self._session.training_thread
        if thread is None or not self.takes_commands:
            self.refused.emit("No script is watched", NO_SCRIPT)
            return

        def answered(future: Future[dict[str, Any]]) -> None:
            """Handle the answer, on the thread of the run."""
            error = future.exception()
            if error is not None:
                self.refused.emit(failed, str(error))
            else:
                self.said.emit(*describe(future.result()))

        reply: Future[dict[str, Any]] = getattr(thread.control, "ask")(do)  # noqa: B009  of a watched run
        reply.add_done_callback(answered)

    def choose_device(self, device: str) -> None:
        """Set the device of the next run; an active run keeps its own."""
        self.targets.choose("")
        project = self._document.project
        training = replace(project.training, device=device)
        self._document.apply(f"Train on {device}", replace(project, training=training))

    def drawn(self, run: Run) -> Project | None:
        """Return the project whose net a run of this window trains."""
        return self._drawn.get(run.number)

    def set_drawn(self, run: Run, project: Project) -> None:
        """Note that the run now trains the network of another project."""
        self._drawn[run.number] = project
        self._tell_moved(run)

    def unchanged(self, run: Run, sheet: str = "") -> frozenset[str]:
        """Return the nodes of a sheet, "" for the network's, that are unchanged since the run began."""
        then = self._drawn.get(run.number)
        return self.unchanged_since(then, sheet) if then is not None else frozenset()

    def unchanged_since(self, then: Project, sheet: str = "") -> frozenset[str]:
        """Return the nodes of a sheet, "" for the network's, that are as they were in an earlier project."""
        now = self._document.project
        before, after = _sheet(then, sheet), _sheet(now, sheet)
        if before is None or after is None:
            return frozenset()
        changed = {
            name for name, block in now.blocks.items() if then.blocks.get(name) != block
        }
        other = {
            PREFIX + name
            for name in now.blocks
            if changed & {name, *contained(name, now.blocks)}
        }
        old, new = before.graph.nodes, after.graph.nodes
        return frozenset(
            key
            for key, node in new.items()
            if old.get(key) == node and node.op not in other
        )

    def keep_with(self, keeper: RunsKeeper) -> RunsKeeper:
        """Set the keeper that stores runs."""
        self._keeper = keeper
        keeper.wait_for(lambda: self._session.active)
        self._session.runEnded.connect(lambda _run: keeper.run_ended())
        keeper.moved.connect(self._session.relocate)
        return keeper

    def fork(self, start: StartWeights, parent: Parent) -> None:
        """Start a new run of the open project from the weights of a checkpoint."""
        self._start(step=False, start=start, parent=parent)

    def go_on(self, stored_run: Kept, resumable: Resumable, history: History) -> None:
        """Resume a stored run from one of its checkpoints; with changed settings, as a new run."""

        if self._session.active:
            self.refused.emit(
                f"{stored_run.record.title} cannot be resumed",
                "A run is in progress. Stop it first.",
            )
            return
        project, stage, job = (
            resumable.project,
            resumable.job.at_stage(resumable.stage),
            resumable.job,
        )
        title = f"{stored_run.record.title} cannot be resumed"
        if self._wants_data(project) or self._stays(
            title, job, bool(resumable.changed)
        ):
            return
        recorder: Recorder | None
        if resumable.changed is not None and self._keeper is not None:
            parent = Parent(
                stored_run.record.title,
                resumable.checkpoint.name,
                resumable.changed.step,
            )
            recorder = self._continuing(
                stored_run,
                resumable,
                resumable.checkpoint,
                parent,
                "",
                resumable.changed,
            )
            job = (
                replace(job, begin=str(recorder.kept.begin))
                if recorder is not None
                else job
            )
        else:
            watch = self._keeper.watch(stage) if self._keeper is not None else None
            resumed = partial(resume_from, stored_run.folder, resumable.checkpoint)
            recorder = Recorder(stored_run, project, stage.source.text, resumed, watch)
        if recorder is not None:
            _plan(recorder, resumable)
        run = self._session.start(
            job,
            recorder=recorder,
            resume=resumable.checkpoint,
            history=history,
            stage=resumable.stage,
            place=self._placed(job, recorder, resumable.checkpoint),
        )
        self._on_begin(run, project)

    def watch_own(
        self,
        job: Job,
        project: Project,
        recorder: Recorder,
        place: RunPlacement,
        history: History,
    ) -> None:
        """Watch a run of the project that goes on elsewhere, and record it again; its `history` until then is known."""
        run = self._session.start(job, recorder=recorder, place=place, history=history)
        self._on_begin(run, project)

    def fork_stored(
        self, stored_run: Kept, fork: Fork, history: History, name: str
    ) -> None:
        """Start a fork of a stored run under a name."""

        if self._session.active:
            self.refused.emit(
                f"{stored_run.record.title} cannot be forked",
                "A run is in progress. Stop it first.",
            )
            return
        title = f"{stored_run.record.title} cannot be forked"
        if (
            self._keeper is None
            or self._wants_data(fork.project)
            or self._stays(title, fork.job)
        ):
            return
        checkpoint = fork.checkpoint
        parent = Parent(
            stored_run.record.title,
            checkpoint.name if checkpoint is not None else "",
            fork.checkpoint_step,
        )
        recorder = self._continuing(
            stored_run, fork, checkpoint, parent, name[:MOST_NAME]
        )
        if recorder is not None:
            _plan(recorder, fork)
        begun = history if checkpoint is not None else None
        run = self._session.start(
            fork.job,
            recorder=recorder,
            resume=checkpoint,
            history=begun,
            stage=fork.stage,
            place=self._placed(fork.job, recorder, checkpoint),
        )
        self._on_begin(run, fork.project)

    def _continuing(
        self,
        stored_run: Kept,
        continuation: Resumable | Fork,
        checkpoint: Path | None,
        parent: Parent,
        name: str,
        changed: Changed | None = None,
    ) -> Recorder | None:
        """Return the recorder of a new run that has the history of another one, None if no folder is writable."""

        keeper = self._keeper
        recorder = (
            keeper.recorder(continuation.project, continuation.job, parent, name)
            if keeper is not None
            else None
        )
        if recorder is None or keeper is None or checkpoint is None:
            return recorder
        stage = continuation.job.at_stage(continuation.stage)
        new = replace(
            recorder.kept,
            record=continuing(recorder.kept.record, stored_run.record, changed),
        )
        resumed = partial(fork_from, stored_run, new, checkpoint)
        return Recorder(
            new, continuation.project, stage.source.text, resumed, keeper.watch(stage)
        )

    def _wants_data(self, project: Project) -> bool:
        """Return whether the data must be downloaded first; then request that."""
        source = project.data.source
        stands_in = bool(project.data.options.get("stand_in"))
        missing = not stands_in and not is_present(source, self._settings.data_folder)
        if missing:
            self.download_wanted.emit(source)
        return missing

    def _start(
        self,
        step: bool,
        start: StartWeights | None = None,
        parent: Parent | None = None,
    ) -> None:
        if not self._live.up_to_date:
            then = partial(self._start, step, start, parent)
            self._live.when_checked(
                RUN, lambda: self._session.active or then(), self._not_checked
            )
            self._tell_blocked()
            return
        analysis = self._live.analysis
        if self.blocked or analysis is None:
            self.refused.emit(CANNOT_START, self.blocked)
            return
        project = self._document.project
        if self._wants_data(project):
            return
        begins = project if start is None else with_start(project, start)
        job = preflight.job(begins, analysis, str(self._settings.data_folder))
        recorder = (
            self._keeper.recorder(begins, job, parent)
            if self._keeper is not None
            else None
        )
        place = self._placed(job, recorder)
        run = self._session.start(job, step=step, recorder=recorder, place=place)
        self._on_begin(run, project)

    def _placed(
        self, job: Job, recorder: Recorder | None, checkpoint: Path | None = None
    ) -> RunPlacement | None:
        """Have a run begin at the place that is chosen; None for this machine."""
        target = self.targets.chosen
        return target.begin(job, recorder, checkpoint) if target is not None else None

    def _stays(self, title: str, job: Job, changed: bool = False) -> bool:
        """Return whether a run cannot be continued at the place that is chosen; then say so."""
        target = self.targets.chosen
        stays = target is not None and bool(job.stages or job.begin or changed)
        if stays and target is not None:
            reason = tr(
                "A run with an edited net, or with settings that were changed amid it, continues on this machine only. "
                "Choose it in the device box in place of {place}.",
                place=target.title,
            )
            self.refused.emit(title, reason)
        return stays

    def can_begin_series(self, project: Project, title: str) -> bool:
        """Return whether runs of a project can start; else say why not, as `title`, or request its data."""
        blocked = self.blocked
        if self._session.active:
            blocked = "A run is in progress: stop it first, or wait until it has ended"
        if blocked:
            self.refused.emit(title, f"{blocked}.")
        return not blocked and not self._wants_data(project)

    def start_in_series(
        self, project: Project, analysis: Analysis, name: str, series: Series
    ) -> Run:
        """Start one run of a series, of the project as it was when that began. Raises RunUnderWay."""
        job = preflight.job(project, analysis, str(self._settings.data_folder))
        recorder = None
        if self._keeper is not None:
            recorder = self._keeper.recorder(
                project, job, None, name[:MOST_NAME], (series.tag,)
            )
        started = self._session.start(job, recorder=recorder, series=series)
        self._on_begin(started, project)
        return started

    def _on_begin(self, run: Run, project: Project) -> None:
        now = self._document.project
        moved = project.graph != now.graph or project.blocks != now.blocks
        self._drawn[run.number] = (
            project if moved else now
        )  # a stored one has other objects of the same network
        self.started.emit(run)
        if self._keeper is not None:
            self._keeper.announce_start()
        self.moved_on.emit(moved)

    def _not_checked(self, reason: str) -> None:
        """Say why a run that waited does not start."""
        self._tell_blocked()
        self.refused.emit(CANNOT_START, reason)

    def _analysed(self, _analysis: object) -> None:
        self._check.stop()
        self._tell_blocked()

    def _tell_blocked(self) -> None:
        if self.blocked != self._told:
            self._told = self.blocked
            self.blocked_changed.emit(self._told)

    def _drawing_changed(self, before: object, after: object) -> None:
        if not self._check.isActive():
            self._check.start()
        run = self._session.current
        if run is not None and run.active:
            self._tell_moved(run)

    def _tell_moved(self, run: Run) -> None:
        then, now = self._drawn.get(run.number), self._document.project
        if then is not None:
            self.moved_on.emit(
                then.graph is not now.graph or then.blocks is not now.blocks
            )

    def _note_moved(self, moved: bool) -> None:
        self._moved = moved
        self._offer_edits()

    def _offer_edits(self) -> None:
        offers = (
            self._moved
            and self._session.state == "paused"
            and not self._session.watched_last
        )
        if offers != self._offers:
            self._offers = offers
            self.edits_offered.emit(offers)

    def _state_changed(self, _state: str) -> None:
        self._offer_edits()
        if not self._session.active:
            self.moved_on.emit(False)
            self._told = None
            self._tell_blocked()

    def _leave(self) -> None:
        """Note the name of the project whose run continues although another one is opened."""
        if (run := self._session.current) is not None and run.active:
            self._left[run.number] = self._document.title

    def _failed(self, failed: Failed) -> None:
        self.failed.emit(failed)

    def _finished(self, finished: Finished) -> None:
        history = self._session.history
        epochs = len(history.epochs) if history else 0
        summary = trn("{count} step", "{count} steps", finished.steps)
        if (
            history
            and epochs
            and history.epochs["val_accuracy"][-1] == history.epochs["val_accuracy"][-1]
        ):
            summary = tr(
                "{steps}, validation accuracy {accuracy:.2f} %",
                steps=summary,
                accuracy=100 * history.epochs["val_accuracy"][-1],
            )
        if (why := finished.reason_text) and finished.reason == "done":
            summary = f"{why[:1].upper()}{why[1:]}. {summary}"
        early = bool(finished.note) and epochs < self._planned_epochs
        done = tr("Training ended early") if early else tr("Training is done")
        title = (
            done
            if finished.reason == "done"
            else f"Stopped at step {grouped_digits(finished.steps)}"
        )
        run = self._session.current
        of = self._left.get(run.number if run is not None else 0, self._document.title)
        if finished.reason == "left":
            return  # said beside the command that takes it up again
        stopped = finished.note
        if self._session.owns:
            resumable = f"It is saved and can be resumed under Runs of {of}."
            stopped = f"{stopped} {resumable}".strip()
        self.said.emit(title, summary if finished.reason == "done" else stopped)

    @property
    def _planned_epochs(self) -> int:
        run = self._session.current
        return run.job.training.epochs if run is not None else 0


def described(value: Any) -> str:
    """Format a script's description of its batch as text.

    >>> described([{"dtype": "float32", "shape": [64, 3], "min": -1.5, "max": 2.0, "mean": 0.25}, None])
    'float32 64×3 from -1.5 to 2, mean 0.25; None'
    """
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        shape = "×".join(map(str, value["shape"])) or "scalar"
        spread = (
            f" from {value['min']:.4g} to {value['max']:.4g}, mean {value['mean']:.4g}"
            if "min" in value
            else ""
        )
        return f"{value['dtype']} {shape}{spread}"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {described(entry)}" for name, entry in value.items())
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return f"{value[0]}: {described(value[1])}"
    return (
        "; ".join(map(described, value))
        if isinstance(value, list | tuple)
        else str(value)
    )


def _is_empty(project: Project) -> bool:
    return project.opened is None and not project.graph.nodes


def _sheet(project: Project, name: str) -> Sheet | None:
    """Return the sheet of a block, the network for "", None if it does not exist."""
    return project.blocks.get(name) if name else project


def _plan(recorder: Recorder, continuation: Resumable | Fork) -> None:
    """Have the projects of the stages ready that follow the current one of a run."""
    for later, edited in zip(
        continuation.job.stages[continuation.stage - 1 :],
        continuation.projects[continuation.stage :],
        strict=True,
    ):
        recorder.plan(later.surgery, edited)
