"""Controller of the page "Attention": prepares the net, reads attention and attributions, mutes heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.engine.protocol import Handle, HandleLostError
from app.engine.requests.capture import WeightsChoice, WeightsFile
from app.engine.requests.observe import ModelCapture, Observe
from app.features.interpret.changes_view import FIRST, THIS
from app.features.interpret.changes_view import WORST as WORST_SAMPLES
from app.features.interpret.page import ATTRIBUTION, EXAMPLE, InterpretPage
from app.features.interpret.values import (
    AttentionFound,
    AttentionReading,
    Attribution,
    Effect,
    FindWorst,
    InterpretedNet,
    Intervention,
    MeasureEffect,
    PrepareInterpreted,
    ReadAttention,
    ReadAttributions,
    ReadLooks,
    SampleLook,
    Samples,
)
from app.preflight import preflight
from app.training.job import Job
from app.util.language import tr
from app.util.leftovers import TemporaryFolder
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.project.project import Project
    from app.views.workspace import Workspace

KEY, MAPS, EFFECT, CHANGES = (
    "interpret",
    "interpret.maps",
    "interpret.effect",
    "interpret.changes",
)
REST = 250  # ms after the number of the sample has changed
WORST = 6
MOST = 64  # samples that changes are measured on
LISTED = 12  # of the worst samples


class InterpretControl(QObject):
    """Asks the engine about one net at a time, and releases it when the project or its weights change."""

    def __init__(self, page: InterpretPage, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._page, self._workspace = page, workspace
        self._net: Handle | ModelCapture | None = None
        self._of: Project | None = None  # of which it was made
        self._folder = (
            TemporaryFolder()
        )  # weights of a run, as they were when the net was prepared
        self._muted: set[tuple[str, int, int]] = set()  # path, call, head
        self._alone: dict[
            tuple[str, int, int], float
        ] = {}  # change of the loss with that one muted
        self._waiting: list[
            tuple[str, int, int]
        ] = []  # heads whose change is still to be measured
        self._rest = QTimer(self, singleShot=True, interval=REST)
        self._rest.timeout.connect(self._ask)
        page.readRequested.connect(self.prepare)
        page.cancelRequested.connect(self.cancel)
        page.sampleChosen.connect(self._sample_chosen)
        page.attentionChosen.connect(self._show_attention)
        page.muteToggled.connect(self._toggle)
        page.unmuteRequested.connect(self._unmute)
        page.rankRequested.connect(self._rank)
        page.attributionRequested.connect(self._attribute)
        page.changes.changed.connect(self._measure_changes)
        page.worstRequested.connect(self._find_worst)
        workspace.document.replaced.connect(self._forget)
        workspace.document.changed.connect(self._compare)
        page.set_effect(None, 0)
        page.set_muted(frozenset(), {}, 0)

    # --- The net

    def prepare(self) -> None:
        """Make the net with its newest weights ready, and inspect the sample."""
        live = self._workspace.live
        self._page.banner.hide()
        if live.unfinished is not None:
            self._page.set_busy(f"{live.unfinished[0]}…")
        live.when_checked(KEY, self._prepare_checked, self._not_checked)

    def _not_checked(self, reason: str) -> None:
        self._page.set_busy("")
        self._page.refuse(tr("Nothing to inspect yet"), reason)

    def _prepare_checked(self) -> None:
        workspace, analysis = self._workspace, self._workspace.live.analysis
        assert analysis is not None
        self._page.set_busy("")
        opened = workspace.document.project.opened
        if workspace.live.errors:
            if (
                opened is not None and not opened.source.looked_at
            ):  # data do not fit: its example inputs do
                model = Observe(
                    opened.source, opened.arguments, opened.inputs, opened.folder
                )
                self._take(
                    InterpretedNet(
                        Handle(0, 0), ((EXAMPLE, 1),), (), "from its constructor", ()
                    ),
                    ModelCapture(model),
                )
                return
            first = workspace.live.errors[0]
            self._page.refuse(
                tr("The network cannot run yet"), f"{first.message}. {first.reason}"
            )
            return
        job = preflight.job(
            workspace.document.project, analysis, str(workspace.settings.data_folder)
        )
        self._page.set_busy("Reading weights and data…")
        workspace.background.ask(
            KEY,
            workspace.newest_weights.choice(job.source, Path(self._folder.name)),
            on_answer=lambda weights: self._request(job, weights),
            on_error=self._failed,
        )

    def _request(self, job: Job, weights: WeightsChoice) -> None:
        file = Path(weights.path) if isinstance(weights, WeightsFile) else None

        def take(net: InterpretedNet) -> None:
            self._tidy(file)
            self._take(net, net.net)

        def fail(failure: WorkerFailure) -> None:
            self._tidy(file)
            self._failed(failure)

        self._workspace.engine.ask(
            KEY,
            PrepareInterpreted(job, weights),
            on_answer=take,
            on_error=fail,
            on_progress=self._page.set_busy,
        )

    def _tidy(self, file: Path | None) -> None:
        if file is not None and file.parent == Path(self._folder.name):
            file.unlink(missing_ok=True)

    def _take(self, net: InterpretedNet, named: Handle | ModelCapture) -> None:
        self._release()
        self._net = named
        self._of = self._workspace.document.project
        self._muted.clear()
        self._page.set_net(net)
        self._page.set_busy("")
        self._ask()

    def _compare(self, *_projects: object) -> None:
        """Say that the network is another by now than the one that is shown."""
        of, now = self._of, self._workspace.document.project
        if self._net is not None and of is not None:
            same = now.has_net_of(of)
            self._page.state.setText(
                "" if same else tr("The network has changed since; inspect again")
            )

    def _release(self) -> None:
        if isinstance(self._net, Handle):
            self._workspace.engine.release(self._net)
        self._net = None

    def cancel(self) -> None:
        """Cancel what is under way."""
        for key in (KEY, MAPS, EFFECT, CHANGES):
            self._workspace.engine.forget(key)
        for requests in (self._workspace.live, self._workspace.background):
            requests.forget(KEY)
        self._waiting.clear()
        self._page.set_busy("")

    def _forget(self, _project: object) -> None:
        """Reset the page: nets and samples are of the previous project."""
        self.cancel()
        self._release()
        self._muted.clear()
        self._alone.clear()
        self._page.forget()

    def _failed(self, failure: WorkerFailure) -> None:
        self._waiting.clear()
        self._page.set_busy("")
        if isinstance(failure.error, HandleLostError):  # the engine was started again
            self._net = None
            self.prepare()
            return
        reason = failure.message.strip() or type(failure.error).__name__
        self._page.refuse(
            "The sample could not be inspected",
            f"{reason[:1].upper()}{reason[1:].removesuffix('.')}.",
        )

    # --- Attention

    @property
    def _samples(self) -> Samples:
        return Samples((int(self._page.sample.value()),), self._page.part.value())

    def _sample_chosen(self) -> None:
        if self._net is not None:
            self._rest.start()

    def _ask(self) -> None:
        """List the attentions for the sample, then ask for the maps of the one in front."""
        if self._net is None:
            return
        self._alone.clear()
        self._waiting.clear()
        self._page.banner.hide()
        self._page.set_busy("Running the sample…")
        self._workspace.engine.ask(
            MAPS,
            ReadAttention(self._net, self._samples, ()),
            on_answer=self._listed,
            on_error=self._failed,
        )

    def _listed(self, answer: AttentionFound) -> None:
        self._page.set_busy("")
        self._page.set_found(answer)
        if answer.remarks:
            self._page.banner.set(
                "warning",
                "Some attention calls were not captured",
                " ".join(answer.remarks),
            )
            self._page.banner.show()
        if self._page.reading is not None:
            self._show_attention(self._page.list.value())
        if (
            self._page.view.value() == ATTRIBUTION
            and self._page.which.value() == "sample"
        ):
            self._page.attributions.show_found(())
        self._measure()
        if self._page.changes.samples.value() == THIS:
            self._measure_changes()

    def _show_attention(self, index: int) -> None:
        reading = self._page.reading
        if reading is None or self._net is None:
            return
        self._show_muted()
        if reading.maps is not None:
            self._page.show_reading(index, reading)
            return

        def show(answer: AttentionFound) -> None:
            matches = [
                attention
                for attention in answer.attentions
                if (attention.path, attention.call) == (reading.path, reading.call)
            ]
            if matches:
                self._page.show_reading(index, matches[0])

        self._workspace.engine.ask(
            MAPS,
            ReadAttention(self._net, self._samples, (reading.path,)),
            on_answer=show,
            on_error=self._failed,
        )

    # --- Muting

    def _toggle(self, head: int) -> None:
        if (reading := self._page.reading) is not None:
            self._muted ^= {(reading.path, reading.call, head)}
            self._show_muted()
            self._measure()

    def _unmute(self) -> None:
        self._muted.clear()
        self._show_muted()
        self._measure()

    def _show_muted(self) -> None:
        reading = self._page.reading
        shown_call = (reading.path, reading.call) if reading is not None else ("", 0)
        here = frozenset(
            head for path, call, head in self._muted if (path, call) == shown_call
        )
        changes = {
            head: value
            for (path, call, head), value in self._alone.items()
            if (path, call) == shown_call
        }
        self._page.set_muted(here, changes, len(self._muted) - len(here))

    def _measure(self) -> None:
        """Ask for the loss with the muted heads."""
        if not self._muted or self._net is None:
            self._workspace.engine.forget(EFFECT)
            self._page.set_effect(None, 0)
            return
        count = len(self._muted)
        self._page.set_effect(None, count)
        changes = tuple(
            Intervention(path, call, head) for path, call, head in sorted(self._muted)
        )

        def show(effect: Effect) -> None:
            self._page.set_effect(effect, count)
            if count == 1:
                self._alone[next(iter(self._muted))] = effect.change
                self._show_muted()

        self._workspace.engine.ask(
            EFFECT,
            MeasureEffect(self._net, changes, self._samples),
            on_answer=show,
            on_error=self._failed,
        )

    def _rank(self) -> None:
        """Measure every head of the attention in front alone, one after the other."""
        reading: AttentionReading | None = self._page.reading
        if reading is None or self._net is None:
            return
        self._waiting = [
            (reading.path, reading.call, head) for head in range(reading.heads)
        ]
        self._rank_next()

    def _rank_next(self) -> None:
        if not self._waiting or self._net is None:
            self._page.set_busy("")
            return
        muted_head = self._waiting.pop(0)
        self._page.set_busy(f"Muting head {muted_head[2]}…")

        def show(effect: Effect) -> None:
            self._alone[muted_head] = effect.change
            self._show_muted()
            self._rank_next()

        request = MeasureEffect(self._net, (Intervention(*muted_head),), self._samples)
        self._workspace.engine.ask(KEY, request, on_answer=show, on_error=self._failed)

    def _measure_changes(self) -> None:
        """Ask for the loss with the changes of the view "Muting"."""
        view = self._page.changes
        view.set_effect(None)
        if not view.table.rows or self._net is None:
            self._workspace.engine.forget(CHANGES)
            return
        self._page.banner.hide()
        samples, which = self._samples, view.samples.value()
        if which != THIS:
            count = (
                dict(self._page.net.counts).get(samples.part, 0)
                if self._page.net is not None
                else 0
            )
            numbers = (
                tuple(range(min(MOST, count))) if which == FIRST else samples.numbers
            )
            samples = Samples(
                numbers, samples.part, WORST if which == WORST_SAMPLES else 0
            )
        self._workspace.engine.ask(
            CHANGES,
            MeasureEffect(self._net, tuple(view.table.rows), samples),
            on_answer=view.set_effect,
            on_error=self._changes_failed,
        )

    def _changes_failed(self, failure: WorkerFailure) -> None:
        self._page.changes.effect.setText(tr("It was not measured."))
        self._failed(failure)

    # --- The worst samples

    def _find_worst(self) -> None:
        """List the samples with the largest loss, to choose one."""
        if not isinstance(self._net, Handle):
            self.prepare()
            return
        data_split = self._samples.part

        def read(numbers: tuple[int, ...]) -> None:
            if self._net is not None:
                request = ReadLooks(self._net, Samples(numbers, data_split))
                self._workspace.engine.ask(
                    KEY, request, on_answer=show, on_error=self._failed
                )

        def show(looks: tuple[SampleLook, ...]) -> None:
            self._page.set_busy("")
            self._page.offer_worst(looks)

        self._page.set_busy("Evaluating…")
        self._workspace.engine.ask(
            KEY,
            FindWorst(self._net, data_split, LISTED),
            on_answer=read,
            on_error=self._failed,
            on_progress=self._page.set_busy,
        )

    # --- Attribution

    def _attribute(self) -> None:
        if self._net is None:
            self.prepare()
            return
        page = self._page
        worst = WORST if page.which.value() == "worst" else 0
        samples = Samples(self._samples.numbers, self._samples.part, worst)
        request = ReadAttributions(
            self._net, samples, page.method.value(), page.target.value()
        )

        def show(attributions: tuple[Attribution, ...]) -> None:
            page.set_busy("")
            page.show_attributions(attributions)

        page.set_busy("Finding the worst samples…" if worst else "Attributing…")
        self._workspace.engine.ask(
            KEY,
            request,
            on_answer=show,
            on_error=self._failed,
            on_progress=page.set_busy,
        )
