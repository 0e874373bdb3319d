"""What a snapshot of torch's allocator says: the memory of each device by the line that allocated it.

The file is a pickle that `torch.cuda.memory._dump_snapshot` writes, of the dictionary that its documentation describes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Struct

from app.features.memory.compute import plain_pickle
from app.features.memory.values import (
    AllocationSite,
    DeviceSnapshot,
    OutOfMemory,
    SnapshotError,
)
from app.util import regular_files

POINTS = 400  # of a curve
# Blocks and events: lists in a file may be the same ones many times.
MOST_STEPS = 50_000_000
ALLOCATED, FREED, OUT = "alloc", "free_completed", "oom"
IN_USE = ("active_allocated", "active_awaiting_free")
Blocks = dict[int, tuple[int, Any]]  # size and frames of what is in use, by address


class _Frame(Struct):
    filename: str = ""
    line: int = 0
    name: str = ""


class _Block(Struct):
    size: int
    state: str
    address: int = 0
    frames: Any = ()


class _Segment(Struct):
    total_size: int
    blocks: list[Any]
    device: int = 0
    address: int = 0


class _Event(Struct):
    action: str
    size: int = 0
    addr: int = 0
    device_free: int = 0
    frames: Any = ()


class _Snapshot(Struct):
    segments: list[Any]
    device_traces: list[list[Any]] = []


def read(
    path: Path, tell: Callable[[float], None] = lambda share: None
) -> tuple[DeviceSnapshot, ...]:
    """Return what each device of a snapshot held. `tell` gets the share that was read, and may raise.

    Raises SnapshotError with a sentence that names the file.
    """
    try:
        regular_files.check(path)
        size = max(path.stat().st_size, 1)
        with path.open("rb") as file:
            value = plain_pickle.read(file, lambda position: tell(position / size))
        return _devices(msgspec.convert(value, _Snapshot))
    except OSError as error:
        reason = error.strerror or str(error)
    except plain_pickle.PlainPickleError as error:
        reason = str(error)
    except msgspec.ValidationError:
        reason = "it is no snapshot of an allocator"
    raise SnapshotError(f"{path} cannot be read: {reason}.")


def _devices(snapshot: _Snapshot) -> tuple[DeviceSnapshot, ...]:
    segments: dict[int, list[_Segment]] = defaultdict(list)
    for record in snapshot.segments:
        segment = msgspec.convert(record, _Segment)
        segments[segment.device].append(segment)
    traces = dict(enumerate(snapshot.device_traces))
    numbers = sorted(segments.keys() | {n for n, trace in traces.items() if trace})
    sites, steps = _Sites(), _Steps()
    return tuple(
        _device(number, segments[number], traces.get(number, []), sites, steps)
        for number in numbers
    )


class _Steps:
    """Counts what is looked at, with a limit."""

    def __init__(self) -> None:
        self._count = 0

    def each(self, records: Iterable[Any], kind: type) -> Iterator[Any]:
        """Yield records as values of a kind."""
        for record in records:
            self._count += 1
            if self._count > MOST_STEPS:
                raise plain_pickle.PlainPickleError(
                    "it has too many events; record fewer (max_entries)"
                )
            yield msgspec.convert(record, kind)


class _Sites:
    """Names the line that allocated a block; frames that many blocks share are looked at once."""

    def __init__(self) -> None:
        self._by_frames: dict[int, tuple[str, int, str, str]] = {}

    def of(self, frames: Any) -> tuple[str, int, str, str]:
        """Return path, line and function of the innermost own frame, and torch's frame in which it allocates."""
        site = self._by_frames.get(id(frames))
        if site is None:
            site = _site(msgspec.convert(frames, list[_Frame]))
            self._by_frames[id(frames)] = site
        return site


def _site(frames: list[_Frame]) -> tuple[str, int, str, str]:
    python = [frame for frame in frames if frame.filename.endswith((".py", ">"))]
    own = [frame for frame in python if not _is_torch(frame)]
    inside = next((frame for frame in python if _is_torch(frame)), None)
    frame = next(iter((*own, *python, *frames)), _Frame())
    within = (
        "" if inside is None or inside is frame else f"{_short(inside)} {inside.name}"
    )
    return frame.filename, frame.line, frame.name, within


def _is_torch(frame: _Frame) -> bool:
    return "torch" in PurePath(frame.filename.replace("\\", "/")).parts[:-1]


def _short(frame: _Frame) -> str:
    parts = PurePath(frame.filename.replace("\\", "/")).parts
    at = len(parts) - 1 - parts[::-1].index("torch")
    return f"{'/'.join(parts[at:])}:{frame.line}"


def _device(
    number: int,
    segments: list[_Segment],
    trace: list[Any],
    sites: _Sites,
    steps: _Steps,
) -> DeviceSnapshot:
    in_use: Blocks = {}
    idle = 0
    for segment in segments:
        address = segment.address
        for block in steps.each(segment.blocks, _Block):
            if block.state in IN_USE:
                in_use[block.address or address] = block.size, block.frames
            else:
                idle = max(idle, block.size)
            address += block.size
    events = list(steps.each(trace, _Event))
    before = _blocks_before(in_use, events)
    curve, peak_at = _curve(before, events)
    now, at_peak = (
        _by_site(blocks, sites)
        for blocks in (in_use, _blocks_after(before, events[:peak_at]))
    )
    rows = [
        AllocationSite(*site, *now.get(site, (0, 0)), at_peak.get(site, (0, 0))[0])
        for site in {**now, **at_peak}
    ]
    stride = max(len(curve) // POINTS, 1)
    return DeviceSnapshot(
        number,
        sum(segment.total_size for segment in segments),
        sum(size for size, _ in in_use.values()),
        idle,
        max(curve),
        len(events),
        tuple(curve[::stride]),
        tuple(sorted(rows, key=lambda row: (-row.peak, -row.size, row.path, row.line))),
        tuple(
            OutOfMemory(event.size, event.device_free, *sites.of(event.frames)[:3])
            for event in events
            if event.action == OUT
        ),
    )


def _blocks_before(in_use: Blocks, events: list[_Event]) -> Blocks:
    """Return what was in use before the first event; frames of what was freed since are not known."""
    before = dict(in_use)
    for event in reversed(events):
        if event.action == ALLOCATED:
            before.pop(event.addr, None)
        elif event.action == FREED:
            before[event.addr] = event.size, ()
    return before


def _blocks_after(before: Blocks, events: list[_Event]) -> Blocks:
    in_use = dict(before)
    for event in events:
        if event.action == ALLOCATED:
            in_use[event.addr] = event.size, event.frames
        elif event.action == FREED:
            in_use.pop(event.addr, None)
    return in_use


def _curve(before: Blocks, events: list[_Event]) -> tuple[list[int], int]:
    """Return the bytes in use before the events and after each, and how many events it is to the most of them."""
    total = sum(size for size, _ in before.values())
    curve = [total]
    for event in events:
        if event.action == ALLOCATED:
            total += event.size
        elif event.action == FREED:
            total -= event.size
        curve.append(total)
    return curve, curve.index(max(curve))


def _by_site(
    blocks: Blocks, sites: _Sites
) -> dict[tuple[str, int, str, str], tuple[int, int]]:
    """Return the bytes of each line, and the number of their blocks."""
    by_site: dict[tuple[str, int, str, str], tuple[int, int]] = {}
    for size, frames in blocks.values():
        site = sites.of(frames)
        bytes_, count = by_site.get(site, (0, 0))
        by_site[site] = bytes_ + size, count + 1
    return by_site
