"""A person's script in the window: its curves and norms, and the deck's keys, which act on it."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from app.views.main_window import MainWindow
from tests.tapedeck.test_watching import Script, script  # noqa: F401


def test_a_script_is_seen_paused_stepped_and_given_a_rate(qtbot: QtBot, window: MainWindow, script: Script) -> None:  # noqa: F811
    session, control = window.session, window.run_control

    def until(holds) -> None:
        qtbot.waitUntil(holds, timeout=60_000)

    window.actions_by_key.trigger("watch-file", script.watch.frames)
    until(lambda: session.commands)
    control.pause()  # before its first step
    script.start()
    until(lambda: session.state == "paused" and len(session.history.steps) >= 1)
    assert window.curves.has_run
    assert session.history.layers == ("model",) and len(session.history.gradients) == 1
    before = len(script.rates)
    control.step()
    until(lambda: session.state == "paused" and len(session.history.steps) == before + 1)
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
    until(lambda: session.state == "stopped")
    assert "goes on" in session.current.finished.note and script.is_alive()
