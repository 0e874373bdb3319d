"""The page "Attention": what a net looks at on a sample, head by head, and attributions to its input."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QSplitter, QStackedLayout, QWidget

from app.features.interpret.attributions import AttributionView, describe_sample
from app.features.interpret.changes_view import ChangesView
from app.features.interpret.color_scale import ColorScale
from app.features.interpret.head_grid import HeadGrid
from app.features.interpret.map_view import MapView, OverlayView, attention_wash
from app.features.interpret.values import (
    GRAD_CAM,
    INTEGRATED_GRADIENTS,
    SALIENCY,
    AttentionFound,
    AttentionReading,
    Attribution,
    Effect,
    InterpretedNet,
    SampleLook,
)
from app.util.formatting import counted, figure, scientific, significant
from app.util.language import marked, tr, trn
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.scrolled import Column
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.fields import ChoiceField
from app.views.ui.widgets.numbers import NumberField
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

ATTENTION, CHANGES, ATTRIBUTION = "attention", "changes", "attribution"
PART = ("validation", "Validation")  # whose samples are offered before a net is there
EXAMPLE = "example"  # the samples of a model without data: its own inputs
METHODS = [
    (SALIENCY, "Saliency"),
    (INTEGRATED_GRADIENTS, "Integrated gradients"),
    (GRAD_CAM, "Grad-CAM"),
]
LEGEND = marked(
    "Red raises the score, blue lowers it; saliency and Grad-CAM have no sign."
)
NOTHING = marked("Nothing inspected yet")
HINT = marked(
    "Shows the attention of every head on a sample, checked against the output of its call, and what each pixel or "
    "token contributes to a score."
)


class InterpretPage(QWidget):
    """Signals request what their names say. `muteToggled(head)` is of the attention that is shown."""

    readRequested = Signal()
    cancelRequested = Signal()
    sampleChosen = Signal()
    attentionChosen = Signal(object)  # its place among those of the pass
    muteToggled = Signal(int)
    unmuteRequested = Signal()
    rankRequested = Signal()
    attributionRequested = Signal()
    worstRequested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.attention_answer: AttentionFound | None = None
        self.net: InterpretedNet | None = None
        self._make_tools()
        self._make_attention()
        self._make_attribution()
        self.banner = Banner("error", "")
        self.banner.hide()
        self.empty = EmptyState("eye", tr(NOTHING), tr(HINT), "Inspect")
        body = QWidget()
        self._stack = QStackedLayout(body)
        self.changes = ChangesView()
        for page in (self.empty, self._attention, self.changes, self.attributions):
            self._stack.addWidget(page)
        vbox(self._tools, self.banner, (body, 1), on=self, margins=0, spacing=0)
        self._connect()
        self.set_busy("")
        self._show_view()

    # building

    def _make_tools(self) -> None:
        self.view = Segmented(
            [
                (ATTENTION, "Attention"),
                (CHANGES, "Muting"),
                (ATTRIBUTION, "Attribution"),
            ],
            "View",
        )
        self.part = ChoiceField((PART,), pairs=True)
        self.part.setAccessibleName("Samples")
        self.part.setFixedWidth(128)
        self.sample = NumberField(0, minimum=0)
        self.sample.setAccessibleName("Sample")
        self.sample.setFixedWidth(76)
        self.count = label("", "caption", "text3")
        self.worst = Button("Worst")
        self.worst.setToolTip(
            tr("Evaluates these samples and lists those with the highest loss")
        )
        self.worst_menu = QMenu(self.worst)
        self.look = Button("Inspect", "primary", "eye")
        self.look.setToolTip(tr("Runs this sample with the newest weights"))
        self.cancel = Button("Cancel")
        self.state = label("", "caption", "text2")
        self.state.setMinimumWidth(1)
        self._tools = QWidget()
        row = FlowLayout(self._tools, (12, 6, 8, 6), 8)
        number = QWidget()
        hbox(
            label("Sample", "caption", "text2"),
            self.sample,
            self.count,
            on=number,
            margins=0,
            spacing=8,
        )
        row.put(self.view, self.part, number, self.worst, self.look, self.cancel)
        row.fill(self.state)

    def _make_attention(self) -> None:
        self.list = ChoiceField((), pairs=True)
        self.list.setAccessibleName("Attention")
        self.list.setMinimumWidth(180)
        self.group = NumberField(0, minimum=0)
        self.group.setAccessibleName("Window")
        self.group.setFixedWidth(64)
        self._of_groups = label("Window", "caption", "text2")
        self.facts = label("", "caption", "text3", wrap=True)
        self.rank = Button("Measure heads")
        self.rank.setToolTip(
            tr("Mutes the heads one at a time and measures the loss of this sample")
        )
        self.unmute = Button("Unmute all")
        self.effect = label("", "label", wrap=True)
        self.map, self.overlay = MapView(), OverlayView()
        self.scale = ColorScale()
        self.query_words = label("", "caption", "text3", wrap=True)
        self.sample_words = label("", "label", wrap=True)
        self.weights_words = label("", "caption", "text3", wrap=True)
        top = hbox(
            (self.list, 1),
            self._of_groups,
            self.group,
            margins=(12, 6, 12, 2),
            spacing=8,
        )
        left, above = QWidget(), QWidget()
        buttons = QWidget()
        FlowLayout(buttons, (0, 0, 0, 0), 8).put(self.rank, self.unmute)
        vbox(
            self.facts,
            self.effect,
            buttons,
            on=above,
            margins=(12, 0, 12, 2),
            spacing=4,
        )
        self.heads = HeadGrid(above)
        vbox(top, (self.heads, 1), on=left, margins=0, spacing=2)
        right = QWidget()
        vbox(
            self.sample_words,
            self.weights_words,
            (self.overlay, 4),
            self.query_words,
            (self.map, 5),
            self.scale,
            on=right,
            margins=(12, 8, 12, 8),
            spacing=6,
        )
        self._attention = QSplitter(Qt.Orientation.Horizontal)
        for widget, share in ((left, 3), (Column(right), 2)):
            self._attention.addWidget(widget)
            self._attention.setStretchFactor(self._attention.count() - 1, share)
        self._attention.setSizes([620, 380])
        self._attention.setChildrenCollapsible(False)
        self._attention.setHandleWidth(1)

    def _make_attribution(self) -> None:
        self.method = Segmented(METHODS, "Method")
        self.method.set_value(INTEGRATED_GRADIENTS)
        self.target = ChoiceField(((None, "Predicted"),), pairs=True)
        self.target.setAccessibleName("Class to explain")
        self.target.setFixedWidth(132)
        self.which = Segmented(
            [("sample", "This sample"), ("worst", "Worst 6")], "Samples to explain"
        )
        self.explain = Button("Attribute", "primary", "run")
        self.legend = label(tr(LEGEND), "caption", "text3", wrap=True)
        controls, above = QWidget(), QWidget()
        FlowLayout(controls, (0, 6, 0, 2), 8).put(
            self.method, self.target, self.which, self.explain
        )
        scale = ColorScale(signed=True)
        vbox(controls, self.legend, scale, on=above, margins=(12, 0, 12, 2), spacing=4)
        scale.set_ends(tr("−largest"), tr("largest of each sample"))
        self.attributions = AttributionView(above)

    def _connect(self) -> None:
        self.empty.acted.connect(self._empty_acted)
        self.look.clicked.connect(self.readRequested)
        self.cancel.clicked.connect(self.cancelRequested)
        self.view.changed.connect(lambda _key: self._view_changed())
        self.part.edited.connect(self._part_chosen)
        self.sample.edited.connect(lambda _value: self.sampleChosen.emit())
        self.list.edited.connect(self.attentionChosen)
        self.group.edited.connect(lambda _value: self._show_maps())
        self.heads.tiles.pointed.connect(lambda _head: self._show_head())
        self.heads.tiles.toggled.connect(self.muteToggled)
        self.map.chosen.connect(lambda _query: self._show_overlay())
        self.unmute.clicked.connect(self.unmuteRequested)
        self.rank.clicked.connect(self.rankRequested)
        self.explain.clicked.connect(self.attributionRequested)
        self.worst.clicked.connect(self.worstRequested)

    # state

    def set_busy(self, status: str) -> None:
        """Show what is in progress; "" when idle."""
        self._busy = bool(status)
        self._show_look()
        self.cancel.setVisible(bool(status))
        self.empty.button.setEnabled(not status)
        self.explain.setEnabled(not status)
        self.rank.setEnabled(not status)
        self._can_rate = (
            not status and self.net is not None and self.net.counts[0][0] != EXAMPLE
        )
        self.worst.setEnabled(self._can_rate)
        self.state.setText(status)
        self.state.setToolTip(status)

    def forget(self) -> None:
        """Show nothing, and offer the samples of no net: numbers and splits are of the data of one."""
        self.banner.hide()
        self.set_net(None)
        self.part.clear_choices()
        self.part.add_choice(*PART)
        self.part.set_value(PART[0])
        self.sample.set_value(0)
        self.set_busy("")
        self.set_muted(frozenset(), {}, 0)
        self.set_effect(None, 0)

    def refuse(self, title: str, reason: str) -> None:
        """Say what could not be done, and why."""
        self.banner.set("error", title, reason)
        self.banner.show()

    def set_net(self, net: InterpretedNet | None) -> None:
        """Offer the splits and classes of a prepared net; None for none."""
        self.net = net
        self.changes.set_layers(net.layers if net is not None else ())
        if net is None:
            self.changes.set_changes([])
            self.set_found(None)
            self.attributions.show_found(())
            self.count.setText("")
            return
        data_split = self.part.value()
        self.part.clear_choices()
        for name, _ in net.counts:
            self.part.add_choice(name, name.capitalize())
        self.part.set_value(
            data_split if data_split in dict(net.counts) else net.counts[0][0]
        )
        self._show_count()
        of_weights = tr("Weights {weights}.", weights=net.words) if net.words else ""
        self.legend.setText(f"{tr(LEGEND)} {of_weights}".strip())
        target = self.target.value()
        self.target.clear_choices()
        self.target.add_choice(None, "Predicted")
        for number, name in enumerate(net.classes[:1000]):
            self.target.add_choice(number, name)
        self.target.set_value(
            target if target is not None and target < len(net.classes) else None
        )

    def offer_worst(self, looks: tuple[SampleLook, ...]) -> None:
        """Let one of the samples with the largest loss be chosen, largest first."""
        self.worst_menu.clear()
        for look in looks:
            title = describe_sample(look, look.prediction)
            self.worst_menu.addAction(
                title.replace("&", "&&"), partial(self._choose_sample, look.number)
            )
        self.worst_menu.popup(self.worst.mapToGlobal(self.worst.rect().bottomLeft()))

    def _choose_sample(self, number: int) -> None:
        self.sample.set_value(number)
        self.sampleChosen.emit()

    def _show_count(self) -> None:
        count = (
            dict(self.net.counts).get(self.part.value(), 0)
            if self.net is not None
            else 0
        )
        self.count.setText(tr("of {number:,}", number=count) if count else "")

    def _part_chosen(self, _part: object) -> None:
        self._show_count()
        self.sampleChosen.emit()

    def _show_look(self) -> None:
        """Offer to inspect, but where *Attribute* is what to press."""
        self.look.setVisible(
            not self._busy and (self.net is None or self.view.value() != ATTRIBUTION)
        )

    def _empty_acted(self) -> None:
        if self.attention_answer is None:
            self.readRequested.emit()
        else:  # there is no attention to inspect
            self.view.set_value(ATTRIBUTION)

    def _view_changed(self) -> None:
        self._show_view()
        if self.net is None:
            self.readRequested.emit()

    def _show_view(self) -> None:
        self._show_look()
        beside = {ATTRIBUTION: self.attributions, CHANGES: self.changes}.get(
            self.view.value()
        )
        if beside is not None and self.net is not None:
            self._stack.setCurrentWidget(beside)
        else:
            self._stack.setCurrentWidget(
                self._attention if self.reading is not None else self.empty
            )

    # attention

    @property
    def reading(self) -> AttentionReading | None:
        """The attention that is shown."""
        index = self.list.value()
        if (
            self.attention_answer is None
            or index is None
            or not 0 <= index < len(self.attention_answer.attentions)
        ):
            return None
        return self.attention_answer.attentions[index]

    def set_found(self, answer: AttentionFound | None) -> None:
        """Show the attentions of a pass; the one that was shown stays in front."""
        before = self.list.value()
        self.attention_answer = answer
        self.list.clear_choices()
        for index, attention in enumerate(
            answer.attentions if answer is not None else ()
        ):
            self.list.add_choice(
                index,
                f"{attention.name} ({counted(attention.heads, 'head')}, {attention.queries} × {attention.keys})",
            )
        count = len(self.list.choices())
        if count:
            self.list.set_value(
                before if isinstance(before, int) and before < count else 0
            )
        if answer is not None and not count:
            self.empty.set_text(
                tr("No attention"),
                tr(
                    "The forward pass computes no scaled-dot-product attention. Attribution works for every network."
                ),
            )
            self.empty.button.setText("Show attribution")
        elif answer is None:
            self.empty.set_text(tr(NOTHING), tr(HINT))
            self.empty.button.setText("Inspect")
        self._show_maps()
        self._show_view()

    def show_reading(self, index: int, reading: AttentionReading) -> None:
        """Put the maps of an attention in place of its figures."""
        if self.attention_answer is None:
            return

        attentions = list(self.attention_answer.attentions)
        attentions[index] = reading
        self.attention_answer = replace(
            self.attention_answer, attentions=tuple(attentions)
        )
        if self.list.value() == index:
            self._show_maps()

    def _show_maps(self) -> None:
        reading = self.reading
        several = reading is not None and reading.groups > 1
        self.group.setVisible(several)
        self._of_groups.setVisible(several)
        self._of_groups.setText(
            tr("Window of {number}", number=reading.groups)
            if reading is not None
            else tr("Window")
        )
        if reading is None:
            self.facts.setText("")
            self.heads.tiles.show_reading(None)
            return
        if int(self.group.value()) >= reading.groups:
            self.group.set_value(0)
        computed = tr("Computed by {call}", call=reading.kind)
        if reading.place:
            computed = tr(
                "Computed by {call} at {place}", call=reading.kind, place=reading.place
            )
        check = tr(
            "{computed}; softmax(qkᵀ · scale + mask) v {check} (relative difference {error}).",
            computed=computed,
            check=tr("gives the output of the call to rounding")
            if reading.checked
            else reading.remark,
            error=scientific(reading.error, 1),
        )
        pooled = tr("Blocks of {n} × {n} are drawn as one.", n=reading.pooled)
        self.facts.setText(f"{check} {pooled}" if reading.pooled > 1 else check)
        self.heads.tiles.show_reading(reading, int(self.group.value()))
        self._show_head()

    def _show_head(self) -> None:
        reading, sample = (
            self.reading,
            self.attention_answer.sample if self.attention_answer is not None else None,
        )
        if reading is None or reading.maps is None or sample is None:
            self.map.show_head(None, 0, 0, ())
            self.scale.set_ends("", "")
            self.overlay.show_look(sample.picture if sample is not None else None)
            return
        group, head = int(self.group.value()), self.heads.tiles.current
        self.map.show_head(reading, group, head, sample.tokens)
        largest = significant(float(reading.maps[group, head].max()), 3)
        self.scale.set_ends("0", tr("{value}, the largest", value=largest))
        self._show_overlay()

    def _show_overlay(self) -> None:
        reading, answer = self.reading, self.attention_answer
        if reading is None or answer is None or reading.maps is None:
            return
        sample, head = answer.sample, self.heads.tiles.current
        weights = (
            tr("Weights {weights}", weights=self.net.words)
            if self.net is not None and self.net.words
            else ""
        )
        self.sample_words.setText(describe_sample(sample, sample.prediction))
        self.weights_words.setText(weights)
        group = min(int(self.group.value()), reading.groups - 1)
        wash, mark, looks = attention_wash(reading, group, head, self.map.query, sample)
        self.overlay.show_look(sample.picture, wash, mark)
        choose = tr("Click a row of the map to choose the query.")
        self.query_words.setText(f"{looks} {choose}")

    # muting

    def set_muted(
        self, muted: frozenset[int], changes: dict[int, float], elsewhere: int
    ) -> None:
        """Show the muted heads of the attention in front, and by how much single ones change the loss; `elsewhere` are
        those muted in other attentions."""
        self.heads.tiles.set_muted(muted, changes)
        self.unmute.setEnabled(bool(muted) or bool(elsewhere))

    def set_effect(self, effect: Effect | None, muted: int) -> None:
        """Show the loss without and with the muted heads; None while nothing is muted."""
        if effect is None:
            self.effect.setText(
                tr("Click a head, or press Space, to mute it.")
                if not muted
                else tr("Measuring the loss…")
            )
            return
        text = tr(
            "{heads} muted: {measure} {before} → {after} ({change:+.3g})",
            heads=trn("{count} head", "{count} heads", muted),
            measure=effect.measure,
            before=figure(effect.before),
            after=figure(effect.after),
            change=effect.change,
        )
        before, after = effect.predictions[0] if effect.predictions else ("", "")
        turned = tr(
            "the prediction turns from {before} to {after}", before=before, after=after
        )
        self.effect.setText(f"{text}; {turned}" if before != after else text)

    # attribution

    def show_attributions(self, attributions: tuple[Attribution, ...]) -> None:
        """Show what was attributed."""
        self.banner.hide()
        self.attributions.show_found(attributions)
        self._show_view()
