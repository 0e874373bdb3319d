"""A real sshd of the test's own: on a port of loopback, with keys, a home and a config that nobody else has."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
TOOLS = ("ssh", "ssh-keygen")
SSHD_CONFIG = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
AllowTcpForwarding yes
SetEnv HOME={home} XDG_CACHE_HOME={home}/.cache XDG_STATE_HOME={home}/.state \
MPLCONFIGDIR={fonts} OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
"""
HOST = """
Host {alias}
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known
    StrictHostKeyChecking yes
"""


class SshHost:
    """`config` is the client's; `home` the home folder there. `ssh` on PATH is the system's, with that config."""

    def __init__(self, folder: Path) -> None:
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if SSHD is None or missing:
            pytest.skip(f"no OpenSSH here: {', '.join(missing) or 'sshd'} is missing")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where Debian's sshd goes
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        self.config = folder / "config"
        for name in ("host", "user"):
            self.make_key(folder / name)
        shutil.copy(folder / "user.pub", folder / "authorized")
        self.port = free_port()
        self.trust(folder / "host.pub")
        (folder / "sshd_config").write_text(
            SSHD_CONFIG.format(
                port=self.port,
                folder=folder,
                home=self.home,
                fonts=os.environ.get("MPLCONFIGDIR", folder / "fonts"),
            )
        )
        self.config.write_text("")
        self.add_host("box")
        self._log = (folder / "log").open("wb")
        self._sshd: subprocess.Popen[bytes] | None = None
        self.start()
        self.bin = folder / "bin"
        self.bin.mkdir()
        real = shutil.which("ssh")
        wrapper = self.bin / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {real} -F "{self.config}" "$@"\n')
        wrapper.chmod(0o755)

    def make_key(self, path: Path, passphrase: str = "") -> None:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)],
            check=True,
        )

    def trust(self, key: Path) -> None:
        """Have the client know the host by a key."""
        kind, data, *_ = key.read_text().split()
        (self.folder / "known").write_text(f"* {kind} {data}\n")

    def add_host(self, alias: str, *lines: str, port: int = 0) -> None:
        """Add a Host to the client's config, with further lines before the usual ones."""
        text = HOST.format(
            alias=alias,
            port=port or self.port,
            user=getpass.getuser(),
            folder=self.folder,
        )
        head, _, rest = text.lstrip().partition("\n")
        self.config.write_text(
            "\n".join(
                [self.config.read_text(), head, *(f"    {n}" for n in lines), rest]
            )
        )

    def start(self) -> None:
        assert SSHD is not None
        self._sshd = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        until = time.monotonic() + 300
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            if self._sshd.poll() is not None:
                break
            time.sleep(0.02)
        pytest.skip(
            f"sshd does not start here: {(self.folder / 'log').read_text()[-300:]}"
        )

    def close(self) -> None:
        if self._sshd is not None:
            self._sshd.terminate()
            self._sshd.wait()
        self._log.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def one_host(tmp_path_factory: pytest.TempPathFactory):
    host = SshHost(tmp_path_factory.mktemp("sshd"))
    yield host
    host.close()


@pytest.fixture
def ssh_host(one_host: SshHost, monkeypatch: pytest.MonkeyPatch):
    """The host, as this test alone has it: a client's config of its own, and an empty home there."""
    files = (one_host.config, one_host.folder / "known")
    before = [file.read_text() for file in files]
    monkeypatch.setenv("PATH", f"{one_host.bin}:{os.environ['PATH']}")
    yield one_host
    for file, text in zip(files, before, strict=True):
        file.write_text(text)
    for path in one_host.home.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
