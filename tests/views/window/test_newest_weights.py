"""After a project is reopened, its net has the weights of its newest kept run wherever it is seen or taken away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.builder.edits import edits
from app.engine.tasks.capture import batch_of
from app.main import main
from app.project import file as project_file
from app.util import tensor_files  # noqa: F401  # reads the weights that a run wrote
from app.views.run import newest_weights
from app.views.ui import theme
from tests.support.needs import needs
from tests.support.run_windows import closed, opened, small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

WORDS = "weights of Run 1 at step 46"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project and its run."""
    folder = tmp_path_factory.mktemp("trained")
    project_file.write(small(), folder / "net.tape")
    return folder


@pytest.fixture
def path(qtbot: QtBot, qapp: QApplication, trained: Path, tmp_path: Path) -> Path:
    """The project with a run that a window made which is closed."""
    theme.apply(qapp, "dark")
    if not (trained / "net.runs").exists():
        window = opened(qtbot, trained / "net.tape")
        window.start_run()
        qtbot.waitUntil(
            lambda: not window.session.active and bool(window.session.runs),
        )
        torch.save(
            dict(window.session.training_thread.result.state_dict),
            trained / "learnt.pt",
        )
        closed(window)
    return Path(shutil.copytree(trained, tmp_path / "copy")) / "net.tape"


@pytest.fixture
def window(qtbot: QtBot, path: Path) -> Iterator[WholeWindow]:
    made = opened(qtbot, path)
    yield made
    closed(made)


def learnt(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path.with_name("learnt.pt"), weights_only=True)


def test_a_capture_has_them_and_says_so_until_the_net_is_another(
    qtbot: QtBot, window: WholeWindow, path: Path
) -> None:
    window.pages.show("autograd")
    room = window.room
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: room.tape is not None)
    assert room.head.below.text().endswith(WORDS) or room.head.summary.text().endswith(
        WORDS
    )
    batch = batch_of(window.autograd_control.diagnosed)
    assert torch.equal(
        batch.model.state_dict()["fc2.weight"], learnt(path)["fc2.weight"]
    )
    project = window.document.project
    node = next(
        node.id for node in project.graph.nodes.values() if node.name == "relu1"
    )
    window.document.apply("Another net", edits.flagged(project, [node], "muted", True))
    ready(qtbot, window)
    before = room.tape
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: room.tape is not before)
    assert "weights untrained, initialised with seed 0" in room.head.accessibleName()


def test_weights_of_a_run_that_ends_while_they_are_written_are_its_last(
    tmp_path: Path,
) -> None:
    step = SimpleNamespace(step=7)
    thread = SimpleNamespace(result=None, written=0)

    def write(path: Path) -> None:
        thread.written = 6 if thread.result is None else 7
        thread.result = step

    thread.write_weights = write
    run = SimpleNamespace(recorder=None, active=True, display_number=3)
    weights = newest_weights._written(run, thread, tmp_path, tmp_path)
    assert weights.words == "of Run 3 at step 7" and thread.written == 7


@needs("export")
def test_commands_take_them_unless_told_otherwise_and_never_those_of_another_net(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "w.pt"
    assert main(["export", str(path), "--weights", str(file)]) == 0
    assert WORDS in capsys.readouterr().out
    assert torch.equal(
        torch.load(file, weights_only=True)["fc2.weight"], learnt(path)["fc2.weight"]
    )
    assert main(["export", str(path), "--weights", str(file), "--best-weights"]) == 0
    assert "its best validation loss" in capsys.readouterr().out
    best = next(path.with_suffix(".runs").rglob("best.pt"))
    held = best.rename(best.with_suffix(".away"))
    assert main(["export", str(path), "--weights", str(file), "--best-weights"]) == 1
    assert "has no best weights" in capsys.readouterr().err
    held.rename(best)
    assert main(["export", str(path), "--weights", str(file), "--start-weights"]) == 0
    assert "untrained" in capsys.readouterr().out
    assert not torch.equal(
        torch.load(file, weights_only=True)["fc2.weight"], learnt(path)["fc2.weight"]
    )
    picture = tmp_path / "g.json"
    assert main(["autograd", str(path), "--out", str(picture), "--batch", "4"]) == 0
    assert WORDS in capsys.readouterr().err
    project = project_file.read(path)
    node = next(
        node.id for node in project.graph.nodes.values() if node.name == "relu1"
    )
    project_file.write(edits.flagged(project, [node], "muted", True), path)
    assert main(["export", str(path), "--weights", str(file)]) == 0
    assert "untrained" in capsys.readouterr().out, "the run trained another net"
