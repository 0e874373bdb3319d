"""The main window with the parts of its features by name, for who drives them from outside: tests, benchmarks and
screenshots. The features themselves reach one another through the workspace alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from app.views.autograd.feature import AutogradFeature
from app.views.canvas.feature import CanvasFeature
from app.views.feature import Feature
from app.views.inspector.feature import InspectorFeature
from app.views.main_window import MainWindow
from app.views.palette.feature import PaletteFeature
from app.views.training.charts.feature import ChartsFeature
from app.views.training.feature import RunFeature
from app.views.training.form.feature import TrainingFormFeature

F = TypeVar("F", bound=Feature)
T = TypeVar("T")


class Part(Generic[F, T]):
    """A part of one of the window's features. Raises AttributeError as long as its page is not made."""

    def __init__(self, feature: type[F], part: Callable[[F], T]) -> None:
        self._feature, self._part = feature, part

    def __get__(self, window: MainWindow, _kind: type[MainWindow]) -> T:
        return self._part(
            next(each for each in window.features if isinstance(each, self._feature))
        )


class NotOnShelfError(AttributeError):
    """Raised for a part of a feature that is not there; a test that takes it is skipped."""


class OnShelf:
    """A part of a feature of `app.features`, which need not be there: it is not imported here.

    Raises NotOnShelfError without the feature, and AttributeError as long as its page is not made.
    """

    def __init__(self, feature: str, part: str) -> None:
        self._module, self._part = f"app.features.{feature}.feature", part

    def __get__(self, window: MainWindow, _kind: type[MainWindow]) -> Any:
        for feature in window.features:
            if type(feature).__module__ == self._module:
                return getattr(feature, self._part)
        raise NotOnShelfError(f"there is no {self._module}")


class WholeWindow(MainWindow):
    """The window as it is, and what is in it."""

    autograd_control = Part(AutogradFeature, lambda its: its.autograd_control)
    findings_control = Part(AutogradFeature, lambda its: its.findings_control)
    options_control = Part(AutogradFeature, lambda its: its.options_control)
    room = Part(AutogradFeature, lambda its: its.room)
    graphs = Part(AutogradFeature, lambda its: its.graphs)
    snippets = OnShelf("snippets", "control")
    snippet_findings = OnShelf("snippets", "findings")
    tape_control = Part(AutogradFeature, lambda its: its.tape_control)
    tape_inspector = Part(AutogradFeature, lambda its: its.tape_inspector)
    block_control = OnShelf("blocks", "block_control")
    library_control = OnShelf("blocks", "library_control")
    canvas = Part(CanvasFeature, lambda its: its.canvas)
    code = OnShelf("code", "code")
    cost_control = OnShelf("cost", "cost_control")
    costs = OnShelf("cost", "costs")
    own_files = OnShelf("custom_layers", "own_files")
    export_control = OnShelf("export", "export_control")
    pictures = OnShelf("export", "pictures")
    recovery = OnShelf("files", "recovery")
    import_control = OnShelf("importing", "import_control")
    inspector = Part(InspectorFeature, lambda its: its.inspector)
    inspectors = Part(InspectorFeature, lambda its: its.inspectors)
    diff = OnShelf("compare", "diff")
    interpreted = OnShelf("interpret", "interpreted")
    call_inspector = OnShelf("opened", "call_inspector")
    observed = OnShelf("opened", "observed")
    outline = OnShelf("outline", "outline")
    palette_view = Part(PaletteFeature, lambda its: its.palette_view)
    problems_panel = OnShelf("problems", "problems_panel")
    curves = Part(ChartsFeature, lambda its: its.curves)
    evaluation = OnShelf("evaluation", "evaluation")
    evaluation_control = OnShelf("evaluation", "evaluation_control")
    surgery_control = OnShelf("surgery", "surgery_control")
    training_form = Part(TrainingFormFeature, lambda its: its.training_form)
    watch_control = Part(TrainingFormFeature, lambda its: its.watch_control)
    layer_control = OnShelf("layer", "layer_control")
    layer_page = OnShelf("layer", "layer_page")
    memory_control = OnShelf("memory", "memory_control")
    profile_control = OnShelf("memory", "profile_control")
    console = OnShelf("runs", "console")
    places = Part(RunFeature, lambda its: its.places)
    panels = OnShelf("panels", "panels")
    runs = OnShelf("runs", "runs")
    runs_control = OnShelf("runs", "runs_control")
    gradcheck = OnShelf("gradcheck", "control")
    sweeps = OnShelf("sweep", "sweeps")
    weights_control = OnShelf("weights", "weights_control")

    def start_run(self) -> None:
        """Make the pages, and start a run."""
        self.furnish()
        self.run_control.run()
