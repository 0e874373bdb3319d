"""`tapedeck memory`: a snapshot of torch's allocator by line, read without running anything of the file.

The snapshots are made here in the documented form.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path

import pytest

from app.cli import run
from app.features.memory.compute import allocator_snapshot, plain_pickle
from app.features.memory.values import DeviceSnapshot, SnapshotError
from tests.support.allocator_snapshots import frames, snapshot


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "snapshot.pickle"


def written(file: Path, value: object, protocol: int = pickle.DEFAULT_PROTOCOL) -> Path:
    file.write_bytes(pickle.dumps(value, protocol))
    return file


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_memory_is_named_by_the_line_that_allocated_it(
    file: Path, protocol: int
) -> None:
    (device,) = allocator_snapshot.read(written(file, snapshot(), protocol))
    assert (device.reserved, device.in_use, device.largest_free) == (4096, 1536, 2560)
    # 1,024 bytes of before, 512 and 2,048 together, before the latter are free.
    assert device.curve == (1024, 1536, 3584, 3584, 1536, 1536)
    assert device.peak == 3584 and device.events == 5
    second, before, first = device.sites
    assert (second.path, second.line, second.function) == (
        "/home/me/net.py",
        11,
        "forward",
    )
    assert second.inside == "torch/nn/modules/linear.py:134 forward"
    assert (second.peak, second.size, second.blocks) == (2048, 0, 0)
    assert (before.path, before.peak, before.size) == ("", 1024, 1024)
    assert (first.line, first.size, first.blocks, first.peak) == (10, 512, 1, 512)
    (failure,) = device.out_of_memory
    assert (failure.size, failure.device_free) == (1 << 33, 1 << 30)
    assert (failure.line, failure.function) == (30, "load")


def test_a_snapshot_without_a_history_says_what_is_in_use(file: Path) -> None:
    value = snapshot()
    value["device_traces"] = [[]]
    (device,) = allocator_snapshot.read(written(file, value))
    assert device.peak == device.in_use == 1536 and device.events == 0
    assert sum(site.size for site in device.sites) == 1536


def test_each_device_is_named(file: Path) -> None:
    value = snapshot()
    other = copy.deepcopy(value["segments"][0]) | {"device": 3}
    value["segments"].append(other)
    devices = allocator_snapshot.read(written(file, value))
    assert [device.device for device in devices] == [0, 3]
    assert devices[1].in_use == 1536 and not devices[1].events


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_of_a_file_runs(tmp_path: Path, file: Path, protocol: int) -> None:
    value = snapshot()
    value["segments"][0]["blocks"][0]["frames"] = Harmful(tmp_path / "made")
    with pytest.raises(SnapshotError, match="snapshot.pickle cannot be read: it "):
        allocator_snapshot.read(written(file, value, protocol))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a",
        b".",
        b"\x80\x04.",
        b"\x80\x04].",
        b"\x80\x04}.",
        b"\x80\x04}]K\x01s.",  # a list as a key
        b"\x80\x04K\x01K\x02e.",
        b"\x80\x04h\x07.",
        b"\x80\x04(.",
        b"\x80\x04\x8d" + b"\xff" * 8 + b".",  # a text of 2**64 bytes
        b"\x80\x04\x8a\xff" + b"\x01" * 255 + b".",
        b"\x80\x04cos\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x04Pname\n.",
        b"\x80\x04B\x00\x00\x00\x00.",
        b"\x80\x09N.",
    ],
)
def test_what_is_no_snapshot_is_refused_in_a_sentence(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(SnapshotError, match=r"cannot be read: its? .*\.$"):
        allocator_snapshot.read(file)


def test_a_file_that_was_cut_anywhere_is_refused(file: Path) -> None:
    data = pickle.dumps(snapshot())
    for end in range(len(data)):
        file.write_bytes(data[:end])
        with pytest.raises(SnapshotError):
            allocator_snapshot.read(file)


def test_a_file_with_a_byte_changed_is_read_or_refused(file: Path) -> None:
    data = pickle.dumps(snapshot())
    for at in range(0, len(data), 3):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :])
        try:
            assert isinstance(allocator_snapshot.read(file), tuple)
        except SnapshotError:
            pass


def test_lists_that_hold_one_another_many_times_are_not_followed_for_ever(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocator_snapshot, "MOST_STEPS", 10_000)
    segment = snapshot()["segments"][0]
    segment["blocks"] *= 100
    value = {"segments": [segment] * 1000, "device_traces": []}
    with pytest.raises(SnapshotError, match="too many events"):
        allocator_snapshot.read(written(file, value))
    itself: list[object] = []
    itself.append(itself)
    with pytest.raises(SnapshotError, match="no snapshot"):
        allocator_snapshot.read(written(file, {"segments": itself}))


def test_a_file_that_is_too_large_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {"segments": [], "device_traces": [[{"action": "x"}] * 200_000]}
    told: list[float] = []
    allocator_snapshot.read(written(file, value), told.append)
    assert told and max(told) <= 1
    monkeypatch.setattr(plain_pickle, "MOST_OPERATIONS", 100_000)
    with pytest.raises(SnapshotError, match="too large; record fewer events"):
        allocator_snapshot.read(file)


def test_the_command_prints_lines_and_json(
    file: Path, capsys: pytest.CaptureFixture
) -> None:
    value = snapshot()
    value["segments"][0]["blocks"][1]["frames"] = frames(10, "\x1b[31mred")
    arguments = ["memory", str(written(file, value))]
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert "1.50 KiB in use of 4.00 KiB reserved" in text
    assert "At most 3.50 KiB were in use over 5 recorded events." in text
    assert "Out of memory: 8.00 GiB wanted, 1.00 GiB left" in text
    assert "/home/me/net.py:11 forward (torch/nn/modules/linear.py:134 forward)" in text
    assert "before the recording" in text and "\x1b" not in text
    assert run([*arguments, "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert set(device) == set(DeviceSnapshot.__struct_fields__)
    assert device["peak"] == 3584 and device["sites"][0]["line"] == 11


def test_a_file_that_is_not_there_is_named(
    file: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(["memory", str(file)]) == 2
    assert "snapshot.pickle cannot be read: No such file" in capsys.readouterr().err
