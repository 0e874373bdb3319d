"""What every test starts from: no display, folders of its own, two threads, and no fault that goes unheard.

Qt's warnings fail a test, and so does an exception in a thread (see `[tool.pytest.ini_options]`); a test that hangs
prints where every thread stands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

THREADS = 2

# Before Qt and torch are loaded by anybody, and for every process that a test starts.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(THREADS)

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, settings and caches of the test's own: nothing of the person's is read, nothing of it is touched."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for variable in ("CONFIG", "DATA", "CACHE", "STATE"):
        folder = home / variable.lower()
        folder.mkdir()
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(folder))
    # Qt remembers the folder of its settings from the first use on, so it must be told each time.
    from PySide6.QtCore import QSettings

    for form in (QSettings.Format.NativeFormat, QSettings.Format.IniFormat):
        QSettings.setPath(form, QSettings.Scope.UserScope, str(home / "config"))
    return home


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """A test that changes torch's thread count or gradient mode must not be noticed by the next."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(THREADS)
        torch.set_grad_enabled(True)


@pytest.fixture
def nothing_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test hears of what another trusted or ran."""
    from app import layer_files

    for name, empty in (("_allowed", set()), ("_tried", set()), ("_modules", {}), ("_failed", {})):
        monkeypatch.setattr(layer_files, name, empty)
