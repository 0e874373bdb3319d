"""An engine answers from a process of its own, is started again when it ends, and sends of a graph what changed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import defstruct
from msgspec.structs import replace

from app.builder.analysis import analyse, shapes_first
from app.builder.catalog import custom
from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph
from app.builder.literals import AUTO, DType, Slice
from app.engine import client as engine_client
from app.engine import values
from app.engine.channel import ChannelError
from app.engine.client import Engine, traceback_of
from app.engine.protocol import EngineDiedError, Handle, HandleLostError
from app.engine.requests.capture import HeldStep
from app.engine.requests.measure import Measure
from app.engine.requests.shapes import InferShapes
from app.engine.values import Codec, NotAValueError
from app.training.events import LossParts, StepDone
from app.util.frozen import FrozenMap
from tests.support.builder_nets import net
from tests.support.engines import asked, stop

PATIENCE = 300.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def lenet() -> Graph:
    return net(
        [
            ("input", "x", {"shape": (1, 28, 28)}),
            ("nn.Conv2d", "conv", {"out_channels": 8, "kernel_size": 3}),
            ("nn.ReLU", "relu", {}),
            ("nn.Flatten", "flatten", {}),
            ("nn.Linear", "linear", {"out_features": 10}),
            ("output", "out", {}),
        ]
    )


def test_shapes_of_an_engine_are_those_of_this_process(engine: Engine) -> None:
    graph = lenet()
    answer = engine.ask(InferShapes(graph, catalog(), ())).result(PATIENCE)
    here = shapes_first(graph)
    assert answer.graph is graph and answer.walk.catalog is not None
    assert (answer.values, answer.resolved, answer.parameters) == (
        here.values,
        here.resolved,
        here.parameters,
    )
    assert answer.results == here.results and answer.problems == here.problems


def test_an_edit_sends_what_it_changed(engine: Engine) -> None:
    ops, graph, codec = catalog(), lenet(), Codec(0)
    first = len(str(codec.encode(InferShapes(graph, ops, ()))))
    edited = graph.with_param(list(graph.nodes)[4], "out_features", 12)
    assert len(str(codec.encode(InferShapes(edited, ops, ())))) < first / 2
    before = engine.ask(InferShapes(graph, ops, ())).result(PATIENCE)
    after = engine.ask(InferShapes(edited, ops, (), before)).result(PATIENCE)
    assert after.values == shapes_first(edited).values
    untouched = [
        node
        for node, result in after.results.items()
        if result is before.results.get(node)
    ]
    assert len(untouched) == 4  # what the edit did not reach is the very same object


def test_a_long_container_travels_as_what_differs_from_the_one_before() -> None:
    here, there = Codec(0), Codec(1)

    def received(value: Any) -> tuple[Any, int]:
        generation, data = here.encode(value)
        return there.decode(generation, data), len(str(data))

    names = [f"name {n}" for n in range(100)]
    for first, second in (
        (tuple(names), ("other", *names[1:])),
        (dict.fromkeys(names, 1), {**dict.fromkeys(names, 1), names[50]: 2.5}),
        (
            FrozenMap(dict.fromkeys(names, 1)),
            FrozenMap({**dict.fromkeys(names, 1), names[50]: "ü"}),
        ),
        (frozenset(names), frozenset(names[1:])),
    ):
        (one, whole), (other, part) = received(first), received(second)
        assert (one, other) == (first, second) and type(other) is type(second)
        assert isinstance(other, frozenset) or list(other) == list(
            second
        )  # in that order
        assert part < whole / 10
        again, nothing = received(type(second)(second))
        assert again == second and nothing < 40
    reordered = dict(reversed(dict.fromkeys(names, 1).items()))
    assert list(received(reordered)[0].items()) == list(reordered.items())


def test_an_engine_that_is_killed_is_said_and_started_again(engine: Engine) -> None:
    said: list[str] = []
    heard = threading.Event()
    engine.listen(lambda words: (said.append(words), heard.set()))
    first = engine.ask(Measure()).result(PATIENCE).pid
    os.kill(first, signal.SIGKILL)
    assert heard.wait(PATIENCE)
    assert "SIGKILL" in said[0] and said[0].count(".") == 1
    assert engine.ask(Measure()).result(PATIENCE).pid != first
    answer = engine.ask(InferShapes(lenet(), catalog(), ())).result(PATIENCE)
    assert answer.values == shapes_first(lenet()).values


def test_what_was_asked_of_an_engine_that_dies_fails_with_how_it_ended(
    engine: Engine,
) -> None:
    pid = engine.ask(Measure()).result(PATIENCE).pid
    stop(pid)  # so that the question is still open when the process ends
    question = engine.ask(Measure())
    while not asked(engine, Measure):
        pass
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="SIGKILL"):
        question.result(PATIENCE)


def test_an_engine_that_is_stopped_from_outside_is_ended_and_started_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "STOPPED", 0.2)
    monkeypatch.setattr(engine_client, "CHECK_INTERVAL", 0.05)
    pid = engine.ask(Measure()).result(PATIENCE).pid
    stop(pid)
    with pytest.raises(EngineDiedError, match="SIGSTOP"):
        engine.ask(Measure()).result(PATIENCE)
    assert engine.ask(Measure()).result(PATIENCE).pid != pid


def test_a_question_larger_than_the_pipe_does_not_hide_a_stopped_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_client, "STOPPED", 0.2)
    monkeypatch.setattr(engine_client, "CHECK_INTERVAL", 0.05)
    engine = Engine()
    try:
        stop(engine.ask(Measure()).result(PATIENCE).pid)
        long = net([("input", "x" * 300_000, {"shape": (4,)})])
        with pytest.raises(EngineDiedError, match="SIGSTOP"):
            engine.ask(InferShapes(long, catalog(), ())).result(PATIENCE)
        assert engine.ask(Measure()).result(PATIENCE).pid
    finally:
        engine.close()


def test_an_engine_that_grew_and_keeps_nothing_is_replaced_between_two_questions(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    engine.listen(said.append)
    first = engine.ask(Measure()).result(PATIENCE).pid
    monkeypatch.setattr(engine_client, "GROWTH", -(1 << 40))
    assert engine.ask(Measure()).result(PATIENCE).pid != first
    assert said == []


def test_what_a_handle_names_is_gone_with_its_engine(engine: Engine) -> None:
    with pytest.raises(HandleLostError, match="gone"):
        engine.ask(HeldStep(Handle(1, -1), "script", 1)).result(PATIENCE)


def test_an_error_of_a_task_comes_with_its_traceback(engine: Engine) -> None:
    with pytest.raises(Exception) as caught:
        engine.ask(InferShapes(None, catalog(), ())).result(PATIENCE)  # type: ignore[arg-type]
    assert "shapes_first" in traceback_of(caught.value)
    assert "shapes_first" in "".join(traceback.format_exception(caught.value))


def test_what_no_message_can_hold_is_said_and_the_next_question_answered(
    engine: Engine,
) -> None:
    pid, name = engine.ask(Measure()).result(PATIENCE).pid, "layer \ud800"
    custom.set_reasons({name: "It is not there."})
    try:
        with pytest.raises(ChannelError, match="cannot be sent: .*surrogates"):
            engine.ask(Measure()).result(PATIENCE)
    finally:
        custom.set_reasons({})
    assert engine.ask(Measure()).result(PATIENCE).pid == pid


def test_a_question_that_nobody_waits_for_any_more_is_cancelled(engine: Engine) -> None:
    question = engine.ask(InferShapes(lenet(), catalog(), ()))
    question.stop()
    assert question.done()
    assert engine.ask(Measure()).result(PATIENCE).kept == 0


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.sampled_from([AUTO, ..., DType("float32"), Slice(1, None), 3 + 4j]),
    lambda inner: (
        st.tuples(inner, inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(), inner).map(FrozenMap)
        | st.frozensets(st.integers())
    ),
    max_leaves=80,
)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_every_value_arrives_as_it_was_sent(values: list[object]) -> None:
    here, there = Codec(0), Codec(1)
    for value in [*values, *values]:
        sent = there.decode(*here.encode(value))
        assert sent == value and type(sent) is type(value)
        assert here.decode(*there.encode(sent)) == value


def test_texts_with_half_a_character_arrive_in_errors_and_in_structs_too() -> None:
    here, there = Codec(1), Codec(0)
    half, notes = (
        "\ud800",
        tuple(LossParts(1, step, ("\udc80" * step,), (0.5,)) for step in range(3)),
    )
    for value in (notes, Path(half)):
        generation, body = here.encode(value)
        assert (
            there.decode(
                generation, msgspec.msgpack.decode(msgspec.msgpack.encode(body))
            )
            == value
        )
    for error in (HandleLostError(half), OSError(half)):
        assert str(there.decode(*here.encode(error))) == half


def test_events_of_a_run_are_not_remembered_for_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(values, "MOST", 1_000)
    here, there = Codec(0), Codec(1)
    for start in range(0, 100_000, 1_000):
        events = tuple(
            StepDone(1, step, 0.5, 8, 0.1, 0.1) for step in range(start, start + 1_000)
        )
        assert there.decode(*here.encode(events)) == events
    assert not here.full and not there.full


def test_an_analysis_arrives_whole() -> None:
    here, there = Codec(0), Codec(1)
    analysis = analyse(lenet())
    again = there.decode(*here.encode(analysis))
    assert (
        again == analysis
        and again.results == analysis.results
        and again.walk == analysis.walk
    )
    assert (
        here.decode(*there.encode(replace(again, milliseconds=0.0))).graph
        is analysis.graph
    )


def test_arrays_arrive_bit_for_bit() -> None:
    array = np.array([[np.nan, -0.0], [np.inf, 5e-324]])
    again = Codec(1).decode(*Codec(0).encode(array))
    assert again.tobytes() == array.tobytes() and again.shape == (2, 2)


@pytest.mark.parametrize(
    "data",
    [
        ["is", "os:system", "true"],
        ["is", "source.layer_files:subprocess", 1],
        ["is", "builder.graph:GraphError"],
        ["ref", 12],
        ["array", "O", [1], b"12345678"],
        ["nothing"],
        ["error", "builtins:SystemExit", [], {}],
        ["error", "builder.graph:Node", [], {}],
        ["is", "engine.requests.nothing:Measure"],
        ["is", "engine.requests.measure:Job"],
    ],
)
def test_what_is_no_value_of_ours_is_refused(data: list[object]) -> None:
    with pytest.raises(NotAValueError):
        value = Codec(1).decode(0, data)
        assert value is not None


def test_an_error_whose_class_nobody_here_has_imported_comes_with_its_name_and_text() -> (
    None
):
    data = ["error", "compare.nowhere:OddError", [], {}, "line 3 is odd"]
    error = Codec(0).decode(0, data)
    assert isinstance(error, values.RemoteError)
    assert (error.kind, str(error)) == ("OddError", "line 3 is odd")


def test_a_class_of_a_new_module_of_requests_travels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("app.engine.requests.counting")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    counted = defstruct(
        "Counted", [("number", int)], frozen=True, module=module.__name__
    )
    module.__dict__["Counted"] = counted
    assert Codec(1).decode(*Codec(0).encode(counted(3))) == counted(3)


@pytest.mark.parametrize(
    "value", [object(), lambda: 0, os, threading.Lock(), np.array([object()])]
)
def test_what_cannot_travel_is_refused_before_it_is_sent(value: object) -> None:
    with pytest.raises(NotAValueError):
        Codec(0).encode(value)
