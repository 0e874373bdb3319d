"""Files of layers in the window: added, shown, trusted, edited, removed; nothing runs before that."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QImage

from app.engine.client import shared
from app.project import file
from app.project.picture_file import into_png
from app.project.project import Project
from app.source import layer_files
from app.source.trust import TrustStore
from app.views.pictures.picture import png_bytes
from app.views.trust_dialog import TrustDialog
from tests.support import own_code
from tests.support import own_layers_nets as own
from tests.support.whole_window import WholeWindow

pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


@pytest.fixture
def tape(tmp_path: Path, marker: Path) -> Path:
    """A project over a file of layers that leaves a mark when it is run."""
    folder = tmp_path / "work"
    folder.mkdir()
    file.write(own.project(own.write(folder, own.marking(marker))), folder / "own.tape")
    return folder / "own.tape"


def open_and_wait(qtbot, window: WholeWindow, path: Path) -> None:
    assert window.files.open(path)
    qtbot.waitUntil(lambda: window.live.up_to_date)


def dialog(window: WholeWindow) -> TrustDialog:
    """The trust dialog that is open."""
    (found,) = [part for part in window.findChildren(TrustDialog) if part.isVisible()]
    return found


def messages(window: WholeWindow) -> set[str]:
    assert window.live.analysis is not None
    return {problem.message for problem in window.live.analysis.errors}


def file_rows(window: WholeWindow) -> list[tuple[str, str]]:
    return [(row.file.name, row.state()) for row in window.own_files.rows()]


def test_a_project_with_an_untrusted_file_opens_and_runs_nothing_of_it(
    qtbot, window, tape, marker
) -> None:
    picture = tape.with_suffix(".png")
    picture.write_bytes(
        into_png(png_bytes(QImage(4, 4, QImage.Format.Format_RGB32)), tape.read_bytes())
    )
    for path in (picture, tape):
        open_and_wait(qtbot, window, path)
        assert messages(window) == {"my_layers.py is not trusted yet"}
        assert not marker.exists()
        assert file_rows(window) == [("my_layers.py", "not trusted yet")]
        assert window.banner.isVisible() and "my_layers.py" in window.banner.title()
        assert window.run_control.blocked
    spec = window.catalog[own.SCALED]
    assert [port.name for port in spec.inputs] == ["x"] and spec.param(
        "features"
    ) is not None
    assert window.run_control.blocked


def test_trust_makes_its_layers_run_and_is_remembered(
    qtbot, window, tape, marker
) -> None:
    open_and_wait(qtbot, window, tape)
    assert window.live.analysis is not None
    window.cures.apply(window.live.analysis.errors[0].cures[0])
    asking = dialog(window)
    assert asking.code.toPlainText().startswith("import pathlib")
    assert not marker.exists()
    asking.trust_button.click()
    qtbot.waitUntil(lambda: window.live.up_to_date and window.live.analysis.runnable)
    assert marker.exists() and not window.banner.isVisible()
    assert file_rows(window) == [("my_layers.py", "2 layers")]
    (sha256,) = {one.file.sha256 for one in window.layers.files}
    again = TrustStore(window.layers.trust.file)
    assert again.is_trusted(sha256)
    qtbot.waitUntil(lambda: TrustStore(window.layers.trust.file).entry(sha256).tried)
    window.layers.review("my_layers")
    dialog(window).revoke_button.click()
    qtbot.waitUntil(
        lambda: window.live.up_to_date and not window.live.analysis.runnable,
    )
    assert not TrustStore(window.layers.trust.file).is_trusted(sha256)


def test_a_trusted_file_runs_in_the_engine_and_never_in_the_window(
    qtbot, window, tape, tmp_path
) -> None:
    pids, path = tmp_path / "pids", tape.parent / "my_layers.py"
    path.write_text(
        f"import os\nwith open({str(pids)!r}, 'a') as f:\n    print(os.getpid(), file=f)\n{own.LAYERS}"
    )
    own.trust(path)
    window.layers.trust.trust(
        layer_files.LayerFile.from_text("my_layers", path.read_text(), str(path))
    )
    open_and_wait(qtbot, window, tape)
    assert window.live.analysis.runnable and pids.exists()
    sha256 = layer_files.digest(path.read_text())
    qtbot.waitUntil(lambda: TrustStore(window.layers.trust.file).entry(sha256).tried)
    assert set(pids.read_text().split()) == {str(shared().pid)} != {str(os.getpid())}
    assert not [
        name
        for name in sys.modules
        if name.startswith(f"tapedeck_layers_{sha256[:12]}")
    ]


def test_a_file_that_cannot_be_loaded_says_why_at_its_layers_and_runs_once_it_is_mended(
    qtbot, window, tape
) -> None:
    path = tape.parent / "my_layers.py"
    path.write_text(own.LAYERS + "\nraise RuntimeError('not today')\n")
    layer_files.allow(layer_files.digest(path.read_text()))
    open_and_wait(qtbot, window, tape)
    assert any("not today" in message for message in messages(window))
    sha256 = layer_files.digest(path.read_text())
    assert not layer_files.tried(sha256)
    layer_files.allow(layer_files.digest(own.LAYERS), tried=True)
    own.write(tape.parent)
    qtbot.waitUntil(lambda: window.live.up_to_date and window.live.analysis.runnable)


def test_not_now_trusts_nothing(qtbot, window, tape, marker) -> None:
    open_and_wait(qtbot, window, tape)
    window.banner.acted.emit()
    dialog(window).reject()
    assert not marker.exists() and file_rows(window) == [
        ("my_layers.py", "not trusted yet")
    ]


def test_an_edit_on_the_disk_asks_again_without_a_dialog(
    qtbot, window, tape, marker
) -> None:
    path = tape.parent / "my_layers.py"
    own.trust(path)
    window.layers.trust.trust(
        layer_files.LayerFile.from_text("my_layers", path.read_text(), str(path))
    )
    open_and_wait(qtbot, window, tape)
    assert window.live.analysis.runnable and not window.banner.isVisible()
    marker.unlink()
    with qtbot.waitSignal(window.layers.waiting):
        path.write_text(path.read_text().replace("2 * grad", "3 * grad"))
    assert window.banner.title() == "my_layers.py was edited"
    assert not any(part.isVisible() for part in window.findChildren(TrustDialog))
    qtbot.waitUntil(
        lambda: window.live.up_to_date and not window.live.analysis.runnable,
    )
    assert not marker.exists()
    window.banner.acted.emit()
    changes = dialog(window).changes
    assert changes is not None and "+        return 3 * grad" in changes.toPlainText()
    dialog(window).reject()


def test_files_are_added_by_dropping_them_and_taken_away_as_undo_steps(
    qtbot, window, tmp_path, marker
) -> None:
    path = own.write(tmp_path, own.marking(marker))
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    event = QDropEvent(
        QPointF(5, 5),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    window.dropEvent(event)
    assert window.document.project.layer_files == (str(path),)
    assert own.SCALED in window.catalog and window.catalog[own.SCALED].kind == "unknown"
    assert "Bad cannot be used" in " ".join(
        text for _, _, text in dialog(window)._facts()
    )
    dialog(window).reject()
    window.document.undo_stack.undo()
    assert own.SCALED not in window.catalog and not file_rows(window)
    window.document.undo_stack.redo()
    (row,) = window.own_files.rows()
    remove = next(
        action
        for action in window.own_files.menu(row.file).actions()
        if "Remove" in action.text()
    )
    remove.trigger()
    assert window.document.project.layer_files == () and not file_rows(window)
    assert not marker.exists()


def test_a_file_that_cannot_be_used_is_not_added_and_says_why(
    qtbot, window, tmp_path
) -> None:
    for name, text, words in (
        ("plain.py", "x = 1\n", "defines no subclass of nn.Module"),
        ("broken.py", "class A(\n", "is not valid Python"),
    ):
        window.layers.add([own.write(tmp_path, text, name)])
        assert words in window.banner.reason()
    first = own.write(tmp_path)
    (tmp_path / "b").mkdir()
    own.trust(first)
    window.layers.add([first, own.write(tmp_path / "b")])
    assert window.document.project.layer_files == (str(first),)
    assert "Both would be imported as my_layers" in window.banner.reason()


def test_a_missing_file_leaves_its_nodes_and_their_values(qtbot, window, tape) -> None:
    (tape.parent / "my_layers.py").unlink()
    open_and_wait(qtbot, window, tape)
    assert file_rows(window) == [("my_layers.py", "cannot be read")]
    node = window.document.project.graph.nodes["n5"]
    assert dict(node.params) == {"features": 16, "power": 2}
    assert any("was not found in" in message for message in messages(window))
    own.write(tape.parent)
    own.trust(tape.parent / "my_layers.py")
    qtbot.waitUntil(lambda: window.live.up_to_date and window.live.analysis.runnable)


def test_classes_stand_in_the_palette_with_a_lock(qtbot, window, tmp_path) -> None:
    path = own.write(tmp_path)
    project = Project(layer_files=(str(path),))
    window.document.new(project)
    palette = window.palette_view
    index = palette.model.index_of(own.SCALED)
    assert index.isValid() and not index.flags() & Qt.ItemFlag.ItemIsDragEnabled
    assert palette.model.data(palette.model.parent(index)) == "My layers"
    palette.tree.chosen.emit(own.SCALED)
    dialog(window).trust_button.click()
    index = palette.model.index_of(own.SCALED)
    assert index.flags() & Qt.ItemFlag.ItemIsDragEnabled
    palette.tree.chosen.emit(own.SCALED)
    assert [node.op for node in window.document.project.graph.nodes.values()] == [
        own.SCALED
    ]
    window.document.apply("Forget", replace(window.document.project, layer_files=()))
    assert not palette.model.index_of(own.SCALED).isValid()


def test_a_file_of_the_last_project_is_no_longer_asked_about(
    qtbot, window, tape
) -> None:
    open_and_wait(qtbot, window, tape)
    assert window.layers.asked_about == "my_layers"
    window.files.new()
    assert not window.banner.isVisible() and window.layers.asked_about == ""
    window.layers.review()
    assert not [part for part in window.findChildren(TrustDialog) if part.isVisible()]
    window.notifier.warn(
        "This project contains custom layers: my_layers.py", "said of another"
    )
    window.layers.changed.emit(())
    assert window.banner.isVisible(), (
        "a banner of the next project stays, whatever its title"
    )


def test_a_file_of_the_project_offers_its_models(window, tmp_path, monkeypatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from torch import nn\nclass Net(nn.Module):\n    pass\n")
    own_code.trust(f"{path}:Net")
    window.layers.add([path])
    (row,) = window.own_files.rows()
    commands: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        window.actions_by_key, "trigger", lambda *command: commands.append(command)
    )
    next(
        action
        for action in window.own_files.menu(row.file).actions()
        if "model" in action.text()
    ).trigger()
    assert commands == [("import-file", path)]
