"""In the window: graph breaks at their nodes, and what compiling gains."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.features.compile.page import CodeDialog, CompilePage, conclusion, rows_of
from app.features.compile.values import Break, Compiled, Recompile
from app.project import file as project_file
from app.project.project import Project
from tapedeck.frames import FRAMES
from tests.support.builder_nets import net
from tests.support.forked_python import run_replaced
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

LEFT = Qt.MouseButton.LeftButton
RECURRENT = net(
    [
        ("input", "x", {"shape": (5, 12)}),
        (
            "nn.LSTM",
            "memory",
            {"input_size": 12, "hidden_size": 4, "batch_first": True},
        ),
        ("nn.Linear", "head", {"in_features": 4, "out_features": 3}),
        ("output", "y", {}),
    ]
)


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(Project(graph=RECURRENT), file)
    window.files.open(file)
    ready(qtbot, window)
    return window


def test_breaks_are_listed_drawn_and_gone_to_until_the_net_changes(
    qtbot: QtBot, window: WholeWindow
) -> None:
    drawn: list[dict[str, str]] = []
    window.overlays.heat_drawn.connect(lambda _heat, texts, *_: drawn.append(texts))
    window.actions_by_key["compile"].trigger()
    page: CompilePage = window.pages.widget("compile")
    assert page.stop.isVisible() and not page.start.isVisible()
    qtbot.waitUntil(lambda: page.result is not None)
    (row,) = page.table.rows
    assert (row.kind, row.path) == ("Graph break", "memory")
    assert row.line.startswith("model.py:") and row.cure
    assert "1 graph break, 0 recompiles." in page.summary.text()
    assert page.start.isVisible() and not page.stop.isVisible()

    window.overlays.choose("Breaks")
    assert drawn[-1] == {"memory": "1 break"}
    page.table.setFocus()
    page.table.setCurrentIndex(page.table.model().index(0, 0))
    qtbot.keyClick(page.table, Qt.Key.Key_Return)
    assert window.selection.ids == {"memory"}

    project = window.document.project
    graph = project.graph.with_param("head", "out_features", 4)
    window.document.apply("Another net", replace(project, graph=graph))
    assert "compile again" in page.summary.text()
    assert not window.overlay.is_offered("Breaks") and not drawn[-1]


def test_it_is_cancelled_and_another_project_takes_the_page_away(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["compile"].trigger()
    page: CompilePage = window.pages.widget("compile")
    qtbot.mouseClick(page.stop, LEFT)
    assert page.result is None and page.start.isVisible()
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    assert not window.overlay.is_offered("Breaks")


def test_a_net_that_cannot_run_is_refused(qtbot: QtBot, window: WholeWindow) -> None:
    project = window.document.project
    graph = project.graph.with_param("head", "in_features", 7)
    window.document.apply("A wrong size", replace(project, graph=graph))
    qtbot.waitUntil(lambda: window.live.up_to_date and bool(window.live.errors))
    window.actions_by_key["compile"].trigger()
    assert (
        window.banner.isVisible() and "Compiling has to wait" in window.banner.title()
    )


def test_recompiles_and_code_are_shown(qtbot: QtBot) -> None:
    result = Compiled(
        2,
        (Break("fc", "model.py:3", "a print", "Remove it."),),
        (Recompile("", "x: size mismatch at index 1 (model.py:9)", "9", "10", "Pad."),),
        0.002,
        0.001,
        ("2×9",),
        ("A remark.",),
        ("def call(args): ...",),
    )
    page = CompilePage()
    qtbot.addWidget(page)
    page.show_result(result)
    assert [row.line for row in page.table.rows] == ["model.py:3", "model.py:9"]
    assert page.table.rows[1].reason.endswith("was 9, is 10")
    assert "2.0 times as fast" in conclusion(result) and "A remark." in conclusion(
        result
    )
    assert rows_of((), ()) == []
    qtbot.mouseClick(page.code, LEFT)
    dialog = page.window().findChild(CodeDialog)
    assert "def call(args)" in dialog.edit.toPlainText()
    dialog.accept()


SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, x):
        return self.head(x)

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        x = self.fc(x)
        print("x")
        return x.tanh()

torch.manual_seed(0)
net = torch.compile(Net(), backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in (4, 4, 5, 6):
    for scale in (1, 2):
        optimizer.zero_grad()
        net(torch.ones(batch, 3)).mean().backward()
        optimizer.step()
"""


def test_a_watched_script_that_compiles_tells_its_breaks_and_recompiles(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "train.py").write_text(SCRIPT, "utf-8")
    done = run_replaced(
        tmp_path, "train.py", cwd=tmp_path, TAPEDECK_WATCHED=str(tmp_path / "told")
    )
    assert done.returncode == 0, done.stderr
    window.actions_by_key.trigger("watch-file", next((tmp_path / "told").rglob(FRAMES)))
    qtbot.waitUntil(lambda: window.session.state == "done")
    page: CompilePage = window.pages.widget("compile")
    rows = page.table.rows
    line = SCRIPT.splitlines().index('        print("x")') + 1
    broken = next(row for row in rows if row.kind == "Graph break")
    assert broken.line.endswith(f"train.py:{line}")
    assert "print" in broken.reason and "Remove the print" in broken.cure
    again = next(row for row in rows if row.kind == "Recompile")
    assert "was 4, is 5" in again.reason and again.cure
    assert f"{len(rows)} graph breaks and recompiles" in page.summary.text()
