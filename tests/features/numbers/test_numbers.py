"""Numbers of a file on the canvas, inside blocks, on the picture of an opened model, and in files of pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.cli import run
from app.observe.observation import Call, Observation
from app.project import file
from app.util.resources import path
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow

DIGITS = path("examples/digits.tape")


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the dialog returns."""
    numbers = tmp_path / "latency.csv"
    monkeypatch.setattr(
        QFileDialog, "getOpenFileName", lambda *_words: (str(numbers), "")
    )
    return numbers


def texts(window: WholeWindow) -> dict[str, str]:
    graph = window.workspace.sheet.project.graph
    return {
        graph.nodes[key].name: item._heat[1]
        for key, item in window.canvas.scene.nodes.items()
        if item._heat is not None
    }


def test_numbers_of_a_file_are_an_overlay_of_the_canvas_that_goes_again(
    qtbot: QtBot, window: WholeWindow, chosen: Path
) -> None:
    window.files.open(DIGITS)
    chosen.write_text("layer,ms\nconv1,0.5\nfc2,-3\n")
    remove = window.actions_by_key["numbers-off"]
    assert not window.overlay.is_offered("Numbers") and not remove.isEnabled()
    window.actions_by_key["numbers"].trigger()
    qtbot.waitUntil(lambda: texts(window) == {"conv1": "0.500", "fc2": "−3.00"})
    assert window.overlay.value() == "Numbers"
    scales = window.canvas.scales
    assert scales.heat.accessibleName() == "ms −3.00 to 0.500"
    window.overlay.set_value("Shapes")
    assert not texts(window)
    window.overlay.set_value("Numbers")
    assert len(texts(window)) == 2
    remove.trigger()
    assert not texts(window) and not window.overlay.is_offered("Numbers")
    assert scales.heat.isHidden() and not remove.isEnabled()


def test_a_file_that_does_not_fit_the_network_is_refused_where_it_is_wrong(
    qtbot: QtBot, window: WholeWindow, chosen: Path
) -> None:
    window.files.open(DIGITS)
    chosen.write_text("conv1,0.5\nconv9,1\n")
    window.actions_by_key["numbers"].trigger()
    qtbot.waitUntil(window.banner.isVisible)
    assert "latency.csv" in window.banner.title()
    assert "line 2" in window.banner.reason() and "conv1" in window.banner.reason()
    assert not window.overlay.is_offered("Numbers")


def model() -> Observation:
    calls = [
        Call(0, "input", "x", "input"),
        Call(1, "module", "", "mine.Net"),
        Call(2, "module", "first", "mine.P", 1),
        Call(3, "operation", "first", "torch.relu", 2),
        Call(4, "module", "second", "mine.Q", 1),
        Call(5, "operation", "second", "torch.tanh", 4),
        Call(6, "output", "y", "output"),
    ]
    return Observation("Net", tuple(calls), (), {})


@needs("opened")
def test_numbers_are_shown_on_an_opened_model_with_their_legend(
    qtbot: QtBot, window: WholeWindow, chosen: Path
) -> None:
    window.pages.make("observed")
    window.pages.set_offered("observed", True)
    window.pages.show("observed")
    from app.features.opened.page import ObservedPage

    page = window.findChild(ObservedPage)
    page.set_observation(model(), "mine:Net")
    chosen.write_text(json.dumps({"first": 1, "second": 4}))
    window.actions_by_key["numbers"].trigger()
    qtbot.waitUntil(lambda: page.scale.isVisible())

    def shown() -> dict[str, float]:
        drawing = page.drawing()
        parts = (*drawing.boxes, *drawing.groups)
        return {part.title: part.heat for part in parts if part.heat is not None}

    assert shown() == {"first": 0.0, "second": 1.0}
    assert page.scale.accessibleName() == "latency 1.00 to 4.00"
    page.unfold_all()
    assert shown() == {"first": 0.0, "second": 1.0}
    page.drop_numbers.click()
    assert not shown() and not page.scale.isVisible()
    assert not window.actions_by_key["numbers-off"].isEnabled()


@needs("export")
def test_a_picture_of_a_project_has_the_numbers_of_its_blocks_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "net.tape"
    file.write(file.read(path("examples/Transformer on digits.tape")), project)
    numbers, out = tmp_path / "n.json", tmp_path / "net.json"
    drawing = ["export", str(project), "--drawing", str(out), "--unfolded"]
    assert run(drawing) == 0
    paths = [box["paths"] for box in json.loads(out.read_text())["boxes"]]
    inside = next(some for some in paths if "." in some[0])
    numbers.write_text(json.dumps({inside[0]: 2.0}))
    assert run([*drawing, "--numbers", str(numbers)]) == 0
    drawn = json.loads(out.read_text())["boxes"]
    assert [box["paths"] for box in drawn if box["heat"] == 1.0] == [inside]
    capsys.readouterr()
    numbers.write_text('{"nowhere": 2.0}')
    assert run([*drawing, "--numbers", str(numbers)]) == 2
    assert "n.json, line 1: there is no layer 'nowhere'" in capsys.readouterr().err
