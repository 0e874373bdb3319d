"""Lanes of an engine: one question after another, but none waits for what was cancelled and may be overtaken."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from app.engine import server as server_module
from app.engine.protocol import Ask, Cancel, Request
from app.engine.server import Context, Server

PATIENCE = 300.0


class Slow(Request[int], frozen=True):
    lane: ClassVar[str] = "slow"
    overtaken: ClassVar[bool] = True
    number: int


class Lane:
    """A server that is asked slow questions, each of which ends when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = [threading.Event() for _ in range(6)]
        self.may_end = [threading.Event() for _ in range(6)]
        self.answers = threading.Semaphore(0)
        monkeypatch.setitem(server_module._HANDLERS, Slow, self._handle)
        channel: Any = SimpleNamespace(send=lambda _message: self.answers.release())
        self.server = Server(channel)
        plain: Any = SimpleNamespace(
            lock=threading.RLock(),
            encode=lambda value: (0, value),
            decode=lambda _generation, body: body,
        )
        self.server._codec = plain

    def _handle(self, request: Slow, _context: Context) -> int:
        self.begun[request.number].set()
        assert self.may_end[request.number].wait(PATIENCE)
        return request.number

    def ask(self, number: int) -> None:
        self.server._receive(Ask(number, Slow.lane, 0, Slow(number)))


def test_a_playback_let_go_in_a_long_step_does_not_delay_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = Lane(monkeypatch)
    lane.ask(0)
    assert lane.begun[0].wait(PATIENCE)
    lane.ask(1)
    lane.server._receive(Cancel(0))
    assert lane.begun[1].wait(PATIENCE)  # while the first is amid its step
    lane.server._receive(Cancel(0))  # twice is once
    lane.ask(2)
    lane.may_end[0].set()
    assert lane.answers.acquire(timeout=PATIENCE)
    assert not lane.begun[
        2
    ].is_set()  # one after another, as before: its thread did not go on with the lane
    lane.may_end[1].set()
    assert lane.begun[2].wait(PATIENCE)
    lane.may_end[2].set()


def test_what_was_cancelled_before_it_began_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = Lane(monkeypatch)
    lane.ask(0)
    assert lane.begun[0].wait(PATIENCE)
    lane.ask(1)
    lane.ask(2)
    lane.server._receive(Cancel(1))
    lane.may_end[0].set()
    assert lane.begun[2].wait(PATIENCE)
    assert not lane.begun[1].is_set()
    lane.may_end[2].set()
