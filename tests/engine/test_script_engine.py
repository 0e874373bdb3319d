"""The connection to a script that is paused before its backward."""

from __future__ import annotations

import gc
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.engine.watched.script_engine import ScriptEngine
from tapedeck import frames

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="a script listens on a port there"
)


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[threading.Event]:
    """A script that opens its engine for one client; set once that client has left it."""
    tmp_path.chmod(0o700)
    path = frames.socket_path(tmp_path)
    listening, left = socket.socket(socket.AF_UNIX), threading.Event()
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 10)
            connection.sendall(b'{"id": 0}\n')
            while connection.recv(1 << 10):
                pass
        left.set()

    thread = threading.Thread(target=serve)
    thread.start()
    yield left
    thread.join()
    listening.close()
    path.unlink()


def sockets() -> set[str]:
    """The open sockets of this process; others may close meanwhile, such as those of earlier tests."""
    names: set[str] = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed since
            names.add(os.readlink(file))
    return {name for name in names if name.startswith("socket:")}


@pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="its sockets are read there"
)
def test_a_closed_engine_leaves_no_open_socket(answering, tmp_path):
    gc.collect()
    before = sockets()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        engine = ScriptEngine(tmp_path)
        engine.close()
        assert answering.wait(300)
        del engine
        gc.collect()
    # the thread of the script has closed its end before it says so
    assert not sockets() - before
    assert not [str(each.message) for each in told]
