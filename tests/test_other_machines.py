"""The machines of `tests.slow.other_machines` are what they are said to be, and what fails on one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow import other_machines
from tests.slow.other_machines import MACHINES, MachineError, seen_from_within

MADE_AT_ONCE = sorted(
    MACHINES.keys() - {"newer-python"}
)  # which downloads torch for another Python


@pytest.mark.parametrize("name", MADE_AT_ONCE)
def test_a_machine_is_what_it_is_said_to_be(name: str, tmp_path: Path) -> None:
    machine = MACHINES[name]
    try:
        setup = machine.make(tmp_path)
    except MachineError as why:
        pytest.skip(f"{name} {why}")
    assert seen_from_within(machine, setup) == machine.expected


def test_what_fails_on_a_machine_is_named_and_ends_the_command_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(other_machines, "OUT", tmp_path / "out")
    monkeypatch.setenv("TZ", "UTC")
    (tmp_path / "test_zone.py").write_text(
        "import time\ndef test_here():\n    assert time.timezone == 0\n"
    )
    assert (
        other_machines.main(
            [
                "c-locale",
                "zone",
                "--folders",
                str(tmp_path / "test_zone.py"),
                "--jobs",
                "0",
            ]
        )
        == 1
    )
    local, far = capsys.readouterr().out.split("zone  ", 1)
    assert (
        "1 passed" in local and "1 failed" in far and "test_zone.py::test_here" in far
    )


def test_a_folder_without_tests_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_machines, "OUT", tmp_path / "out")
    assert (
        other_machines.main(["c-locale", "--folders", str(tmp_path), "--jobs", "0"])
        == 1
    )


def test_a_machine_is_all_that_is_joined_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(other_machines, "OUT", tmp_path / "out")
    (tmp_path / "test_both.py").write_text(
        "import os, time\ndef test_both(): assert (time.timezone, os.environ['LC_ALL']) == (-45900, 'C')\n"
    )
    assert (
        other_machines.main(
            [
                "c-locale+zone",
                "--folders",
                str(tmp_path / "test_both.py"),
                "--jobs",
                "0",
            ]
        )
        == 0
    )
    assert "1 passed" in capsys.readouterr().out
