"""A queue as a device of the window: the project's run is a job there, which waits, is left, steered and ended.

On the real SLURM with one node, where it is installed and starts, and on a stand-in for its commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from app.features.places import values
from app.features.places.feature import PlacesFeature
from app.features.places.mirror import STARTS_PAUSED
from app.features.places.values import Place
from app.runs import store
from app.util.resources import path as resource
from tests.features.places.test_window import losses_here, opened
from tests.support import run_windows
from tests.support.run_windows import listed
from tests.support.slurm_queue import Queue, one_slurm, one_stand_in, queue, stand_in
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import press, wait_for

__all__ = ["one_slurm", "one_stand_in", "queue", "stand_in"]


def add(tmp_path: Path) -> None:
    template = tmp_path / "queue.sbatch"
    template.write_bytes(resource("slurm.sbatch").read_bytes())
    values.save({"cluster": Place("cluster", "", sys.executable, str(template))})


@pytest.fixture
def window(queue: Queue, window: WholeWindow, tmp_path: Path) -> Iterator[WholeWindow]:
    """One that knows the queue as a place."""
    add(tmp_path)
    window.findChild(PlacesFeature).runs.offer()
    yield window
    window.run_control.targets.choose("")
    window.run_control.targets.offer(())


def choose(window: WholeWindow, qtbot, name: str) -> None:
    """Choose in the device box by clicks."""
    box = window.toolbar.device
    box.showPopup()  # a click that opens it has the next one ignored for a while
    view = box.view()
    qtbot.waitUntil(view.isVisible)
    index = view.model().index(box.findText(name), 0)
    view.scrollTo(index)
    item = view.visualRect(index).center()
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=item)
    qtbot.waitUntil(lambda: window.run_control.targets.chosen is not None)


def begin(window: WholeWindow, qtbot, path: Path, epochs: int) -> None:
    opened(qtbot, window, path, epochs)
    choose(window, qtbot, "cluster")
    window.furnish()
    press(window, "run")
    wait_for(qtbot, window, "waiting")


def folders() -> list[Path]:
    home = Path(os.environ["XDG_STATE_HOME"], "tapedeck", "watched")
    return sorted(file.parent for file in home.glob("*/job"))


def job() -> str:
    return (folders()[-1] / "job").read_text()


def says(qtbot, window: WholeWindow, text: str) -> None:
    qtbot.waitUntil(lambda: text in window.status.text("state"))


def test_a_run_waits_in_the_queue_is_left_and_goes_on_after_its_job_was_ended(
    qtbot, queue: Queue, window: WholeWindow, tmp_path: Path
) -> None:
    """Its losses are those of its script, which nobody has ended."""
    path = tmp_path / "net.tape"
    queue.is_up(False)
    try:
        begin(window, qtbot, path, 4)
        says(qtbot, window, "waits in the queue (PENDING, PartitionDown)")
        assert window.session.close_and_wait()
        (left,) = listed(qtbot, window, 1)
        assert left.record.state == "left"
        later = run_windows.opened(qtbot, path)
        try:
            qtbot.waitUntil(lambda: later.notifier.title == "Run 1 goes on at cluster")
            again = later.banner.button("Watch it")
            qtbot.mouseClick(again, Qt.MouseButton.LeftButton)
            says(qtbot, later, "(PENDING, PartitionDown)")
            queue.is_up(True)
            wait_for(qtbot, later, "running")
            press(later, "pause")
            wait_for(qtbot, later, "paused")
            queue.run("scancel", "--signal=USR1", "--batch", job())
            qtbot.waitUntil(lambda: queue.reason_of(job()) == "BeginTime")
            queue.start_now(job())
            wait_for(qtbot, later, "done")
            history = later.session.history
            assert len(history.epochs) == 4
            (kept,) = listed(qtbot, later, 1)
            assert kept.record.state == "done"
            assert not (kept.folder / values.NOTE).exists()
            names = {file.name for file in kept.checkpoints.iterdir()}
            assert {"best.pt", "last.pt"} <= names and "step-" in str(names)
            alone = losses_here(folders()[-1] / "train.py", tmp_path)
            assert list(history.steps["loss"]) == alone
            assert list(store.history_of(kept).steps["loss"]) == alone
        finally:
            run_windows.closed(later)
    finally:
        queue.is_up(True)


def test_a_run_that_is_paused_while_it_waits_starts_paused(
    qtbot, queue: Queue, window: WholeWindow, tmp_path: Path
) -> None:
    queue.is_up(False)
    try:
        begin(window, qtbot, tmp_path / "net.tape", 2)
        says(qtbot, window, "(PENDING, PartitionDown)")
        press(window, "pause")
        says(qtbot, window, STARTS_PAUSED.removesuffix("."))
    finally:
        queue.is_up(True)
    wait_for(qtbot, window, "paused")
    assert not window.session.history.epochs
    press(window, "run")
    wait_for(qtbot, window, "done")
    assert len(window.session.history.epochs) == 2


def test_a_run_that_waits_in_the_queue_is_cancelled_by_stop(
    qtbot, queue: Queue, window: WholeWindow, tmp_path: Path
) -> None:
    queue.is_up(False)
    try:
        begin(window, qtbot, tmp_path / "net.tape", 2)
        says(qtbot, window, "(PENDING, PartitionDown)")
        press(window, "stop")
        wait_for(qtbot, window, "stopped")
        assert queue.state_of(job()) == "CANCELLED"
        (kept,) = listed(qtbot, window, 1)
        ending = kept.record.ending
        assert ending is not None and "cancelled" in ending.note
        assert not (kept.folder / values.NOTE).exists()
    finally:
        queue.is_up(True)


def test_a_job_is_paused_gets_a_rate_is_stopped_and_goes_on_as_another_job(
    qtbot, queue: Queue, window: WholeWindow, tmp_path: Path
) -> None:
    begin(window, qtbot, tmp_path / "net.tape", 4)
    wait_for(qtbot, window, "running")
    press(window, "pause")
    wait_for(qtbot, window, "paused")
    paused = window.session.progress().step
    window.run_control.set_rate(0.004)
    press(window, "step")
    qtbot.waitUntil(lambda: window.session.progress().step == paused + 1)
    assert window.session.history.steps["rate"][-1] == 0.004
    press(window, "stop")
    wait_for(qtbot, window, "stopped")
    (stopped,) = listed(qtbot, window, 1)
    step = stopped.record.ending.step
    assert step == paused + 1 and not stopped.record.ending.note
    first = job()
    window.actions_by_key["continue"].trigger()
    wait_for(qtbot, window, "done")
    assert job() != first
    history = window.session.history
    assert list(history.steps["step"]) == [*range(1, len(history.steps) + 1)]
    assert list(history.steps["rate"][step:]) == [0.004] * (len(history.steps) - step)
    seconds = list(history.steps["seconds"])
    assert seconds == sorted(seconds) and len(history.epochs) == 4
    (kept,) = listed(qtbot, window, 1)
    assert kept.record.continued == (step,) and kept.record.state == "done"


def test_a_run_goes_on_when_its_node_is_lost_and_back_at_once(
    qtbot, queue: Queue, window: WholeWindow, tmp_path: Path
) -> None:
    begin(window, qtbot, tmp_path / "net.tape", 4)
    wait_for(qtbot, window, "running")
    qtbot.waitUntil(lambda: window.session.progress().step > 5)
    queue.lose_node()
    qtbot.waitUntil(
        lambda: queue.reason_of(job()) == "BeginTime" or window.session.state == "done"
    )
    if window.session.state != "done":
        queue.start_now(job())
    wait_for(qtbot, window, "done")
    alone = losses_here(folders()[-1] / "train.py", tmp_path)
    assert list(window.session.history.steps["loss"]) == alone
