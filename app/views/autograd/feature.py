"""The autograd graph in the window: the page "Autograd", its steps, the backward tape, and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QStackedWidget, QWidget

from app.autograd.diagnostics.results import looked_for
from app.util.language import tr
from app.views.autograd.capture_control import AutogradControl
from app.views.autograd.capture_menu import CaptureMenu
from app.views.autograd.graph_tab import MODEL, NET, GraphTab
from app.views.autograd.opened_model import place_of, select_calls
from app.views.autograd.options_control import OptionsControl
from app.views.autograd.page import AutogradPage
from app.views.autograd.tape.player import Player
from app.views.autograd.tape.replay_control import ReplayControl
from app.views.autograd.tape.tape_control import TapeControl
from app.views.feature import Action, Feature, Page
from app.views.run.run_control import NO_SCRIPT
from app.views.ui.dialogs.search import SearchEntry
from app.views.ui.inspector import TapeInspector

if TYPE_CHECKING:
    from app.autograd.tape import Tape
    from app.engine.requests.capture import HeldStep
    from app.engine.requests.observe import Observe
    from app.observe.observation import CallPlace
    from app.views.autograd.findings.findings_control import FindingsControl

STEP_TIP = (
    "Pauses the watched script before its next backward, to inspect and play it here"
)
REPLAY = "A self-contained page that plays the backward pass"


class AutogradFeature(Feature):
    rank = 180
    room: AutogradPage
    tape_inspector: TapeInspector
    autograd_control: AutogradControl
    graphs: GraphTab
    tape_control: TapeControl
    findings_control: FindingsControl
    options_control: OptionsControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "autograd",
            "Autograd",
            "autograd",
            "centre",
            self._make_graph,
            after="network",
            edge="back",
            words="&Autograd",
            shortcut="Ctrl+2",
            controls=lambda: self.graphs.toggle,
            home=lambda: self.room.view,
        )
        yield Page(
            "steps", "Steps", "autograd", "left", lambda: self.tape_control.steps
        )
        yield Page(
            "tape",
            "Backward tape",
            "tapedeck",
            "bottom",
            lambda: self.tape_control.page,
            after="problems",
            words="&Backward tape",
            controls=lambda: self.tape_control.page.controls,
        )
        yield Page(
            "findings",
            "Findings",
            "flask",
            "bottom",
            self._make_findings,
            after="tape",
            words="&Findings",
        )

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "capture",
                "&Capture one batch",
                lambda: self._capture(),
                "Ctrl+Return",
                "autograd",
                late=True,
                menu="autograd.record",
            ),
            Action(
                "capture-eval",
                "Capture in &eval mode",
                lambda: self._capture(False),
                late=True,
                menu="autograd.record",
            ),
            Action(
                "capture-step",
                "Capture the ne&xt step of the script",
                self._capture_step,
                "Ctrl+Alt+Return",
                "autograd",
                STEP_TIP,
                menu="run.script",
            ),
            Action("script-goes-on", "", self._go_on),
            Action(
                "play-backward",
                "&Play backward or pause",
                lambda: self.tape_control.play(),
                "F9",
                "run",
                late=True,
                menu="autograd.play",
            ),
            Action(
                "step-backward",
                "S&tep",
                lambda: self.tape_control.step(),
                "F10",
                "step",
                "Run the next backward node",
                late=True,
                menu="autograd.play",
            ),
            Action(
                "step-back",
                "Step &back",
                lambda: self.tape_control.back(),
                "Ctrl+F10",
                "step-back",
                "Undo the last backward step",
                late=True,
                menu="autograd.play",
            ),
            Action(
                "run-to-selected",
                "&Run to selected",
                lambda: self.tape_control.run_to_selected(),
                "Ctrl+F9",
                "to-end",
                late=True,
                menu="autograd.play",
            ),
            Action(
                "break-at-selected",
                "Break at se&lected",
                lambda: self.tape_control.break_at_selected(),
                "Shift+F9",
                "record",
                late=True,
                menu="autograd.play",
            ),
            Action(
                "html-replay",
                "Export an HT&ML replay…",
                lambda: self.tape_control.export_replay(),
                "",
                "export",
                REPLAY,
                late=True,
                menu="autograd.play",
            ),
            Action(
                "findings",
                "&Findings",
                self._show("findings"),
                "Ctrl+F8",
                "flask",
                late=True,
                menu="autograd.reports",
            ),
            Action(
                "gain-ladder",
                "&Gain ladder",
                self._show("gain"),
                late=True,
                menu="autograd.reports",
            ),
            Action(
                "what-if-checkpoint",
                "Estimate chec&kpointing of blocks",
                self._show("checkpoint"),
                late=True,
                menu="autograd.reports",
            ),
            Action("capture-model", "", self._capture_model),
            Action("show-step", "", self._show_step),
            Action("show-backward", "", self._show_backward),
        )

    def begin(self) -> None:
        self.workspace.pages.set_offered("steps", False)
        self.capture_menu = CaptureMenu(self.workspace.window)
        self.capture_menu.about = self._about_net
        self.workspace.commands.insert_menu(self.capture_menu, before="play-backward")

    def _about_net(self) -> tuple[int, tuple[str, ...], int]:
        """Return what the menu asks when it opens before the page was shown: the page's control answers from now on."""
        self.workspace.pages.make("autograd")
        assert self.capture_menu.about is not None
        return self.capture_menu.about()

    # -- pages --------------------------------------------------------------------------------------------------------

    def _make_graph(self) -> QWidget:
        workspace = self.workspace
        self.room, self.tape_inspector = AutogradPage(), TapeInspector()
        room, inspector = self.room, self.tape_inspector
        workspace.pages.stand_in("inspector", inspector, while_front="autograd")
        self.autograd_control = capture = AutogradControl(workspace, room)
        player = Player(workspace.window)
        replay = ReplayControl(workspace, room, player, capture)
        self.graphs = GraphTab(
            workspace.pages, workspace.graph_subjects, room, inspector
        )
        for subject in workspace.graph_subjects:
            subject.follow(self.graphs, inspector, replay.write)
        self.tape_control = TapeControl(
            workspace, room, inspector, capture, self.graphs, replay, player
        )
        return self.graphs.pages

    def _make_findings(self) -> QWidget:
        from app.views.autograd.findings.findings_control import FindingsControl
        from app.views.autograd.findings.findings_page import FindingsPage
        from app.views.autograd.findings.gain_over_steps import GainsOverRun

        page = FindingsPage(GainsOverRun(), self.workspace.diagnostics)
        room, inspector, capture = self.room, self.tape_inspector, self.autograd_control
        self.findings_control = FindingsControl(
            self.workspace, room, inspector, capture, page
        )

        pages = QStackedWidget()
        pages.addWidget(page)
        for subject in self.workspace.graph_subjects:
            subject.follow_findings(pages, self.findings_control.came_back)
        return pages

    def finish(self) -> None:
        workspace, room = self.workspace, self.room
        self.options_control = OptionsControl(
            workspace, room, self.autograd_control, self.capture_menu
        )
        room.nodeSelected.connect(self._node_selected)
        room.nodeHovered.connect(self._node_hovered)
        capture = self.autograd_control
        capture.turned.connect(lambda _subject: room.set_tape(None))
        capture.turned.connect(self.graphs.show_subject)
        capture.measured.connect(
            lambda captured: workspace.commands.trigger("show-figures", captured)
        )
        self.graphs.subject_chosen.connect(capture.turn_to)
        capture.script.captured.connect(lambda *_: workspace.pages.show("tape"))
        capture.script.changed.connect(workspace.run_control.show_step)
        room.detail.connect(self.tape_control.inspect)
        workspace.network_selection.changed.connect(self._selected)
        workspace.document.replaced.connect(lambda _project: room.set_tape(None))
        workspace.notifier.told_by.append(self._tells)
        workspace.session.commandsChanged.connect(self._offer_step)
        workspace.session.stateChanged.connect(lambda _state: self._offer_step())
        workspace.hearers.add(self._on_analysis, later=True)
        self._on_analysis()
        self._selected(workspace.network_selection.ids, None)

    def close(self) -> None:
        if hasattr(
            self, "tape_control"
        ):  # else the window is closed before its pages are made
            self.tape_control.close()
            self.autograd_control.close()

    # -- connections ---------------------------------------------------------------------------------------------------

    def _offer_step(self) -> None:
        """Offer a step of the script in place of a batch, where there is no network that could run one."""
        control = self.workspace.run_control
        ended = control.shows_script and not control.script_alone
        for page in (self.room, self.tape_control.page):
            page.offer.offer_step(control.script_alone, ended)
        self.findings_control.show_reason()

    def _on_analysis(self) -> None:
        self._offer_step()
        self.autograd_control.check_again()
        if self.workspace.live.analysis is not None:
            self.room.set_source_text(self.workspace.live.analysis.source.text)

    def _selected(self, ids: frozenset[str], origin: object) -> None:
        if origin is not self.room and self.autograd_control.subject == NET:
            self.room.select_nodes(ids)

    def _node_selected(self, node: str | None) -> None:
        if self.autograd_control.subject == MODEL:
            item, tape = (
                self.room.item_of(self.room.scene.current_key()),
                self.room.tape,
            )
            if item is not None and tape is not None:
                self.workspace.commands.trigger("show-call", place_of(tape, item))
        elif node is not None and self.autograd_control.subject == NET:
            self.workspace.network_selection.set([node], self.room)

    def _node_hovered(self, node: str | None) -> None:
        if self.autograd_control.subject == NET:
            self.workspace.network_selection.hover(node)

    def _show_backward(
        self, call_locations: tuple[CallPlace, ...], front: bool
    ) -> None:
        """Select the backward nodes of calls of the opened model, and with `front` show them."""
        if (
            not hasattr(self, "autograd_control")
            or self.autograd_control.opened is None
        ):
            return

        if front:
            self.workspace.pages.show("autograd")
            self.graphs.show(MODEL)
        if self.autograd_control.subject == MODEL:
            select_calls(self.room, call_locations)

    def _tells(self, message: str) -> bool:
        """Return whether the page reports, or is about to, that the engine has ended, with the batch or graph there."""
        about_to = self.autograd_control.waits or self.tape_control.player.keeps
        return self.room.isVisible() and (
            about_to or message in self.room.banner.reason()
        )

    # -- commands -----------------------------------------------------------------------------------------------------

    def _capture(self, train: bool | None = None) -> None:
        """Capture the opened model if it is in front, on its page or on this one, else the net; as the button of the
        page does, in the mode chosen there, unless one is given."""
        capture, pages = self.autograd_control, self.workspace.pages
        if pages.is_front("observed"):
            self.workspace.commands.trigger("capture-observed", train)
            return
        subject = capture.subject if pages.is_front("autograd") else NET
        pages.show("autograd")
        self.graphs.show(subject)
        if train is None:
            train = self.room.head.train
        else:
            self.room.head.set_mode(train)
        capture.capture(train)

    def _capture_model(self, model: Observe, train: bool) -> None:
        self.workspace.pages.show("autograd")
        self.autograd_control.open(model, train)

    def _capture_step(self) -> None:
        control = self.workspace.run_control
        if not control.takes_commands:
            control.refused.emit("No script is watched", NO_SCRIPT)
            return
        self.workspace.pages.show("autograd")
        self.autograd_control.capture_step()

    def _show_step(self, tape: Tape, step_handle: HeldStep) -> None:
        """Show a step of a run that the engine holds."""
        self.workspace.pages.show("autograd")
        self.graphs.show(NET)
        self.autograd_control.show_step(tape, step_handle)

    def _go_on(self) -> None:
        if hasattr(self, "autograd_control"):
            self.autograd_control.go_on()

    def searched(self) -> Iterable[SearchEntry]:
        for what in looked_for():
            yield SearchEntry(
                f"finding.{what}",
                tr("Look for {what}", what=tr(what)),
                partial(self.workspace.commands.trigger, "findings"),
                "Finding",
                icon="autograd",
            )

    def _show(self, page: str) -> Callable[[], None]:
        return lambda: self.findings_control.show(page)
