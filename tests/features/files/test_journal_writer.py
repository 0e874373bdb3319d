"""The thread that writes a window's journal."""

from __future__ import annotations

import threading
from pathlib import Path

from app.features.files.autosave import JournalWriter, JournalWritten
from app.project import journal
from app.project.journal import Journal, JournalEntry
from app.project.project import Project
from tests.project.test_journal import NOW, entry


def test_the_writer_keeps_the_newest_and_leaves_nothing(tmp_path: Path) -> None:
    told: list[JournalWritten] = []
    writer = JournalWriter(tmp_path, told.append)
    for number in range(50):
        writer.put(entry(Project(f"p{number}")))
    assert writer.flush()
    assert journal.decode(
        writer.journal.path.read_bytes()
    ).project.name == "p49" and told[-1] == JournalWritten(NOW)
    writer.put(None)
    assert writer.flush() and not writer.journal.path.exists()
    writer.put(entry())
    writer.close()
    assert not list(tmp_path.iterdir())


def test_the_writer_says_what_the_disk_refuses_and_goes_on(tmp_path: Path) -> None:
    told: list[JournalWritten] = []
    (tmp_path / "file").write_text("in the way")
    writer = JournalWriter(tmp_path / "file" / "journal", told.append)
    writer.put(entry())
    assert writer.flush() and told[-1].problem
    (tmp_path / "file").unlink()
    writer.put(entry())
    assert writer.flush() and told[-1].problem == ""
    writer.close()


def test_of_two_states_that_wait_only_the_newer_is_written(
    tmp_path: Path, monkeypatch
) -> None:
    written, go_on, begun = [], threading.Event(), threading.Event()

    def slowly(_self: Journal, one: JournalEntry) -> None:
        begun.set()
        go_on.wait(300)
        written.append(one.project.name)

    monkeypatch.setattr(Journal, "write", slowly)
    writer = JournalWriter(tmp_path, lambda _written: None)
    writer.put(entry(Project("a")))
    begun.wait(300)
    writer.put(entry(Project("b")))
    writer.put(entry(Project("c")))
    assert not writer.flush(0)
    go_on.set()
    assert writer.flush(60) and written == ["a", "c"]
    writer.close()
