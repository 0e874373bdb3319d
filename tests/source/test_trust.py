"""Which files may run is remembered by hash, and asked by every command that would run one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from pytestqt.qtbot import QtBot

from app.export.layers import write_model
from app.main import main
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.source import layer_files
from app.source.generated import Source
from app.source.layer_files import LayerFile
from app.source.own_files import OwnFile, OwnFiles
from app.source.trust import FILE, LONGEST_KEPT, TrustStore, default_file
from app.views.settings import Settings
from app.views.trust_dialog import ModelTrustDialog
from tests.support import own_layers_nets as own
from tests.support.script_here import run_script

pytestmark = pytest.mark.usefixtures("nothing_trusted", "forked_trials")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


@pytest.fixture
def tape(tmp_path: Path, marker: Path) -> Path:
    """A project over a file of layers that leaves a mark when it is run."""
    folder = tmp_path / "work"
    folder.mkdir()
    path = own.write(folder, own.marking(marker))
    project_file.write(own.project(path), folder / "own.tape")
    return folder / "own.tape"


# --- The store --------------------------------------------------------------------------------------------------


def test_what_is_trusted_is_known_after_the_next_start(tmp_path: Path) -> None:
    file = LayerFile.from_text("a", "x = 1\n", "/home/me/a.py")
    store = TrustStore(tmp_path / "deep" / FILE)
    assert not store.is_trusted(file.sha256)
    store.trust(file)
    store.mark_tried(file.sha256)
    again = TrustStore(tmp_path / "deep" / FILE)
    entry = again.entry(file.sha256)
    assert entry is not None and (entry.path, entry.tried) == ("/home/me/a.py", True)
    assert entry.texts == {"/home/me/a.py": "x = 1\n"}
    assert entry.when.endswith("+00:00")
    assert not layer_files.allowed(LayerFile.from_text("a", "x = 2\n").sha256)
    again.revoke(file.sha256)
    assert not TrustStore(tmp_path / "deep" / FILE).is_trusted(file.sha256)
    assert not layer_files.allowed(file.sha256)


def test_the_newest_text_of_a_path_is_kept_for_comparing(tmp_path: Path) -> None:
    store = TrustStore(tmp_path / FILE)
    for text in ("x = 1\n", "x = 2\n", "x = 1\n"):
        store.trust(LayerFile.from_text("a", text, "/a.py"))
    assert store.before("/a.py") == "x = 1\n"
    store.trust(LayerFile.from_text("b", "#" * (LONGEST_KEPT + 1), "/b.py"))
    assert store.before("/b.py") is None and store.before("/c.py") is None


def test_of_a_model_the_review_knows_empty_and_compiled_files_again(
    tmp_path: Path, qtbot: QtBot
) -> None:
    entry, empty = (
        OwnFile("/own/net.py", "1", "import pk\n"),
        OwnFile("/own/pk/__init__.py", "2", ""),
    )
    compiled, added = (
        OwnFile("/own/fast.so", "3"),
        OwnFile("/own/pk/more.py", "4", "y = 2\n"),
    )
    store = TrustStore(tmp_path / FILE)
    store.trust(OwnFiles((entry, empty, compiled), ("/own",)))
    files = OwnFiles(
        (
            replace(entry, text="import pk.more\n"),
            empty,
            replace(compiled, sha256="5"),
            added,
        ),
        ("/own",),
    )
    dialog = ModelTrustDialog(
        files, {one.path: store.before(one.path) for one in files.files}
    )
    qtbot.addWidget(dialog)
    labels = [each.label for each in dialog.reviewed()]
    assert labels == [
        "net.py, edited",
        "pk/__init__.py",
        "fast.so, edited",
        "pk/more.py, new",
    ]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b'[{"path": "/a.py"}]', b"\xff\xfe", b'{"sha256": "x"}']
)
def test_a_damaged_store_trusts_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    store = TrustStore(tmp_path / FILE)
    assert not store.is_trusted("x")
    store.trust(LayerFile.from_text("a", "x = 1\n"))
    assert len(json.loads((tmp_path / FILE).read_bytes())["trusted"]) == 1


def test_two_windows_do_not_undo_one_another(tmp_path: Path) -> None:
    first, second = TrustStore(tmp_path / FILE), TrustStore(tmp_path / FILE)
    first.trust(LayerFile.from_text("a", "x = 1\n"))
    second.trust(LayerFile.from_text("b", "x = 2\n"))
    assert len(json.loads((tmp_path / FILE).read_bytes())["trusted"]) == 2


def test_window_and_commands_look_into_one_store() -> None:
    assert Settings().file.with_name(FILE) == default_file()


# --- The project ------------------------------------------------------------------------------------------------


def test_a_file_beside_the_project_moves_with_it(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    path = own.write(here)
    elsewhere = str(Path(path.anchor) / "elsewhere" / "b.py")
    project_file.write(Project(layer_files=(str(path), elsewhere)), here / "p.tape")
    assert (
        json.loads((here / "p.tape").read_bytes())["layer_files"][0] == "my_layers.py"
    )
    assert project_file.read(here / "p.tape").layer_files == (str(path), elsewhere)
    here.rename(there)
    assert project_file.read(there / "p.tape").layer_files == (
        str(there / "my_layers.py"),
        elsewhere,
    )


# --- Commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["train", "--out", "OUT"],
        ["export", "--code", "OUT.py"],
        ["autograd", "--out", "OUT.json"],
    ],
)
def test_no_command_runs_a_file_without_being_told(
    tape: Path,
    tmp_path: Path,
    marker: Path,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [word.replace("OUT", str(tmp_path / "out")) for word in command]
    assert main([arguments[0], str(tape), *arguments[1:]]) == 1
    told = capsys.readouterr()
    assert "my_layers.py is not trusted yet" in told.out + told.err
    assert not marker.exists()
    if command != ["check"]:
        assert str(tape.parent / "my_layers.py") in told.err and "--trust" in told.err


def test_commands_run_what_they_are_told_to(
    tape: Path,
    tmp_path: Path,
    marker: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from app.views.pictures import picture

    drawn, write = [], picture.write
    monkeypatch.setattr(
        picture, "write", lambda *given: (drawn.append(given[0]), write(*given))[1]
    )
    assert main(["check", str(tape), "--trust"]) == 0
    assert marker.exists() and "0 errors" in capsys.readouterr().out
    out = tmp_path / "run"
    assert (
        main(
            [
                "train",
                str(tape),
                "--out",
                str(out),
                "--epochs",
                "1",
                "--device",
                "cpu",
                "--trust",
            ]
        )
        == 0
    )
    assert all(
        arrow.label for arrow in drawn[0].arrows
    )  # the picture of the net knows the layers too
    assert (out / "my_layers.py").read_text() == (
        tape.parent / "my_layers.py"
    ).read_text()
    assert run_script(out, "--epochs", "1", "--device", "cpu") is None
    assert (
        main(["autograd", str(tape), "--out", str(tmp_path / "tape.json"), "--trust"])
        == 0
    )
    assert "ClipBackward" in (tmp_path / "tape.json").read_text()


def test_what_the_window_trusts_commands_run(tape: Path, marker: Path) -> None:
    path = tape.parent / "my_layers.py"
    TrustStore(default_file()).trust(
        LayerFile.from_text("my_layers", path.read_text(), str(path))
    )
    assert main(["check", str(tape)]) == 0
    assert marker.exists()


def test_an_edit_asks_again(tape: Path, marker: Path) -> None:
    path = tape.parent / "my_layers.py"
    TrustStore(default_file()).trust(
        LayerFile.from_text("my_layers", path.read_text(), str(path))
    )
    path.write_text(path.read_text() + "\n# another line\n")
    assert main(["check", str(tape)]) == 1
    assert not marker.exists()


# --- Export -----------------------------------------------------------------------------------------------------


def source_of(tape: Path) -> Source:
    from app.builder.analysis import analyse

    project = project_file.read(tape)
    custom_layers.admit(project, all_of_them=True)
    return analyse(project.graph, custom_layers.ops_of(project)).source


def test_an_export_leaves_the_file_at_its_home_alone(
    tape: Path, tmp_path: Path
) -> None:
    source, path = source_of(tape), tape.parent / "my_layers.py"
    before = path.stat().st_mtime_ns
    assert write_model(source, tape.parent / "model.py") == [
        tape.parent / "model.py",
        path,
    ]
    assert path.stat().st_mtime_ns == before
    with pytest.raises(FileExistsError, match="choose another name"):
        write_model(source, tape.parent / "my_layers.py")
    path.write_text("# another\n")
    with pytest.raises(FileExistsError, match="was edited since"):
        write_model(source, tape.parent / "model.py")
    assert path.read_text() == "# another\n"
