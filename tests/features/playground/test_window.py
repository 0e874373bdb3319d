"""The playground in the window: offered for two numbers a sample, live during a run."""

from __future__ import annotations

from msgspec.structs import replace
from pytestqt.qtbot import QtBot

from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph
from app.builder.typed_code import nodes_of
from app.data.config import DataConfig
from app.features.playground.control import TITLE
from app.features.playground.feature import PlaygroundFeature
from app.features.playground.page import NOTHING, PlaygroundPage
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
