"""A run of the project at a place, in the window: chosen in the device box, watched, steered, and kept as any other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt

from app.features.places import values
from app.features.places.dialog import PlacesDialog
from app.features.places.feature import PlacesFeature
from app.features.places.values import Place
from app.project import file as project_file
from app.project.project import Project
from app.runs import store
from app.runs.checkpoint_files import checkpoints
from tests.support import run_windows
from tests.support.forked_python import run_forked
from tests.support.run_commands import steps
from tests.support.run_windows import listed, small
from tests.support.ssh_host import SshHost
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready, wait_for


def project(epochs: int) -> Project:
    net = small()
    return replace(net, training=replace(net.training, epochs=epochs))


def opened(qtbot, window: WholeWindow, path: Path, epochs: int = 2) -> None:
    project_file.write(project(epochs), path)
    window.files.open(path)
    ready(qtbot, window)


def choose(qtbot, window: WholeWindow, name: str) -> None:
    """Choose in the device box by keys."""
    box = window.toolbar.device
    box.setFocus()
    qtbot.keyClicks(box, name)
    assert box.currentText() == name
    box.activated.emit(box.currentIndex())


def losses_here(script: Path, cwd: Path) -> list[float]:
    """The losses of a script that runs here to its end, without a stop."""
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # as there
    options = ("--device", "cpu", "--json")
    here = run_forked(script, *options, cwd=cwd, **one_thread)
    assert here.returncode == 0, here.stderr
    return [loss for _, loss in steps(here.stdout)]


@pytest.fixture
def gpubox(ssh_host: SshHost) -> SshHost:
    values.save({"gpubox": Place("gpubox", "box", sys.executable)})
    return ssh_host


@pytest.fixture
def window(gpubox: SshHost, window: WholeWindow) -> Iterator[WholeWindow]:
    """One that knows the place, whichever tests have had it before and have it afterwards."""
    window.findChild(PlacesFeature).runs.offer()
    yield window
    window.run_control.targets.choose("")
    window.run_control.targets.offer(())


def test_a_run_at_a_place_is_the_run_of_its_script_and_is_kept_with_its_checkpoints(
    qtbot, gpubox: SshHost, window: WholeWindow, tmp_path: Path
) -> None:
    opened(qtbot, window, tmp_path / "net.tape")
    choose(qtbot, window, "gpubox")
    window.start_run()
    wait_for(qtbot, window, "done")
    history = window.session.history
    assert history is not None and len(history.epochs) == 2
    assert not np.isnan(history.epochs["val_loss"]).any()
    assert set(history.steps["epoch"]) == {1, 2}

    (kept,) = listed(qtbot, window, 1)
    assert kept.record.state == "done"
    assert {"best.pt", "last.pt"} <= {file.name for file in kept.checkpoints.iterdir()}
    assert kept.record.environment is not None
    (folder,) = gpubox.home.glob("**/watched/*/train.py")
    assert losses_here(folder, tmp_path) == list(history.steps["loss"])


def test_a_place_that_cannot_be_reached_ends_the_run_with_the_cure(
    qtbot, window: WholeWindow, tmp_path: Path
) -> None:
    values.save({"gpubox": Place("gpubox", "nowhere.invalid", sys.executable)})
    opened(qtbot, window, tmp_path / "net.tape")
    choose(qtbot, window, "gpubox")
    window.start_run()
    wait_for(qtbot, window, "failed")
    failed = window.session.current.failed
    assert failed is not None and "Correct it: tapedeck places add" in failed.message


def test_a_run_that_was_left_is_watched_again_by_the_next_window(
    qtbot, gpubox: SshHost, window: WholeWindow, tmp_path: Path
) -> None:
    path = tmp_path / "net.tape"
    opened(qtbot, window, path, epochs=30)
    choose(qtbot, window, "gpubox")
    window.start_run()
    wait_for(qtbot, window, "running")
    assert window.session.close_and_wait()
    (left,) = listed(qtbot, window, 1)
    assert left.record.state == "left"

    later = run_windows.opened(qtbot, path)
    try:
        qtbot.waitUntil(lambda: later.notifier.title == "Run 1 goes on at gpubox")
        again = later.banner.button("Watch it")
        qtbot.mouseClick(again, Qt.MouseButton.LeftButton)
        wait_for(qtbot, later, "done")
        history = later.session.history
        assert history is not None and len(history.epochs) == 30
        assert list(history.steps["step"]) == [*range(1, len(history.steps) + 1)]
        (kept,) = listed(qtbot, later, 1)
        assert kept.record.state == "done" and not kept.record.continued
        assert list(store.history_of(kept).steps["loss"]) == list(history.steps["loss"])
        assert {"best.pt", "last.pt"} <= {f.name for f in kept.checkpoints.iterdir()}
        assert not (kept.folder / values.NOTE).exists()
        (folder,) = gpubox.home.glob("**/watched/*/")
        assert (folder / "exit").read_text().strip() == "0"
    finally:
        run_windows.closed(later)


def test_a_run_is_paused_takes_one_step_is_stopped_and_goes_on_at_a_place(
    qtbot, gpubox: SshHost, window: WholeWindow, tmp_path: Path
) -> None:
    """Begun there and stopped, resumed there: the losses are those of the script that is not stopped."""
    opened(qtbot, window, tmp_path / "net.tape", epochs=12)
    choose(qtbot, window, "gpubox")
    window.start_run()
    wait_for(qtbot, window, "running")
    window.run_control.pause()
    wait_for(qtbot, window, "paused")
    steps_before = window.session.progress().step
    window.run_control.step()
    qtbot.waitUntil(lambda: window.session.progress().step == steps_before + 1)
    window.run_control.stop()
    wait_for(qtbot, window, "stopped")
    (stopped,) = listed(qtbot, window, 1)
    ending = stopped.record.ending
    assert stopped.record.state == "stopped" and ending is not None and not ending.note
    step = ending.step
    files = {file.name for file in stopped.checkpoints.iterdir()}
    assert f"step-{step:08d}.pt" in files
    window.actions_by_key["continue"].trigger()
    wait_for(qtbot, window, "done")
    history = window.session.history
    assert list(history.steps["step"]) == [*range(1, len(history.steps) + 1)]
    assert len(history.epochs) == 12
    (kept,) = listed(qtbot, window, 1)
    assert kept.record.continued == (step,) and kept.record.state == "done"
    first, second = sorted(gpubox.home.glob("**/watched/*/train.py"))
    assert (second.parent / values.checkpoint_of(step)).is_file()
    assert losses_here(first, tmp_path) == list(history.steps["loss"])


def test_a_run_that_goes_on_there_is_left_and_watched_again_by_the_next_window(
    qtbot, gpubox: SshHost, window: WholeWindow, tmp_path: Path
) -> None:
    """Its losses, before and after, are those of the script that is not stopped."""
    path = tmp_path / "net.tape"
    opened(qtbot, window, path, epochs=8)
    choose(qtbot, window, "gpubox")
    window.start_run()
    wait_for(qtbot, window, "running")
    window.run_control.pause()
    wait_for(qtbot, window, "paused")
    window.run_control.stop()
    wait_for(qtbot, window, "stopped")
    (stopped,) = listed(qtbot, window, 1)
    step = stopped.record.ending.step
    window.actions_by_key["continue"].trigger()
    wait_for(qtbot, window, "running")
    qtbot.waitUntil(lambda: window.session.progress().step > step + 5)
    assert window.session.close_and_wait()

    later = run_windows.opened(qtbot, path)
    try:
        qtbot.waitUntil(lambda: later.notifier.title == "Run 1 goes on at gpubox")
        again = later.banner.button("Watch it")
        qtbot.mouseClick(again, Qt.MouseButton.LeftButton)
        wait_for(qtbot, later, "done")
        first, _ = sorted(gpubox.home.glob("**/watched/*/train.py"))
        alone = losses_here(first, tmp_path)
        history = later.session.history
        assert list(history.steps["loss"]) == alone and len(history.epochs) == 8
        (kept,) = listed(qtbot, later, 1)
        assert list(store.history_of(kept).steps["loss"]) == alone
        assert kept.record.continued == (step,) and kept.record.state == "done"
    finally:
        run_windows.closed(later)


def test_a_run_that_is_forked_begins_there_with_the_weights_of_its_checkpoint(
    qtbot, gpubox: SshHost, window: WholeWindow, tmp_path: Path
) -> None:
    opened(qtbot, window, tmp_path / "net.tape")
    window.start_run()
    wait_for(qtbot, window, "done")
    (first,) = listed(qtbot, window, 1)
    best = first.checkpoints / "best.pt"
    choose(qtbot, window, "gpubox")
    fork = next(entry for entry in checkpoints(first) if entry.path == best)
    window.runs.forked.emit(first, fork)
    qtbot.waitUntil(lambda: len(window.session.runs) == 2)
    wait_for(qtbot, window, "done")
    forked, _ = listed(qtbot, window, 2)
    assert (forked.record.parent.run, forked.record.parent.step) == ("Run 1", fork.step)
    losses = list(window.session.history.steps["loss"])
    (script,) = gpubox.home.glob("**/watched/*/train.py")
    assert losses_here(script, tmp_path) == losses
    before = list(window.session.runs[0].history.steps["loss"])
    assert losses[0] < before[0] and len(losses) == len(before)


def test_a_device_that_is_chosen_again_is_where_the_next_run_trains(
    qtbot, window: WholeWindow, tmp_path: Path
) -> None:
    opened(qtbot, window, tmp_path / "net.tape")
    choose(qtbot, window, "gpubox")
    assert window.run_control.targets.chosen is not None
    window.toolbar.device.setCurrentIndex(0)
    window.toolbar.device.activated.emit(0)
    assert window.run_control.targets.chosen is None
    assert window.toolbar.device.currentData() == "auto"


def test_places_are_added_checked_and_removed_in_their_dialog(
    qtbot, gpubox: SshHost, tmp_path: Path
) -> None:
    dialog = PlacesDialog()
    qtbot.addWidget(dialog)
    dialog.show()
    qtbot.keyClicks(dialog.name, "other")
    qtbot.keyClicks(dialog.ssh, "box")
    dialog.python.selectAll()
    qtbot.keyClicks(dialog.python, sys.executable)
    qtbot.mouseClick(dialog.add, Qt.MouseButton.LeftButton)
    assert values.named("other") == Place("other", "box", sys.executable)
    dialog.table.selectRow(1)
    assert dialog.table.selected == [values.named("other")]
    qtbot.mouseClick(dialog.check, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "torch" in dialog.answer.text())
    qtbot.mouseClick(dialog.remove, Qt.MouseButton.LeftButton)
    assert set(values.places()) == {"gpubox"}
    dialog.name.clear()
    dialog.ssh.clear()
    qtbot.keyClicks(dialog.name, "cluster")
    qtbot.keyClicks(dialog.slurm, str(tmp_path / "queue.sbatch"))
    qtbot.mouseClick(dialog.add, Qt.MouseButton.LeftButton)
    assert values.named("cluster").slurm == str(tmp_path / "queue.sbatch")
    assert "#SBATCH" in (tmp_path / "queue.sbatch").read_text()
    assert "is new: edit its lines" in dialog.answer.text()
    qtbot.keyClicks(dialog.name, "no name!")
    qtbot.mouseClick(dialog.add, Qt.MouseButton.LeftButton)
    assert "no name of a place" in dialog.answer.text()
