"""The platform under us: releases that are known to be broken, and what must import."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPainter, QPen

from app.cli import doctor
from tests.support.forked_python import run_forked


def test_painting_does_not_lose_references_to_none(qapp: QGuiApplication) -> None:
    """PySide6 6.12.0 loses one reference to None in every call that returns nothing, until the process aborts."""
    image = QImage(64, 64, QImage.Format.Format_ARGB32)
    painter = QPainter(image)
    pen = QPen(QColor("#58A6FF"))
    before = sys.getrefcount(None)
    for _ in range(4000):
        painter.setPen(pen)
        painter.drawRect(QRectF(4, 4, 20, 20))
    after = sys.getrefcount(None)
    painter.end()
    assert abs(after - before) < 400


@pytest.mark.parametrize(
    ("package", "floor"), [("torch", doctor.TORCH), ("pyqtgraph", doctor.PYQTGRAPH)]
)
def test_versions_are_above_their_floors(package: str, floor: tuple[int, ...]) -> None:
    assert doctor.numbers(metadata.version(package)) >= floor


def test_installed_pyside_is_not_a_broken_release() -> None:
    assert doctor.pyside_fault(metadata.version("PySide6-Essentials")) is None


@pytest.mark.parametrize(
    ("version", "word"),
    [("6.12.0", "aborts"), ("6.10.1", "broken"), ("6.7.2", "older")],
)
def test_broken_releases_of_pyside_are_refused(version: str, word: str) -> None:
    assert word in (doctor.pyside_fault(version) or "")


@pytest.mark.parametrize("version", ["6.8.0", "6.9.3", "6.10.3", "6.11.3"])
def test_sound_releases_of_pyside_are_taken(version: str) -> None:
    assert doctor.pyside_fault(version) is None


def test_torchvision_imports_beside_this_torch(tmp_path: Path) -> None:
    """In a copy of the fork server, where nobody else imports it: nothing of the tests may be what makes it work."""
    (tmp_path / "code.py").write_text(
        "from app.util.torchvision_import import import_torchvision\n"
        "models = import_torchvision('models')\n"
        "transforms = import_torchvision('transforms')\n"
        "print(models.resnet18.__name__, transforms.Normalize.__name__)"
    )
    done = run_forked(tmp_path / "code.py")
    assert done.stdout.split() == ["resnet18", "Normalize"], done.stderr
