"""Windows of a project that is trained: opened, closed, and what their page "Runs" lists."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from app.project import file as project_file
from app.project.project import Project
from app.runs import store
from app.util.resources import path as resource_path
from app.views.settings import Settings
from app.views.training.charts.feature import ChartsFeature
from tests.support.taken_device import DEVICE
from tests.support.whole_window import WholeWindow
from tests.support.windows import leave
from tests.views.window.test_window import ready, wait_for

EXAMPLE = project_file.read(resource_path("examples", "digits.tape"))


def small(**training: object) -> Project:
    return replace(
        EXAMPLE,
        training=replace(
            EXAMPLE.training, **{"device": DEVICE, "epochs": 2, **training}
        ),
    )


def opened(qtbot, path: Path | None, *, charts: bool = True) -> WholeWindow:
    made = WholeWindow(Settings("TapedeckTest", "window"))
    made.resize(1280, 800)
    made.show()
    made.files.open(path) if path is not None else made.document.new(small())
    made.start()
    ready(qtbot, made)
    if charts:
        made.furnish(made.findChild(ChartsFeature))
    return made


def closed(window: WholeWindow) -> None:
    window.session.close_and_wait()
    window.document.undo_stack.setClean()
    leave(window)


def run(qtbot, window: WholeWindow) -> None:
    window.run_control.run()
    wait_for(qtbot, window, "done")


def listed(qtbot, window: WholeWindow, count: int) -> list[store.Kept]:
    """Wait until the page lists so many runs."""
    model = window.runs.model
    qtbot.waitUntil(
        lambda: (
            sum(row.kept is not None for row in model.rows) == count
            and not window.background.busy
        )
    )
    return [row.kept for row in model.rows if row.kept is not None]


def cell(window: WholeWindow, row: int, column: str) -> str:
    titles = [shown.title for shown in window.runs.model.columns]
    return window.runs.model.index(row, titles.index(column)).data()
