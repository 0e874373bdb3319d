"""Capture the next backward of a script, which is paused before it while its graph is inspected and played.

A capture that is asked for waits for the next call of `backward`, or for the first of a later step, and has layers and
lines recorded until then. The script pauses there: the thread that called answers as an engine over a connection of the
command socket, and another reads commands meanwhile. It continues on command, and when the client that asked closes a
connection, or hangs.
"""

from __future__ import annotations

import os
import queue
import random
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tapedeck import devices, frames, models, program, ranks
from tapedeck.commands import SILENCE, Client

if TYPE_CHECKING:
    from tapedeck.actions import Actions
    from tapedeck.watcher import Watcher

LOOK_EVERY = (
    0.05  # seconds between two looks, for a resume command while the script is paused
)
OVERTAKEN = "Replaced by another capture."
ENDED = "The script ended before it called backward again."


class Capturing:
    """Captures of one script, one at a time. `armed` while one waits for the next backward, `later` while one waits for
    the end of a step, `standing` while the script is paused there.
    """

    def __init__(self, watcher: Watcher, actions: Actions) -> None:
        self._watcher, self._actions = watcher, actions
        self._asker: tuple[Client, Any] | None = (
            None  # who waits, and the number of the command
        )
        self._later: tuple[int, Client, Any] | None = (
            None  # the step to wait for, the client, and its command
        )
        self._compiles = False  # torch.compile was called
        self._recorder: Any = None
        self._connections: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        self._server: Any = None
        self._connected = False
        self._released = threading.Event()
        self.standing = False

    @property
    def armed(self) -> bool:
        return self._asker is not None

    @property
    def later(self) -> bool:
        return self._later is not None

    # -- commands -----------------------------------------------------------------------------------------------------

    def ask(self, client: Client, number: Any, step: int | None = None) -> None:
        """Have the next backward captured, or the first one of a `step`; a paused script is resumed first.

        Raises RuntimeError.
        """
        current_step = self._watcher.step
        if step is not None and step <= current_step + self.standing:
            raise RuntimeError(
                f"Step {step} is over: the script has taken {current_step}."
            )
        if step is not None and step > current_step + 1:
            self.cancel(OVERTAKEN)
            self._later = step - 1, client, number
            self._watcher.settle()  # each later step is measured
        else:
            if not self.standing:
                self._record()
            self._refuse(OVERTAKEN)
            self._asker = client, number
        self.release()

    def after_step(self, step: int) -> None:
        """Arm the capture that was scheduled after this step."""
        if self._later is None or step < self._later[0]:
            return
        _, client, number = self._later
        self._later = None
        try:
            self.ask(client, number)
        except RuntimeError as error:
            client.answer(number, error=str(error))

    def connect(self, client: Client, number: Any) -> None:
        """Make the connection of a client one to the engine. Raises RuntimeError if none is needed."""
        if not self.standing or self._connected:
            raise RuntimeError(
                "The script is not paused before a backward pass."
                if not self.standing
                else "Another client is connected."
            )
        self._connected = True
        client.answer(number, ok=True)
        self._connections.put(self._actions.listening.detach(client))

    def release(self) -> None:
        """Resume a paused script."""
        self._released.set()
        self._connections.put(None)
        server = self._server
        if server is not None:
            server.leave()

    def ended(self) -> None:
        """Tell who waits that the script has ended."""
        later = self._later
        message = (
            f"The script ended after step {self._watcher.step}, before step {later[0] + 1}."
            if later
            else ENDED
        )
        self.cancel(message)

    def cancel(self, message: str) -> None:
        """Wait for the next backward no more."""
        self._refuse(message)
        self.end_recording()

    def _refuse(self, message: str) -> None:
        asker, self._asker = self._asker or (self._later and self._later[1:]), None
        self._later = None
        if asker is not None:
            asker[0].answer(asker[1], error=message)

    def drop_orphan(self) -> None:
        """Forget a capture whose asker is gone."""
        asker = self._asker or (self._later and self._later[1:])
        if asker is not None and not asker[0].open:
            self.cancel("")

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(self) -> None:
        """Start recording layers and lines. Raises RuntimeError."""
        if self._recorder is not None:
            self._recorder.end()
        if self._recorder is None or self._recorder.known != frozenset(
            self._watcher.models
        ):
            self._recorder = self._made_recorder()
        self._recorder.begin()

    def _made_recorder(self) -> Any:
        try:
            program.module("engine.tasks.playback")
            program.module("engine.watched.step_server")
            recorder_class = program.module("autograd.step_graph").StepRecorder
        except Exception as error:  # another Python, or packages that are not there
            raise RuntimeError(
                f"The program cannot be imported by the script's Python, {sys.executable}: {type(error).__name__}: "
                f"{error}. Install tapedeck-torch there."
            ) from error
        watched_models = self._watcher.models
        wrappers = {
            id(wrapper)
            for model in watched_models.values()
            for wrapper in models.wrappers_of(model)
        }
        compiled = (
            self._compiles
            or any(map(models.is_compiled, watched_models.values()))
            or _anything_compiled()
        )
        inner = {
            name: models.unwrapped(model) for name, model in watched_models.items()
        }
        return recorder_class(inner, wrappers, models.variable_of, compiled)

    def compiles(self) -> None:
        """Stop recording layers and lines: something is compiled, and would be compiled for the recording."""
        self._compiles = True
        if self._recorder is not None:
            self._recorder.end()
            self._recorder.compiled = True

    def end_recording(self) -> None:
        """Remove the recorder."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.end()

    # -- paused -------------------------------------------------------------------------------------------------------

    def stand(self, tensors: Any, gradients: Any, notes: list[str]) -> float:
        """Hold the graph below `tensors` until it is released; return the seconds that took."""
        began, asker, recorder = perf_counter(), self._asker, self._recorder
        assert asker is not None
        client, number = asker
        self._asker = None
        recorder.end()
        try:
            with torch.no_grad():
                graph = program.module("autograd.step_graph").StepGraph(
                    tensors, gradients, recorder, self._name_of, notes
                )
        except Exception as error:  # the script's own backward may do what this cannot
            self.end_recording()
            client.answer(number, error=f"This backward cannot be captured: {error}")
            return perf_counter() - began
        self._released.clear()
        self._connections, self._connected, self.standing = (
            queue.SimpleQueue(),
            False,
            True,
        )
        file, step = self._watcher.file, self._watcher.step
        file.tell(frames.Paused(1, step))
        client.answer(
            number,
            ok=True,
            step=step + 1,
            script=os.path.basename(sys.argv[0]),
            notes=list(graph.notes),
        )
        attending = threading.Thread(
            target=self._attend, args=(client,), name="tapedeck: commands", daemon=True
        )
        attending.start()
        try:
            with _as_it_was():
                self._serve(graph)
        finally:
            self.release()
            attending.join()
            with suppress(Exception):
                self._actions.do_all(
                    0.0
                )  # another capture may have been asked for just before it resumed
            self.standing, self._server = False, None
            file.tell(frames.Resumed(1, step))
        if self.armed:
            self._record()  # what was recorded before is of the next graph too, where it was run already
        else:
            self.end_recording()
        return perf_counter() - began

    def _serve(self, graph: Any) -> None:
        connection = self._connections.get()
        if connection is None:
            return
        self._server = program.module("engine.watched.step_server").StepServer(
            connection, graph
        )
        if not self._released.is_set():
            self._server.serve()

    def _attend(self, client: Client) -> None:
        """Handle commands while the script is paused, and check that its client is still connected."""
        began = monotonic()
        with suppress(Exception):  # an error of ours resumes the script
            patience = ranks.patience()
            while not self._released.is_set():
                self._actions.do_all(LOOK_EVERY)
                now = monotonic()
                late = not self._connected and now - began > SILENCE
                if late or not client.open or now - client.heard > SILENCE:
                    break
                if now - began > patience:
                    self._watcher.say(ranks.went_on())
                    break
        self.release()

    def _name_of(self, parameter: Tensor) -> str:
        """Return the name of a parameter that belongs to no model."""
        several = len(self._watcher.states) > 1
        for state in self._watcher.states.values():
            for index, candidate in enumerate(
                state.layers.parameters if state.layers is not None else ()
            ):
                if candidate is parameter:
                    return (
                        models.variable_of(parameter)
                        or f"{state.name} " * several + f"parameter {index}"
                    )
        return models.variable_of(parameter)


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Restore the random generators afterwards: playing may draw random numbers, as a Function of the script can."""
    plain, cpu = random.getstate(), torch.get_rng_state()
    states = devices.rng_states()
    numpy: Any = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy is not None else None
    if kind := devices.accelerator_in_use():
        devices.synchronize(kind)
    try:
        yield
    finally:
        random.setstate(plain)
        torch.set_rng_state(cpu)
        devices.set_rng_states(states)
        if state is not None:
            numpy.random.set_state(state)


def _anything_compiled() -> bool:
    """Return whether torch.compile has compiled anything in this process: a dispatch mode would recompile it."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"].get("total"))


def notes_of(
    scale: float, inputs: Any, parameters: list[Tensor], averaged: bool
) -> list[str]:
    """Say in which way the gradients of a backward are not simply what its `.grad` will hold; `averaged` are those of
    DistributedDataParallel.
    """
    notes = []
    if scale != 1.0:
        notes.append(
            f"the loss is scaled by {scale:,.6g} for AMP, and so is every gradient"
        )
    notes += ranks.notes(averaged)
    if inputs is not None:
        notes.append("the script requests only some of these gradients")
    elif any(parameter.grad is not None for parameter in parameters):
        notes.append("the script adds these gradients to those of an earlier backward")
    return notes
