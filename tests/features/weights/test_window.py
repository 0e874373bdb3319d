"""Weights in the window: a file beside the net, what fits of it loaded as one step, the last layer, saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from pytestqt.qtbot import QtBot
from safetensors.torch import load_file

from app.builder.catalog.catalog import catalog
from app.builder.graph import Init
from app.builder.origin import ModelInit, Origin
from app.builder.sheet import changed
from app.features.weights import feature as head_edits
from app.features.weights.weights_dialog import KEY, STATE, WeightsDialog
from app.project import file
from app.project.weights.state_dict_diff import MISSING, SAME, SHAPE
from app.source.compiled import make_module
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.whole_window import WholeWindow


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("digits.tape")
    settled(qtbot, window)
    return window


def settled(qtbot, window: WholeWindow) -> None:
    qtbot.waitUntil(lambda: window.live.up_to_date)


def weights(window: WholeWindow) -> dict[str, torch.Tensor]:
    torch.manual_seed(4)
    return dict(make_module(window.live.analysis.source).state_dict())


def opened(qtbot, window: WholeWindow, value: object, path: Path) -> WeightsDialog:
    torch.save(value, path)
    dialog = window.weights_control.open(path)
    qtbot.waitUntil(lambda: not dialog.running)
    return dialog


def loaded(qtbot, window: WholeWindow, button) -> None:
    before = window.document.project
    button.click()
    qtbot.waitUntil(lambda: window.document.project is not before)


def test_what_fits_is_loaded_as_one_step_that_undo_takes_back(
    qtbot, window, tmp_path
) -> None:
    given = weights(window)
    key = list(given)[-1]
    before = window.document.project
    dialog = opened(
        qtbot,
        window,
        {"state_dict": {**given, key: torch.ones(1000)}},
        tmp_path / "w.pt",
    )
    counts = dialog.model.found.counts
    assert (
        counts[SHAPE] == 1
        and counts[SAME] == len(given) - 1
        and "state_dict" in dialog.notes.text()
    )
    assert not dialog.load_button.isEnabled() and dialog.some_button.isEnabled()
    assert window.document.project is before
    loaded(qtbot, window, dialog.some_button)
    start = window.document.project.training.start
    assert set(load_file(start.path)) == set(given) - {key} and not window.live.errors
    qtbot.waitUntil(
        lambda: (
            f"{len(given) - 1} of {len(given)} tensors of w.pt"
            in window.status.text("start")
        )
    )
    assert window.actions_by_key["forget-weights"].isEnabled()
    window.document.undo_stack.undo()
    assert window.document.project.training.start is None and not window.status.text(
        "start"
    )
    window.document.undo_stack.redo()
    window.actions_by_key["forget-weights"].trigger()
    assert window.document.project.training.start is None


def test_of_a_checkpoint_with_two_state_dicts_the_average_can_be_chosen(
    qtbot, window, tmp_path
) -> None:
    given = weights(window)
    average = {key: value * 2 for key, value in given.items()}
    dialog = opened(
        qtbot, window, {"model": given, "model_ema": average}, tmp_path / "c.ckpt"
    )
    assert (
        dialog.part.choices() == ("model", "model_ema")
        and dialog.part.value() == "model"
    )
    dialog.part.edited.emit("model_ema")
    qtbot.waitUntil(lambda: not dialog.running)
    loaded(qtbot, window, dialog.load_button)
    start = load_file(window.document.project.training.start.path)
    assert all(torch.equal(start[key], value) for key, value in average.items())


def test_load_wants_all_of_it_and_a_part_is_chosen_by_ticks(
    qtbot, window, tmp_path
) -> None:
    given = weights(window)
    dialog = opened(qtbot, window, given, tmp_path / "w.pt")
    assert dialog.load_button.isEnabled() and not dialog.some_button.isEnabled()
    first = dialog.model.index(0, KEY)
    dialog.model.setData(
        first, Qt.CheckState.Unchecked.value, Qt.ItemDataRole.CheckStateRole
    )
    assert (
        not dialog.load_button.isEnabled()
        and dialog.some_button.text() == f"Load {len(given) - 1} of {len(given)}"
    )
    dialog.search.setText("bias")
    shown = [row.key for row in dialog.model.rows]
    assert shown and all("bias" in key for key in shown)
    dialog.none_button.click()
    dialog.search.clear()
    dialog.table.selectRow(0)
    qtbot.keyClick(dialog.table, Qt.Key.Key_Space)
    loaded(qtbot, window, dialog.some_button)
    assert not any(
        "bias" in key for key in load_file(window.document.project.training.start.path)
    )


def test_a_suggestion_is_followed_only_when_it_is_ticked(
    qtbot, window, tmp_path
) -> None:
    given = {f"backbone.{key}": value for key, value in weights(window).items()}
    dialog = opened(qtbot, window, given, tmp_path / "w.pt")
    assert (
        dialog.model.found.counts[MISSING] == len(given)
        and not dialog.some_button.isEnabled()
    )
    assert "backbone." in dialog.follow[0].text() and dialog.follow[1].isHidden()
    dialog.follow[0].setChecked(True)
    assert dialog.model.found.strict and dialog.load_button.isEnabled()
    assert dialog.model.data(dialog.model.index(0, STATE)) == "Fits"
    dialog.reject()
    assert window.document.project.training.start is None


def test_a_file_that_cannot_be_read_is_told_in_the_dialog(
    qtbot, window, tmp_path
) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(b"\x08" * 50)
    dialog = window.weights_control.open(path)
    qtbot.waitUntil(lambda: not dialog.running)
    assert (
        "bad.safetensors" in dialog.state.text()
        and "Nothing was changed" in dialog.state.text()
    )
    assert not dialog.load_button.isEnabled()
    dialog.reject()


def test_closing_the_dialog_while_it_reads_leaves_everything(
    qtbot, window, tmp_path
) -> None:
    before = window.document.project
    torch.save(weights(window), tmp_path / "w.pt")
    dialog = window.weights_control.open(tmp_path / "w.pt")
    dialog.reject()
    qtbot.wait(1)
    assert window.document.project is before and not dialog.running


def test_a_file_let_go_over_the_window_opens_the_dialog(
    qtbot, window, tmp_path
) -> None:
    torch.save(weights(window), tmp_path / "w.pth")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "w.pth"))])
    window.dropEvent(
        QDropEvent(
            QPointF(5, 5),
            Qt.DropAction.CopyAction,
            data,
            Qt.MouseButton.LeftButton,
            Qt.KeyboardModifier.NoModifier,
        )
    )
    (dialog,) = [
        part for part in window.findChildren(WeightsDialog) if part.isVisible()
    ]
    qtbot.waitUntil(lambda: not dialog.running)
    assert dialog.model.found.strict
    dialog.reject()


def test_replacing_the_last_layer_lets_its_start_weights_go_and_is_one_step(
    qtbot, window, tmp_path
) -> None:
    dialog = opened(qtbot, window, weights(window), tmp_path / "w.pt")
    loaded(qtbot, window, dialog.load_button)
    settled(qtbot, window)
    project = window.document.project
    head = head_edits.last_layer(project, catalog())
    assert window.actions_by_key["replace-last"] not in window.canvas.more_actions()
    window.selection.set([head.node])
    assert window.actions_by_key["replace-last"] in window.canvas.more_actions()
    window.actions_by_key["replace-last"].trigger()
    ask = window.drawing.ask_box
    ask.field.setText("many")
    qtbot.keyClick(ask.field, Qt.Key.Key_Return)
    assert ask.isVisible() and "many" in ask.refusal.text()
    ask.field.setText("7")
    qtbot.keyClick(ask.field, Qt.Key.Key_Return)
    after = window.document.project
    assert after.graph.nodes[head.node].params["out_features"] == 7
    assert len(after.training.start.keys) == len(weights(window)) - 2
    window.actions_by_key["replace-last"].trigger()
    qtbot.keyClick(ask.field, Qt.Key.Key_Return)
    assert window.document.project is after and "Nothing changes" in ask.refusal.text()
    qtbot.keyClick(ask.field, Qt.Key.Key_Escape)
    qtbot.waitUntil(
        lambda: window.live.up_to_date and window.live.analysis.graph is after.graph,
    )
    assert not any("start weight" in problem.message for problem in window.live.errors)
    window.actions_by_key["freeze-but-last"].trigger()
    nodes = window.document.project.graph.nodes
    assert [
        node.id for node in nodes.values() if node.op == "nn.Linear" and not node.frozen
    ] == [head.node]
    for _ in range(2):
        window.document.undo_stack.undo()
    assert window.document.project == project


def test_an_edit_that_start_weights_do_not_survive_is_a_problem_with_a_cure(
    qtbot, window, tmp_path
) -> None:
    dialog = opened(qtbot, window, weights(window), tmp_path / "w.pt")
    loaded(qtbot, window, dialog.load_button)
    project = window.document.project
    fc1 = next(node for node in project.graph.nodes.values() if node.name == "fc1")
    graph = project.graph.with_param(fc1.id, "out_features", 9)
    window.document.apply("wider", changed(project, graph=graph))
    qtbot.waitUntil(lambda: bool(window.live.up_to_date and window.live.errors))
    (problem,) = window.live.errors
    assert (
        "start weights do not fit" in problem.message
        and "fc1.weight" in problem.reason
        and problem.node == fc1.id
    )
    window.selection.set([fc1.id])
    wires = {
        edge: wire.state
        for edge, wire in window.canvas.scene.wires.items()
        if edge.target == fc1.id
    }
    assert set(wires.values()) == {"normal"}, "its input is as it should be"
    qtbot.waitUntil(lambda: window.inspector.node_page.shape.story is not None)
    window.cures.apply(problem.cures[0])
    qtbot.waitUntil(lambda: not window.live.errors)
    assert "fc1.weight" not in window.document.project.training.start.keys


def test_saved_weights_are_those_that_a_run_begins_with(
    qtbot, window, tmp_path
) -> None:
    given = weights(window)
    dialog = opened(qtbot, window, given, tmp_path / "w.pt")
    loaded(qtbot, window, dialog.load_button)
    window.furnish()
    path = tmp_path / "out.safetensors"
    window.weights_control.save(path)
    qtbot.waitUntil(path.is_file)
    assert all(torch.equal(value, given[key]) for key, value in load_file(path).items())
    assert window.files.save_to(tmp_path / "net.tape") and window.files.save_to(
        _folder(tmp_path) / "other.tape"
    )
    again = file.read(tmp_path / "elsewhere" / "other.tape")
    assert again.training.start.path == str(
        tmp_path / "elsewhere" / "other.safetensors"
    )


def test_a_run_says_what_it_starts_from_and_learns_from_there(
    qtbot, window, tmp_path
) -> None:
    given = weights(window)
    dialog = opened(qtbot, window, given, tmp_path / "w.pt")
    loaded(qtbot, window, dialog.load_button)
    settled(qtbot, window)
    window.furnish()
    window.run_control.step()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    words = f"Starts from {len(given)} of {len(given)} tensors of w.pt."
    qtbot.waitUntil(lambda: words in window.console.text())
    window.session.stop()
    qtbot.waitUntil(lambda: not window.session.active)
    choice = window.newest_weights.choice(window.session.current.job.source, tmp_path)()
    learnt = torch.load(choice.path, weights_only=True)
    assert all(
        (value - given[key]).abs().max() < 0.05 for key, value in learnt.items()
    )  # one step of Adam away


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def test_an_imported_net_is_initialised_as_its_model(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = file.read(resource_path("examples", "digits.tape"))
    node = next(node for node in project.graph.nodes.values() if node.op == "nn.Linear")
    init = Init("normal_", FrozenMap({"std": 0.01}))
    model_init = ModelInit("", node.id, "weight", init)
    window.document.new(replace(project, origin=Origin("own", "", inits=(model_init,))))
    qtbot.waitUntil(lambda: window.live.up_to_date)
    take, before = window.actions_by_key["take-inits"], window.document.project
    assert take.isEnabled()
    take.trigger()
    after = window.document.project
    assert after.graph.nodes[node.id].inits["weight"] == init
    assert not take.isEnabled()
    window.document.undo_stack.undo()
    assert window.document.project == before and take.isEnabled()
