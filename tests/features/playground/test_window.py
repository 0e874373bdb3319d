"""The playground in the window: offered for two numbers a sample, live during a run."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph
from app.builder.typed_code import nodes_of
from app.data.config import DataConfig
from app.data.own_points import points_of
from app.features.playground.control import TITLE
from app.features.playground.feature import PlaygroundFeature
from app.features.playground.page import NOTHING, PlaygroundPage
from app.project import file
from app.project.project import Project
from app.training.config import TrainingConfig
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 6)
        self.act = nn.Tanh()
        self.last = nn.Linear(6, 2)

    def forward(self, input):
        return self.last(self.act(self.first(input)))
"""


def moons(epochs: int) -> Project:
    graph = nodes_of(NET, catalog()).graph
    (start,) = (node.id for node in graph.nodes.values() if node.op == "input")
    return Project(
        "moons",
        graph.with_param(start, "shape", (2,)),
        data=DataConfig(source="made.moons"),
        training=TrainingConfig(epochs=epochs),
    )


def page_of(window: WholeWindow) -> PlaygroundPage:
    (feature,) = (f for f in window.features if isinstance(f, PlaygroundFeature))
    return feature.playground


def test_the_plane_is_live_during_a_run_and_stays_after_it(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.document.new(moons(epochs=100_000))
    ready(qtbot, window)
    window.pages.show("playground")
    page = page_of(window)
    qtbot.waitUntil(lambda: page.view.plane is not None)
    assert page.note.text() == "The newest weights"
    assert page.layer.choices() == ("", "first", "act", "last")
    page.layer.set_value("first")
    page.layer.edited.emit("first")
    qtbot.waitUntil(lambda: page.view.plane.units is not None)
    assert page.view.plane.units.shape[-1] == 6

    window.actions_by_key["run"].trigger()
    qtbot.waitUntil(lambda: page.note.text().startswith("Step "))
    first = page.view.plane.step
    qtbot.waitUntil(lambda: page.view.plane.step > first + 2)
    window.actions_by_key["stop"].trigger()
    qtbot.waitUntil(lambda: not window.session.active)
    qtbot.waitUntil(lambda: page.note.text() == "The newest weights")
    assert page.currentIndex() == 1


def test_a_net_that_cannot_run_has_no_plane_and_says_why(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = moons(epochs=1)
    window.document.new(replace(project, graph=Graph()))
    ready(qtbot, window)
    window.pages.show("playground")
    page = page_of(window)
    qtbot.waitUntil(lambda: page.empty.title() == NOTHING[0])
    node = next(n.id for n in project.graph.nodes.values() if n.op == "input")
    wrong = project.graph.with_param(node, "shape", (3,))
    window.document.apply("Another net", replace(project, graph=wrong))
    qtbot.waitUntil(lambda: page.empty.title() == TITLE)
    assert page.currentIndex() == 0


def test_it_is_offered_for_two_numbers_a_sample_alone(
    qtbot: QtBot, window: WholeWindow
) -> None:
    ready(qtbot, window)
    window.pages.show("network")
    assert not window.pages.is_offered("centre", "playground")
    project = window.document.project
    window.document.apply(
        "Two moons", replace(project, data=DataConfig(source="made.moons"))
    )
    assert window.pages.is_offered("centre", "playground")
    window.document.undo_stack.undo()
    assert not window.pages.is_offered("centre", "playground")


def shown(qtbot: QtBot, window: WholeWindow, project: Project) -> PlaygroundPage:
    window.document.new(project)
    ready(qtbot, window)
    window.pages.show("playground")
    page = page_of(window)
    qtbot.waitUntil(lambda: page.view.plane is not None)
    return page


def test_points_are_drawn_with_the_mouse_and_by_keys_and_saved(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    page = shown(qtbot, window, moons(epochs=1))
    QTest.mouseClick(page.draw, Qt.MouseButton.LeftButton)
    view = page.view
    assert view.own == () and page.clear.isVisible()
    spot = view.map_rect().center().toPoint()
    QTest.mouseClick(view, Qt.MouseButton.LeftButton, pos=spot)
    QTest.mouseClick(view, Qt.MouseButton.RightButton, pos=spot + QPoint(60, 40))
    assert [point.label for point in view.own] == [0, 1]
    first, second = view.own
    assert abs(first.x) < 0.05 and second.x > first.x and second.y < first.y
    view.setFocus()
    for key in (Qt.Key.Key_Left,) * 5 + (Qt.Key.Key_1,):
        QTest.keyClick(view, key)
    assert len(view.own) == 3 and view.own[-1].label == 1
    QTest.keyClick(view, Qt.Key.Key_Delete)
    assert len(view.own) == 2
    window.document.undo_stack.undo()
    assert len(view.own) == 3
    path = tmp_path / "own.tape"
    window.document.save(path)
    data = file.read(path).data
    assert points_of(data.options["points"]) == tuple(view.own)
    QTest.mouseClick(
        view, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier, spot
    )
    assert first not in view.own and window.pages.is_front("playground")
    for _ in range(5):
        window.document.undo_stack.undo()
    assert window.document.project.data.source == "made.moons"


def test_a_net_learns_points_that_were_drawn(qtbot: QtBot, window: WholeWindow) -> None:
    project = moons(epochs=3)
    page = shown(qtbot, window, replace(project, data=DataConfig("made.own")))
    low, high = page.view.plane.low, page.view.plane.high
    assert low <= (-1.0, -1.0) and high >= (1.0, 1.0)
    with qtbot.waitSignal(window.session.runEnded):
        QTest.keyClick(page, Qt.Key.Key_R)
    assert window.session.current.failed is None


def test_a_slider_is_one_step_to_undo_a_gesture(
    qtbot: QtBot, window: WholeWindow
) -> None:
    page = shown(qtbot, window, moons(epochs=1))
    steps = window.document.undo_stack.count()
    for slider in (page.widths, page.noise, page.rate):
        slider.slider.sliderPressed.emit()
        for at in (3, 7, 11):
            slider.slider.setValue(at)
        slider.slider.sliderReleased.emit()
    project = window.document.project
    widths = [
        node.params["out_features"]
        for node in project.graph.nodes.values()
        if node.op == "nn.Linear"
    ]
    assert widths == [12, 2]
    assert project.data.options["noise"] == 0.22
    assert project.training.optimizer.params["lr"] == 0.05
    assert window.document.undo_stack.count() == steps + 3


def test_no_control_is_cut_before_a_class(qtbot: QtBot, window: WholeWindow) -> None:
    window.resize(1280, 800)
    window.settings.projector = True
    page = shown(qtbot, window, moons(epochs=1))
    controls = [
        *page.findChildren(QAbstractButton),
        *(label for label in page.findChildren(QLabel) if label.text()),
    ]
    seen = [control for control in controls if control.isVisible()]
    assert {page.note, page.draw, page.anew} < set(seen) and len(seen) > 9
    cut = [each for each in seen if each.width() < each.sizeHint().width()]
    window.settings.projector = False
    assert not [each.text() for each in cut]


def test_one_key_starts_anew(qtbot: QtBot, window: WholeWindow) -> None:
    page = shown(qtbot, window, moons(epochs=100_000))
    QTest.keyClick(page, Qt.Key.Key_R)
    qtbot.waitUntil(lambda: page.note.text().startswith("Step "))
    before = window.session.current
    QTest.keyClick(page, Qt.Key.Key_R)
    qtbot.waitUntil(lambda: window.session.current is not before)
    qtbot.waitUntil(lambda: window.session.active)
    window.actions_by_key["stop"].trigger()
    qtbot.waitUntil(lambda: not window.session.active)


def test_each_node_shows_what_its_units_say(qtbot: QtBot, window: WholeWindow) -> None:
    window.document.new(moons(epochs=1))
    ready(qtbot, window)
    items = window.canvas.scene.nodes
    plain = {node: item.geometry.height for node, item in items.items()}
    window.pages.show("network")
    window.overlay.set_value("Units")

    def grown() -> set[str]:
        return {
            item.face.name
            for node, item in items.items()
            if item.geometry.height > plain[node]
        }

    qtbot.waitUntil(lambda: grown() == {"first", "act", "last", "output"})
    window.overlay.set_value("Shapes")
    qtbot.waitUntil(lambda: not grown())
    window.overlay.set_value("Units")
    window.files.open_example("digits.tape")  # has no plane
    assert not window.overlay.is_offered("Units")
    assert window.overlay.value() == "Shapes"


def test_the_filters_of_a_net_that_sees_pictures_are_shown(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    assert window.pages.is_offered("centre", "playground")
    window.pages.show("playground")
    page = page_of(window)
    qtbot.waitUntil(lambda: page.currentIndex() == 2)
    convolution = next(
        node
        for node in window.document.project.graph.nodes.values()
        if node.op == "nn.Conv2d"
    )
    count = convolution.params["out_channels"]
    assert page.filters.accessibleDescription() == f"{count} filters"
    assert page.filters_note.text() == f"{convolution.name} · The newest weights"
