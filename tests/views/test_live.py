"""What is known of the drawing comes in two parts: shapes for the canvas at once, then all the rest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.project.document import Document
from app.project.project import Project
from app.views.analysis_service import AnalysisService
from app.views.engine_service import EngineService
from app.views.navigation import Navigation
from app.views.project_catalog import ProjectCatalog
from app.views.ui.background import Background

OPS = catalog()


def net() -> Project:
    """It trains, and has a dropout after its last layer: a warning that only the whole answer tells."""
    project, last = edits.add(Project(), OPS, "input", (0.0, 0.0))
    project = edits.changed(project, project.graph.with_param(last, "shape", (64,)))
    for op in ("nn.Linear", "nn.Dropout", "output"):
        project, last = edits.add_behind(project, OPS, op, last, (0.0, 0.0))
    return edits.changed(project, project.graph.with_param("n2", "out_features", 10))


@pytest.fixture
def live(qtbot):
    document = Document(net())
    background = Background(document)
    engine = EngineService(document)
    live = AnalysisService(
        document,
        background,
        engine,
        ProjectCatalog(OPS, document),
        Navigation(document),
        document,
    )
    live.heard = []
    live.shapes_ready.connect(lambda shapes: live.heard.append(("shapes", shapes)))
    live.analysed.connect(lambda analysis: live.heard.append(("all", analysis)))
    live.start()
    qtbot.waitUntil(lambda: live.up_to_date)
    yield live, document
    background.close()
    engine.close()


def test_shapes_come_before_source_and_checks_and_signs_stay_meanwhile(
    live, qtbot
) -> None:
    live, document = live
    assert [what for what, _ in live.heard] == ["shapes", "all"]
    warned = {problem.message for problem in live.analysis.problems}
    assert warned - {problem.message for problem in live.heard[0][1].problems}
    live.heard.clear()
    graph = document.project.graph.with_name("n2", "fc")
    document.apply("Rename", replace(document.project, graph=graph))
    assert not live.up_to_date
    qtbot.waitUntil(lambda: live.up_to_date)
    (first, shapes), (second, analysis) = live.heard
    assert (first, second) == (
        "shapes",
        "all",
    ) and shapes.graph is analysis.graph is graph
    assert shapes.partial and not analysis.partial and analysis.source.text
    assert shapes.values == analysis.values
    assert {problem.message for problem in shapes.problems} == warned


def test_of_edits_in_a_row_only_the_last_is_answered_in_full(live, qtbot) -> None:
    live, document = live
    live.heard.clear()
    for size in (11, 12, 13):
        graph = document.project.graph.with_param("n2", "out_features", size)
        document.apply("Set out_features", replace(document.project, graph=graph))
    qtbot.waitUntil(lambda: live.up_to_date)
    assert [what for what, _ in live.heard] == ["shapes", "all"]
    assert live.analysis.resolved["n2"]["out_features"] == 13
