"""What is said of a run: rules in an order, the first that is sure speaks. Without Qt and torch.

A false alarm is worse than silence: each rule has a bound far from what healthy runs measure (`tests.slow.coach`), and
a run that is shorter than its rule needs is not judged by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from app.builder.diagnostics.problems import (
    Cure,
    ReplaceOp,
    SetData,
    SetTraining,
)
from app.data.sources import DataError, spec_of
from app.data.spec import CLASSES, VALUES
from app.features.coach.values import Evidence, Examination, Remark, RunSetup
from app.preflight import preflight
from app.preflight.setting_checks import target_scale
from app.training.monitoring.gradient_verdict import LARGE_LOSS, verdict
from app.training.setup.weighted_losses import (
    MEAN_OF_WEIGHTS,
    is_weighed,
    takes_weights,
)
from app.util.formatting import figure, grouped_digits, percent_sign, significant
from app.util.language import tr, trn

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.project.project import Project
    from app.training.columns import Array
    from app.training.history import History

OVERFITTING = "overfitting"  # an examination may name its cause
MOST_NUMBERS = 50_000_000  # of all samples, for data to be looked at after a run
FIRST_STEPS = 20  # before nothing is said
GROWN = 3.0  # times the first loss
SMALL_BATCH = 8  # samples, below which the first loss says little
JUMPED = 10.0  # times the first loss, once, of a run that ends no better than it began
DEAD, LOOKS = 0.9, 3  # share of the units, in as many measurements in a row
FLAT = 0.02  # share of the loss
LONG_STEPS, LONG_EPOCHS = 100, 5  # of a run that should have learnt something
SLOW_UPDATE, FAST_UPDATE = 1e-6, 0.1  # of the weights, in a step
NO_NEIGHBOUR = 0.1  # of a prediction by the nearest sample, that is by chance
PARTED, PARTED_EPOCHS = 0.25, 4  # growth of the validation loss, and epochs since
REPEATED, REPEATED_LEAST = 0.05, 5  # share and number of the validation samples
TELLING = 100  # validation samples
LOPSIDED = 0.7  # share of one class
LEAST_SUPPORT = 5  # validation samples of a class
LEAST_TRAINED = 10  # training samples of a class
LEARNT, LEARNS = (
    0.5,
    0.95,
)  # of the loss of the best constant answer: what is learnt, and what begins to be


def setup_of(project: Project, analysis: Analysis) -> RunSetup:
    """Return what is known of a run of the project before its first step."""
    task, scale, spread = "", None, None
    counts: tuple[int, ...] = ()
    try:
        spec = spec_of(project.data)
    except DataError:
        pass
    else:
        target = spec.known_targets[0]
        if not project.training.losses:
            task, counts = target.task, spec.per_class
        scale = next(target_scale(project, spec), None)
        spread = spec.target_scales.get(target.name, (0.0, None))[1]
    problems = preflight.loss_problems(project, analysis)
    return RunSetup(
        project,
        analysis.source,
        task,
        counts,
        next(iter(problems), None),
        scale,
        spread,
    )


def judge(
    setup: RunSetup,
    history: History,
    ended: bool = False,
    examination: Examination | None = None,
) -> Remark | None:
    """Return the one thing to say of a run; None where all is well, or not sure.

    `ended` is True once it takes no more steps, with an `examination` if there was one.
    """
    measured = _Measured(setup, history, ended, examination)
    rules = RULES if measured.count >= FIRST_STEPS else OF_SHORT_RUNS
    return next(filter(None, (rule(measured) for rule in rules)), None)


def is_examined(setup: RunSetup, history: History) -> bool:
    """Return whether data and net are looked at once a run has ended: not after a few steps, nor on large data."""
    try:
        spec = spec_of(setup.project.data)
    except DataError:
        return False
    inputs = [field.shape for field in spec.inputs] or [spec.shape]
    numbers = spec.count * sum(math.prod(shape) for shape in inputs)
    return len(history.steps) >= FIRST_STEPS and numbers <= MOST_NUMBERS


def wants_one_batch(setup: RunSetup, history: History) -> bool:
    """Return whether the examination should train on one batch, to tell a net that cannot learn from labels that
    cannot be learnt."""
    measured = _Measured(setup, history, True, None)
    return measured.is_long and not measured.generalises


class _Measured:
    """The numbers of a run that rules read."""

    def __init__(
        self,
        setup: RunSetup,
        history: History,
        ended: bool,
        examination: Examination | None,
    ) -> None:
        self.setup, self.history, self.ended = setup, history, ended
        self.training = setup.project.training
        self.seen = examination
        self.losses: Array = history.steps["loss"]
        self.count = len(self.losses)
        self.train_losses: Array = history.epochs["train_loss"]
        self.val_losses: Array = history.epochs["val_loss"]
        self.accuracies: Array = history.epochs["train_accuracy"]
        self.val_accuracies: Array = history.epochs["val_accuracy"]
        self.epoch_count = len(self.train_losses)

    @cached_property
    def first_loss(self) -> float:
        return float(self.losses[0])

    @cached_property
    def recent(self) -> Array:
        """The losses of the newest steps."""
        return self.losses[-min(max(self.count // 5, 10), 200) :]

    @cached_property
    def recent_loss(self) -> float:
        return float(np.median(self.recent))

    @cached_property
    def rate(self) -> float:
        """The largest learning rate so far; nan where the optimizer has none."""
        rates = self.history.steps["rate"]
        finite = rates[~np.isnan(rates)]
        return float(finite.max()) if len(finite) else math.nan

    @property
    def rate_text(self) -> str:
        return "" if math.isnan(self.rate) else significant(self.rate)

    @property
    def is_long(self) -> bool:
        """Whether the run took so many steps that a sound one has learnt something."""
        return self.count >= LONG_STEPS and self.epoch_count >= LONG_EPOCHS

    @cached_property
    def is_flat(self) -> bool:
        """Whether the loss is where it began, or that of guessing."""
        if not self.epoch_count:
            return False
        began = float(np.median(self.losses[: max(5, self.count // 20)]))
        least = min(began, float(self.train_losses[0]), self.guessing)
        return float(self.train_losses[-3:].mean()) >= (1 - FLAT) * least

    @cached_property
    def chance(self) -> float | None:
        """The accuracy of always answering the most frequent class; None for values."""
        counts = self.setup.class_counts
        if self.setup.task != CLASSES or not sum(counts):
            return None
        return max(counts) / sum(counts)

    @property
    def telling_count(self) -> float:
        """How many validation samples tell a quarter of what could be learnt from guessing."""
        if self.chance is None:
            return TELLING
        return max(TELLING, 100 * self.chance / (1 - self.chance))

    @property
    def is_lopsided(self) -> bool:
        """Whether one class is so frequent that accuracy says little."""
        return self.chance is not None and self.chance > LOPSIDED

    def at_chance(self, accuracy: float, samples: int) -> bool:
        """Return whether an accuracy over so many samples may be that of guessing."""
        if self.chance is None or math.isnan(accuracy) or not samples:
            return False
        deviation = math.sqrt(self.chance * (1 - self.chance) / samples)
        return accuracy <= self.chance + 2.5 * deviation

    @cached_property
    def generalises(self) -> bool:
        """Return whether validation is better than guessing, as far as that is known."""
        losses = self.val_losses[~np.isnan(self.val_losses)]
        if not len(losses):
            return False
        least = float(losses.min())
        if self.setup.task != CLASSES:
            constant = self.seen.constant_loss if self.seen is not None else None
            if constant is None:  # a first guess
                return least < 0.9 * losses[0]
            return least < LEARNS * constant
        if least < (1 - FLAT) * self.guessing < math.inf:
            return True
        newest = self.val_accuracies[-max(3, len(losses) // 3) :]
        return not self.at_chance(float(newest.mean()), self.val_count)

    @cached_property
    def guessing(self) -> float:
        """The loss of always answering how frequent the classes are; infinity where it is not known."""
        loss = self.training.loss
        weighed = is_weighed(loss, self.setup.project.data.class_weights)
        if self.chance is None or weighed or loss.name not in MEAN_OF_WEIGHTS:
            return math.inf
        counts = np.array([count for count in self.setup.class_counts if count])
        shares = counts / counts.sum()
        return float(-(shares * np.log(shares)).sum())

    @property
    def train_count(self) -> int:
        started = self.history.started
        return started.train_count if started is not None else 0

    @property
    def val_count(self) -> int:
        started = self.history.started
        return started.validation_count if started is not None else 0

    @cached_property
    def update(self) -> float:
        """The largest update of a layer over its weights, as the median of the newest measurements; nan without any."""
        updates = self.history.seen.tables["update"].columns.matrix()[:, -5:]
        if not updates.size or np.isnan(updates).all():
            return math.nan
        largest = np.nanmax(np.where(np.isnan(updates), -np.inf, updates), axis=0)
        return float(np.median(largest))

    def loss_curve(self, title: str) -> Evidence:
        """Return the loss over the steps."""
        thin = -(-self.count // 2000)
        x = tuple(self.history.steps["step"][::thin].tolist())
        line = (tr("loss"), tuple(self.losses[::thin].tolist()))
        return Evidence(title, tr("step"), x, (line,))

    def epoch_curves(self, title: str, marks: tuple[float, ...] = ()) -> Evidence:
        """Return training and validation loss over the epochs."""
        x = tuple(self.history.epochs["epoch"].tolist())
        lines = (
            (tr("training"), tuple(self.train_losses.tolist())),
            (tr("validation"), tuple(self.val_losses.tolist())),
        )
        return Evidence(title, tr("epoch"), x, lines, marks)


# --- The loss and the target


def _misfit(run: _Measured) -> Remark | None:
    """A loss that does not fit the last layer: the problem that was there before the run."""
    problem = run.setup.loss_problem
    if problem is None:
        return None
    return Remark(
        "misfit",
        f"{problem.message}.",
        (
            (tr("Why"), problem.reason),
            (tr("First loss"), figure(run.first_loss)),
            (tr("Newest loss"), figure(run.recent_loss)),
        ),
        run.loss_curve(tr("Loss")),
        cure=next(iter(problem.cures), None),
        node=problem.node or "",
    )


def _scale(run: _Measured) -> Remark | None:
    """A target in the thousands, while the net has not learnt it."""
    problem, spread = run.setup.scale_problem, run.setup.target_spread
    if not run.count or not (run.ended or run.is_long):
        return None
    if run.count < FIRST_STEPS and not run.history.marks:
        return None
    large = run.setup.task == VALUES and LARGE_LOSS < run.first_loss < math.inf
    if problem is None and not large:
        return None
    scores = run.history.scores
    if "r2" in run.history.metrics and len(scores):
        if scores["r2"][-1] >= LEARNT:
            return None
    elif run.epoch_count:
        constant = LEARNT * run.first_loss
        if spread is not None:
            squared = run.training.loss.name == "MSELoss"
            constant = spread**2 if squared else 0.8 * spread
        if run.train_losses[-1] < LEARNT * constant:
            return None
    sentence = tr(
        "The loss is {loss}: the scale of the target is far from 1, standardise it.",
        loss=figure(run.recent_loss),
    )
    return Remark(
        "scale",
        f"{problem.message}." if problem is not None else sentence,
        (
            *(((tr("Why"), problem.reason),) if problem is not None else ()),
            (tr("First loss"), figure(run.first_loss)),
            (tr("Newest loss"), figure(run.recent_loss)),
        ),
        run.loss_curve(tr("Loss")),
        cure=next(iter(problem.cures), None) if problem is not None else None,
        page="training",
    )


# --- The learning rate


def _lost(run: _Measured) -> Remark | None:
    """A loss that became infinite or NaN within the first steps, as it grew or by updates larger than the weights."""
    if not run.ended or not run.count or not run.history.marks:
        return None
    if run.losses[-1] >= JUMPED * run.first_loss > 0:
        return _too_large(run, _grew(run, tr("infinity")))
    if run.update >= 100 * FAST_UPDATE:
        return _too_large(run, tr("the loss is no number any more"))
    return None


def _diverging(run: _Measured) -> Remark | None:
    """A loss that grows from its start."""
    first = run.first_loss
    if not first > 0 or run.setup.loss_problem is not None:
        return None
    small = run.training.batch_size < SMALL_BATCH
    grown = GROWN * (3 if small else 1)
    above = run.recent_loss >= grown * first and float(run.recent.min()) > first
    lost = bool(run.history.marks) and bool(
        (run.losses[-5:] > grown * first).all() or run.update >= 10 * FAST_UPDATE
    )
    if above or lost:
        return _too_large(
            run, _grew(run, figure(run.recent_loss) if above else tr("infinity"))
        )
    jump = GROWN if _dead_layer(run) and not run.generalises else JUMPED * grown / GROWN
    if run.losses.max() >= jump * first and run.recent_loss >= (1 - FLAT) * first:
        effect = tr(
            "the loss jumped from {first} to {peak}",
            first=figure(first),
            peak=figure(float(run.losses.max())),
        )
        return _too_large(run, effect)
    return None


def _grew(run: _Measured, newest: str) -> str:
    return tr(
        "the loss grew from {first} to {newest}",
        first=figure(run.first_loss),
        newest=newest,
    )


def _too_large(run: _Measured, effect: str) -> Remark:
    sentence = tr("It diverges: {effect}.", effect=effect)
    if run.rate_text:
        sentence = _rate_too_large(run, effect)
    return Remark(
        "diverging",
        sentence,
        (
            (tr("Learning rate"), run.rate_text or tr("unknown")),
            (tr("First loss"), figure(run.first_loss)),
            (tr("Largest loss"), figure(float(run.losses.max()))),
            (tr("Newest loss"), figure(run.recent_loss)),
            (tr("Update / weight"), figure(run.update)),
        ),
        run.loss_curve(tr("Loss")),
        finds_rate=True,
        page="training",
    )


def _rate_too_large(run: _Measured, effect: str) -> str:
    return tr(
        "The learning rate of {rate} is too large: {effect}.",
        rate=run.rate_text,
        effect=effect,
    )


# --- Layers


def _dead_layer(run: _Measured) -> tuple[str, float] | None:
    """Return the first layer whose units are dead in each of the newest measurements, and their share."""
    table = run.history.seen.tables["dead"]
    if len(table) < LOOKS or run.training.batch_size < SMALL_BATCH:
        return None
    newest = table.columns.matrix()[:, -LOOKS:]
    for layer, shares in zip(table.layers, newest, strict=True):
        if (shares >= DEAD).all():
            return layer, float(shares.min())
    return None


def _dead(run: _Measured) -> Remark | None:
    dead = _dead_layer(run)
    if dead is None:
        return None
    layer, share = dead
    table = run.history.seen.tables["dead"]
    line = (layer, tuple(table.columns[layer].tolist()))
    steps = tuple(table.steps.tolist())
    return Remark(
        "dead",
        tr(
            "{percent} % of the units of {layer} are dead: 0 for every sample, so they learn nothing.",
            percent=round(100 * share),
            layer=layer,
        ),
        (
            (tr("Dead units"), percent_sign(share)),
            (
                tr("Measured at steps"),
                ", ".join(grouped_digits(int(step)) for step in steps[-3:]),
            ),
            (tr("Newest loss"), figure(run.recent_loss)),
        ),
        Evidence(
            tr("Share of dead units of {layer}", layer=layer),
            tr("step"),
            steps,
            (line,),
        ),
        cure=_leaky(run, layer),
        layer=layer,
    )


def _leaky(run: _Measured, layer: str) -> Cure | None:
    """Return the cure that puts a leaky ReLU in the place of a ReLU."""
    for node, path in run.setup.source.modules.items():
        drawn = run.setup.project.graph.nodes.get(node)
        if path == layer and drawn is not None and drawn.op == "nn.ReLU":
            return Cure(
                tr("Use {name}", name="LeakyReLU"), (ReplaceOp(node, "nn.LeakyReLU"),)
            )
    return None


# --- Nothing is learnt


def _stuck(run: _Measured) -> Remark | None:
    """A loss that stays where it began: a lost gradient, or a rate."""
    training = run.training
    if not run.is_long or not run.is_flat or training.one_batch or training.start:
        return None
    stays = tr("the loss stays at {loss}", loss=figure(run.recent_loss))
    stuck = Remark("stuck", "", _numbers(run), run.loss_curve(tr("Loss")))
    if run.update < SLOW_UPDATE and run.rate_text:
        sentence = tr(
            "The learning rate of {rate} is too small: {effect}.",
            rate=run.rate_text,
            effect=stays,
        )
        return replace(stuck, sentence=sentence, finds_rate=True, page="training")
    if run.generalises:
        return None
    lost = verdict(run.history.layers, run.history.gradients.matrix())
    if lost is not None and lost.kind == "vanishing":
        return replace(stuck, sentence=lost.text, layer=lost.layer)
    if run.update > FAST_UPDATE and run.rate_text:
        sentence = _rate_too_large(run, stays)
        return replace(stuck, sentence=sentence, finds_rate=True, page="training")
    batch = run.seen.batch_losses if run.seen is not None else None
    if batch is None or batch[1] < LEARNT * batch[0]:
        return None
    return replace(
        stuck,
        sentence=tr(
            "Nothing is learnt, not even a single batch: {effect}.", effect=stays
        ),
        finds_rate=True,
        page="training",
    )


def _labels(run: _Measured) -> Remark | None:
    """Labels that do not go with the inputs: validation is guessed, nearest samples say nothing of one another, and
    training samples are learnt, or a single batch of them can be."""
    seen = run.seen
    if seen is None or seen.neighbours is None or not run.is_long or run.generalises:
        return None
    if run.setup.task not in (CLASSES, VALUES):
        return None
    batch = seen.batch_losses
    learns = batch is not None and batch[1] < LEARNT * batch[0]
    if seen.neighbours >= NO_NEIGHBOUR or not learns:
        return None
    if run.is_lopsided or run.val_count < run.telling_count:
        return None
    labels, targets = (
        tr(
            "The labels do not go with the inputs: they can only be memorised. Were they shuffled?"
        ),
        tr(
            "The targets do not go with the inputs: they can only be memorised. Were they shuffled?"
        ),
    )
    return Remark(
        "labels",
        labels if run.setup.task == CLASSES else targets,
        _numbers(run),
        run.epoch_curves(tr("Training and validation loss")),
        page="evaluation",
    )


def _numbers(run: _Measured) -> tuple[tuple[str, str], ...]:
    """Return what a run that learns nothing rests on."""
    numbers = [
        (tr("Learning rate"), run.rate_text or tr("unknown")),
        (tr("First loss"), figure(run.first_loss)),
        (tr("Newest loss"), figure(run.recent_loss)),
        (tr("Update / weight"), figure(run.update)),
    ]
    if run.chance is not None and run.epoch_count:
        best = float(np.nan_to_num(run.val_accuracies, nan=0.0).max())
        numbers += [
            (tr("Best validation accuracy"), percent_sign(best)),
            (tr("Accuracy of guessing"), percent_sign(run.chance)),
        ]
    seen = run.seen
    if seen is not None and seen.constant_loss is not None:
        numbers.append((tr("Validation loss of the mean"), figure(seen.constant_loss)))
    if seen is not None and seen.neighbours is not None:
        skill = percent_sign(max(seen.neighbours, 0.0))
        better = tr("{percent} better than chance", percent=skill)
        numbers.append((tr("Nearest sample predicts"), better))
    if seen is not None and seen.batch_losses is not None:
        first, last = seen.batch_losses
        change = tr("{first} to {last}", first=figure(first), last=figure(last))
        numbers.append((tr("Loss of one batch"), change))
    return tuple(numbers)


# --- What the net answers, and what it was given


def _unpredicted(run: _Measured) -> Remark | None:
    """A class that the net never answers, at the end of a run that improves no more."""
    seen = run.seen
    if seen is None or not seen.support or not run.is_long or _improves(run):
        return None
    if not (run.generalises or run.is_lopsided):
        return None
    names = _class_names(run)
    counts = run.setup.class_counts
    missed = [
        number
        for number, (support, predicted) in enumerate(
            zip(seen.support, seen.predicted, strict=True)
        )
        if support >= LEAST_SUPPORT
        and not predicted
        and (len(counts) <= number or counts[number] >= LEAST_TRAINED)
    ]
    if not missed:
        return None
    number = missed[0]
    name = names[number] if number < len(names) else str(number)
    total, support = sum(seen.support), seen.support[number]
    weighs = (
        takes_weights(run.training.loss) and not run.setup.project.data.class_weights
    )
    sentence = tr(
        "{name} is never predicted: {support:,} of {total:,} validation samples are of it.",
        name=name,
        support=support,
        total=total,
    )
    if others := len(missed) - 1:
        sentence = trn(
            "{name} is never predicted, nor is another class: {support:,} of {total:,} validation samples are of it.",
            "{name} is never predicted, nor are {count} others: {support:,} of {total:,} validation samples are of it.",
            others,
            name=name,
            support=support,
            total=total,
        )
    return Remark(
        "unpredicted",
        sentence,
        (
            *(
                (
                    tr(
                        "Validation samples of {name}",
                        name=names[at] if at < len(names) else at,
                    ),
                    grouped_digits(seen.support[at]),
                )
                for at in missed[:5]
            ),
            (tr("Validation samples"), grouped_digits(total)),
            (tr("Predicted as it"), "0"),
        ),
        run.epoch_curves(tr("Loss")),
        cure=Cure(tr("Weigh classes"), (SetData("", "class_weights", True),))
        if weighs
        else None,
        page="evaluation",
    )


def _class_names(run: _Measured) -> tuple[str, ...]:
    try:
        return spec_of(run.setup.project.data).known_targets[0].classes
    except DataError:
        return ()


def _improves(run: _Measured) -> bool:
    """Return whether the last quarter of a run brought more than a tenth of what it all brought."""
    quarter = max(run.epoch_count // 4, 2)
    losses = run.train_losses
    before, newest = (
        float(losses[-2 * quarter : -quarter].mean()),
        float(losses[-quarter:].mean()),
    )
    return before - newest > 0.1 * (max(run.first_loss, float(losses[0])) - newest)


def _leak(run: _Measured) -> Remark | None:
    """Validation samples that are in the training part too."""
    seen = run.seen
    if seen is None or run.training.one_batch:
        return None
    share = seen.repeated / max(seen.compared, 1)
    if share < REPEATED or seen.repeated < REPEATED_LEAST:
        return None
    if seen.expected_repeats > 0.02 * seen.repeated:
        return None
    return Remark(
        "leak",
        tr(
            "{repeated:,} of {total:,} validation samples are in the training part too, so validation looks better "
            "than it is.",
            repeated=seen.repeated,
            total=seen.compared,
        ),
        (
            (tr("Validation samples compared"), grouped_digits(seen.compared)),
            (tr("The same as a training sample"), grouped_digits(seen.repeated)),
            (tr("To be expected by chance"), figure(seen.expected_repeats)),
        ),
        pairs=seen.pairs,
    )


def _overfitting(run: _Measured) -> Remark | None:
    """A validation loss that grows while the training loss falls."""
    validation = run.val_losses
    if run.epoch_count <= PARTED_EPOCHS or np.isnan(validation).any():
        return None
    if run.training.one_batch or run.val_count < 20:
        return None
    if not run.ended and run.setup.task == CLASSES and not run.generalises:
        return None  # the examination at the end may tell why
    best = int(np.argmin(validation))
    since = run.epoch_count - 1 - best
    lowest = float(validation[best])
    newest = validation[-max(3, since // 3) :]
    falls = run.train_losses[-1] < 0.9 * run.train_losses[best]
    first = float(max(validation[0], run.train_losses[0]))
    if since < PARTED_EPOCHS or not falls or not lowest > 0:
        return None
    if newest.min() < (1 + PARTED) * lowest or newest.min() - lowest < 0.05 * first:
        return None
    if run.ended and run.training.patience and since >= run.training.patience:
        return None  # it ended for that
    epoch = int(run.history.epochs["epoch"][best])
    patience = max(3, min(10, epoch))
    return Remark(
        OVERFITTING,
        tr(
            "Overfitting: the validation loss grows since epoch {epoch:,}, from {lowest} to {newest}.",
            epoch=epoch,
            lowest=figure(lowest),
            newest=figure(float(validation[-1])),
        ),
        (
            (
                tr("Lowest validation loss"),
                tr("{loss} in epoch {epoch:,}", loss=figure(lowest), epoch=epoch),
            ),
            (tr("Newest validation loss"), figure(float(validation[-1]))),
            (tr("Training loss then"), figure(float(run.train_losses[best]))),
            (tr("Newest training loss"), figure(float(run.train_losses[-1]))),
        ),
        run.epoch_curves(tr("Training and validation loss"), (float(epoch),)),
        cure=None
        if run.training.patience
        else Cure(
            tr("Set {name} to {value}", name="patience", value=patience),
            (SetTraining("", "patience", patience),),
        ),
        step=int(run.history.epochs["step"][best]),
    )


RULES: tuple[Callable[[Any], Remark | None], ...] = (
    _misfit,
    _scale,
    _diverging,
    _dead,
    _stuck,
    _labels,
    _unpredicted,
    _leak,
    _overfitting,
)
OF_SHORT_RUNS: tuple[Callable[[Any], Remark | None], ...] = (_scale, _lost)
