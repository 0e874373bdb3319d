"""Unsaved work is kept while a window is open, and offered after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.features.files import autosave, feature
from app.features.files.recovery_dialog import NO_PICTURE, RecoveryCard, RecoveryDialog
from app.project import file as project_file
from app.project import file_lock, journal
from app.project.journal import JOURNAL, ClaimedJournal, Journal, JournalEntry
from app.project.project import Project
from app.runs import store
from app.util.resources import path as resource_path
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog
from tests.slow.material.monsters import MONSTERS
from tests.support import own_layers_nets as own
from tests.support import windows
from tests.support.needs import needs
from tests.support.training_jobs import SMALL_NET, job
from tests.support.whole_window import WholeWindow

DIGITS = resource_path("examples", "digits.tape")


@pytest.fixture
def window(qtbot, qapp, monkeypatch) -> Iterator[WholeWindow]:
    monkeypatch.setattr(autosave, "SECOND", 10)
    with windows.shown(qapp, "autosave") as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "net.tape"
    path.parent.mkdir()
    project_file.write(project_file.read(DIGITS), path)
    return path


def folder(window: WholeWindow) -> Path:
    return window.settings.journal_folder


def journaled(window: WholeWindow) -> list[Project]:
    """What is on the disk of the work of this window, or of one that crashed."""
    found = []
    for path in sorted(folder(window).glob("*.journal")):
        with suppress(FileNotFoundError):  # it went since it was listed
            found.append(journal.decode(path.read_bytes()).project)
    return found


def crashed(
    window: WholeWindow, project: Project, file: Path | None = None, **more: object
) -> Path:
    """Leave the journal of a window that is gone, autosaved at 14:02 today."""
    folder(window).mkdir(parents=True, exist_ok=True)
    path = (
        folder(window) / f"crash{len(list(folder(window).glob('*.journal')))}.journal"
    )
    now = datetime.now().astimezone().replace(hour=14, minute=2)
    on_disk = project_file.digest(file) if file is not None and file.exists() else None
    path.write_bytes(journal.encode(JournalEntry(project, file, on_disk, now, **more)))  # type: ignore[arg-type]
    return path


def offered(qtbot, window: WholeWindow) -> RecoveryDialog:
    window.recovery.find_journals()
    qtbot.waitUntil(lambda: window.recovery.dialog is not None)
    assert window.recovery.dialog is not None
    return window.recovery.dialog


def press(button: object) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def texts(card: RecoveryCard) -> str:
    from PySide6.QtWidgets import QLabel

    return "\n".join(part.text() for part in card.findChildren(QLabel))


# -- while the window is open -----------------------------------------------------------------------------------------


def test_edits_are_kept_until_they_are_saved(
    qtbot, window: WholeWindow, file: Path
) -> None:
    window.files.open(file)
    before = file.read_bytes()
    window.canvas.add_op("nn.ReLU")
    qtbot.waitUntil(lambda: journaled(window) == [window.document.project])
    qtbot.waitUntil(lambda: window.status.text("autosave").startswith("Autosaved "))
    assert file.read_bytes() == before
    assert window.files.save()
    qtbot.waitUntil(lambda: not journaled(window))
    assert window.status.text("autosave") == ""


def test_a_project_without_a_file_is_kept_until_its_edits_are_undone(
    qtbot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    window.canvas.add_op("nn.ReLU")
    qtbot.waitUntil(lambda: journaled(window) == [window.document.project])
    window.document.undo_stack.undo()
    qtbot.waitUntil(lambda: not journaled(window))


def test_the_first_edit_is_kept_at_once(
    qtbot, window: WholeWindow, monkeypatch
) -> None:
    monkeypatch.setattr(autosave, "SECOND", 10**6)
    window.canvas.add_op("nn.ReLU")
    qtbot.waitUntil(lambda: journaled(window) == [window.document.project])
    window.canvas.add_op("nn.ReLU")
    assert journaled(window) != [window.document.project]


def test_work_that_never_rests_is_kept_all_the_same(qtbot, window: WholeWindow) -> None:
    def edit() -> bool:
        window.document.apply(
            "Type",
            replace(window.document.project, notes=window.document.project.notes + "x"),
        )
        return bool(journaled(window))

    qtbot.waitUntil(edit)


def test_what_was_imported_or_restored_and_is_in_no_file_is_kept(
    qtbot, window: WholeWindow
) -> None:
    window.document.new(project_file.read(DIGITS))
    window.document.mark_unsaved()
    qtbot.waitUntil(lambda: journaled(window) == [window.document.project])


def test_opening_another_project_gives_the_journal_up_only_with_the_work(
    qtbot, window: WholeWindow, file: Path, monkeypatch
) -> None:
    window.canvas.add_op("nn.ReLU")
    qtbot.waitUntil(lambda: len(journaled(window)) == 1)
    answers = [DialogAnswer.CANCEL, DialogAnswer.DISCARD]
    monkeypatch.setattr(
        QuestionDialog, "exec", lambda self: setattr(self, "answer", answers.pop(0))
    )
    window.files.open_asking(file)
    assert window.document.path is None and len(journaled(window)) == 1
    window.files.open_asking(file)
    assert window.document.path == file
    qtbot.waitUntil(lambda: not journaled(window))


def test_a_window_that_is_closed_leaves_nothing(qtbot, qapp, file: Path) -> None:
    with windows.shown(qapp, "closing") as window:
        window.files.open(file)
        window.canvas.add_op("nn.ReLU")
        window.recovery.autosave.save()
        qtbot.waitUntil(lambda: len(journaled(window)) == 1)
        assert file_lock.lock_beside(file).exists()
    assert not list(folder(window).iterdir())
    assert [path.name for path in file.parent.iterdir()] == ["net.tape"]


def test_a_folder_that_cannot_be_written_is_said_in_the_status_line(
    qtbot, window: WholeWindow, capsys
) -> None:
    folder(window).parent.mkdir(parents=True)
    folder(window).write_text("a file where the folder would be")
    window.canvas.add_op("nn.ReLU")
    qtbot.waitUntil(lambda: "Autosave is off" in window.status.text("autosave"))
    assert not window.banner.isVisible() and capsys.readouterr().err == ""
    folder(window).unlink()
    window.canvas.add_op("nn.ReLU")
    qtbot.waitUntil(lambda: window.status.text("autosave").startswith("Autosaved "))


@pytest.mark.parametrize("changed", [True, False])
def test_a_run_begins_with_what_is_open_on_the_disk(
    qtbot, window: WholeWindow, monkeypatch, changed: bool
) -> None:
    """Also of a project without a file that was not changed: its run belongs to it."""
    monkeypatch.setattr(autosave, "SECOND", 10**6)
    found: list[list[Project]] = []
    monkeypatch.setattr(
        "app.training_thread.train",
        lambda *_, **_more: found.append(journaled(window)) or iter(()),
    )
    window.files.open_example("digits.tape")
    if changed:
        window.canvas.add_op("nn.ReLU")
    window.session.start(job(SMALL_NET))
    qtbot.waitUntil(lambda: not window.session.active)
    assert found == [[window.document.project]]


def test_a_new_project_after_a_save_is_kept_and_found(
    qtbot, window: WholeWindow, file: Path
) -> None:
    """The save is the last of another project: it does not stand for what was drawn since."""
    window.files.open(file)
    window.canvas.add_op("nn.ReLU")
    assert window.files.save()
    window.files.new()
    window.document.apply("Type", Project(notes="lost"))
    qtbot.waitUntil(lambda: journaled(window) == [Project(notes="lost")])
    window.recovery.autosave._writer.journal._lock.release()  # as the kernel does when the process is killed
    (found,) = journal.find(folder(window)).found
    assert found.entry is not None and found.entry.project.notes == "lost"
    found.leave()


# -- after a crash ----------------------------------------------------------------------------------------------------


def test_unsaved_work_is_offered_with_a_picture_its_file_and_the_time(
    qtbot, window: WholeWindow, file: Path
) -> None:
    crashed(window, replace(project_file.read(file), notes="lost"), file)
    dialog = offered(qtbot, window)
    (card,) = dialog.cards
    qtbot.waitUntil(lambda: card.picture is not None)
    assert card.picture is not None and card.picture.toImage().allGray() is False
    assert {"net.tape", str(file.parent), "12 nodes, autosaved 14:02"} <= set(
        texts(card).splitlines()
    )
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert len(journaled(window)) == 1 and window.recovery.dialog is None
    assert len(offered(qtbot, window).cards) == 1


def test_restored_work_is_modified_linked_to_its_file_and_kept_on(
    qtbot, window: WholeWindow, file: Path
) -> None:
    lost = replace(project_file.read(file), notes="lost")
    path = crashed(window, lost, file)
    press(offered(qtbot, window).cards[0].restore_button)
    assert (
        window.document.project == lost
        and window.document.dirty
        and window.document.path == file
    )
    assert window.recovery.dialog is None and project_file.read(file).notes == ""
    qtbot.waitUntil(lambda: window.recovery.autosave.journal == path)
    assert path.exists() and journal.find(folder(window)).found == ()
    assert window.files.save() and project_file.read(file).notes == "lost"
    qtbot.waitUntil(lambda: not path.exists())


def test_discarding_takes_two_presses(qtbot, window: WholeWindow) -> None:
    crashed(window, project_file.read(DIGITS))
    (card,) = offered(qtbot, window).cards
    assert "digits (not saved to a file yet)" in texts(card)
    press(card.discard_button)
    assert len(journaled(window)) == 1
    press(card.discard_button)
    assert not list(folder(window).iterdir()) and window.recovery.dialog is None


def test_a_second_crashed_window_is_restored_in_a_window_of_its_own(
    qtbot, qapp, window, monkeypatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(
        feature.subprocess,
        "Popen",
        lambda command, **_more: started.append(command),
    )
    crashed(window, Project("first"))
    second = crashed(window, Project("second"))
    dialog = offered(qtbot, window)
    assert len(dialog.cards) == 2
    for card in list(dialog.cards):
        press(card.restore_button)
    assert [command[-1] for command in started] in (
        [str(second)],
        [str(second.with_name("crash0.journal"))],
    )
    with windows.shown(qapp, "other") as other:
        other.recovery.open(Path(started[0][-1]))
        qtbot.waitUntil(lambda: other.document.dirty)
        assert {window.document.project.name, other.document.project.name} == {
            "first",
            "second",
        }
        assert other.document.dirty


def test_work_that_was_discarded_meanwhile_is_refused_with_a_word(
    qtbot, window: WholeWindow, tmp_path: Path
) -> None:
    window.recovery.open(tmp_path / "gone.journal")
    qtbot.waitUntil(lambda: "cannot be restored" in window.banner.title())
    assert not window.document.dirty


def test_what_changed_in_the_file_since_is_shown(
    qtbot, window: WholeWindow, file: Path
) -> None:
    crashed(window, replace(project_file.read(file), notes="lost"), file)
    project_file.write(replace(project_file.read(file), name="other"), file)
    (card,) = offered(qtbot, window).cards
    assert "changed since" in texts(card)
    press(card.restore_button)
    banner = window.recovery.files.banner
    qtbot.waitUntil(banner.isVisible)
    assert (
        "net.tape was changed on the disk" in banner.title()
        and window.document.project.notes == "lost"
    )


def test_a_file_that_is_gone_is_written_again(
    qtbot, window: WholeWindow, file: Path
) -> None:
    crashed(window, replace(project_file.read(file), notes="lost"), file)
    file.unlink()
    (card,) = offered(qtbot, window).cards
    assert "no longer there" in texts(card)
    press(card.restore_button)
    assert window.files.save() and project_file.read(file).notes == "lost"


def test_runs_of_a_restored_project_without_a_file_move_with_it(
    qtbot, window: WholeWindow, tmp_path: Path
) -> None:
    run = store.begin(window.settings.runs_folder / "lost.runs", Project("lost"))
    crashed(window, Project("lost"), runs=(run.folder,))
    (card,) = offered(qtbot, window).cards
    assert "1 run" in texts(card)
    press(card.restore_button)
    assert window.files.save_to(tmp_path / "found.tape")
    qtbot.waitUntil(lambda: (tmp_path / "found.runs" / "0001" / "run.json").exists())


@pytest.mark.usefixtures("nothing_trusted")
@needs("custom_layers")
def test_a_restored_project_asks_for_trust_as_an_opened_one_does(
    qtbot, window: WholeWindow, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    crashed(window, own.project(own.write(tmp_path, own.marking(marker))))
    press(offered(qtbot, window).cards[0].restore_button)
    qtbot.waitUntil(lambda: "my_layers.py" in window.banner.title())
    assert not marker.exists()


def test_a_journal_that_cannot_be_read_is_said_and_not_offered_again(
    qtbot, window: WholeWindow
) -> None:
    path = crashed(window, Project("lost"))
    path.write_bytes(path.read_bytes()[:-1])
    window.recovery.find_journals()
    qtbot.waitUntil(window.banner.isVisible)
    assert (
        "cannot be restored" in window.banner.title()
        and journal.DAMAGED in window.banner.reason()
    )
    assert window.recovery.dialog is None
    told = windows.messages(window)
    window.recovery.find_journals(asked=True)
    qtbot.waitUntil(lambda: told)
    assert "no unsaved work" in told[0]


def test_a_net_that_ended_the_program_while_it_was_painted_is_offered_without_a_picture(
    qtbot, window
) -> None:
    path = crashed(window, project_file.read(DIGITS))
    path.with_suffix(journal.PAINTING).touch()
    (card,) = offered(qtbot, window).cards
    assert card.words == NO_PICTURE
    QApplication.processEvents()
    assert card.picture is None
    press(card.restore_button)
    assert window.document.project == project_file.read(DIGITS)


def test_work_of_a_newer_version_cannot_be_restored_here(
    qtbot, window: WholeWindow
) -> None:
    path = crashed(window, Project("lost"))
    path.write_bytes(
        path.read_bytes().replace(b'"tapedeck_journal":1', b'"tapedeck_journal":2')
    )
    (card,) = offered(qtbot, window).cards
    assert "newer version" in texts(card) and not card.restore_button.isEnabled()
    card.grab()
    QTest.keyClick(card.window(), Qt.Key.Key_Escape)
    assert path.exists()


def test_journals_that_cannot_be_removed_are_said(
    qtbot, window: WholeWindow, monkeypatch
) -> None:
    crashed(window, Project("lost"))
    (card,) = offered(qtbot, window).cards

    def refuse(_self: ClaimedJournal) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ClaimedJournal, "discard", refuse)
    press(card.discard_button)
    press(card.discard_button)
    assert "could not be discarded" in window.banner.title()


def test_a_large_sheet_is_restored_with_places_that_were_made_beside_the_window(
    tmp_path: Path,
) -> None:
    project = project_file.loads(MONSTERS["a chain of 1000 nodes"]())
    assert not project.positions
    kept = Journal(tmp_path)
    kept.write(JournalEntry(project, None, None, datetime.now().astimezone()))
    left = tmp_path / f"left{JOURNAL}"
    left.write_bytes(kept.path.read_bytes())
    kept.close()
    findings, offers = feature._offers(tmp_path)
    (found,) = findings.found
    assert (
        found.entry is not None
        and len(found.entry.project.positions) == 1_002
        and offers[0][0] is found
    )
    found.leave()
