"""A playback that is asked for by value: what it says, in what order, and that nothing of its graph stays."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.autograd.batch import TrainingBatch
from app.autograd.playback.playback import Playback
from app.autograd.playback.steps import Breaks
from app.engine.requests.capture import CaptureRequest
from app.engine.requests.playback import (
    Back,
    Command,
    Edit,
    Event,
    Kept,
    Leave,
    LetGo,
    Look,
    Looked,
    Pause,
    Play,
    PlaybackRequest,
    RecordRequest,
    Seek,
    SetSpeed,
    Steps,
    Stood,
    Trouble,
    UndoEdit,
)
from app.engine.tasks.capture import captured
from app.engine.tasks.playback import PlaybackSession, record
from tests.support.training_jobs import job


@pytest.fixture(scope="module")
def request_() -> CaptureRequest:
    return CaptureRequest(job()).of_samples(4)


class Playing:
    """A session on a thread of its own, and what it has said."""

    def __init__(self, request: PlaybackRequest) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.session = PlaybackSession(request, self.events.put)
        self.thread = threading.Thread(target=self.session.run)
        self.records: list[Any] = []
        self.thread.start()

    def until(self, kind: type, *commands: Command) -> Any:
        """Give commands, then wait for an event of a kind; steps on the way are kept as a window would."""
        for command in commands:
            self.session.ask(command)
        while True:
            event = self.events.get(timeout=60)
            if isinstance(event, Steps):
                self.records += event.records
            elif isinstance(event, Back):
                del self.records[event.position :]
            if isinstance(event, kind):
                return event


@pytest.fixture
def play(request_: CaptureRequest) -> Iterator[Callable[..., Playing]]:
    made: list[Playing] = []

    def begin(**more: Any) -> Playing:
        made.append(Playing(PlaybackRequest(request_, **more)))
        return made[-1]

    yield begin
    for one in made:
        one.session.ask(Leave())
        one.thread.join(60)


def test_its_steps_are_those_of_a_recorded_pass_forth_and_back(play, request_) -> None:
    recorded = record(RecordRequest(request_))
    playing = play(expected=recorded.tape)
    kept = playing.until(Kept)
    assert kept.same and kept.tape is None, "the tape that is there already is not sent again"
    stood = playing.until(Stood, Play(Breaks()))
    assert stood.stop.reason == "end" and not recorded.stopped
    norms = [one.norm for one in recorded.passed.records]
    assert [one.norm for one in playing.records] == norms
    assert playing.until(Stood, Seek(3)).stop.position == 3 and len(playing.records) == 3
    assert playing.until(Stood, Play(Breaks())).stop.reason == "end"
    assert [one.norm for one in playing.records] == norms


def test_an_edit_holds_until_it_is_undone_and_a_look_shows_it(play) -> None:
    playing = play()
    assert not playing.until(Kept).same, "no tape was expected"
    stood = playing.until(Stood, Seek(2))
    looked = playing.until(Looked, Look(stood.stop.node, 0)).look
    edited = playing.until(Stood, Edit(stood.stop.node, 0, "scale", 2.0))
    assert edited.turn == -1 and edited.edits == ((2, stood.stop.node, 0),)
    assert edited.arriving[0].norm == pytest.approx(2 * looked.stats.norm)
    assert playing.until(Stood, UndoEdit()).arriving[0].norm == looked.stats.norm
    trouble = playing.until(Trouble, Edit(0, 0, "ones"))
    assert "has run already" in trouble.reason and not trouble.traceback


def test_a_pause_ends_a_slow_movement_and_a_newer_one_ends_an_older(play) -> None:
    playing = play(speed=0.01)
    playing.until(Kept)
    playing.session.ask(Play(Breaks()))
    assert playing.until(Steps), "a step is told though no other follows for long"
    stood = playing.until(Stood, Pause())
    assert stood.stop.reason == "cancelled" and stood.turn == 1
    playing.session.ask(SetSpeed(None))
    playing.session.ask(Seek(1))
    assert playing.until(Stood, Seek(4)).turn in (3, 4)


def test_nothing_of_its_graph_stays(play, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[weakref.ref[Any]] = []
    hold = TrainingBatch.hold

    def watched(self: TrainingBatch, *given: Any, **more: Any) -> Any:
        graph = hold(self, *given, **more)
        seen.extend(map(weakref.ref, (graph, graph.model, *graph.ends, *graph.model.parameters())))
        return graph

    monkeypatch.setattr(TrainingBatch, "hold", watched)
    playing = play()
    playing.until(Stood, Play(Breaks()))
    assert any(one() is not None for one in seen)
    assert playing.until(LetGo, Leave()).alive == 0
    playing.thread.join(60)
    assert seen and all(one() is None for one in seen)


def test_a_fault_is_told_with_its_traceback(play, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Playback) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(Playback, "step", broken)
    trouble = play().until(Trouble, Seek(1))
    assert "KeyError" in trouble.traceback and trouble.title == "The backward pass cannot be played"


def test_a_forward_pass_that_fails_is_told(play, request_) -> None:
    failing = replace(request_, options=replace(request_.options, checkpoint=("nowhere",)))
    playing = Playing(PlaybackRequest(failing))
    assert playing.until(Trouble).title == "Forward pass failed"
    playing.thread.join(60)


def test_a_capture_asked_again_has_the_same_batch_and_the_same_weights(request_) -> None:
    first = captured(request_)
    assert captured(first.request).tape == first.tape and first.weights == "weights untrained, drawn with seed 0"
