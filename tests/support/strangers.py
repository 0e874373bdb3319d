"""Another user of this machine, who tries every socket, pipe and store that the program opens."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

STRANGER = 65534  # nobody


def can_be_tried() -> bool:
    """Return whether this process may become another user."""
    return hasattr(os, "setuid") and os.geteuid() == 0


def as_stranger(attempt: Callable[[], str]) -> str:
    """Return what an attempt achieves as another user: "refused: " and why, or what it returns."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            said = attempt()
        except OSError as error:
            said = f"refused: {error.strerror}"
        except BaseException as error:
            said = f"failed: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def tried() -> Iterator[tuple[str, str]]:
    """Try everything, and yield its name with the outcome."""
    if not can_be_tried():
        return
    yield from _command_socket()
    yield from _processes()
    yield from _store()


def _command_socket() -> Iterator[tuple[str, str]]:
    from tapedeck import frames
    from tapedeck.commands import CommandSocket

    folder = frames.new_folder("stranger")
    listening = CommandSocket(folder)
    path = frames.socket_path(folder)

    def connect() -> str:
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(path))
        return "connected"

    def replace() -> str:
        path.unlink()
        return "removed it"

    try:
        yield "the command socket of a script", as_stranger(connect)
        yield "the place of that socket", as_stranger(replace)
    finally:
        listening.close()


def _processes() -> Iterator[tuple[str, str]]:
    """The socket pair of the fork server and the pipes of an engine have no address: they are tried by their number."""
    from app.engine import pool
    from app.engine.own_engine import OwnEngine

    pool.prepare()
    engine = OwnEngine(lambda: pool.start("engine"))
    try:
        yield "the channel of an engine", as_stranger(lambda: _opened(engine.child.pid))
        yield (
            "the socket of the fork server",
            as_stranger(lambda: _opened(_parent_of(engine.child.pid))),
        )
    finally:
        engine.kill()
        engine.close()
        pool.close()


def _opened(pid: int) -> str:
    """Open the pipes and sockets of a process."""
    found = [Path(f"/proc/{pid}/fd", name) for name in os.listdir(f"/proc/{pid}/fd")]
    for path in found:
        if stat.S_ISFIFO(path.stat().st_mode):
            os.open(path, os.O_RDWR | os.O_NONBLOCK)
            return "opened a pipe"
    return f"saw {len(found)} descriptors"


def _parent_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text("ascii")
    return int(text.rpartition(")")[2].split()[1])


def _store() -> Iterator[tuple[str, str]]:
    """The store by which the processes of a run meet."""
    from app.util.leftovers import TemporaryFolder

    with TemporaryFolder() as folder:
        store = Path(folder, "store")
        store.write_bytes(b"")
        yield (
            "the store of several processes",
            as_stranger(lambda: f"read {len(store.read_bytes())} bytes"),
        )
        yield (
            "a place beside that store",
            as_stranger(lambda: f"wrote {store.with_name('other').write_text('x')}"),
        )
