"""Background analysis of the open graph, and the problems that prevent a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QObject, QTimer, Signal

from app.builder.catalog.catalog import Catalog
from app.builder.diagnostics.problems import Problem
from app.builder.graph import Graph
from app.builder.results import Analysis
from app.engine.protocol import EngineDiedError
from app.engine.requests.shapes import (
    Analyse,
    InferShapes,
    LoadTorch,
    StartProblems,
    Torch,
)
from app.preflight import opened, preflight
from app.preflight.setting_checks import absent_device
from app.project.document import Document
from app.project.project import Project
from app.source.generated import Path as Way
from app.training.config import StartWeights
from app.views.engine_service import EngineService
from app.views.navigation import Navigation
from app.views.project_catalog import ProjectCatalog
from app.views.ui.background import Background, WorkerFailure
from app.views.ui.turns import Turns

Question = tuple[Graph, Catalog, Way]


ADD_LAYERS, CHOOSE_DATA, MODEL_RAISED = (
    "Add layers to run",
    "Choose data to train on",
    "The model raised",
)
KNOWN = 8  # cached answers
# Seconds that sending a request is waited for: who draws the edit meanwhile would keep the interpreter lock from it.
SENT = 0.002
LARGE = (
    300  # nodes; for a larger net, one listener per turn of the event loop is called
)
RETRIES = 2  # times a request is repeated in a new engine


class Preflight(Struct, frozen=True):
    """Problems between a project and a run besides its net, from the facts about the data as of `look`."""

    project: Project
    look: int
    problems: tuple[Problem, ...]


def _preflight(
    project: Project, analysis: Analysis, started: tuple[Problem, ...], look: int
) -> Preflight:
    """Worked out by a worker: of a large net the window would wait for it."""
    problems = (
        preflight.problems(project, analysis, started) if analysis.runnable else ()
    )
    return Preflight(project, look, problems)


class AnalysisService(QObject):
    """Requests an analysis whenever the graph or its ops change, and emits the result.

    `shapes_ready(analysis)` comes first, with only what the canvas shows during edits. `analysed(analysis)` follows for
    the open graph, seen from the open block, and again when data or training settings change: its problems are all that
    prevent a run. Until torch is loaded there is no analysis; the window can draw, connect and rename already, and what
    needs the analysis waits for it by `when_checked`.
    """

    torch_loaded = Signal(object)
    torch_failed = Signal(object)
    shapes_ready = Signal(object)
    analysed = Signal(object)
    analysis_failed = Signal(object)

    def __init__(
        self,
        document: Document,
        background: Background,
        engine: EngineService,
        catalog: ProjectCatalog,
        place: Navigation,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._document = document
        self._background, self._engine = background, engine
        self._retries = 0
        self._catalog, self._place = catalog, place
        self.torch: Torch | None = None
        self.analysis: Analysis | None = None
        self._shapes: Analysis | None = None
        self._bare: Analysis | None = None
        self.wants = ""  # what is to be done first where nothing is wrong: add layers, choose data
        self._raised: Problem | None = None  # of the opened model, which is no project
        self._errors: tuple[Problem, ...] = ()
        self._found_later: tuple[
            Problem, ...
        ] = ()  # problems of the last full answer that shapes alone do not show
        self._answered_question: Question | None = None
        # Recent answers: undo and redo need no new analysis, and no worker slows the painting.
        self._known: deque[
            tuple[Question, StartWeights | None, Analysis, Preflight]
        ] = deque(maxlen=KNOWN)
        self._recalled: tuple[Analysis, Preflight] | None = None
        self._preflight: Preflight | None = None
        # The latest start weights and analysis checked, and the problems found.
        self._started: tuple[StartWeights, Analysis, tuple[Problem, ...]] | None = None
        self._look = 0  # incremented whenever facts about the data change
        self._recall = QTimer(self, singleShot=True, interval=0)
        self._recall.timeout.connect(self._show_recalled)
        # What waits for the analysis, by key: what to do then, and what if it fails.
        self._awaiting: dict[
            str, tuple[Callable[[], object], Callable[[str], object]]
        ] = {}
        self.failure: tuple[str, str] | None = (
            None  # that there can be no analysis, and why
        )
        self.torch_failed.connect(partial(self._give_up, "PyTorch cannot be loaded"))
        self.analysis_failed.connect(
            partial(self._give_up, "The network could not be checked")
        )
        document.replaced.connect(self._replaced)
        document.changed.connect(self._changed)
        catalog.changed.connect(self._request_analysis)
        place.changed.connect(lambda _before, _after: self._request_analysis())

    def start(self) -> None:
        """Have an engine load torch, then answer."""
        self._engine.ask(
            "torch", LoadTorch(), on_answer=self._loaded, on_error=self._not_loaded
        )

    @property
    def up_to_date(self) -> bool:
        """Return whether `analysis` is of the open graph, its blocks, and the open block."""
        return self.analysis is not None and self._answers(self._answered_question)

    @property
    def unfinished(self) -> tuple[str, str] | None:
        """Return what ends by itself before the network is checked: as a state, and as what will have happened then."""
        if self.failure is not None:
            return None
        if self.torch is None:
            return "PyTorch is loading", "PyTorch is loaded"
        return (
            None
            if self.up_to_date
            else ("Checking the network", "the network is checked")
        )

    def when_checked(
        self, key: str, act: Callable[[], object], give_up: Callable[[str], object]
    ) -> None:
        """Call `act` once the open network is checked, at once if it is, or `give_up` with the reason if it cannot be.

        A later request of the same `key` takes the place of one that waits; another project drops it.
        """
        self._awaiting.pop(key, None)
        if self.up_to_date:
            act()
        elif self.failure is not None:
            give_up(": ".join(self.failure))
        else:
            self._awaiting[key] = act, give_up

    def pending(self, key: str) -> bool:
        """Return whether a request waits for the network to be checked."""
        return key in self._awaiting

    def forget(self, key: str) -> None:
        """Drop a request that waits."""
        self._awaiting.pop(key, None)

    def _give_up(self, summary: str, failure: WorkerFailure) -> None:
        self.failure = summary, failure.message
        waiting, self._awaiting = self._awaiting, {}
        for _, give_up in waiting.values():
            give_up(": ".join(self.failure))

    @property
    def net_runs(self) -> bool:
        """Return whether the open net has no problems in itself, apart from data, loss and start weights."""
        return self.up_to_date and self._bare is not None and self._bare.runnable

    @property
    def net_errors(self) -> tuple[Problem, ...]:
        """The errors of the net itself, whatever its data, its loss and its start weights are."""
        return self._bare.errors if self._bare is not None else ()

    @property
    def in_front(self) -> Analysis | None:
        """The analysis of the graph in view: the network, or the open block."""
        return self.front_of(self.analysis) if self.analysis is not None else None

    def front_of(self, analysis: Analysis) -> Analysis | None:
        """Return the part of an analysis about the graph in view, None if it was requested for another."""
        return analysis.inside if self._place.path else analysis

    def show_raised(self, raised: Problem | None) -> None:
        """Report that the model raised that was opened and cannot be the project, as long as nothing is drawn."""
        self._raised = raised
        if self.analysis is not None:
            self.refresh()

    def refresh(self) -> None:
        """Check again what prevents a run, after new facts about the data."""
        self._look += 1
        if self._document.project.opened is not None:
            self._analyse_opened()
        else:
            self._publish()

    def _question(self) -> Question:
        return self._document.project.graph, self._catalog.now, self._place.path

    def _answers(self, question: Question | None) -> bool:
        """Return whether a question is the current one."""
        if question is None:
            return False
        graph, ops, way = self._question()
        return question[0] is graph and question[1] is ops and question[2] == way

    @property
    def errors(self) -> tuple[Problem, ...]:
        """What prevents a run, also where nobody has made a mistake, as on an empty canvas."""
        return self._errors

    def _loaded(self, torch: Torch) -> None:
        self.torch, self.failure = torch, None
        self.torch_loaded.emit(torch)
        self._request_analysis()

    def _not_loaded(self, failure: WorkerFailure) -> None:
        if self._should_retry(failure):
            self.start()
        else:
            self.torch_failed.emit(failure)

    def _should_retry(self, failure: WorkerFailure) -> bool:
        """Return whether to repeat a request because its engine has died."""
        self._retries += 1
        return isinstance(failure.error, EngineDiedError) and self._retries <= RETRIES

    def _on_failure(self, failure: WorkerFailure) -> None:
        if self._should_retry(failure):
            self._shapes = None  # the engine's earlier answer is gone
            self._request_analysis()
        else:
            self.analysis_failed.emit(failure)

    def _changed(self, before: Project, after: Project) -> None:
        if after.opened is not None:
            if before is not after:
                self._analyse_opened()
        elif before.opened is not None:
            self._answered_question = None  # its graph may be the same empty one
            self._request_analysis()
        elif before.graph is not after.graph:
            self._request_analysis()
        elif before.data != after.data or before.training != after.training:
            self._publish()

    def _replaced(self, _project: Project) -> None:
        self._raised = self._answered_question = None
        self._awaiting.clear()
        self._recall.stop()
        self._forget()
        self._request_analysis()

    def _forget(self) -> None:
        for key in ("shapes", "analysis", "start"):
            self._engine.forget(key)
        self._background.forget("preflight")

    def _request_analysis(self) -> None:
        if self.torch is not None and not self.up_to_date:
            self._recall.stop()
            self.failure = None
            self._forget()
            if self._document.project.opened is not None:
                self._analyse_opened()
                return
            question = self._question()
            self._recalled = self._known_of(question)
            if self._recalled is not None:
                self._recall.start()
                return
            ticket = self._engine.ask(
                "shapes",
                InferShapes(*question, self._shapes),
                on_answer=partial(self._shaped, question),
                on_error=self._on_failure,
            )
            if ticket is not None:
                ticket.wait_until_sent(SENT)

    def _analyse_opened(self) -> None:
        """Analyse an opened model, which needs no engine: what it takes and returns is known from its call."""
        if self.torch is None:
            return
        self._shapes, self._preflight, self._found_later = None, None, ()
        self._bare, self._answered_question = (
            opened.analysis_of(self._document.project),
            self._question(),
        )
        self._publish()

    def _known_of(self, question: Question) -> tuple[Analysis, Preflight] | None:
        start = self._document.project.training.start
        for (graph, ops, way), then, analysis, more in self._known:
            if (
                graph is question[0]
                and ops is question[1]
                and way == question[2]
                and then == start
            ):
                return analysis, more
        return None

    @property
    def _still_recalled(self) -> tuple[Analysis, Preflight] | None:
        """The recalled answer, if it is still the current one."""
        recalled = (
            self._known_of(self._question()) if self._recalled is not None else None
        )
        return (
            recalled
            if recalled is not None
            and self._recalled is not None
            and recalled[0] is self._recalled[0]
            else None
        )

    def _show_recalled(self) -> None:
        """Show a stored analysis first, as if it were an answer."""
        recalled = self._still_recalled
        if recalled is not None:
            self._shapes = recalled[0]
            self.shapes_ready.emit(recalled[0])
            self._ask_rest()

    def _shaped(self, question: Question, shapes: Analysis) -> None:
        """Show the shapes with the earlier problems that probably remain, so that no marks flicker."""
        if self._answers(question):
            self._shapes = shapes
            later = () if shapes.errors else self._found_later
            self.shapes_ready.emit(
                replace(shapes, problems=(*shapes.problems, *later))
                if later
                else shapes
            )
            self._ask_rest()

    def _ask_rest(self) -> None:
        recalled, self._recalled = self._still_recalled, None
        if recalled is not None:
            (self._bare, self._preflight), self._answered_question = (
                recalled,
                self._question(),
            )
            self._publish()
            return
        question, shapes = self._question(), self._shapes
        if shapes is not None and shapes.graph is question[0]:
            self._engine.ask(
                "analysis",
                Analyse(*question, shapes),
                on_answer=partial(self._accept, question),
                on_error=self._on_failure,
            )

    def _accept(self, question: Question, analysis: Analysis) -> None:
        if not self._answers(question):
            return
        self._retries = 0
        start = self._document.project.training.start
        if start is None or not analysis.runnable:
            self._check_project(question, analysis, ())
        else:
            self._ask_start(
                start, analysis, partial(self._check_project, question, analysis)
            )

    def _ask_start(
        self,
        start: StartWeights,
        analysis: Analysis,
        then: Callable[[tuple[Problem, ...]], None],
    ) -> None:
        """Have the engine check the start weights against the net."""

        def learn(problems: tuple[Problem, ...]) -> None:
            self._started = start, analysis, problems
            then(problems)

        request = StartProblems(start, analysis.source)
        self._engine.ask("start", request, on_answer=learn, on_error=self._on_failure)

    def _check_project(
        self, question: Question, analysis: Analysis, started: tuple[Problem, ...]
    ) -> None:
        self._background.ask(
            "preflight",
            _preflight,
            self._document.project,
            analysis,
            started,
            self._look,
            on_answer=partial(self._checked, question, analysis),
            on_error=self.analysis_failed.emit,
        )

    def _checked(
        self, question: Question, analysis: Analysis, outcome: Preflight
    ) -> None:
        if self._answers(question):
            self._bare, self._preflight, self._answered_question = (
                analysis,
                outcome,
                question,
            )
            self._known.append(
                (question, self._document.project.training.start, analysis, outcome)
            )
            self._publish()

    def _publish(self) -> None:
        """Emit the analysis, with problems between net, data and loss if the net itself has none."""
        bare = self._bare
        if bare is None or not self._answers(self._answered_question):
            return
        project, outcome = self._document.project, self._preflight
        more: tuple[Problem, ...] = ()
        if (
            outcome is not None
            and outcome.project is project
            and outcome.look == self._look
        ):
            more = outcome.problems
        elif bare.runnable:
            started: tuple[Problem, ...] = ()
            start = project.training.start
            if start is not None:
                if (
                    self._started is None
                    or self._started[0] != start
                    or self._started[1] is not bare
                ):
                    self._ask_start(start, bare, lambda _found: self._publish())
                    return
                started = self._started[2]
            more = preflight.problems(project, bare, started)
        if self.torch is not None:
            more = (*more, *absent_device(project, self.torch.devices))
        self.analysis = replace(bare, problems=(*bare.problems, *more))
        self._errors, self.wants = self.analysis.errors, ""
        if project.opened is None and not project.graph.nodes:
            self.wants = MODEL_RAISED if self._raised is not None else ADD_LAYERS
            notes = tuple(
                replace(problem, severity="info") for problem in self.analysis.problems
            )
            notes = (self._raised,) if self._raised is not None else notes
            self.analysis = replace(self.analysis, problems=notes)
        elif (no_data := opened.without_data(project, bare.problems, more)) is not None:
            self.wants = CHOOSE_DATA
            self.analysis = replace(self.analysis, problems=no_data)
        reported = (
            {id(problem) for problem in self._shapes.problems}
            if self._shapes is not None
            else set()
        )
        self._found_later = tuple(
            problem for problem in self.analysis.problems if id(problem) not in reported
        )
        self.analysed.emit(self.analysis)
        waiting, self._awaiting = self._awaiting, {}
        for act, _ in waiting.values():
            act()


class Hearers(QObject):
    """Calls listeners after each analysis: visible ones at once, the others after a turn of the event loop.

    For a large net each is called in a separate turn, so that their times do not add up to a pause.
    """

    def __init__(self, live: AnalysisService, parent: QObject) -> None:
        super().__init__(parent)
        self._live = live
        self._first, self._later = Turns(self), Turns(self)
        live.analysed.connect(self._analysed)

    def add(self, hear: Callable[[], None], *, later: bool = False) -> None:
        """Add a listener that is called after each analysis."""
        (self._later if later else self._first).add(hear)

    @property
    def active(self) -> bool:
        """Return whether listeners are still to be called."""
        return self._first.active or self._later.active

    def _analysed(self, analysis: Analysis) -> None:
        together = len(analysis.graph.nodes) <= LARGE
        if together:
            self._first.now()
        else:
            self._first.begin()
        self._later.begin(together)
