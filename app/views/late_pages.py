"""The pages behind the first ones, made after the window stands: one a step, behind what a worker imports for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.views import early_imports
from app.views.ui.background import many_imports
from app.views.ui.docks import PageHeights
from app.views.ui.present import present

if TYPE_CHECKING:
    from app.views.main_window import MainWindow


HEIGHT = 338  # of the page "Layer", px


def load_modules() -> None:
    """Import what the pages are made of as far as it needs no window; on a worker, so that the window answers."""
    with many_imports():
        early_imports.load()


def furnishing(window: MainWindow) -> Iterator[None]:
    """Each step makes a page, or a part of one, and puts it under its tab; the last one connects them."""
    steps: tuple[Callable[[MainWindow], Iterator[None] | None], ...] = (
        _inspector, _outline, _code, _training, _costs, _curves, _runs, _evaluation,
        _room, _tape, _findings, _exporting, _links, _layer, _library,
    )  # fmt: skip
    for step in steps:
        yield from step(window) or ()
        yield


def _library(window: MainWindow) -> None:
    window.library_control.read()


def _inspector(window: MainWindow) -> None:
    window.inspector.node_page  # noqa: B018  made by asking for it


def _outline(window: MainWindow) -> None:
    from app.views.outline.outline import Outline

    window.outline = Outline(window.sheet, window.selection, window.catalog)
    window.left.pane.fill("outline", window.outline)


def _code(window: MainWindow) -> None:
    from app.views.code.code_view import CodeView

    window.code = CodeView(window.selection)
    window.code.edits(window.sheet, window.catalog)
    window.centre.fill("code", window.code)


def _training(window: MainWindow) -> None:
    from app.views.training.form.settings_form import TrainingForm

    window.training_form = TrainingForm(window.document, window.engine)
    window.right.pane.fill("training", window.training_form)


def _costs(window: MainWindow) -> None:
    from app.views.cost.cost_control import CostControl
    from app.views.cost.cost_table import CostTable

    window.costs = CostTable(window.catalog, window.network_selection)
    window.bottom.pane.fill("cost", window.costs)
    window.bottom.pane.add_corner(window.costs.controls)
    window.costs.controls.setVisible(window.bottom.pane.page == "cost")
    window.bottom.pane.shown.connect(lambda key: window.costs.controls.setVisible(key == "cost"))
    window.cost_control = CostControl(window)


def _curves(window: MainWindow) -> Iterator[None]:
    from app.views.training.charts.curves import Curves, made_in_steps

    window.curves = Curves((yield from made_in_steps()))
    window.bottom.pane.fill("curves", window.curves)
    window.bottom.pane.add_corner(window.curves.controls)
    window.curves.controls.setVisible(window.bottom.pane.page == "curves")
    window.bottom.pane.shown.connect(lambda key: window.curves.controls.setVisible(key == "curves"))


def _runs(window: MainWindow) -> None:
    from app.views.training.runs.console import Console
    from app.views.training.runs.run_panel import RunPanel

    window.console, window.runs = Console(), RunPanel()
    window.bottom.pane.fill("console", window.console)
    window.bottom.pane.fill("runs", window.runs)


def _evaluation(window: MainWindow) -> None:
    from app.views.training.evaluation.control import EvaluationControl
    from app.views.training.evaluation.page import EvaluationPage

    window.evaluation = EvaluationPage()
    window.evaluation_control = EvaluationControl(window.evaluation, window)
    window.bottom.pane.fill("evaluation", window.evaluation)


def _layer(window: MainWindow) -> None:
    from app.views.training.layer.layer_control import LayerControl
    from app.views.training.layer.layer_page import LayerPage
    from app.views.training.memory.memory_control import MemoryControl
    from app.views.training.memory.profile_control import ProfileControl

    window.layer_page = LayerPage()
    window.bottom.pane.add("layer", "Layer", "layers", window.layer_page)
    window.bottom.pane.add_corner(window.layer_page.controls)
    window.layer_page.controls.setVisible(window.bottom.pane.page == "layer")
    window.bottom.pane.shown.connect(lambda key: window.layer_page.controls.setVisible(key == "layer"))
    present(window.bottom.findChild(PageHeights)).set_first("layer", HEIGHT)
    window.layer_control = LayerControl(window)
    window.memory_control = MemoryControl(window)
    window.profile_control = ProfileControl(window)


def _room(window: MainWindow) -> None:
    from app.views.autograd.capture_control import AutogradControl
    from app.views.autograd.inspector.inspector import TapeInspector
    from app.views.autograd.page import AutogradPage
    from app.views.autograd.snippets.snippet_control import SnippetControl, made_pages

    window.room, window.tape_inspector = AutogradPage(), TapeInspector()
    window.inspectors.addWidget(window.tape_inspector)
    pages = made_pages(window.room)
    window.centre.fill("autograd", pages)
    window.snippets = SnippetControl(window, pages)
    window.centre.add_corner(window.snippets.toggle)
    window.autograd_control = AutogradControl(
        window.room,
        window.document,
        window.catalog,
        window.live,
        window.newest_weights,
        window.background,
        window.engine,
        window.settings,
        window,
    )


def _tape(window: MainWindow) -> None:
    from app.views.autograd.tape.tape_control import TapeControl

    window.tape_control = TapeControl(window)


def _findings(window: MainWindow) -> None:
    from app.views.autograd.findings.findings_control import FindingsControl
    from app.views.autograd.options_control import OptionsControl

    window.findings_control = FindingsControl(window)
    window.options_control = OptionsControl(window)


def _exporting(window: MainWindow) -> None:
    from app.views.export.export_control import ExportControl

    window.export_control = ExportControl(
        window.document, window.live, window.newest_weights, window.background, window.engine, window.settings, window
    )


def _links(window: MainWindow) -> None:
    from app.views.page_links import PageLinks
    from app.views.training.form.watch_control import WatchControl
    from app.views.training.runs.runs_control import RunsControl

    window.page_links = PageLinks(window)
    window.runs_control = RunsControl(window)
    window.watch_control = WatchControl(window)
