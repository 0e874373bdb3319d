"""The Autograd page is used from capture to replay by a window whose process has no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
USE = """
import sys
from pathlib import Path

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.util.resources import path
from app.views.main_window import MainWindow
from app.views.settings import Settings
from app.views.ui import theme


def until(true):
    for _ in range(3000):
        if true():
            return
        QTest.qWait(20)
    raise AssertionError(true.__code__.co_consts)


def main(replay):
    application = QApplication([])
    theme.apply(application, "dark")
    window = MainWindow(Settings("TapedeckTest", "without torch"))
    window.show()
    window.open_path(path("examples") / "digits.tape")
    window.start()
    until(lambda: hasattr(window, "findings_control") and window.live.up_to_date)
    window.actions_by_key["capture"].trigger()
    until(lambda: window.room.tape is not None)
    player, findings = window.tape_control.player, window.findings_control
    player.set_speed(None)
    player.play()
    until(lambda: player.state == "standing" and player.position == len(player))
    findings.run_diagnostics()
    until(lambda: findings.findings is not None)
    findings.check(next(node for node in window.room.tape.nodes if node.name == "ReluBackward0"))
    until(lambda: findings.report is not None)
    player.release()
    window.tape_control.replay.export(replay)
    until(replay.exists)
    assert findings.report.passed and "torch" not in sys.modules
    window.document.undo_stack.setClean()
    window.close()


main(Path(sys.argv[1]))
"""


def test_it_is_used_from_capture_to_replay(tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE, str(tmp_path / "replay.html")]
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **home}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
