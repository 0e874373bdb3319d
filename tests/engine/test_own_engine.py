"""An engine of one process for one question: it is not started again, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from app.autograd.tape import TapeNode
from app.builder.catalog.catalog import catalog
from app.engine import pool
from app.engine import values as values_module
from app.engine.own_engine import OwnEngine
from app.engine.protocol import EngineDiedError
from app.engine.requests.measure import Measure
from app.engine.requests.shapes import InferShapes
from app.engine.values import Codec
from tests.engine.test_engine import stop
from tests.support.builder_nets import net

PATIENCE = 300.0


@pytest.fixture
def engine() -> Iterator[OwnEngine]:
    engine = OwnEngine(partial(pool.start, "engine"))
    yield engine
    engine.close()


def test_it_answers_and_is_gone_when_it_is_closed(engine: OwnEngine) -> None:
    assert engine.ask(Measure()).result(PATIENCE).pid == engine.child.pid
    engine.close()
    assert engine.child.poll() == 0
    with pytest.raises(EngineDiedError):
        engine.ask(Measure()).result(PATIENCE)


def test_one_that_ended_is_not_started_again_and_says_how_it_ended(
    engine: OwnEngine,
) -> None:
    engine.ask(Measure()).result(PATIENCE)
    stop(engine.child.pid)
    open_question = engine.ask(Measure())
    os.kill(engine.child.pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="SIGKILL"):
        open_question.result(PATIENCE)
    assert "SIGKILL" in engine.how_it_ended()
    with pytest.raises(EngineDiedError, match="SIGKILL"):
        engine.ask(Measure()).result(PATIENCE)


def test_one_that_hangs_amid_a_question_is_ended_when_it_is_closed(
    engine: OwnEngine,
) -> None:
    engine.ask(Measure()).result(PATIENCE)
    stop(engine.child.pid)
    question = engine.ask(Measure())
    while not engine._own.open:
        pass
    engine.close()
    assert question.done() and engine.child.poll() == -signal.SIGKILL


def test_what_is_remembered_of_what_was_sent_is_bounded_when_the_other_end_alone_sends() -> (
    None
):
    here, there = Codec(0), Codec(1)
    for number in range(50):
        value = tuple(f"{number} {each}" for each in range(20_000))
        assert here.decode(*there.encode(value)) == value
        if here.full:
            there.renewed(here.renewed())
        assert max(here._table.weight, there._table.weight) <= values_module.MOST + len(
            value
        )
    late = there.encode(("before", *range(100)))
    there.renewed(here.renewed())
    assert here.decode(*late)[0] == "before"  # it was under way


def test_nodes_of_graphs_count_for_what_they_hold_so_that_a_hundred_captures_are_not_all_kept() -> (
    None
):
    here, there = Codec(0), Codec(1)
    most = 0
    for number in range(100):
        nodes = tuple(TapeNode(each, f"Node{number}") for each in range(1000))
        assert here.decode(*there.encode(nodes)) == nodes
        if here.full:
            there.renewed(here.renewed())
        most = max(
            most,
            sum(isinstance(value, tuple) for value in here._table.objects.values()),
        )
    assert most < 25


def test_an_engine_that_only_answers_forgets_with_who_asks(
    monkeypatch: pytest.MonkeyPatch, engine: OwnEngine
) -> None:
    monkeypatch.setattr(values_module, "MOST", 3)
    graph = net(
        [
            ("input", "x", {"shape": (4,)}),
            ("nn.Linear", "linear", {}),
            ("output", "out", {}),
        ]
    )
    codec, renewed = engine._own.codec, threading.Event()
    plain = codec.renewed

    def noted(generation: int | None = None) -> int:
        if generation is None:
            renewed.set()
        return plain(generation)

    monkeypatch.setattr(codec, "renewed", noted)
    before = engine.ask(InferShapes(graph, catalog(), ())).result(PATIENCE)
    assert renewed.wait(PATIENCE)  # without another question
    after = engine.ask(InferShapes(graph, catalog(), (), before)).result(PATIENCE)
    assert after.values == before.values and after.graph is graph


def test_what_arrives_is_read_while_something_waits_to_be_sent() -> None:
    """Both ends would wait for each other if each read only once the other had read."""
    here, there = Codec(0), Codec(1)
    sent = there.encode(tuple(range(100)))
    with here.lock:  # somebody sends, into a pipe that is full
        reader = threading.Thread(target=here.decode, args=sent, daemon=True)
        reader.start()
        reader.join(PATIENCE)
        assert not reader.is_alive()
