"""A fork server that loads nothing and so is there at once: for tests of how one is started, asked and killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from app.engine import pool

LIGHT = """
from app.engine import fork_server as server
server._load = server._seed = lambda: None
server._set_threads = lambda environment: None
server.main()
"""


class LightServers:
    """Stands in for `subprocess.Popen`; `program` is what a fork server runs."""

    def __init__(self) -> None:
        self.program = LIGHT
        self._popen = subprocess.Popen

    def start(self, command: list[str], **named: Any) -> subprocess.Popen[bytes]:
        """A fork server with `program`, any other process as it is."""
        light = [command[0], "-c", self.program, *command[4:]]
        return self._popen(
            light if "app.engine.fork_server" in command else command, **named
        )


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LightServers]:
    """Fork servers of the test's own. That of all tests is put aside and lives on: another takes seconds to load."""
    servers = LightServers()
    monkeypatch.setattr(pool.subprocess, "Popen", servers.start)
    for name, value in (("server", None), ("wanted", True), ("failures", 0)):
        monkeypatch.setattr(pool._state, name, value)
    yield servers
    pool.close()
