"""A person's script in the window: its curves and norms, and the deck's keys, which act on it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot
from torch import nn

import tapedeck
from app.autograd.gradient_norms import measure
from app.views.run.transport_deck import CAPTURE
from tapedeck import watcher
from tests.slow.hostile_frames import CASES, Outside
from tests.support.whole_window import WholeWindow
from tests.tapedeck.test_watching import Script, script  # noqa: F401

STEPS = 5


class Learning(threading.Thread):
    """Takes STEPS steps, and keeps the losses and gradients of each; watched with a `folder`."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(daemon=True)
        torch.manual_seed(7)
        self.model = nn.Sequential(
            nn.Linear(3, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.1)
        self.losses: list[str] = []
        self.gradients: list[dict[str, torch.Tensor]] = []
        if folder is not None:
            self.watch = tapedeck.watch(
                {"model": self.model}, self.optimizer, folder=folder, quiet=True
            )

    def run(self) -> None:
        self.learn()
        self.watch.stop()

    def learn(self) -> None:
        torch.manual_seed(8)
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            loss = (self.model(torch.randn(6, 3)) - 1).square().mean()
            loss.backward()
            self.losses.append(loss.item().hex())
            self.gradients.append(
                {
                    name: each.grad.clone()
                    for name, each in self.model.named_parameters()
                }
            )
            self.optimizer.step()


@pytest.fixture
def learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learning]:
    monkeypatch.setattr(watcher, "TURN_EVERY", 0.0)
    monkeypatch.setattr("tapedeck.capture.SILENCE", 600.0)
    tmp_path.chmod(0o700)
    made = Learning(tmp_path)
    yield made
    made.watch.stop()
    assert not made.is_alive()


def test_a_script_is_seen_paused_stepped_and_given_a_rate(
    qtbot: QtBot, window: WholeWindow, script: Script
) -> None:
    session, control = window.session, window.run_control

    def until(holds) -> None:
        qtbot.waitUntil(holds)

    window.actions_by_key.trigger("watch-file", script.watch.frames)
    until(lambda: session.commands)
    control.pause()  # before its first step
    script.start()
    until(lambda: session.state == "paused" and len(session.history.steps) >= 1)
    assert window.curves.has_run
    assert session.history.layers == ("model",) and len(session.history.gradients) == 1
    before = len(script.rates)
    control.step()
    until(
        lambda: session.state == "paused" and len(session.history.steps) == before + 1
    )
    assert len(script.rates) == before + 1
    control.set_rate(0.125)
    until(lambda: len(session.history.rates_set) == 1)
    control.step()
    until(lambda: len(session.history.steps) == before + 2)
    assert script.rates[-1] == 0.125 and session.history.steps["rate"][-1] == 0.125
    progress = session.progress()
    assert progress is not None and progress.batches == 0 and progress.eta is None
    control.run()
    until(lambda: session.state == "running" and len(script.rates) > before + 5)
    control.stop()  # of the watching
    until(lambda: session.state == "left")
    assert "continues" in session.current.finished.note and script.is_alive()


def test_steps_of_a_script_are_captured_and_played_to_its_own_gradients(
    qtbot: QtBot, window: WholeWindow, learning: Learning
) -> None:
    capture, room, player = (
        window.autograd_control,
        window.room,
        window.tape_control.player,
    )
    deck, control = window.toolbar.deck, window.run_control

    def keys() -> tuple[int, int]:
        return deck.transport.mapTo(window, QPoint(0, 0)).x(), deck.counter.mapTo(
            window, QPoint(0, 0)
        ).x()

    window.files.open_example("digits.tape")
    qtbot.waitUntil(
        lambda: (
            window.live.up_to_date
            and not window.live.errors
            and not window.run_control.blocked
        )
    )
    still, wide = keys(), deck.width()
    assert deck.visibleRegion().boundingRect().size() == deck.size()

    def held(step: int) -> None:
        qtbot.waitUntil(
            lambda: (
                capture.script.state == "held"
                and f"step {step}," in room.standing.title()
            )
        )
        qtbot.waitUntil(
            lambda: (
                window.session.state == "paused"
                and deck.step_button.text() == CAPTURE["held"]
            )
        )
        assert keys() == still

    def played() -> None:
        """Play to the end: what arrives at every parameter is what the script finds in its `.grad`."""
        window.actions_by_key["play-backward"].trigger()
        player.set_speed(None)
        qtbot.waitUntil(
            lambda: player.position == len(player) > 0 and player.state == "standing"
        )

    window.actions_by_key["capture-step"].trigger()
    assert "No script is watched" in window.notifier.title
    window.actions_by_key.trigger("watch-file", learning.watch.frames)
    qtbot.waitUntil(lambda: deck.step_button.isVisible())
    assert (
        keys() == still and deck.width() == wide
    )  # the button takes no place of theirs
    qtbot.mouseClick(deck.step_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: capture.script.state == "waiting")
    learning.start()
    held(2)
    assert room.standing.isVisible() and ", loss " in room.standing.title()
    played()
    norms = {
        player.tape.nodes[one.node].parameters: one.arriving for one in player.records
    }
    assert (
        window.findings_control.page.stack.currentWidget()
        is window.findings_control.page.empty
    )

    qtbot.mouseClick(
        room.standing.button("Capture next step"), Qt.MouseButton.LeftButton
    )
    held(3)
    for name, gradient in learning.gradients[1].items():
        assert norms[(name,)] == tuple(measure([gradient])), name
    window.actions_by_key["step-backward"].trigger()
    qtbot.waitUntil(lambda: player.position == 1 and player.state == "standing")
    control.step()  # goes on, and pauses after this step
    qtbot.waitUntil(
        lambda: capture.script.state == "none" and len(learning.losses) == 3
    )
    assert (
        "has continued after step 3" in room.standing.title() and player.position == 1
    )
    player.step()
    assert player.state == "left" and player.position == 1
    qtbot.waitUntil(
        lambda: (
            window.session.state == "paused"
            and deck.step_button.text() == CAPTURE["none"]
        )
    )

    qtbot.mouseClick(deck.step_button, Qt.MouseButton.LeftButton)
    held(4)
    qtbot.mouseClick(
        deck.step_button, Qt.MouseButton.LeftButton
    )  # goes on, and is paused as before
    qtbot.waitUntil(
        lambda: len(learning.losses) == 4 and deck.step_button.text() == CAPTURE["none"]
    )
    qtbot.mouseClick(deck.step_button, Qt.MouseButton.LeftButton)
    held(5)
    room.head.capture.click()
    qtbot.waitUntil(
        lambda: "script" in room.banner.reason() and "ended" in room.banner.reason()
    )
    qtbot.waitUntil(lambda: not window.session.active)
    assert capture.script.state == "none" and not deck.step_button.isVisible()
    alone = Learning()
    alone.learn()
    assert learning.losses == alone.losses


def test_a_script_that_stands_goes_on_when_something_else_is_captured_or_its_watching_ends(
    qtbot: QtBot,
    window: WholeWindow,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tapedeck.capture.SILENCE", 600.0)
    capture = window.autograd_control
    window.files.open_example("digits.tape")
    window.actions_by_key.trigger("watch-file", script.watch.frames)
    qtbot.waitUntil(lambda: window.session.commands)
    script.start()
    for leave in (
        lambda: capture.turn_to("net") or capture.capture(),
        window.run_control.stop,
    ):
        window.actions_by_key["capture-step"].trigger()
        qtbot.waitUntil(lambda: capture.script.state == "held")
        taken = len(script.rates)
        leave()
        qtbot.waitUntil(
            lambda taken=taken: (
                capture.script.state == "none" and len(script.rates) > taken + 2
            )
        )
    qtbot.waitUntil(lambda: not window.session.active)
    assert script.is_alive()


def choose(
    qtbot: QtBot, window: WholeWindow, key: str, menu: QMenu | None = None
) -> None:
    """Click a command of the menu of a watched script, or of one in it."""
    menu = menu or next(
        each for each in window.findChildren(QMenu) if each.title() == "&Watched script"
    )
    action = next(
        each
        for each in menu.actions()
        if each.objectName() == key or each.text() == key
    )
    menu.popup(QPoint(0, 0))
    qtbot.mouseClick(
        menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(action).center()
    )
    menu.hide()


def test_a_batch_of_a_script_is_described_and_a_checkpoint_saved(
    qtbot: QtBot,
    window: WholeWindow,
    script: Script,
) -> None:
    said: list[tuple[str, str]] = []
    hearing = window.run_control.said.connect(
        lambda title, words: said.append((title, words))
    )
    for key in ("script-batch", "script-save"):
        choose(qtbot, window, key)
        assert (
            window.notifier.title == "No script is watched"
            and "tapedeck run" in window.notifier.reason
        )
        window.notifier.withdraw()
    window.actions_by_key.trigger("watch-file", script.watch.frames)
    qtbot.waitUntil(lambda: window.session.commands)
    window.run_control.pause()
    choose(qtbot, window, "script-batch")
    script.start()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    window.run_control.step()
    qtbot.waitUntil(lambda: len(said) == 1)
    assert said.pop() == ("Next batch of model", "float32 4×3 from 1 to 1, mean 1")
    qtbot.waitUntil(lambda: window.session.state == "paused" and len(script.rates) == 2)
    choose(qtbot, window, "script-save")
    qtbot.waitUntil(lambda: len(said) == 1)
    title, path = said.pop()
    assert title == "Checkpoint saved" and path == str(
        script.watch.folder / "step-2.pt"
    )
    saved = torch.load(path, weights_only=True)
    assert saved["step"] == 2 and torch.equal(
        saved["models"]["model"]["weight"], script.model.weight
    )
    fresh = torch.optim.SGD(torch.nn.Linear(3, 1).parameters(), lr=1.0)
    fresh.load_state_dict(next(iter(saved["optimizers"].values())))
    assert fresh.param_groups[0]["lr"] == 0.5 and window.notifier.title == ""
    window.run_control.disconnect(hearing)

    Path(path).unlink()
    Path(path).mkdir()  # in its way
    choose(qtbot, window, "script-save")
    qtbot.waitUntil(lambda: window.notifier.title == "No checkpoint was saved")
    assert "is a folder" in window.notifier.reason
    window.run_control.run()


OTHER = """
import select, sys, torch, tapedeck
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.25)
with tapedeck.watch(model, folder=sys.argv[1], quiet=True):
    print("begun", flush=True)
    while not sys.stdin.closed and not select.select([sys.stdin], [], [], 0.001)[0]:
        optimizer.zero_grad()
        model(torch.ones(2, 3)).mean().backward()
        optimizer.step()
"""


def test_another_rank_is_chosen_and_tells_its_steps(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "TURN_EVERY", 0.0)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("WORLD_SIZE", "2")
    menu = next(
        each
        for each in window.findChildren(QMenu)
        if each.title() == "Rank of the s&cript"
    )
    assert not menu.menuAction().isEnabled() and not menu.actions()
    ranks = []
    for rank in "01":
        environment = {
            **os.environ,
            "RANK": rank,
            "PYTHONPATH": str(Path(tapedeck.__file__).parents[1]),
        }
        words = [sys.executable, "-c", OTHER, str(tmp_path)]
        ranks.append(
            subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for process in ranks:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
    session = window.session
    try:
        window.actions_by_key.trigger("watch-file", tmp_path / "frames.jsonl")
        qtbot.waitUntil(
            lambda: len(session.ranks) == 2 and len(session.history.steps) > 3
        )
        qtbot.waitUntil(menu.menuAction().isEnabled)
        assert [(each.text(), each.isChecked()) for each in menu.actions()] == [
            ("Rank 0", True),
            ("Rank 1", False),
        ]
        assert "rank 0 of 2" in window.status.text("run")
        other = tmp_path / "rank-1" / "frames.jsonl"
        assert other.read_text().count("\n") == 1  # it says nothing until it is asked
        choose(qtbot, window, "Rank 1", menu)
        qtbot.waitUntil(
            lambda: session.watched_file == other and len(session.history.steps) > 3
        )
        qtbot.waitUntil(
            lambda: [each.isChecked() for each in menu.actions()] == [False, True]
        )
        assert session.history.steps["rate"][
            -1
        ] == 0.25 and "rank 1 of 2" in window.status.text("run")
        window.run_control.pause()
        qtbot.waitUntil(lambda: session.state == "paused")
        window.run_control.run()
    finally:
        for process in ranks:
            process.communicate("end")
    qtbot.waitUntil(lambda: not session.active)
    assert not any(process.returncode for process in ranks)


@pytest.mark.parametrize(
    "name",
    ["a loss of 10^400", "10^400 epochs", "only prints of a script", "a link to a key"],
)
def test_a_hostile_file_is_answered_by_a_sentence(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, name: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    outside = Outside(tmp_path)
    folder = tmp_path / "watched"
    folder.mkdir(mode=0o700)
    window.actions_by_key.trigger("watch-file", case.write(folder, outside.neighbours))
    qtbot.waitUntil(lambda: any(case.says in text for text in window.console.texts))
    assert window.session.state != "starting" and not outside.reached
    window.session.stop()
    qtbot.waitUntil(lambda: not window.session.active)
    outside.close()
