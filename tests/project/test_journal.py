"""Journals of unsaved work: what is found of windows that crashed, what is not, and what is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.builder.graph import Node
from app.project import file as project_file
from app.project import file_lock, journal
from app.project.journal import Journal, JournalEntry, JournalError, NewerJournalError
from app.project.project import Project
from app.project.weights import files
from app.training.config import StartWeights
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path

DIGITS = project_file.read(resource_path("examples", "digits.tape"))
NOW = datetime(2026, 11, 22, 14, 2).astimezone()
LIFE = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from app.project import file_lock; from app.util import leftovers
from app.project.journal import JournalEntry, Journal
from app.project.project import Project
folder, file = Path(sys.argv[1]), Path(sys.argv[2])
kept = Journal(folder)
kept.note_open(file_lock.lock_beside(file))
lock = file_lock.mark_open(file)
kept.write(JournalEntry(Project("edited"), file, "0" * 64, datetime.now().astimezone()))
leftovers.new_file(folder).write_text("cut")
leftovers.new_file(file.parent).write_text("cut")
print("kept", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def entry(
    project: Project = DIGITS, file: Path | None = None, on_disk: str | None = None
) -> JournalEntry:
    return JournalEntry(project, file, on_disk, NOW)


def crashed(folder: Path, one: JournalEntry) -> Path:
    """A journal of a window that is gone."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{len(list(folder.iterdir()))}.journal"
    path.write_bytes(journal.encode(one))
    return path


def test_what_is_kept_comes_back_whole(tmp_path: Path) -> None:
    start = StartWeights("/data/w.safetensors", "a" * 64, (), "w.pt")
    project = project_file.with_start(
        replace(DIGITS, notes="n\nm", layer_files=("/home/me/l.py",)), start
    )
    one = JournalEntry(
        project,
        tmp_path / "a b.tape",
        "f" * 64,
        NOW,
        (tmp_path / "0001", tmp_path / "0002"),
        7,
    )
    assert journal.decode(journal.encode(one)) == one
    assert journal.decode(journal.encode(entry())) == entry()


def test_a_window_that_was_killed_leaves_an_offer_and_nothing_else(
    tmp_path: Path,
) -> None:
    folder, file = tmp_path / "journal", tmp_path / "net.tape"
    project_file.write(Project("saved"), file)
    with subprocess.Popen([sys.executable, "-c", LIFE, str(folder), str(file)]) as life:
        assert life.wait() == -signal.SIGKILL
    assert file_lock.lock_beside(file).exists()
    (found,) = journal.find(folder).found
    assert (
        found.entry is not None
        and found.entry.project.name == "edited"
        and found.entry.file == file
    )
    assert not file_lock.lock_beside(file).exists()
    assert sorted(path.suffix for path in folder.iterdir()) == [".journal", ".lock"]
    assert sorted(os.listdir(tmp_path)) == ["journal", "net.tape"]
    found.discard()
    assert not list(folder.iterdir()) and journal.find(folder).found == ()


def test_what_one_window_offers_or_has_open_is_offered_by_no_other(
    tmp_path: Path,
) -> None:
    living = Journal(tmp_path)
    living.write(entry())
    crashed(tmp_path, entry(Project("lost")))
    (found,) = journal.find(tmp_path).found
    assert found.entry is not None and found.entry.project.name == "lost"
    assert journal.find(tmp_path).found == ()
    found.leave()
    (again,) = journal.find(tmp_path).found
    again.leave()
    living.close()
    assert [path.suffix for path in tmp_path.glob("*.journal")] == [".journal"]


def test_a_restored_journal_goes_on_under_its_new_owner(tmp_path: Path) -> None:
    """At no moment is there no journal on the disk: a crash in the midst of restoring loses nothing."""
    crashed(tmp_path, entry(Project("lost")))
    (found,) = journal.find(tmp_path).found
    mine = Journal(tmp_path)
    mine.write(entry())
    mine.adopt(found)
    assert (
        mine.path == found.path
        and found.path.exists()
        and len(list(tmp_path.glob("*.journal"))) == 1
    )
    mine.write(entry(Project("later")))
    assert journal.decode(found.path.read_bytes()).project.name == "later"
    assert journal.find(tmp_path).found == ()
    mine.close()
    assert not list(tmp_path.iterdir())


def test_what_the_file_has_is_not_offered(tmp_path: Path) -> None:
    folder, file = tmp_path / "journal", tmp_path / "net.tape"
    project_file.write(DIGITS, file)
    crashed(folder, entry(project_file.read(file), file, "0" * 64))
    assert journal.find(folder).found == () and not list(folder.iterdir())


def test_a_journal_older_than_the_last_save_of_its_window_is_not_offered(
    tmp_path: Path,
) -> None:
    """Killed after a save and before its journal was removed: the journal is a few edits behind the file."""
    folder, file = tmp_path / "journal", tmp_path / "net.tape"
    project_file.write(Project("first"), file)
    kept = Journal(folder)
    kept.write(entry(Project("second"), file, project_file.digest(file)))
    project_file.write(
        Project("third"), file, before=lambda digest: kept.note_saving(file, digest, 0)
    )
    _die(kept)
    assert journal.find(folder).found == () and not list(folder.iterdir())


def test_what_is_kept_after_a_save_is_offered_whatever_is_open_then(
    tmp_path: Path,
) -> None:
    folder, file = tmp_path / "journal", tmp_path / "net.tape"
    kept = Journal(folder)
    kept.note_open(None)
    project_file.write(
        Project("saved"), file, before=lambda digest: kept.note_saving(file, digest, 3)
    )
    kept.write(replace(entry(Project("new and without a file")), era=4))
    _die(kept)
    (found,) = journal.find(folder).found
    assert found.entry is not None and found.entry.era == 4
    mine = Journal(folder)
    mine.note_saving(
        file, project_file.digest(file), 9
    )  # of this window, which has counted further
    mine.adopt(found)
    _die(mine)
    (again,) = journal.find(folder).found
    again.discard()


def test_a_journal_of_a_save_that_was_cut_off_is_offered(tmp_path: Path) -> None:
    folder, file = tmp_path / "journal", tmp_path / "net.tape"
    project_file.write(Project("first"), file)
    kept = Journal(folder)
    kept.write(entry(Project("second"), file, project_file.digest(file)))

    def cut(digest: str) -> None:
        kept.note_saving(file, digest, 0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project_file.write(Project("third"), file, before=cut)
    _die(kept)
    (found,) = journal.find(folder).found
    assert found.entry is not None and found.entry.project.name == "second"
    found.discard()


def _die(kept: Journal) -> None:
    """Let go of the lock as the kernel does for a process that is gone."""
    assert kept._lock is not None
    kept._lock.release()


def test_a_damaged_journal_is_told_once_and_kept_aside(tmp_path: Path) -> None:
    data = journal.encode(entry())
    choose = random.Random(0)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 4
    cuts = [data[: choose.randrange(len(data))] for _ in range(40)]
    versions = [
        data.replace(b'_journal":1', b'_journal":' + word)
        for word in (b"null", b"true", b"{}")
    ]
    hostile = [
        b"",
        b"[]",
        b"\n",
        b"{}\n{}",
        b"\xff" * 20,
        b"[" * 5000,
        bytes(flipped),
        *cuts,
        *versions,
    ]
    for number, bad in enumerate(hostile):
        with pytest.raises(JournalError):
            journal.decode(bad)
        (tmp_path / f"{number}.journal").write_bytes(bad)
    findings = journal.find(tmp_path)
    assert not findings.found and len(findings.damaged) == len(hostile)
    assert all(path.exists() and reason for path, reason in findings.damaged)
    assert journal.find(tmp_path) == journal.FoundJournals()
    assert [path.name for path in tmp_path.iterdir()] == [journal.DAMAGED]


def test_damaged_journals_are_thrown_away_after_a_month(tmp_path: Path) -> None:
    (tmp_path / "1.journal").write_bytes(b"x")
    ((path, _),) = journal.find(tmp_path).damaged
    os.utime(path, (0, 0))
    journal.find(tmp_path)
    assert not path.exists()


@pytest.mark.parametrize("field", ["tapedeck_journal", "format"])
def test_a_journal_of_a_newer_version_is_left_for_it(
    tmp_path: Path, field: str
) -> None:
    line, _, rest = journal.encode(entry()).partition(b"\n")
    header = {**json.loads(line), field: 99, "new": [1]}
    data = json.dumps(header).encode() + b"\n" + rest
    with pytest.raises(NewerJournalError):
        journal.decode(data)
    (tmp_path / "1.journal").write_bytes(data)
    for _ in range(2):
        (found,) = journal.find(tmp_path).found
        assert found.entry is None and "newer version" in found.problem
        found.leave()
    assert (tmp_path / "1.journal").read_bytes() == data


def test_a_net_whose_picture_ended_the_program_is_not_painted_again(
    tmp_path: Path,
) -> None:
    crashed(tmp_path, entry())
    (found,) = journal.find(tmp_path).found
    assert found.begin_painting()
    found.leave()
    (found,) = journal.find(tmp_path).found
    assert not found.begin_painting()
    found.discard()
    journal.find(tmp_path)
    assert not list(tmp_path.iterdir())


def test_start_weights_of_unsaved_work_are_not_pruned(tmp_path: Path) -> None:
    """Those in the store live for a month; a journal that waits for longer still finds them."""
    start = files.keep(lambda path: path.write_bytes(b"weights"), "w.pt")
    os.utime(start.path, (0, 0))
    crashed(tmp_path, entry(project_file.with_start(DIGITS, start)))
    journal.find(tmp_path)
    files.keep(lambda path: path.write_bytes(b"others"), "v.pt")
    assert Path(start.path).exists()


def test_a_project_of_thousands_of_nodes_is_kept(tmp_path: Path) -> None:
    nodes = FrozenMap(
        {f"n{i}": Node(f"n{i}", "nn.ReLU", f"relu{i}") for i in range(5000)}
    )
    one = entry(replace(DIGITS, graph=replace(DIGITS.graph, nodes=nodes, edges=())))
    kept = Journal(tmp_path)
    kept.write(one)
    assert journal.decode(kept.path.read_bytes()) == one
    kept.close()
