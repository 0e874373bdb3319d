"""The page "Evaluation": metrics on held-out samples, and prediction on the user's own input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import SupportsInt

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import (
    QGridLayout,
    QLabel,
    QMenu,
    QSplitter,
    QStackedLayout,
    QWidget,
)

from app.features.evaluation.classes import ClassTable
from app.features.evaluation.confusion_matrix import ConfusionMatrix, ValuesPlot
from app.features.evaluation.samples import SampleTiles
from app.features.evaluation.try_page import TryPage
from app.training.evaluation.result import AUGMENTATIONS, PARTS, Evaluation, Shown
from app.training.metrics import SCORES
from app.util import formatting
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.scrolled import Column, Pages, Scrolled
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

WRONG, WORST = "wrong", "worst"
UNREAD = "To see the samples, evaluate again."
NAMES = {"flip": "Mirrored copies", "shift": "Shifted copies"}


class MetricsGrid(QWidget):
    """Loss, accuracy and the other metrics, one below the other."""

    def __init__(self) -> None:
        super().__init__()
        self._heading = label("", "section", wrap=True)
        self._note = label("", "caption", "text3", wrap=True)
        self._grid = QGridLayout()
        self._grid.setVerticalSpacing(4)
        self._grid.setHorizontalSpacing(10)
        vbox(
            self._heading,
            self._note,
            self._grid,
            1,
            on=self,
            margins=(14, 8, 10, 8),
            spacing=8,
        )
        self.setMinimumWidth(150)

    def set_found(self, evaluation: Evaluation) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        loss = formatting.figure(evaluation.loss)
        rows = [
            (
                "Loss",
                loss,
                "Mean over the samples, as measured after each epoch of a run.",
            )
        ]
        if evaluation.accuracy is not None:
            rows.append(
                (
                    "Accuracy",
                    f"{formatting.percent(evaluation.accuracy)} %",
                    "Fraction of samples classified correctly.",
                )
            )
        for name, value in evaluation.metrics:
            score = SCORES[name]
            rows.append(
                (
                    score.label,
                    f"{value:.4f}" if score.share else formatting.figure(value),
                    score.doc,
                )
            )
        for row, (title, figure, doc) in enumerate(rows):
            caption, number = (
                label(title, "label", "text2"),
                label(figure, "section" if row < 2 else "label"),
            )
            for widget in (caption, number):
                widget.setToolTip(doc)
            self._grid.addWidget(caption, row, 0)
            self._grid.addWidget(number, row, 1, Qt.AlignmentFlag.AlignRight)
        self._heading.setText(
            f"{formatting.counted(evaluation.count, f'{evaluation.part} sample')}"
        )
        note = f"{evaluation.weights[:1].upper()}{evaluation.weights[1:]}, {evaluation.seconds:.2g}\N{NO-BREAK SPACE}s."
        if evaluation.augment:
            note += (
                f" Classes from the mean over {evaluation.views} augmented views of each image; loss "
                "on the original image."
            )
        self._note.setText(note)

    def texts(self) -> list[str]:
        """Return the shown text, for screen readers."""
        parts = (
            present(self._grid.itemAt(index)).widget()
            for index in range(self._grid.count())
        )
        cells = [widget.text() for widget in parts if isinstance(widget, QLabel)]
        return [
            f"{name} {value}"
            for name, value in zip(cells[::2], cells[1::2], strict=True)
        ]


class EvaluationPage(QWidget):
    """Each signal requests the action in its name; `wanted(numbers)` requests samples to show, in that order."""

    evaluateRequested = Signal()
    cancelRequested = Signal()
    preparationRequested = Signal()
    exportRequested = Signal(str)  # "samples" or "classes"
    wanted = Signal(object)
    sampleOpened = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.found: Evaluation | None = None
        self.evaluations: dict[str, Evaluation] = {}  # the newest of each part
        self._cell: tuple[int, int] | None = None
        self.trying = TryPage()
        self.figures, self.matrix, self.plot, self.classes = (
            MetricsGrid(),
            ConfusionMatrix(),
            ValuesPlot(),
            ClassTable(),
        )
        self.samples = SampleTiles()
        self._make_tools()
        self._make_results()
        self.banner = Banner("error", "")
        self.banner.hide()
        self._act_on_banner: Callable[[], object] | None = None
        self._run_title, self._evaluates = "", ""
        self.empty = EmptyState("check", "Nothing evaluated yet", "", "Evaluate")
        self.set_run("")
        body, trying = Pages(), QWidget()
        vbox(self.trying, on=trying, margins=0)
        self._stack = QStackedLayout(body)
        self._nothing, self._predict = (
            Scrolled(self.empty),
            Scrolled(trying),
        )  # they take no room from the tools
        for page in (self._nothing, self.results, self._predict):
            self._stack.addWidget(page)
        vbox(self._tools, self.banner, (body, 1), on=self, margins=0, spacing=0)
        self._connect()
        self.export.setEnabled(False)
        self.set_busy("")

    # building

    def _make_tools(self) -> None:
        self.view = Segmented([("results", "Results"), ("try", "Predict")], "View")
        self.weights = Button("Newest weights", icon="layers")
        self.weights.setToolTip("Weights to evaluate")
        self.weights_menu = QMenu(self.weights)
        self.weights.setMenu(self.weights_menu)
        self.part = Segmented(
            [(split_name, split_name.capitalize()) for split_name in PARTS], "Samples"
        )
        self.augment = Button("No augmentation")
        self.augment.setToolTip(
            "Test-time augmentation: predicts from the mean over augmented copies of an image"
        )
        menu = QMenu(self.augment)
        self.augment_actions = {}
        for name in AUGMENTATIONS:
            action = menu.addAction(f"{NAMES[name]}: {AUGMENTATIONS[name]}")
            action.setCheckable(True)
            action.toggled.connect(lambda _on: self._tell_augment())
            self.augment_actions[name] = action
        self.augment.setMenu(menu)
        self.run = Button("Evaluate", "primary", "run")
        self.cancel = Button("Cancel")
        self.state = label("", "caption", "text2")
        self.export = Button("Export", icon="export")
        exports = QMenu(self.export)
        exports.addAction("Samples as CSV…").triggered.connect(
            lambda: self.exportRequested.emit("samples")
        )
        self._export_classes = exports.addAction("Classes and confusion as CSV…")
        self._export_classes.triggered.connect(
            lambda: self.exportRequested.emit("classes")
        )
        self.export.setMenu(exports)
        self._tools = QWidget()
        row = FlowLayout(self._tools, (12, 6, 8, 6), 8)
        row.put(
            self.view,
            self.weights,
            self.part,
            self.augment,
            self.run,
            self.cancel,
            self.state,
        )
        row.push(self.export)

    def _make_results(self) -> None:
        self.order = Segmented(
            [(WRONG, "Misclassified"), (WORST, "Highest loss")], "Samples to list"
        )
        self._heading = label("", "caption", "text2")
        self._heading.setMinimumWidth(1)  # the classes have room first
        self._all = Button("Show all", "link")
        self._unread = label(UNREAD, "caption", "text3", wrap=True)
        self._unread.setContentsMargins(12, 0, 8, 0)
        top = hbox(self.order, 1, margins=(12, 6, 8, 2))
        which = hbox((self._heading, 1), self._all, margins=(12, 0, 8, 2), spacing=8)
        right = QWidget()
        vbox(
            top, which, self._unread, (self.samples, 1), on=right, margins=0, spacing=0
        )
        parts = QSplitter(Qt.Orientation.Horizontal)
        figures = Column(self.figures)
        for widget, share in (
            (figures, 0),
            (self.matrix, 3),
            (self.plot, 3),
            (self.classes, 2),
            (right, 4),
        ):
            parts.addWidget(widget)
            parts.setStretchFactor(parts.count() - 1, share)
        parts.setSizes([185, 300, 300, 270, 480])
        parts.setChildrenCollapsible(False)
        parts.setHandleWidth(1)
        self.results = Scrolled(parts)

    def _connect(self) -> None:
        self.empty.acted.connect(self.evaluateRequested)
        self.banner.acted.connect(self._banner_acted)
        self.part.changed.connect(self._show_part)
        self.run.clicked.connect(self._act)
        self.cancel.clicked.connect(self.cancelRequested)
        self.view.changed.connect(self._show_view)
        self.matrix.chosen.connect(self.show_cell)
        self.classes.chosen.connect(lambda row: self.show_class(row[0]))
        self.plot.chosen.connect(
            lambda number: self._want([number], f"Sample {number}")
        )
        self.order.changed.connect(lambda _key: self.show_order())
        self._all.clicked.connect(self.show_order)
        self.samples.opened.connect(self.sampleOpened)

    def set_run(self, title: str) -> None:
        """Say which run has the newest weights; "" if none has been trained."""
        self._run_title = title
        self._show_empty()

    def _show_empty(self) -> None:
        """Say what an evaluation would show, or while one is under way, how far it is."""
        if self._evaluates:
            self.empty.set_text("Evaluating", self._evaluates)
            return
        title, part = self._run_title, self.part.value()
        subject = f"the network as {title} has trained it" if title else "the network"
        samples = "training samples" if part == "training" else "held-out samples"
        self.empty.set_text(
            f"Not evaluated on {part} samples yet"
            if self.evaluations
            else "Nothing evaluated yet",
            f"Evaluates {subject} on {samples}: metrics, confusion matrix, worst samples.",
        )

    def _show_part(self, part: str) -> None:
        """Show the figures of the part that is chosen, and those of no other."""
        self._show_found(self.evaluations.get(part))

    def set_weights(self, choices: list[tuple[str, str]], chosen: str) -> None:
        """Set the weights to choose from, as (key, text), "" for a divider; the key is the data of its action."""
        self.weights_menu.clear()
        group = QActionGroup(self.weights_menu)
        for key, text in choices:
            if not key:
                self.weights_menu.addSeparator()
                continue
            action = self.weights_menu.addAction(text)
            action.setData(key)
            action.setCheckable(True)
            action.setChecked(key == chosen)
            group.addAction(action)

    # state

    @property
    def augmented(self) -> tuple[str, ...]:
        return tuple(
            name for name, action in self.augment_actions.items() if action.isChecked()
        )

    def _tell_augment(self) -> None:
        chosen = self.augmented
        self.augment.setText(
            " and ".join(NAMES[name].lower() for name in chosen).capitalize()
            or "No augmentation"
        )

    def _act(self) -> None:
        (
            self.preparationRequested
            if self.view.value() == "try"
            else self.evaluateRequested
        ).emit()

    def show_try(self) -> None:
        """Show the view "Predict" with the keyboard in its first field, as soon as the net is ready."""
        self.view.set_value("try")
        self._show_view("try")
        self.trying.take_keys()

    def _show_view(self, key: str) -> None:
        trying = key == "try"
        self.run.setText("Reload weights" if trying else "Evaluate")
        self.run.set_kind("secondary" if trying else "primary")
        for widget in (self.part, self.augment, self.export):
            widget.setVisible(not trying)
        shown = self.found is not None
        self._stack.setCurrentWidget(
            self._predict if trying else self.results if shown else self._nothing
        )
        self.export.setEnabled(shown)
        if trying and self.trying.survey is None:
            self.preparationRequested.emit()

    def set_busy(self, status: str, evaluates: bool = False) -> None:
        """Show what is in progress; "" when idle. `evaluates` is whether figures will come of it."""
        self._evaluates = status if evaluates else ""
        self._show_empty()
        self.run.setVisible(not status)
        self.cancel.setVisible(bool(status))
        self.empty.button.setEnabled(not status)
        self.empty.button.setVisible(not self._evaluates)
        self.state.setText(status)

    def refuse(
        self,
        title: str,
        reason: str,
        action: str = "",
        act: Callable[[], object] | None = None,
    ) -> None:
        """Say why nothing was evaluated; `act` is called when the button `action` is clicked."""
        self._act_on_banner = act
        self.banner.set("error", title, reason, action)
        self.banner.show()

    def _banner_acted(self) -> None:
        self.banner.hide()
        if self._act_on_banner is not None:
            self._act_on_banner()

    def set_found(self, evaluation: Evaluation | None) -> None:
        """Show what an evaluation found, instead of those before on the same samples; None for none at all."""
        if evaluation is None:
            self.evaluations.clear()
        else:
            self.evaluations[evaluation.part] = evaluation
            self.part.set_value(evaluation.part)
        self._show_found(evaluation)

    def set_stored(self, evaluations: dict[str, Evaluation]) -> None:
        """Show the stored evaluations of a run, by part of the data."""
        self.evaluations = evaluations
        if self.part.value() not in evaluations:
            self.part.set_value(next(iter(evaluations)))
        self._show_found(evaluations[self.part.value()])

    def _show_found(self, evaluation: Evaluation | None) -> None:
        self.found, self._cell = evaluation, None
        self.banner.hide()
        self.show_samples(())  # those before were of another evaluation
        if evaluation is not None:
            values = evaluation.confusion is None
            self.figures.set_found(evaluation)
            self.matrix.set_found(evaluation)
            self.matrix.setVisible(not values)
            plotted = (
                values and "true" in evaluation.columns
            )  # a loss that the model computes has no true value
            self.plot.set_found(evaluation if plotted else None)
            self.plot.setVisible(plotted)
            self.classes.cells.set_rows(list(enumerate(evaluation.class_rows())))
            self.classes.setVisible(not values)
            self._export_classes.setVisible(not values)
            self.order.set_option_enabled(
                WRONG, not values, "Regression values have no right or wrong"
            )
            if values or not len(evaluation.wrong()):
                self.order.set_value(WORST)
            self.show_order()
        self._show_empty()
        self._show_view(self.view.value())

    # samples

    def show_order(self) -> None:
        """Show the misclassified samples, or all, by loss."""
        if self.found is None:
            return
        self._cell = None
        self.matrix.set_cell(None)
        self._all.hide()
        wrong = self.order.value() == WRONG
        numbers = self.found.wrong() if wrong else self.found.worst()
        count = formatting.grouped_digits(len(numbers))
        heading = (
            f"{count} of {formatting.grouped_digits(self.found.count)}"
            if wrong
            else f"{count}, highest loss first"
        )
        self._want(numbers, heading)

    def show_cell(self, true: int, called: int) -> None:
        """Show the samples of a cell of the matrix."""
        if self.found is None:
            return
        self._cell = (true, called)
        numbers = self.found.cell(true, called)
        name, predicted = self.found.name(true), self.found.name(called)
        heading = f"{formatting.grouped_digits(len(numbers))} of class {name}, predicted as {predicted}"
        self._all.show()
        self._want(numbers, heading)

    def show_class(self, number: int) -> None:
        """Show the samples of a class predicted as another, and the other way round."""
        if self.found is None or "true" not in self.found.columns:
            return
        order, columns = self.found.wrong(), self.found.columns
        there = (
            (columns["true"][order] == number) | (columns["called"][order] == number)
        ).any(1)
        heading = f"{formatting.grouped_digits(int(there.sum()))} confused with {self.found.name(number)}"
        self._all.show()
        self._want(order[there], heading)

    def _want(self, numbers: Iterable[SupportsInt], heading: str) -> None:
        self._heading.setText(heading)
        self.wanted.emit([int(number) for number in numbers])

    def show_unread(self, unread: bool) -> None:
        """Say that samples are shown once they are evaluated again, instead of none at all."""
        self._unread.setVisible(unread)

    def show_samples(self, samples: tuple[Shown, ...]) -> None:
        self.samples.set_samples(samples)
