"""A run in a process of its own: the same job, the same events, and a window that outlives whatever happens to it."""

from __future__ import annotations

import itertools
import os
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from app.data.own_files import dataset_class
from app.engine import child_process, pool
from app.engine.codec import decode, encode
from app.engine.frames import Broken, Mark, Pipe, unpacked
from app.engine.placement import OWN_PROCESS, Place
from app.source import layer_files
from app.source.generated import Source
from app.training.control import Control, NoWeights, Result, RunEnded
from app.training.events import Event, Failed, Finished, Paused, Resumed, Started
from app.training.job import Job
from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import RunRequest
from app.util import tensor_files
from app.util.leftovers import TemporaryFolder
from app.util.tensor_files import TensorsOnDisk

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.monitoring.live_model import Live

T = TypeVar("T")

LOOK = 0.25  # seconds between two looks at a process that says nothing
HANG = 120.0  # seconds without a word and without work after which it counts as hung
LITTLE = 0.02  # of one core; a process that only waits takes less
STOP = 20.0  # seconds that a step under way may take after a stop


class Elsewhere(RunEnded):
    """Work was handed to a run in another process that cannot be sent there."""

    def __init__(self, words: str = "This run has a process of its own, where that cannot be looked at.") -> None:
        super().__init__(words)


class ChildControl(Control):
    """The hands on a run in another process: everything is said through a pipe, and answered by the run's events."""

    def __init__(self) -> None:
        self._pipe: Pipe | None = None
        self._folder: Path | None = None
        self._asked: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._points = WatchPoints()
        self._unsent: list[tuple[Any, ...]] = []
        self.stopped_at: float | None = None
        super().__init__()

    def pause(self) -> None:
        super().pause()
        self._say("pause")

    def resume(self) -> None:
        super().resume()
        self._say("resume")

    def step(self) -> None:
        super().step()
        self._say("step")

    def stop(self) -> None:
        super().stop()
        self.stopped_at = self.stopped_at or monotonic()
        self._say("stop")

    @property
    def watch(self) -> WatchPoints:
        return self._points

    @watch.setter
    def watch(self, points: WatchPoints) -> None:
        self._points = points
        self._say("watch", encode(points))

    def call(self, function: Callable[[Live], T] | RunRequest[T]) -> Future[T]:
        """An order of `app.training.run_requests` goes through the pipe; for others the future gets Elsewhere."""
        if not isinstance(function, RunRequest):
            future: Future[T] = Future()
            future.set_exception(Elsewhere())
            return future
        return self._ask("order", encode(function))

    def weights(self, timeout: float | None = None) -> Mapping[str, Tensor]:
        if self._result is None and self._folder is not None:
            path = self._folder / f"weights-{uuid4().hex}.pt"
            try:
                if self._written(path, timeout):
                    return loaded(path)
            finally:
                path.unlink(missing_ok=True)
        return self._left()

    def write_weights(self, path: Path, timeout: float | None = None) -> None:
        """As of any run; the process of this one writes them, so nothing is loaded here."""
        if self._result is None and self._folder is not None and self._written(path, timeout):
            return
        copy_weights(self._left(), path)

    def _written(self, path: Path, timeout: float | None) -> bool:
        """Have the process leave a copy in a file; False where it ended meanwhile."""
        try:
            self._ask("weights", str(path)).result(timeout)
        except RunEnded:  # between the question and the answer; what it leaves is on its way
            with self._condition:
                self._condition.wait_for(lambda: self._result is not None, timeout)
            return False
        return True

    def _left(self) -> Mapping[str, Tensor]:
        if self._result is None or self._result.state_dict is None:
            raise NoWeights("The run has no weights to give: it has not begun, or its process is gone.")
        return self._result.state_dict

    def _ask(self, kind: str, what: Any) -> Future[Any]:
        """Say something that is answered."""
        future: Future[Any] = Future()
        with self._condition:
            if self._result is not None:
                future.set_exception(RunEnded("The run has ended; its weights are in `Control.result`."))
                return future
            number = next(self._numbers)
            self._asked[number] = future
        self._say(kind, number, what)
        return future

    # What follows is for `train` alone.

    def begin(self, folder: Path) -> None:
        """There will be somebody to talk to, who leaves in `folder` what is asked for."""
        self._folder = folder

    def connect(self, pipe: Pipe) -> None:
        """From here on there is somebody to talk to. It hears what was said before, in that order, and then begins."""
        with self._condition:
            self._unsent.append(("ready",))
        while True:
            with self._condition:
                unsent, self._unsent = self._unsent, []
                if not unsent:
                    self._pipe = pipe
                    return
            for words in unsent:
                try:
                    pipe.send(*words)
                except (OSError, ValueError):
                    continue  # it is gone, which its reader finds out and tells

    def answered(self, number: int, value: Any, problem: str, ended: bool) -> None:
        """What came of an order, or why nothing did."""
        with self._condition:
            future = self._asked.pop(number)
        if problem:
            future.set_exception(RunEnded(problem) if ended else RuntimeError(problem))
        else:
            future.set_result(decode(value))

    def ended(self, result: Result) -> None:
        """Keep what is left, and answer those who still wait."""
        with self._condition:
            if self._result is None:
                self._result = result
            self._pipe = None
            waiting, self._asked = list(self._asked.values()), {}
            self._condition.notify_all()
        for future in waiting:
            future.set_exception(RunEnded("The run has ended."))

    def _say(self, *words: Any) -> None:
        with self._condition:
            pipe = self._pipe
            if pipe is None:
                if self._result is None:
                    self._unsent.append(words)
                return
        try:
            pipe.send(*words)
        except (OSError, ValueError):
            return  # it is gone, which its reader finds out and tells


def copy_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write what a run left into a file, without loading it. Raises OSError."""
    assert isinstance(weights, TensorsOnDisk)
    shutil.copyfile(weights.path, path)


def loaded(path: Path) -> dict[str, Tensor]:
    """A state_dict of a file of our own. Raises OSError."""
    try:
        state: dict[str, Tensor] = tensor_files.load(path)
    except tensor_files.UnreadableTensors as error:
        raise OSError(str(error)) from error
    return state


def train(
    job: Job,
    control: ChildControl | None = None,
    *,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
    place: Place = OWN_PROCESS,
    hang: float = HANG,
    grace: float = STOP,
) -> Iterator[Event]:
    """Like `app.training.loop.train`, in a process of its own; however that ends, the last event says it.

    A process that neither says anything nor works for `hang` seconds is ended, and one that has not stopped `grace`
    seconds after it was told to. It is gone when this generator is.
    """
    control = control or ChildControl()
    with TemporaryFolder() as scratch:
        run = _Child(job, control, Path(scratch), hang, grace)
        try:
            yield from run.events(threads, folder, resume, place)
        finally:
            run.close()


class _Child:
    """One process. `step` and `epoch` are where it was last heard to be."""

    def __init__(self, job: Job, control: ChildControl, scratch: Path, hang: float, grace: float) -> None:
        self.job, self.control = job, control
        self._scratch, self._hang, self._grace = scratch, hang, grace
        self._child: pool.Child | None = None
        self._pipe: Pipe | None = None
        self._heard: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self.epoch = self.step = 0
        self.started = self.paused = False
        self._kills = child_process.memory_kills()

    def events(self, threads: int | None, folder: Path | None, resume: Path | None, place: Place) -> Iterator[Event]:
        self._folder, self._resume = folder, resume
        try:
            pipe = self._start(place)
        except OSError as error:
            yield Failed("process", f"The process of the run cannot be started: {error}.", "", "", None, 0, 0)
            return
        self.control.begin(self._scratch)
        options = {
            "threads": threads, "folder": str(folder or ""), "resume": str(resume or ""),
            "weights": str(self._scratch / "weights.pt"), "mark": str(self._scratch / "mark"),
            "trusted": [
                *(one.sha256 for one in self.job.source.files if layer_files.allowed(one.sha256)),
                *dataset_class.trusted(self.job.data),
            ],
        }  # fmt: skip
        try:
            pipe.send("job", encode(self.job), options)
        except OSError:
            pass  # it is gone already, and how is told below
        self.control.connect(pipe)
        ending: Finished | Failed | None = None
        for event in self._told():
            self._follow(event)
            if isinstance(event, Finished | Failed):
                ending = event  # told when the process has handed over the weights
            else:
                yield event
        yield ending if ending is not None and self.control.result is not None else self._died()

    def _start(self, place: Place) -> Pipe:
        child = pool.start("run", {"CUDA_LAUNCH_BLOCKING": "1"} if place.launch_blocking else None)
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        self._child, self._stderr = child, child_process.Told(child.stderr)
        self._pipe = pipe = Pipe(child.stdout, child.stdin)
        threading.Thread(target=self._read, args=(pipe,), name="events of a run", daemon=True).start()
        return pipe

    def _read(self, pipe: Pipe) -> None:
        try:
            for frame in pipe.frames():
                if frame[0] == "answer":  # who asked may be who is to ask for the next event
                    self.control.answered(*frame[1:])
                    continue
                if frame[0] == "result":
                    self._hand_over(*frame[1:])
                self._heard.put(frame)
        except (OSError, ValueError, Broken):
            return  # the end of it, as if it had come in good order; who listens looks at the process
        finally:
            self._heard.put(None)

    def _told(self) -> Iterator[Event]:
        """What the process tells, until it has nothing more to tell or is not let go on."""
        assert self._child is not None
        self._silence = ""
        quiet_since, work = monotonic(), child_process.work_of(self._child.pid)
        while not self._silence:
            try:
                frame = self._heard.get(timeout=LOOK)
            except queue.Empty:
                now, done = monotonic(), child_process.work_of(self._child.pid)
                spent = now - quiet_since
                if self.paused or done is None or work is None or done - work > LITTLE * max(spent, 1.0):
                    quiet_since, work = now, done
                elif spent > self._hang:
                    self._silence = f"has done nothing for {spent:.0f} seconds and was ended"
                self._look_at_stop()
                continue
            if frame is None:
                return
            quiet_since, work = monotonic(), child_process.work_of(self._child.pid)
            kind, *values = frame
            if kind == "events":
                yield from unpacked(values[0])
            else:
                return  # the result, which is handed over already
            self._look_at_stop()

    def _look_at_stop(self) -> None:
        at = self.control.stopped_at
        if at is not None and monotonic() - at > self._grace:
            self._silence = f"had not stopped {self._grace:.0f} seconds after it was told to, and was ended"

    def _hand_over(self, ending: Any, epoch: int, step: int, path: str) -> None:
        self.control.ended(Result(ending, epoch, step, TensorsOnDisk(Path(path)) if path else None))

    def _follow(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started, self.step = True, event.resumed_at
        elif isinstance(event, Paused | Resumed):
            self.paused = isinstance(event, Paused)
        self.epoch = getattr(event, "epoch", self.epoch)
        self.step = max(self.step, getattr(event, "step", 0))

    def _died(self) -> Failed:
        assert self._child is not None
        how = self._silence
        if how:
            self._child.kill()
        code = self._child.wait()
        told = self._stderr.text()
        # What it told last is lost with it; the mark is not.
        self.epoch, self.step = max((self.epoch, self.step), self._marked())
        began = self.started or self.epoch > 0  # of a quick death, the mark may be all that was told
        where = f"in step {self.step + 1:,}" if began else "before its first step"
        message = f"The process of the run {how or child_process.ending_words(code, self._kills)} {where}."
        node = crashed_node(told, self.job.source)
        return Failed("process", message, self._kept(), told, node, self.epoch, self.step)

    def _marked(self) -> tuple[int, int]:
        try:
            mark = Mark(self._scratch / "mark")
        except OSError:
            return 0, 0
        try:
            return mark.get()
        finally:
            mark.close()

    def _kept(self) -> str:
        from app.training.checkpoints import checkpoint

        return checkpoint.left(self._folder, self._resume)

    def close(self) -> None:
        """Leave nothing of it behind."""
        child = self._child
        if child is None:
            return
        if child.poll() is None and self.control.result is None:
            child.kill()
        try:
            child.wait(5.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if os.name == "posix":
            child_process.end_group(child.pid)
        if self._pipe is not None:
            self._pipe.close()
        self.control.ended(Result("failed", self.epoch, self.step, None))


_FRAME = re.compile(r'File "(<[^"]+>)", line (\d+)')


def crashed_node(told: str, source: Source) -> str | None:
    """The node whose line was being run when native code crashed, as faulthandler prints it; the innermost is first."""
    for file, line in _FRAME.findall(told):
        if file == source.filename and (node := source.node_at(int(line))) is not None:
            return node
    return None
