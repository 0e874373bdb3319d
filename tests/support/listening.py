"""Which sockets the processes of a tree listen on, as /proc tells it."""

from __future__ import annotations

import os
import socket
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

LISTENS = "0A"  # the state in /proc/net/tcp


def tree(root: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(stat.parent.name))
    found, left = [], [root]
    while left:
        found.append(pid := left.pop())
        left += parents.get(pid, [])
    return found


def listening(pids: list[int]) -> list[tuple[IPv4Address | IPv6Address, int]]:
    """The addresses and ports that some processes listen on over TCP."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    found = []
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in inodes:
                address, _, port = fields[1].partition(":")
                found.append((_address(address), int(port, 16)))
    return found


def _address(text: str) -> IPv4Address | IPv6Address:
    """Words of 32 bits as the machine holds them, which are in the order of the network."""
    data = bytes.fromhex(text)
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    found = ip_address(data)
    return getattr(found, "ipv4_mapped", None) or found


def outer_address() -> str | None:
    """The address by which other machines know this one; None without a network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.99", 9))
        except OSError:
            return None
        own = probe.getsockname()[0]
    return None if ip_address(own).is_loopback else own
