"""The page "Runs" in the window: what is kept, going on, forking, restoring, comparing, deleting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton

from app.project import file as project_file
from app.runs import checkpoint_files, compare, store
from app.training.config import Choice
from app.util.frozen import FrozenMap
from app.views.training.charts.feature import ChartsFeature
from app.views.ui import theme
from tests.support.needs import needs
from tests.support.run_windows import cell, closed, listed, opened, run, small
from tests.support.whole_window import WholeWindow
from tests.support.windows import messages
from tests.views.window.test_window import ready, wait_for


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "net.tape"
    project_file.write(small(), file)
    return file


@pytest.fixture
def window(qtbot, window: WholeWindow, path: Path) -> WholeWindow:
    window.files.open(path)
    ready(qtbot, window)
    return window


def open_tab(qtbot, window: WholeWindow, title: str) -> None:
    """Click on the tab of a page below."""
    tabs = window.bottom.pane.tabs
    place = next(at for at in range(tabs.count()) if tabs.tabText(at) == title)
    qtbot.mouseClick(tabs, Qt.MouseButton.LeftButton, pos=tabs.tabRect(place).center())


def test_a_run_is_stopped_goes_on_in_another_window_and_is_the_run_that_was_never_stopped(
    qtbot, qapp, path: Path
) -> None:
    theme.apply(qapp, "dark")
    window = opened(qtbot, path)
    run(qtbot, window)
    whole = np.array(window.session.history.steps["loss"])
    window.run_control.step()
    for _ in range(4):
        wait_for(qtbot, window, "paused")
        window.run_control.step()
        qtbot.waitUntil(lambda: window.session.state != "starting")
    window.run_control.stop()
    wait_for(qtbot, window, "stopped")
    stopped, done = listed(qtbot, window, 2)
    assert (stopped.record.number, done.record.number) == (2, 1) and store.runs_beside(
        path
    ) == done.folder.parent
    assert cell(window, 0, "State") == "Stopped" and cell(window, 1, "State") == "Done"
    closed(window)

    again = opened(qtbot, path)
    try:
        stopped, done = listed(qtbot, again, 2)
        again.runs.choose(done)
        qtbot.waitUntil(
            lambda: np.array_equal(again.curves.history.steps["loss"], whole)
        )
        assert (
            again.curves.gradients.history.layers
            and again.curves.history.started.device == "cpu"
        )
        again.runs.choose(stopped)
        assert again.runs.go_on.isEnabled()
        moved: list[bool] = []
        again.run_control.moved_on.connect(moved.append)
        noted = replace(
            again.document.project, notes="amid the run"
        )  # no edit of the network
        again.run_control.started.connect(
            lambda _run: again.document.apply("Note", noted)
        )
        again.actions_by_key["continue"].trigger()
        qtbot.waitUntil(lambda: bool(again.session.runs))
        wait_for(qtbot, again, "done")
        assert again.document.project is noted and moved and not any(moved)
        assert np.array_equal(again.session.history.steps["loss"], whole)
        assert len(listed(qtbot, again, 2)) == 2 and cell(again, 0, "State") == "Done"
        there = store.history_of(store.find(store.runs_beside(path), "2"))
        assert np.array_equal(there.steps["loss"], whole), "and it is kept as one"
        again.runs.choose(done)
        again.runs.go_on.click()
        qtbot.waitUntil(lambda: "is finished" in again.banner.reason())
        assert "Run 2 resumes." in again.console.texts
    finally:
        closed(again)


def test_a_fork_begins_with_the_weights_of_a_checkpoint_and_the_settings_of_now(
    qtbot, window: WholeWindow
) -> None:
    run(qtbot, window)
    (first,) = listed(qtbot, window, 1)
    window.runs.choose(first)
    best = next(
        each
        for each in checkpoint_files.checkpoints(first)
        if each.path.name == "best.pt"
    )
    before = window.document.project
    other = replace(
        before,
        training=replace(
            before.training, optimizer=Choice("SGD", FrozenMap(lr=0.0)), epochs=1
        ),
    )
    window.document.apply("Another optimizer", other)
    ready(qtbot, window)
    window.runs.forked.emit(first, best)
    qtbot.waitUntil(lambda: len(window.session.runs) == 2)
    wait_for(qtbot, window, "done")
    fork, _ = listed(qtbot, window, 2)
    assert (fork.record.parent.run, fork.record.parent.step) == ("Run 1", best.step)
    history = window.session.history
    reached = store.history_of(first).epochs["val_loss"].min()
    assert history.epochs["val_loss"][0] == pytest.approx(reached, abs=1e-6), (
        "it stands where the other one was"
    )
    start = store.project_of(fork).training.start
    assert start is not None and Path(start.path).parent == fork.folder, (
        "all that it needs is in its folder"
    )
    window.runs_control.restore(first)
    qtbot.waitUntil(lambda: window.document.project.training == before.training)
    window.document.undo_stack.undo()
    assert window.document.project == other


def test_names_curves_and_settings_of_several_runs(qtbot, window: WholeWindow) -> None:
    run(qtbot, window)
    before = window.document.project
    window.document.apply(
        "Faster", replace(before, training=replace(before.training, seed=7))
    )
    ready(qtbot, window)
    run(qtbot, window)
    second, first = listed(qtbot, window, 2)
    model = window.runs.model
    assert model.setData(model.index(1, 0), "baseline")
    qtbot.waitUntil(lambda: cell(window, 1, "Run") == "baseline")
    window.pages.show("runs")
    window.runs.table.selectAll()
    qtbot.waitUntil(
        lambda: window.runs.compare.isVisible() and len(window.curves.loss.runs) == 2
    )
    lines = window.runs.compare.table.rows
    assert [column.title for column in window.runs.compare.table.cells.columns[1:]] == [
        "Run 2",
        "baseline",
    ]
    assert [(line.name, line.values) for line in lines] == [
        ("training.seed", ("7", "0"))
    ]
    window.runs.compare._which._segments["all"].click()
    names = [line.name for line in window.runs.compare.table.rows]
    assert {
        "net",
        "training.optimizer.name",
        "training.optimizer.lr",
        "data.source",
        "torch",
        "threads",
    } <= set(names)
    qtbot.waitUntil(lambda: window.curves.loss.runs[1].label == "baseline")
    window.pages.show("curves")
    window.curves.redraw()
    window.grab()
    window.runs.choose(first)
    qtbot.waitUntil(lambda: not window.curves.loss.runs)


def test_deleting_asks_first(
    qtbot, window: WholeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.views.ui.dialogs import message

    run(qtbot, window)
    (kept,) = listed(qtbot, window, 1)
    answers = [message.DialogAnswer.CANCEL, message.DialogAnswer.DISCARD]
    monkeypatch.setattr(
        message.QuestionDialog,
        "exec",
        lambda self: setattr(self, "answer", answers.pop(0)),
    )
    window.runs.deleted.emit([kept])
    assert kept.folder.exists() and window.workspace.shown_run.figures is not None
    window.runs.deleted.emit([kept])
    listed(qtbot, window, 0)
    assert window.workspace.shown_run.figures is None, (
        "no page shows the run that is gone"
    )
    assert not kept.folder.exists() and window.runs.empty.isVisibleTo(window.runs)


def test_runs_of_a_project_without_a_file_move_beside_it_when_it_is_saved(
    qtbot, qapp, tmp_path: Path
) -> None:
    theme.apply(qapp, "dark")
    window = opened(qtbot, None)
    try:
        run(qtbot, window)
        (kept,) = listed(qtbot, window, 1)
        assert kept.folder.is_relative_to(window.settings.runs_folder)
        assert window.files.save_to(tmp_path / "saved.tape")
        qtbot.waitUntil(
            lambda: (tmp_path / "saved.runs" / "0001" / "run.json").exists()
        )
        qtbot.waitUntil(
            lambda: (
                [k.folder.parent.name for k in listed(qtbot, window, 1)]
                == ["saved.runs"]
            )
        )
        assert not kept.folder.exists()
    finally:
        closed(window)


def test_a_folder_that_cannot_be_written_is_said_and_the_run_is_kept_elsewhere(
    qtbot, window: WholeWindow, path: Path
) -> None:
    store.runs_beside(path).write_text("a file where the folder of the runs would be")
    told = messages(window)
    run(qtbot, window)
    assert window.session.current.recorder.kept.folder.is_relative_to(
        window.settings.runs_folder
    )
    (kept,) = listed(qtbot, window, 1)
    assert kept.folder == window.session.current.recorder.kept.folder
    assert any("saved in another folder" in text for text in told)


def test_settings_that_a_file_does_not_state_are_dashes(tmp_path: Path) -> None:
    one = store.begin(tmp_path, small())
    other = store.begin(tmp_path, small(patience=3))
    for kept, project in ((one, small()), (other, small(patience=3))):
        project_file.write(project, kept.folder / store.PROJECT)
        (kept.folder / store.SOURCE).write_text("class Net: ...")
    lines = {line.name: line for line in compare.settings([one, other])}
    assert (
        lines["training.patience"].values == ("–", "3")
        and lines["training.patience"].differs
    )
    assert lines["net"].values == ("net A", "net A") and not lines["net"].differs


def test_a_damaged_checkpoint_is_passed_over_by_continue_and_named_by_a_fork(
    qtbot, window: WholeWindow
) -> None:
    run(qtbot, window)
    (first,) = listed(qtbot, window, 1)
    last = next(
        each
        for each in checkpoint_files.checkpoints(first)
        if each.path.name == "last.pt"
    )
    last.path.write_bytes(b"")
    window.runs.forked.emit(first, last)
    qtbot.waitUntil(lambda: window.banner.title() == "Run 1 cannot be forked")
    words = window.banner.reason()
    assert (
        f"{last.path} is empty." in words and "best.pt is intact: use that one" in words
    )
    longer = replace(window.document.project.training, epochs=3)
    window.document.apply(
        "More epochs", replace(window.document.project, training=longer)
    )
    ready(qtbot, window)
    window.runs_control.go_on(first)
    qtbot.waitUntil(lambda: len(window.session.runs) == 2)
    assert (
        window.banner.isVisible()
        and window.banner.title() == "An older checkpoint was used"
    )
    assert (
        f"{last.path} is empty. The run resumes from best.pt." in window.banner.reason()
    )
    wait_for(qtbot, window, "done")


@needs("files")
def test_checkpoints_that_cannot_be_written_are_said_in_the_banner_until_they_can(
    qtbot, window: WholeWindow
) -> None:
    told = messages(window)
    window.document.apply("Every step", small(save_every=1, epochs=1000))
    ready(qtbot, window)
    window.run_control.run()
    window.run_control.pause()
    wait_for(qtbot, window, "paused")
    folder = window.session.current.recorder.checkpoints
    folder.touch()  # where a folder should be
    window.run_control.run()
    qtbot.waitUntil(lambda: window.banner.isVisible())
    assert window.banner.title() == "Checkpoints cannot be written"
    assert (
        "step-00000001.pt could not be written: File exists" in window.banner.reason()
    )
    folder.unlink()
    folder.mkdir()
    qtbot.waitUntil(lambda: not window.banner.isVisible())
    assert any("Checkpoints are" in text and "again" in text for text in told)
    window.run_control.stop()
    wait_for(qtbot, window, "stopped")
    assert (
        window.banner.isVisible()
        and window.banner.title() == "Some data of this run could not be saved"
    )
    assert (
        "could not be saved; the newest saved one is from step"
        in window.banner.reason()
    )


@needs("problems")
def test_charts_are_made_with_the_first_run_or_when_they_are_looked_at(
    qtbot, path: Path
) -> None:
    """pyqtgraph is large: a window in which nobody trains does not have it."""
    window = opened(qtbot, path, charts=False)
    (charts,) = [each for each in window.features if isinstance(each, ChartsFeature)]
    assert not hasattr(charts, "curves") and window.furnished
    linear = next(
        node.id
        for node in window.document.project.graph.nodes.values()
        if node.op == "nn.Linear"
    )
    window.selection.set({linear})
    window.actions_by_key["run"].trigger()
    assert window.bottom.pane.page == "curves" and charts.curves.isVisible()
    qtbot.waitUntil(
        lambda: window.session.current is not None and not window.session.active
    )
    assert charts.curves.isVisible() and charts.curves.controls.isVisible()
    assert charts.curves.loss.history is window.session.current.history
    layer = window.live.analysis.source.modules[linear]
    assert window.shown_run.selected == charts.curves.gradients.selected == {layer}
    closed(window)


@pytest.mark.parametrize("choice", ["Keep its own", "Take those of Training"])
def test_a_run_is_resumed_with_its_own_settings_or_with_those_of_training(
    qtbot, window, choice, monkeypatch
) -> None:
    from app.views.ui.dialogs.message import QuestionDialog

    texts: list[str] = []

    def answer(dialog: QuestionDialog) -> None:
        texts.extend(label.text() for label in dialog.findChildren(QLabel))
        next(
            button
            for button in dialog.findChildren(QPushButton)
            if button.text() == choice
        ).click()

    monkeypatch.setattr(QuestionDialog, "exec", answer)
    run(qtbot, window)
    (first,) = listed(qtbot, window, 1)
    training = replace(window.document.project.training, batch_size=17, epochs=3)
    window.document.apply(
        "Smaller batches", replace(window.document.project, training=training)
    )
    ready(qtbot, window)
    window.runs_control.go_on(first)
    qtbot.waitUntil(lambda: len(window.session.runs) == 2)
    wait_for(qtbot, window, "done")
    assert any("batch_size 17 (the run: 64)" in text for text in texts)
    taken, found = (
        choice.startswith("Take"),
        listed(qtbot, window, 1 + choice.startswith("Take")),
    )
    assert window.session.current.job.training.batch_size == (17 if taken else 64)
    assert found[0].record.epochs == 3 and len(found) == 1 + taken
    if taken:
        assert (
            found[0].record.parent.run == "Run 1"
            and "batch_size" in found[0].record.changed.settings
        )


@needs("evaluation", "layer")
def test_a_reopened_project_shows_its_newest_run_on_every_page(
    qtbot, qapp, path: Path
) -> None:
    theme.apply(qapp, "dark")
    window = opened(qtbot, path)
    run(qtbot, window)
    run(qtbot, window)
    losses = np.array(window.session.history.steps["loss"])
    closed(window)

    again = opened(qtbot, path, charts=False)
    try:
        newest, _ = listed(qtbot, again, 2)
        for title in ("Evaluation", "Layer", "Curves"):
            open_tab(qtbot, again, title)
        qtbot.waitUntil(
            lambda: np.array_equal(again.curves.history.steps["loss"], losses)
        )
        assert not again.curves.empty.isVisible() and again.layer_page.run_title == (
            "Run 2"
        )
        assert "Run 2" in again.evaluation.empty.accessibleDescription()
        assert [row.kept.folder for row in again.runs.selected_rows] == [newest.folder]
        source = again.live.analysis.source
        qtbot.waitUntil(lambda: again.workspace.shown_run.figures.source is source)
        again.files.new()
        qtbot.waitUntil(lambda: not again.runs.model.rows)
        assert again.workspace.shown_run.figures is None
        assert again.curves.empty.isVisible() and "Run 2" not in (
            again.evaluation.empty.accessibleDescription()
        )
    finally:
        closed(again)


def test_an_untitled_project_begins_with_run_1_and_without_the_runs_of_a_discarded_one(
    qtbot, qapp
) -> None:
    theme.apply(qapp, "dark")
    window = opened(qtbot, None)
    try:
        run(qtbot, window)
        (first,) = listed(qtbot, window, 1)
        window.document.new(small(epochs=1))
        ready(qtbot, window)
        listed(qtbot, window, 0)
        assert window.workspace.shown_run.figures is None
        run(qtbot, window)
        (kept,) = listed(qtbot, window, 1)
        assert kept.record.title == "Run 1" and kept.folder != first.folder
        assert first.folder.is_dir()
    finally:
        closed(window)


def test_a_run_saved_for_the_first_time_amid_it_is_named_selected_and_can_be_continued(
    qtbot, qapp, tmp_path: Path
) -> None:
    theme.apply(qapp, "dark")
    window = opened(qtbot, None)
    told = messages(window)
    try:
        window.run_control.step()
        wait_for(qtbot, window, "paused")
        assert window.files.save_to(tmp_path / "resnet.tape")
        window.run_control.stop()
        wait_for(qtbot, window, "stopped")
        qtbot.waitUntil(lambda: (tmp_path / "resnet.runs" / "0001").is_dir())
        (kept,) = listed(qtbot, window, 1)
        assert any("under Runs of resnet" in text for text in told)
        assert kept.folder.parent == tmp_path / "resnet.runs"
        (row,) = window.runs.selected_rows
        assert row.kept == kept and row.run is window.session.current
        qtbot.waitUntil(window.runs.go_on.isEnabled)
        assert window.workspace.shown_run.figures.folder == kept.folder
    finally:
        closed(window)
