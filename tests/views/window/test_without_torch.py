"""The window's process never imports torch, from opening a project to closing it: its own rooms one after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs

ROOT = Path(__file__).resolve().parents[3]


@needs(
    *"code custom_layers evaluation export gallery gradcheck".split(),
    *"importing layer runs trials weights".split(),
)
def test_a_day_in_the_window_imports_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.drive_window", str(tmp_path)]
    environment = {**os.environ, "HOME": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *stations, last = done.stdout.splitlines()
    assert [
        word
        for word in (
            "opened",
            "edited",
            "trained",
            "rates tested",
            "evaluated",
            "tried",
            "looked inside",
            "event files",
            "went on",
            "table read",
            "captured",
            "played",
            "diagnosed",
            "checked numerically",
            "replay exported",
            "exported",
            "proved",
            "weights saved",
            "weights loaded",
            "layers of an own file",
            "imported",
            "example described",
            "addresses found",
        )
        if word not in stations
    ] == []
    assert json.loads(last) == {"imported": [], "there": []}


@pytest.mark.parametrize("error", ["ImportError", "AttributeError"])
def test_a_torch_that_cannot_be_imported_is_named_once_with_its_cure(
    tmp_path: Path, error: str
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        f"raise {error}('libbroken.so.1 is not there')\n"
    )
    command = [sys.executable, "-m", "tests.support.window_until_signal", "failing"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = list(iter(process.stdout.readline, "ready\n"))
        process.terminate()
        errors = process.stderr.read()
    assert "Traceback" not in errors, errors
    assert lines[0].startswith(
        f"PyTorch cannot be loaded: {error}: libbroken.so.1 is not there"
    )
    assert "pip install --force-reinstall torch" in lines[0]
    assert [
        line
        for line in lines[1:]
        if not line.startswith("The run cannot start: PyTorch cannot be loaded")
    ] == []
