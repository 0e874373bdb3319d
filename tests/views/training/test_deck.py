"""The deck of a run: what it says of it, and what it asks for."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QAction

from app.training.setup.device import Device
from app.views.run.session import RunProgress
from app.views.run.transport_deck import CAPTURE, LOOKS, RunDeck
from app.views.toolbar import Toolbar
from app.views.ui import theme
from tests.support.run_sessions import session
from tests.support.training_jobs import job

__all__ = ["session"]


@pytest.fixture(autouse=True)
def themed(qapp):
    theme.apply(qapp, "dark")


@pytest.fixture
def deck(qtbot):
    made = RunDeck()
    qtbot.addWidget(made)
    made.show()
    return made


def enabled(deck):
    return [
        name
        for name in ("run", "pause", "step", "stop")
        if deck.transport.button(name).isEnabled()
    ]


@pytest.mark.parametrize(
    ("state", "keys"),
    [
        ("idle", ["run", "step"]),
        ("starting", ["pause", "stop"]),
        ("running", ["pause", "stop"]),
        ("paused", ["run", "step", "stop"]),
        ("stopping", []),
        ("done", ["run", "step"]),
        ("stopped", ["run", "step"]),
        ("failed", ["run", "step"]),
    ],
)
def test_the_keys_of_each_state(deck, state, keys):
    deck.set_state(state)
    assert enabled(deck) == keys


@pytest.mark.parametrize("name", ["run", "pause", "step", "stop"])
def test_a_key_says_that_it_was_pressed(qtbot, deck, name):
    deck.set_state("running" if name in ("pause", "stop") else "paused")
    with qtbot.waitSignal(getattr(deck, name)):
        deck.transport.button(name).click()


@pytest.mark.parametrize("width", [960, 1280, 1920])
def test_the_keys_stay_where_they_are_whatever_the_toolbar_says(qtbot, width):
    bar = Toolbar(QAction("Undo"), QAction("Redo"))
    qtbot.addWidget(bar)
    bar.resize(width, bar.height())
    bar.show()
    bar.set_project("net", False)
    deck, places = bar.deck, set()

    def place():
        qtbot.wait(0)  # layouts follow in the next turn
        keys = [
            deck.transport.button(name) for name in ("run", "pause", "step", "stop")
        ]
        for key in keys:
            left = key.mapTo(bar, key.rect().topLeft())
            places.add((key.key.name, left.x(), left.y()))
        assert (
            deck.counter.mapTo(bar, deck.counter.rect().topRight()).x()
            <= bar.device.mapTo(bar, QPoint(0, 0)).x()
        )

    long = RunProgress(
        100, 100, 12_288, 100_000, 228_800, 0.0541, 1_212_480.4, 39_200.2
    )
    for state in LOOKS:
        deck.set_state(state)
        place()
        deck.show_progress(long)
        place()
        deck.set_blocked("Fix 12 errors to run the network again", "error", "error")
        place()
        deck.set_blocked("")
    deck.step_button.show()  # a script is watched
    for words in CAPTURE:
        deck.set_step(words)
        place()
    deck.step_button.hide()
    bar.edits.show()
    bar.set_project(
        "A project with a name that is longer than anything has room for", True
    )
    bar.set_devices(
        (Device("cuda:0", "NVIDIA H200 NVL with a long name"), Device("cpu", "CPU")),
        "cuda:3",
    )
    place()
    assert len(places) == 4, sorted(places)


def test_what_blocks_a_run_is_said_but_does_not_take_the_deck_from_a_run(deck):
    deck.set_blocked("Fix 1 error to run", "error", "error")
    assert enabled(deck) == [] and deck.counter.message() == "Fix 1 error to run"
    assert "Fix 1 error" in deck.transport.button("run").toolTip()
    deck.set_state("running")
    assert enabled(deck) == ["pause", "stop"] and deck.counter.message() == ""
    deck.set_state("done")
    assert enabled(deck) == []
    deck.set_blocked("")
    assert enabled(deck) == ["run", "step"] and deck.counter.message() == "Done"


def test_the_counter_shows_what_is_known_and_a_dash_for_the_rest(deck):
    assert {value for _, value in deck.counter.fields()} == {"–"}
    deck.set_state("running")
    deck.show_progress(RunProgress(3, 10, 412, 938, 2288, 0.05412, 12480.4, 39.2))
    assert dict(deck.counter.fields()) == {
        "Epoch": "3/10",
        "Batch": "412/938",
        "Samples/s": "12,480",
        "Loss": "0.0541",
        "ETA": "0:39",
    }
    deck.show_progress(RunProgress(1, 10, 0, 938, 0))
    assert dict(deck.counter.fields())["Loss"] == "–"
    deck.set_state("stopped")
    deck.show_progress(RunProgress(3, 10, 412, 938, 2288, 0.05412, 12480.4, 39.2))
    assert dict(deck.counter.fields())["ETA"] == "–"


def test_the_deck_follows_a_session(qtbot, deck, session):
    deck.follow(session)
    session.start(job(epochs=1))
    qtbot.waitUntil(lambda: deck.state == "done")
    assert dict(deck.counter.fields())["Batch"] == "23/23"
