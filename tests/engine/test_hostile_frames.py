"""Files of frames that somebody else wrote: nothing beside them is read or sent, and each is answered by a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.watched.follow import WatchedRunControl, follow
from app.engine.watched.script_link import ScriptLink
from tapedeck import commands, frames
from tests.slow.hostile_frames import CASES, Case, Outside

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="the files are pipes, links and Unix sockets"
)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    made = Outside(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_file_reads_and_sends_nothing_and_is_answered(
    case: Case, tmp_path: Path, outside: Outside
) -> None:
    console = pytest.importorskip("app.features.runs.console", reason="sentences")
    folder = tmp_path / "watched"
    folder.mkdir(mode=0o700)
    control, said = WatchedRunControl(), ""
    for event in follow(case.write(folder, outside.neighbours), control, every=0.001):
        said += " ".join(line.text for line in console.lines_of(event))
        if case.says in said:
            control.stop()
    assert case.says in said and not outside.reached and control.result is not None


def test_a_script_in_a_long_path_is_reached_and_one_that_was_killed_leaves_no_socket_in_the_way(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    for _ in range(2):  # the first is never closed
        listening = commands.CommandSocket(folder)
        listening._listener.close()
    listening = commands.CommandSocket(folder)
    path = frames.socket_path(folder)
    assert path.parent.parent == Path("/tmp") and frames.is_private(path.parent)
    link = ScriptLink(folder)
    link.close()
    listening.close()
    assert not path.parent.exists()
    path.parent.mkdir(mode=0o755)  # as another program may have made it
    with pytest.raises(OSError, match="another user"):
        commands.CommandSocket(folder)
    path.parent.rmdir()


def test_a_socket_of_somebody_else_is_not_talked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = commands.CommandSocket(tmp_path)
    path = frames.socket_path(tmp_path)
    path.chmod(0o666)
    with pytest.raises(OSError, match="no private socket"):
        ScriptLink(tmp_path)
    path.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError, match="no private socket"):
        ScriptLink(tmp_path)
    listening.close()
