"""Runs in other processes from the real window: chosen in the menu, seen live, and gone when the window says so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QInputDialog
from pytestqt.qtbot import QtBot

from app.engine import pool
from app.runs import store
from app.training.events import to_json
from app.training.loop import train
from app.views.run import transport_deck
from app.views.run.transport_deck import NOTHING
from app.views.settings import Settings
from app.views.training.feature import PlacesControl
from tests.engine.test_child import alive
from tests.support.light_fork_server import own_server
from tests.support.run_windows import cell, listed
from tests.support.training_jobs import job
from tests.support.whole_window import WholeWindow

__all__ = ["own_server"]
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks into /proc"
)


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("MLP on digits.tape")
    project = window.document.project
    window.document.apply(
        "Long", replace(project, training=replace(project.training, epochs=100_000))
    )
    qtbot.waitUntil(lambda: window.live.up_to_date)
    return window


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the processes that the window starts."""
    ids: list[int] = []
    start = pool.start

    def kept(*given, **named):
        made = start(*given, **named)
        ids.append(made.pid)
        return made

    monkeypatch.setattr(pool, "start", kept)
    return ids


def children(pid: int) -> list[int]:
    """A process and all that it has started, as far as they are there."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def reach(qtbot: QtBot, window: WholeWindow, state: str, steps: int = 0) -> None:
    session = window.session
    qtbot.waitUntil(
        lambda: (
            session.state == state
            and session.history is not None
            and len(session.history.steps) >= steps
        ),
    )


def test_a_process_of_its_own_is_killed_and_the_window_lives_on(
    qtbot, window, started, monkeypatch
):
    def speed() -> str:
        return dict(window.toolbar.deck.counter.fields())["Samples/s"]

    monkeypatch.setattr(transport_deck, "STALLED", 0.1)
    window.actions_by_key["place.own"].trigger()
    window.run_control.run()
    reach(qtbot, window, "running", 20)
    window.run_control.pause()
    reach(qtbot, window, "paused")
    window.run_control.run()
    reach(qtbot, window, "running")
    (pid,) = started
    folder = window.session.current.recorder.kept.checkpoints
    qtbot.waitUntil(lambda: any(folder.glob("*.pt")) and speed() != NOTHING)
    os.kill(pid, signal.SIGSTOP)
    qtbot.waitUntil(lambda: speed() == NOTHING)  # it does not keep the last one
    os.kill(pid, signal.SIGCONT)
    qtbot.waitUntil(lambda: speed() != NOTHING)
    os.kill(pid, signal.SIGKILL)
    reach(qtbot, window, "failed")
    failed = window.session.current.failed
    assert "SIGKILL" in failed.message and "checkpoint" in failed.cure.lower()
    assert window.banner.isVisible() and "SIGKILL" in window.banner.title()
    assert not alive(pid)
    qtbot.mouseClick(window.banner.button("Resume run"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(started) == 2)
    reach(qtbot, window, "running", 30)
    assert (
        window.session.current.recorder.kept.checkpoints == folder
        and not window.banner.isVisible()
    )
    assert window.session.close_and_wait() and not alive(started[-1])


def test_a_run_has_a_process_of_its_own_also_where_the_windows_was_chosen_once(
    qtbot, window, started
):
    settings = Settings("TapedeckTests", "nobody chose")
    assert settings.processes == 1
    settings.processes = (
        0  # as versions kept it that could train in the window's process
    )
    assert Settings("TapedeckTests", "nobody chose").processes == 1
    assert [
        key for key in window.actions_by_key.by_key if key.startswith("place.")
    ] == ["place.own", "place.several"]
    window.run_control.run()
    reach(qtbot, window, "running", 5)
    (pid,) = started
    assert pid in children(pool._state.server._process.pid), (
        "forked, with all that a window loads by then"
    )
    window.run_control.stop()
    reach(qtbot, window, "stopped")
    assert window.session.training_thread.result.state_dict and not alive(pid)


def test_the_fork_server_is_there_before_a_run_wants_it(qtbot, window, own_server):
    assert pool._state.server is None
    window.findChild(PlacesControl)._idle.start(
        0
    )  # as it does when torch has been loaded
    qtbot.waitUntil(
        lambda: pool._state.server is not None and pool._state.server._loaded
    )


def test_two_processes_are_started_seen_live_paused_and_stopped(
    qtbot, window, started, monkeypatch
):
    monkeypatch.setattr(QInputDialog, "getInt", lambda *_: (2, True))
    window.actions_by_key["place.several"].trigger()
    assert "(2)" in window.actions_by_key["place.several"].text()
    window.pages.show("curves")
    window.run_control.run()
    reach(qtbot, window, "running", 20)
    ranks = [
        pid for pid in started if alive(pid)
    ]  # the engine that wrote their script has ended
    assert len(ranks) == 2
    family = [pid for one in ranks for pid in children(one)]
    window.run_control.pause()
    reach(qtbot, window, "paused")
    before = len(window.session.history.steps)
    window.run_control.step()
    qtbot.waitUntil(lambda: len(window.session.history.steps) == before + 1)
    window.run_control.stop()
    reach(qtbot, window, "stopped")
    assert window.session.training_thread.result.state_dict
    assert not any(map(alive, family))


def test_two_processes_have_the_losses_of_one_that_takes_the_whole_batch(
    qtbot, window, monkeypatch
):
    """Each learns from half of every batch; without dropout, which each draws for itself, the sums are the same."""
    monkeypatch.setattr(QInputDialog, "getInt", lambda *_: (2, True))
    project = window.document.project
    (drop,) = (
        node.id for node in project.graph.nodes.values() if node.op == "nn.Dropout"
    )
    training = replace(
        project.training, epochs=1, batch_size=128, threads=1, device="cpu"
    )
    window.document.apply(
        "No dropout",
        replace(
            project, graph=project.graph.with_param(drop, "p", 0.0), training=training
        ),
    )
    qtbot.waitUntil(lambda: window.live.up_to_date)
    told = []
    for place in ("several", "own"):
        window.actions_by_key[f"place.{place}"].trigger()
        window.run_control.run()
        reach(qtbot, window, "done", 12)
        told.append(np.array(window.session.history.steps["loss"]))
    assert len(told[0]) == 12 and np.allclose(*told, rtol=0, atol=1e-6), np.abs(
        told[0] - told[1]
    ).max()


def test_two_processes_are_stopped_and_go_on_as_if_nothing_had_been(
    qtbot, window, monkeypatch
):
    """Mixed samples are drawn by each process for itself, and gradients of two batches wait for one step."""
    monkeypatch.setattr(QInputDialog, "getInt", lambda *_: (2, True))
    window.actions_by_key["place.several"].trigger()
    project = window.document.project
    short = replace(
        project.training,
        epochs=2,
        batch_size=400,
        mixup=0.3,
        accumulate=2,
        threads=1,
        device="cpu",
    )
    window.document.apply("Short", replace(project, training=short))
    qtbot.waitUntil(lambda: window.live.up_to_date)
    window.run_control.run()
    reach(qtbot, window, "done", 8)
    whole = np.array(window.session.history.steps["loss"])
    window.run_control.step()
    for number in range(1, 4):
        reach(qtbot, window, "paused", number)
        window.run_control.step() if number < 3 else window.run_control.stop()
        qtbot.waitUntil(
            lambda number=number: (
                len(window.session.history.steps) > number
                or window.session.state == "stopped"
            )
        )
    reach(qtbot, window, "stopped", 3)
    stopped, done = listed(qtbot, window, 2)
    assert cell(window, 0, "State") == "Stopped"
    window.runs.choose(stopped)
    window.runs.go_on.click()
    qtbot.waitUntil(lambda: len(window.session.runs) == 3)
    reach(qtbot, window, "done", 8)
    started = window.session.history.started
    assert (
        started.resumed_at == 3
        and not started.changed
        and "2 processes" in started.device_note
    )
    assert np.array_equal(window.session.history.steps["loss"], whole)
    stopped, done = listed(qtbot, window, 2)
    assert cell(window, 0, "State") == "Done"
    kept, first = store.history_of(stopped), store.history_of(done)
    assert np.array_equal(kept.steps["loss"], whole), "and it is kept as one"
    assert np.array_equal(kept.epochs["val_loss"], first.epochs["val_loss"])


def test_a_run_elsewhere_is_watched_as_its_file_grows(qtbot, window, tmp_path):
    lines = [line for event in train(job(epochs=2)) if (line := to_json(event))]
    path = tmp_path / "lines.jsonl"
    window.findChild(PlacesControl).watch(path)  # it is not there yet
    assert window.session.state == "waiting"
    path.write_text("\n".join(lines[:20]) + "\n" + lines[20][:9])
    reach(qtbot, window, "running", 19)
    assert (
        window.session.progress().epochs == 2
        and window.session.progress().samples_per_second is None
    )
    with qtbot.waitSignal(window.run_control.refused):
        window.run_control.pause()  # is out of reach, which is said
    with path.open("a") as file:
        file.write(lines[20][9:] + "\n" + "\n".join(lines[21:]) + "\n")
    reach(qtbot, window, "done")
    assert len(window.session.history.steps) == sum(
        '"step"' in line[:20] for line in lines
    )
    assert window.session.training_thread.result.state_dict is None
