"""A playback that is asked for by value: what it says, in what order, and that nothing of its graph stays."""

from __future__ import annotations

import os
import queue
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import STAGES, find_all
from app.autograd.errors import CaptureCancelledError
from app.autograd.playback.playback import Playback
from app.autograd.playback.steps import Breaks
from app.engine.client import Engine
from app.engine.protocol import EngineDiedError
from app.engine.requests.capture import CaptureRequest, InitialWeights
from app.engine.requests.findings import FindingsRequest, StopEarly
from app.engine.requests.measure import Measure
from app.engine.requests.playback import (
    Back,
    Command,
    Edit,
    Event,
    GradientInspected,
    GraphFreed,
    GraphHeld,
    InspectGradient,
    Leave,
    MovementEnded,
    Pause,
    Play,
    PlaybackRequest,
    RecordRequest,
    Seek,
    SetSpeed,
    Steps,
    Trouble,
    UndoEdit,
)
from app.engine.tasks.capture import batch_of
from app.engine.tasks.capture import capture as capture_task
from app.engine.tasks.playback import PlaybackSession
from tests.support.engines import asked, stop
from tests.support.training_jobs import job

PATIENCE = 300.0


@pytest.fixture(scope="module")
def request_() -> CaptureRequest:
    return CaptureRequest(job()).of_samples(4)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


class Playing:
    """A playback in an engine, or in this process without one, and what it has said."""

    def __init__(self, request: PlaybackRequest, engine: Engine | None) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.records: list[Any] = []
        if engine is not None:
            self.question = engine.ask(request, self.events.put)
            self.say: Callable[[Command], None] = self.question.send
            self.end: Callable[[], object] = lambda: self.question.result(PATIENCE)
            return
        session = PlaybackSession(
            request, self.events.put, lambda: batch_of(request.batch).hold()
        )
        thread = threading.Thread(target=session.run)
        thread.start()
        self.say, self.end = session.submit, partial(thread.join, PATIENCE)

    def until(self, kind: type, *commands: Command) -> Any:
        """Give commands, then wait for an event of a kind; steps on the way are kept as a window would."""
        for command in commands:
            self.say(command)
        while True:
            event = self.events.get(timeout=PATIENCE)
            if isinstance(event, Steps):
                self.records += event.records
            elif isinstance(event, Back):
                del self.records[event.position :]
            if isinstance(event, kind):
                return event


@pytest.fixture
def play(request_: CaptureRequest, engine: Engine) -> Iterator[Callable[..., Playing]]:
    made: list[Playing] = []

    def begin(here: bool = False, **more: Any) -> Playing:
        made.append(
            Playing(PlaybackRequest(request_, **more), None if here else engine)
        )
        return made[-1]

    yield begin
    for one in made:
        one.say(Leave())
        with suppress(EngineDiedError):
            one.end()


def test_its_steps_are_those_of_a_recorded_pass_forth_and_back(
    play, request_, engine
) -> None:
    recorded = engine.ask(RecordRequest(request_)).result(PATIENCE)
    playing = play(expected=recorded.tape)
    kept = playing.until(GraphHeld)
    assert kept.same and kept.tape is None, (
        "the tape that is there already is not sent again"
    )
    stood = playing.until(MovementEnded, Play(Breaks()))
    assert stood.stop.reason == "end" and not recorded.stopped
    norms = [one.norm for one in recorded.steps.records]
    assert [one.norm for one in playing.records] == norms
    assert (
        playing.until(MovementEnded, Seek(3)).stop.position == 3
        and len(playing.records) == 3
    )
    assert playing.until(MovementEnded, Play(Breaks())).stop.reason == "end"
    assert [one.norm for one in playing.records] == norms


def test_an_edit_holds_until_it_is_undone_and_a_look_shows_it(play) -> None:
    playing = play()
    assert not playing.until(GraphHeld).same, "no tape was expected"
    stood = playing.until(MovementEnded, Seek(2))
    looked = playing.until(GradientInspected, InspectGradient(stood.stop.node, 0)).look
    edited = playing.until(MovementEnded, Edit(stood.stop.node, 0, "scale", 2.0))
    assert edited.turn == -1 and edited.edits == ((2, stood.stop.node, 0),)
    assert edited.arriving[0].norm == pytest.approx(2 * looked.stats.norm)
    assert (
        playing.until(MovementEnded, UndoEdit()).arriving[0].norm == looked.stats.norm
    )
    trouble = playing.until(Trouble, Edit(0, 0, "ones"))
    assert "has run already" in trouble.reason and not trouble.traceback


def test_a_pause_ends_a_slow_movement_and_a_newer_one_ends_an_older(play) -> None:
    playing = play(speed=0.01)
    playing.until(GraphHeld)
    playing.say(Play(Breaks()))
    assert playing.until(Steps), "a step is told though no other follows for long"
    stood = playing.until(MovementEnded, Pause())
    assert stood.stop.reason == "cancelled" and stood.turn == 1
    playing.say(SetSpeed(None))
    playing.say(Seek(1))
    assert playing.until(MovementEnded, Seek(4)).turn in (3, 4)


def test_nothing_of_its_graph_stays(play, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[weakref.ref[Any]] = []
    hold = TrainingBatch.hold

    def watched(self: TrainingBatch, *given: Any, **more: Any) -> Any:
        graph = hold(self, *given, **more)
        seen.extend(
            map(
                weakref.ref,
                (graph, graph.model, *graph.ends, *graph.model.parameters()),
            )
        )
        return graph

    monkeypatch.setattr(TrainingBatch, "hold", watched)
    playing = play(here=True)
    playing.until(MovementEnded, Play(Breaks()))
    assert any(one() is not None for one in seen)
    assert playing.until(GraphFreed, Leave()).alive == 0
    playing.end()
    assert seen and all(one() is None for one in seen)


NEVER = 10**9  # operations, more than any pass has


def test_a_cancelled_capture_computes_no_further_operation(request_) -> None:
    def operations(at: int) -> int:
        """Cancel at an operation of the forward pass; how many began."""
        begun: list[int] = []
        context = SimpleNamespace(cancelled=lambda: begun.append(1) or len(begun) >= at)
        with pytest.raises(CaptureCancelledError) if at < NEVER else nullcontext():
            capture_task(request_, context)
        return len(begun)

    assert operations(2) < operations(NEVER)


def test_a_fault_is_told_with_its_traceback(
    play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Playback) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(Playback, "step", broken)
    trouble = play(here=True).until(Trouble, Seek(1))
    assert (
        "KeyError" in trouble.traceback
        and trouble.title == "The backward pass cannot be played"
    )


def test_a_forward_pass_that_fails_is_told_and_it_ends(engine, request_) -> None:
    failing = replace(
        request_, options=replace(request_.options, checkpoint=("nowhere",))
    )
    playing = Playing(PlaybackRequest(failing), engine)
    assert playing.until(Trouble).title == "Forward pass failed"
    playing.end()


def test_a_killed_engine_takes_the_graph_along_and_another_is_asked(
    engine, play
) -> None:
    playing = play()
    playing.until(MovementEnded, Seek(2))
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="SIGKILL"):
        playing.end()
    assert play().until(MovementEnded, Seek(2)).stop.position == 2


def test_a_capture_asked_again_has_the_same_batch_and_the_same_weights(
    engine, request_
) -> None:
    first = engine.ask(request_).result(PATIENCE)
    assert (
        first.weights.startswith("weights untrained")
        and first.batch.weights == InitialWeights()
    )
    assert (
        engine.ask(first.batch).result(PATIENCE).tape
        == first.tape
        == batch_of(request_).capture()
    )


def test_findings_come_as_they_are_in_this_process(engine, request_) -> None:
    said: list[Any] = []
    found = engine.ask(FindingsRequest(request_), said.append).result(PATIENCE)
    assert found == find_all(batch_of(request_)) and len(said) == len(STAGES)


def test_findings_that_are_to_stop_early_are_an_answer_without_the_rest(
    engine, request_
) -> None:
    """The engine stands until all is in its pipe: else it might be done with everything before it is to stop."""
    engine.ask(Measure()).result(PATIENCE)
    stop(engine.pid)
    try:
        question = engine.ask(FindingsRequest(request_))
        question.send(StopEarly())
        last = engine.ask(Measure())
        while not asked(engine, Measure):  # sent one after the other
            pass
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    assert (
        last.result(PATIENCE)
        and question.result(PATIENCE).cancelled
        and question.result().paths is None
    )
