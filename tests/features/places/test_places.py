"""Places: named, checked over a real ssh, and refused in one sentence each."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from app.features.places import line, values
from app.features.places.line import remote_command, ssh_command
from app.features.places.values import Place, PlaceError, RunAtPlace
from app.main import main
from tapedeck.place import Server
from tests.support.ssh_host import SshHost

BOX = Place("gpubox", "box", sys.executable)


def add(name: str = "gpubox", ssh: str = "box", python: str = sys.executable) -> None:
    assert main(["places", "add", name, "--ssh", ssh, "--python", python]) == 0


def test_places_are_added_listed_and_removed(capsys):
    add()
    add("other", "me@host", "conda run -n x python")
    capsys.readouterr()
    assert main(["places", "--json"]) == 0
    listed = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [(place["name"], place["ssh"]) for place in listed] == [
        ("gpubox", "box"),
        ("other", "me@host"),
    ]
    assert main(["places", "remove", "gpubox"]) == 0
    assert main(["places"]) == 0
    assert capsys.readouterr().out == "other  me@host  conda run -n x python\n"
    assert main(["places", "remove", "gpubox"]) == 1
    assert "gpubox is no place; there are other." in capsys.readouterr().err


@pytest.mark.parametrize(
    "ssh",
    [
        "-oProxyCommand=x",
        "a b",
        "box\nother",
        "$(x)",
        "a;b",
        "`x`",
        "'",
        '"',
        "a/b",
        "",
    ],
)
def test_an_alias_is_never_an_option_or_text_for_a_shell(ssh):
    with pytest.raises(PlaceError, match="no host for ssh"):
        values.checked(Place("gpubox", ssh))


@pytest.mark.parametrize("name", ["-x", "a b", "a:b", "a\nb", "c", "../x", ""])
def test_a_name_is_a_name(name):
    with pytest.raises(PlaceError, match="no name of a place"):
        values.checked(Place(name, "box"))


def test_a_damaged_file_of_places_is_not_overwritten(capsys):
    values.file().parent.mkdir(parents=True, exist_ok=True)
    values.file().write_text('{"places": [{"name": 3}]}')
    assert main(["places", "add", "gpubox", "--ssh", "box"]) == 1
    assert "Correct it, or remove it" in capsys.readouterr().err
    assert values.file().read_text() == '{"places": [{"name": 3}]}'
    values.file().write_text('{"places": [{"name": "xy", "ssh": "-oProxyCommand=x"}]}')
    assert main(["places"]) == 1


TITLE = "20261130-101500-net-4711-0a1b2c3d"


@pytest.mark.parametrize(
    "there",
    [
        "",  # which would have it started
        "/home/ada/.ssh",
        f"relative/{TITLE}",
        f"/home/ada/../{TITLE}",
        "/home/ada/20261130-net",
    ],
)
def test_a_run_that_came_with_a_project_names_nothing_but_a_watched_run(
    tmp_path: Path, there: str
):
    script = {"train.py": "cHJpbnQoKQ=="}
    title = there.rpartition("/")[2] or TITLE
    run = RunAtPlace("gpubox", title, script, "/etc", "/etc", there)
    (tmp_path / values.NOTE).write_bytes(msgspec.json.encode(run))
    assert values.left_in(tmp_path) is None


def test_a_run_that_was_left_is_known_by_its_folder_and_brings_no_script(
    tmp_path: Path,
):
    there = f"/home/ada/.local/state/tapedeck/watched/{TITLE}"
    run = RunAtPlace("gpubox", TITLE, {"train.py": ""}, "/etc", "/etc", there, 7)
    (tmp_path / values.NOTE).write_bytes(msgspec.json.encode(run))
    assert values.left_in(tmp_path) == RunAtPlace("gpubox", TITLE, {}, "", "", there, 7)
    (tmp_path / values.NOTE).write_bytes(b"{")
    assert values.left_in(tmp_path) is None


def test_the_command_line_of_ssh():
    command = ssh_command(Place("gpubox", "me@box"), "python3 -c x")
    assert command[:2] == ["ssh", "-T"]
    assert command[-3:] == ["--", "me@box", "python3 -c x"]
    options = command[2:-3]
    assert options[::2] == ["-o"] * (len(options) // 2)
    assert {
        "BatchMode=yes",
        "RequestTTY=no",
        "RemoteCommand=none",
        "ClearAllForwardings=yes",
    } < set(options[1::2])


def test_what_is_run_there_is_understood_by_every_shell_that_is_here():
    shells = filter(shutil.which, ("sh", "bash", "dash", "csh", "tcsh", "fish", "zsh"))
    for shell in shells:
        done = subprocess.run(
            [shell, "-c", remote_command(BOX, "marker")],
            input=b"",
            stdout=subprocess.PIPE,
            check=True,
        )
        assert done.stdout == b"\nmarker %d.%d\n" % sys.version_info[:2]


def test_a_place_says_what_it_has(ssh_host: SshHost, capsys):
    """A shell that prints, a jump over another host, a terminal and a command of its own: none is in the way."""
    (ssh_host.home / ".bashrc").write_text("echo hello; printf 'no end of a line'\n")
    ssh_host.add_host(
        "hard", "ProxyJump box", "RequestTTY force", "RemoteCommand echo other"
    )
    add(ssh="hard", python=f"echo more; {sys.executable}")
    capsys.readouterr()
    assert main(["places", "check", "gpubox", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["torch"] and facts["free"] and facts["lacks"] == []
    (code,) = (ssh_host.home / ".cache" / "tapedeck").iterdir()
    assert code.name == f"code-{line.package()[0]}"
    assert not [*(ssh_host.home / ".cache" / "tapedeck").glob("tmp*")]


def unknown(host: SshHost) -> Place:
    return Place("gpubox", "nobody.invalid")


def down(host: SshHost) -> Place:
    host.add_host("down", port=1)
    return Place("gpubox", "down")


def another_key(host: SshHost) -> Place:
    host.make_key(host.folder / "another")
    host.trust(host.folder / "another.pub")
    for path in host.folder.glob("another*"):
        path.unlink()
    return BOX


def unknown_key(host: SshHost) -> Place:
    (host.folder / "known").write_text("")
    return BOX


def passphrase(host: SshHost) -> Place:
    locked = host.folder / "locked"
    host.make_key(locked, "a passphrase")
    host.add_host("locked", f"IdentityFile {locked}")
    host.config.write_text(
        host.config.read_text().replace(
            f"    IdentityFile {host.folder}/user\n    IdentitiesOnly",
            "    IdentitiesOnly",
        )
    )
    for path in host.folder.glob("locked*"):
        path.unlink() if path.suffix else None
    return Place("gpubox", "locked")


def no_python(host: SshHost) -> Place:
    return Place("gpubox", "box", "no-such-python")


def no_interpreter(host: SshHost) -> Place:
    return Place("gpubox", "box", "echo")


def old_python(host: SshHost) -> Place:
    old = host.home / "old"
    old.write_text("#!/bin/sh\nprintf '\\n%s 2.7\\n' \"$3\"\n")
    old.chmod(0o755)
    return Place("gpubox", "box", "~/old")


def full_disk(host: SshHost) -> Place:
    return Place("gpubox", "box", f"ulimit -f 8; trap '' XFSZ; {sys.executable}")


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (unknown, "neither a Host of ~/.ssh/config"),
        (down, "cannot be reached"),
        (another_key, "somebody is in between"),
        (unknown_key, "is not known here. Run ssh box once"),
        (passphrase, "ssh-add"),
        (no_python, "--python COMMAND"),
        (no_interpreter, "has ended with 0"),
        (old_python, "Python 2.7 at gpubox is too old"),
        (full_disk, "File too large"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_place_that_cannot_be_used_says_why_in_a_sentence(
    ssh_host: SshHost, capsys, prepare, says
):
    place = prepare(ssh_host)
    add(place.name, place.ssh, place.python)
    capsys.readouterr()
    assert main(["places", "check", "gpubox"]) == 1
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1, said
    assert "Traceback" not in said


def test_a_full_disk_there_is_named_with_what_helps():
    full = {"error": "/home/x: No space left on device", "errno": 28}
    with pytest.raises(PlaceError, match="make room"):
        line.Line._checked(_Unconnected(), full)


class _Unconnected(line.Line):
    def __init__(self) -> None:
        self.place = BOX


def test_a_place_without_torch_says_so(ssh_host: SshHost, capsys, tmp_path: Path):
    bare = tmp_path / "torch.py"
    bare.write_text("raise ImportError('no torch in here')\n")
    add(python=f"PYTHONPATH={tmp_path} {sys.executable}")
    assert main(["places", "check", "gpubox"]) == 1
    captured = capsys.readouterr()
    assert "no torch" in captured.out and "cannot import torch" in captured.err


def test_text_that_is_no_protocol_ends_the_line(ssh_host: SshHost):
    hostile = ssh_host.home / "hostile"
    hostile.write_text("#!/bin/sh\nprintf '\\n%s 3.11\\n' \"$3\"; yes hello\n")
    hostile.chmod(0o755)
    with pytest.raises(PlaceError, match="sends a message of"):
        line.Line(Place("gpubox", "box", "~/hostile"))


def test_a_flood_from_there_leaves_time_for_what_is_commanded_here(monkeypatch):
    class Flood:
        arrived: queue.SimpleQueue = queue.SimpleQueue()
        signs = 0

        def keep_alive(self) -> None:
            self.signs += 1

    flood = Flood()
    for _ in range(2 * line.AT_ONCE):
        flood.arrived.put((1, b"x"))
    monkeypatch.setattr(line, "Line", lambda _place: flood)
    kept = line.KeptLine(BOX, lambda _line: None, print)
    for calls in (1, 2):
        assert len([*kept.messages(60.0)]) == line.AT_ONCE
        assert flood.signs == calls


@pytest.mark.parametrize("name", ["../train.py", "checkpoints/../../x.pt", "/tmp/x.pt"])
def test_no_file_is_put_outside_of_the_folder_of_its_run(name: str) -> None:
    request = {"script": "train.py", "cwd": "", "module": False, "files": {name: ""}}
    with pytest.raises(OSError, match="outside of the run's folder"):
        Server(0, 1).do_start(request)
