"""Carries out `tapedeck memory`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from msgspec import to_builtins

from app.cli import console
from app.features.memory.compute import allocator_snapshot
from app.features.memory.values import DeviceSnapshot, SnapshotError
from app.features.memory.wording import out_of_memory_text, site_text, summary
from app.util.formatting import bytes_text, grouped_digits

MOST_LINES = 20


def run(options: argparse.Namespace) -> int:
    """Print the memory of each device."""
    try:
        snapshot = allocator_snapshot.read(options.file)
    except SnapshotError as error:
        raise console.CommandError(str(error)) from error
    if options.json:
        print(json.dumps({"devices": to_builtins(snapshot)}, ensure_ascii=False))
        return 0
    for device in snapshot:
        for line in _lines(device):
            print(console.printable(line))
    return 0


def _lines(device: DeviceSnapshot) -> Iterator[str]:
    yield summary(device)
    yield from map(out_of_memory_text, device.out_of_memory)
    yield f"{'at the peak':>12}  {'now':>10}  line"
    for site in device.sites[:MOST_LINES]:
        yield f"{bytes_text(site.peak):>12}  {bytes_text(site.size):>10}  {site_text(site)}"
    left_out = len(device.sites) - MOST_LINES
    if left_out > 0:
        yield f"{grouped_digits(left_out)} more lines are in --json"
