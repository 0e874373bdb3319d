"""A run on several processes of this machine: the exported script under torchrun, watched through what it prints."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from app.leftovers import TemporaryFolder
from app.remote import process
from app.remote.child import LOOK, STOP, Elsewhere, loaded
from app.remote.lines import Clock, Reader
from app.remote.place import Place
from app.training.control import Control, NoWeights, Result
from app.training.events import Event, Failed, Finished, Saved, Started
from app.training.job import Job, JobError
from app.training.order import batch_count

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.live import Live

T = TypeVar("T")

FOLDER = "processes"  # beside the checkpoints of a run: model.py, train.py and the weights
MARK = "TAPEDECK_PROCESSES"


class LineControl(Control):
    """The hands on a script that reads words from its standard input."""

    def __init__(self) -> None:
        super().__init__()
        self._say: Callable[[str], None] | None = None
        self._unsaid: deque[str] = deque()
        self.stopped_at: float | None = None

    def pause(self) -> None:
        super().pause()
        self._tell("pause")

    def resume(self) -> None:
        super().resume()
        self._tell("resume")

    def step(self) -> None:
        super().step()
        self._tell("step")

    def stop(self) -> None:
        super().stop()
        self.stopped_at = self.stopped_at or monotonic()
        self._tell("stop")

    def call(self, function: Callable[[Live], T]) -> Future[T]:
        """Nothing of ours runs there: the future gets Elsewhere."""
        future: Future[T] = Future()
        future.set_exception(Elsewhere("This run is a script on several processes, which cannot be asked for that."))
        return future

    def weights(self, timeout: float | None = None) -> dict[str, Tensor]:
        if self._result is None or self._result.state_dict is None:
            raise NoWeights("A run on several processes hands over its weights when it has ended.")
        return self._result.state_dict

    def connect(self, say: Callable[[str], None]) -> None:
        """From here on there is somebody who listens, and hears what was said before."""
        with self._condition:
            self._say = say
            while self._unsaid:
                say(self._unsaid.popleft())
            say("ready")  # it waits for this word, so that none of those before comes too late

    def _tell(self, word: str) -> None:
        with self._condition:
            if self._say is None:
                self._unsaid.append(word)
            else:
                self._say(word)


def train(
    job: Job,
    control: LineControl | None = None,
    *,
    place: Place,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
    grace: float = STOP,
) -> Iterator[Event]:
    """Like `app.training.loop.train`, on `place.processes` processes; there is no telemetry.

    Model, script and weights are beside `folder`, that of a run's checkpoints, or nowhere. None of the processes is
    there any more when this generator is not.
    """
    control = control or LineControl()
    with ExitStack() as stack:
        if folder is None:
            scratch = TemporaryFolder()
            home = Path(stack.enter_context(scratch))
        else:
            home = folder.with_name(FOLDER)
        run = _Group(job, control, home, grace, folder, resume)
        try:
            yield from run.events(place, threads)
        finally:
            run.close()


class _Group:
    """torchrun and its processes."""

    def __init__(
        self, job: Job, control: LineControl, home: Path, grace: float, folder: Path | None, resume: Path | None
    ) -> None:
        self.job, self.control, self._home, self._grace = job, control, home, grace
        self._folder, self._resume = folder, resume
        self._changed, self._kept = "", resume is not None
        self._agent: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._clock = Clock()
        self._mark = uuid4().hex
        self._count = 0
        self._late = False

    def events(self, place: Place, threads: int | None) -> Iterator[Event]:
        self._count = place.processes
        reader = Reader(
            self._clock, f"On {place.processes} processes, each with its part of every batch.",
            lambda count: batch_count(self.job, count),
        )  # fmt: skip
        try:
            arguments = self._written()
            if self._resume is not None:
                arguments += self._resumed(self._resume, place, threads)
            self._start(arguments, place, threads)
        except (OSError, ValueError) as error:
            kind = "job" if isinstance(error, JobError) else "process"
            yield Failed(kind, f"The processes cannot be started: {error}", "", "", None, 0, 0)
            return
        ending: Finished | None = None
        for line in self._told():
            try:
                event = reader.event(line)
            except ValueError:
                continue  # what a layer prints goes the same way
            if event is None:
                continue
            self._clock.follow(event)
            if isinstance(event, Finished):
                ending = event
                continue
            if isinstance(event, Started) and self._changed:
                event = replace(event, changed=self._changed)
            self._kept = self._kept or (isinstance(event, Saved) and not event.problem)
            yield event
        assert self._agent is not None
        if ending is None:
            yield self._failed(reader)
            return
        self._agent.wait()
        self._hand_over(ending)
        yield ending

    def _written(self) -> list[str]:
        """Write the model and the script; returns the script and its arguments. Raises OSError, ValueError."""
        from app.export.layers import write_model
        from app.export.script import training_script, write_start

        self._home.mkdir(parents=True, exist_ok=True)
        script = self._home / "train.py"
        write_model(self.job.source, self._home / "model.py", [script])
        script.write_text(training_script(self.job, hands=True), encoding="utf-8")
        write_start(self.job, script)
        (self._home / "trained" / "weights.pt").unlink(missing_ok=True)
        kept = ["--checkpoints", str(self._folder)] if self._folder is not None else []
        return [str(script), "--json", "--out", str(self._home / "trained"), *kept]

    def _resumed(self, path: Path, place: Place, threads: int | None) -> list[str]:
        """Arguments that let them go on from a checkpoint. Raises CheckpointError for one of another net."""
        import torch

        from app.training import checkpoint

        state = checkpoint.load(path)
        checkpoint.check_source(state, path, self.job.source.text)
        each = self.job.training.threads or _threads(place, threads)
        now = {"torch": str(torch.__version__), "threads": each, "processes": place.processes}
        self._changed = checkpoint.changed(state.get("ran_on", {}), now)
        self._clock.before = state["position"]["seconds"]
        return ["--resume", str(path)]

    def _start(self, arguments: list[str], place: Place, threads: int | None) -> None:
        extra = {"OMP_NUM_THREADS": str(_threads(place, threads)), MARK: self._mark}
        if place.launch_blocking:
            extra["CUDA_LAUNCH_BLOCKING"] = "1"
        torchrun = ["-P", "-m", "app.remote.agent", "--standalone", "--nproc-per-node", str(place.processes)]
        self._agent = agent = process.start([*torchrun, *arguments], extra)
        assert agent.stdin is not None and agent.stdout is not None and agent.stderr is not None
        self._stderr = process.Told(agent.stderr)
        threading.Thread(target=self._read, args=(agent.stdout,), name="lines of a run", daemon=True).start()
        self.control.connect(self._say)

    def _say(self, word: str) -> None:
        assert self._agent is not None and self._agent.stdin is not None
        try:
            self._agent.stdin.write(f"{word}\n".encode())
            self._agent.stdin.flush()
        except (OSError, ValueError):
            return  # it is gone, which its reader finds out and tells

    def _read(self, stream: object) -> None:
        for line in stream:  # type: ignore[attr-defined]
            self._lines.put(line)
        self._lines.put(None)

    def _told(self) -> Iterator[bytes]:
        """The lines of the processes until there are no more, or until they are not let go on."""
        assert self._agent is not None
        while True:
            try:
                line = self._lines.get(timeout=LOOK)
            except queue.Empty:
                line = b""
            if line is None:
                return
            if line:
                yield line
            at = self.control.stopped_at
            if at is not None and monotonic() - at > self._grace:
                self._late = True
                return

    def _hand_over(self, ending: Finished) -> None:
        path = self._home / "trained" / "weights.pt"
        weights = loaded(path) if path.exists() else None
        self.control.finish(Result(ending.reason, ending.epoch, ending.steps, weights))

    def _failed(self, reader: Reader) -> Failed:
        assert self._agent is not None
        if self._late:
            how = f"had not stopped {self._grace:.0f} seconds after they were told to, and were ended"
            message = f"The {self._count} processes {how}."
            return Failed("process", message, self._cure, "", None, reader.epoch, reader.step)
        self._agent.wait()
        told = self._stderr.text()
        message = f"One of the {self._count} processes failed after step {reader.step:,}: {reason(told)}"
        return Failed("process", message, self._cure, told, None, reader.epoch, reader.step)

    @property
    def _cure(self) -> str:
        return "It can go on from its newest checkpoint." if self._kept else _LOST

    def close(self) -> None:
        """Leave none of them behind."""
        agent = self._agent
        if agent is not None:
            self._end(agent)
        self.control.finish(Result("failed", 0, 0, None)) if self.control.result is None else None

    def _end(self, agent: subprocess.Popen[bytes]) -> None:
        assert agent.stdin is not None
        try:
            agent.stdin.close()
        except OSError:
            pass  # nobody read the last word
        if agent.poll() is None:
            end_marked(self._mark)  # torchrun ends when its processes have
        try:
            agent.wait(5.0)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()
        end_marked(self._mark)


_LOST = "No checkpoint was taken, so what it learnt is lost. Set save_every to have one every so many steps."


def _threads(place: Place, threads: int | None) -> int:
    """How many threads each of the processes has."""
    return max(1, (threads or os.cpu_count() or 1) // place.processes)


def reason(told: str) -> str:
    """The line that says most: the last of a traceback, or of what was written."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("[rank0]:", "[rank1]:")) or "Error:" in line]
    own = [line for line in lines if line.startswith("The loss of step")]
    chosen = (own or [line for line in errors if "ChildFailedError" not in line] or lines or ["it said nothing"])[-1]
    return chosen.partition("]: ")[2] if chosen.startswith("[rank") else chosen


def end_marked(mark: str) -> None:
    """End every process that bears our mark in its environment, where they can be looked through."""
    needle = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue  # it has gone meanwhile, or is somebody else's
