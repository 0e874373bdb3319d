"""Questions off the window's thread: the newest is answered, stale ones are not, and nothing is lost in silence."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.views.ui.background import Background, WorkerFailure


class Gate:
    """Holds the worker inside a question until it is opened."""

    def __init__(self) -> None:
        self.inside, self.open = threading.Event(), threading.Event()

    def hold(self, answer: Any = None) -> Any:
        self.inside.set()
        assert self.open.wait(300)
        return answer


@pytest.fixture
def background(qtbot) -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def test_answer_comes_on_the_asking_thread(background: Background, qtbot) -> None:
    heard: list[tuple[Any, int]] = []
    background.ask(
        "a",
        threading.get_ident,
        on_answer=lambda answer: heard.append((answer, threading.get_ident())),
    )
    qtbot.waitUntil(lambda: bool(heard))
    ((worker, here),) = heard
    assert here == threading.get_ident() and worker != here


def test_only_the_newest_of_a_key_is_answered(
    background: Background, gate: Gate, qtbot
) -> None:
    """The one under way is dropped, those that waited were never asked."""
    asked: list[int] = []
    heard: list[Any] = []

    def question(number: int) -> int:
        asked.append(number)
        return number

    background.ask("a", gate.hold, "stale", on_answer=heard.append)
    assert gate.inside.wait(300)
    for number in range(500):
        background.ask("a", question, number, on_answer=heard.append)
    background.ask("b", question, -1, on_answer=heard.append)
    gate.open.set()
    qtbot.waitUntil(lambda: not background.busy)
    assert heard == [499, -1] and asked == [499, -1]


def test_keys_do_not_disturb_each_other(background: Background, qtbot) -> None:
    heard: dict[str, int] = {}
    for number in range(300):
        background.ask(
            f"key{number}",
            lambda n=number: n,
            on_answer=lambda n: heard.__setitem__(f"key{n}", n),
        )
    qtbot.waitUntil(lambda: len(heard) == 300)
    assert heard == {f"key{n}": n for n in range(300)}


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), MemoryError()]
)
def test_failure_goes_to_who_asked_and_the_worker_goes_on(
    background: Background, qtbot, error: BaseException
) -> None:
    def fail() -> None:
        raise error

    failures: list[WorkerFailure] = []
    heard: list[Any] = []
    background.ask("a", fail, on_answer=heard.append, on_error=failures.append)
    background.ask("b", lambda: 2, on_answer=heard.append)
    qtbot.waitUntil(lambda: heard == [2] and bool(failures))
    assert failures[0].error is error and "in fail" in failures[0].traceback


def test_a_failure_that_nobody_takes_is_raised_on_the_asking_thread(
    background: Background, qtbot, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[BaseException] = []
    monkeypatch.setattr(
        sys, "excepthook", lambda kind, error, trace: heard.append(error)
    )
    background.ask("a", lambda: 1 / 0, on_answer=lambda answer: None)
    with qtbot.captureExceptions() as captured:
        qtbot.waitUntil(lambda: not background.busy)
    raised = heard + [error for _, error, _ in captured]
    assert [type(error) for error in raised] == [ZeroDivisionError]


def test_a_stale_failure_is_dropped_as_a_stale_answer_is(
    background: Background, gate: Gate, qtbot
) -> None:
    def late() -> None:
        gate.hold()
        raise ValueError("stale")

    heard: list[Any] = []
    background.ask("a", late, on_answer=heard.append, on_error=heard.append)
    assert gate.inside.wait(300)
    background.ask("a", lambda: "new", on_answer=heard.append, on_error=heard.append)
    gate.open.set()
    qtbot.waitUntil(lambda: not background.busy)
    assert heard == ["new"]


def test_a_forgotten_question_is_not_answered(
    background: Background, gate: Gate, qtbot
) -> None:
    heard: list[Any] = []
    busy: list[bool] = []
    background.busy_changed.connect(busy.append)
    background.ask("a", gate.hold, 1, on_answer=heard.append)
    assert gate.inside.wait(300)
    background.ask(
        "b", lambda: pytest.fail("asked all the same"), on_answer=heard.append
    )
    background.forget("a")
    background.forget("b")
    background.forget("never asked")
    assert busy == [True, False] and not background.busy
    gate.open.set()
    background.ask("c", lambda: 3, on_answer=heard.append)
    qtbot.waitUntil(lambda: heard == [3])


def test_busy_is_told_once_each_way(background: Background, gate: Gate, qtbot) -> None:
    busy: list[bool] = []
    background.busy_changed.connect(busy.append)
    background.ask("a", gate.hold, on_answer=lambda answer: None)
    background.ask("b", lambda: 1, on_answer=lambda answer: None)
    background.ask("b", lambda: 2, on_answer=lambda answer: None)
    gate.open.set()
    qtbot.waitUntil(lambda: not background.busy)
    assert busy == [True, False]


def test_an_answer_may_ask_again(background: Background, qtbot) -> None:
    heard: list[int] = []

    def on_answer(number: int) -> None:
        heard.append(number)
        if number < 20:
            background.ask("a", lambda: number + 1, on_answer=on_answer)

    background.ask("a", lambda: 0, on_answer=on_answer)
    qtbot.waitUntil(lambda: len(heard) == 21)
    assert heard == list(range(21))


def test_closing_while_a_question_is_under_way(qtbot, gate: Gate) -> None:
    background = Background()
    heard: list[Any] = []
    background.ask("a", gate.hold, on_answer=heard.append, on_error=heard.append)
    background.ask("b", heard.append, "asked", on_answer=heard.append)
    assert gate.inside.wait(300)

    def open_once_closing() -> None:
        while not background._worker._leaving:
            threading.Event().wait(0.001)
        gate.open.set()

    threading.Thread(target=open_once_closing).start()
    background.close()
    assert not background.busy
    background.close()
    background.ask("c", heard.append, "asked", on_answer=heard.append)
    assert not background.busy
    qtbot.wait(1)
    assert heard == []
