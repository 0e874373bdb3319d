"""Evaluate a network sample by sample, and aggregate loss, accuracy, metrics and confusion matrix.

Loss and accuracy are computed by the operations of a run's validation, so they are the same numbers. A concurrent run
is unaffected: the evaluator has its own module and restores the generators.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec.structs import replace
from torch.nn import functional as F

from app.data.dataset import Dataset
from app.data.loaders import load
from app.data.sources import Watch as Reading
from app.source.compiled import make_module
from app.training.checkpoints.checkpoint import load_chosen
from app.training.evaluation.metric_values import Gathered, probabilities
from app.training.evaluation.result import AUGMENTATIONS, FLIP, SHIFT, Evaluation
from app.training.evaluation.validation import sample_numbers
from app.training.inputs import fields_of
from app.training.job import Job, JobError, check_input, check_numbers
from app.training.metrics import fitting
from app.training.objectives import prepared, task_of
from app.training.setup.class_weights import weigh_classes
from app.training.setup.devices import resolve
from app.training.setup.initial_weights import initial_weights
from app.training.setup.torch_flags import set_cpu_threads
from app.training.setup.weights_header import TensorInfo, misfits
from app.training.stepper import Stepper
from app.training.task import CLASSES, TOKENS, VALUES, OwnTask
from app.util.errors import CodedError
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

    from app.data.samples import Samples

TOP = 5  # most likely classes stored per sample
VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥"}  # visible names of invisible classes
MOST_CLASSES = 10_000  # limit of the confusion matrix: 800 MB
WIDEST = 8  # values stored per sample in regression

Watch = Callable[[int, int], None]


class EvaluationError(JobError):
    """Raised if a net cannot be evaluated; the message says why and how to fix it."""


class EvaluationCancelledError(CodedError):
    """Raised if the caller cancelled the evaluation."""


class Evaluator:
    """A network with its weights and data, both loaded once. Reading the data and making the net happens once, here.

    `weights` are those of the net; None for those that a run begins with. `data` are those of another evaluator of the
    same data. Raises JobError, DataError.
    """

    def __init__(
        self,
        job: Job,
        weights: Mapping[str, Tensor] | None = None,
        data: Dataset | None = None,
        reading: Reading = lambda done, total, name: None,
    ) -> None:
        check_numbers(job)
        self.job, device = job, resolve(job.training.device).id
        if job.training.threads:
            set_cpu_threads(job.training.threads)
        # Training samples are evaluated without random augmentation, too.
        data_config = replace(job.data, train_transforms=job.data.eval_transforms)
        self.data = data or prepared(job, load(data_config, job.data_root, reading))
        info = self.data.info
        check_input(job, info)
        self.data = self.data.to(device)
        self.device = device
        self.task = task_of(job, info)
        state_dict = (
            initial_weights(job.source, job.training.seed, job.training.start)
            if weights is None
            else weights
        )
        with borrowed():
            model = make_module(job.source)
        _put_in(model, state_dict)
        self.stepper = self._stepper(model)

    def _stepper(self, model: Any) -> Stepper:
        """Build a stepper that computes output and loss as a run does; it takes no steps."""
        config = replace(
            self.job.training,
            compile=False,
            ema=None,
            recompute=(),
            groups=(),
            schedule=None,
        )
        model = model.to(self.device)
        if config.channels_last:
            model = model.to(memory_format=torch.channels_last)
        fields = fields_of(self.job.source, config.inputs, self.data.info)
        stepper = Stepper(model, config, self.task, self.device, fields)
        weigh_classes(stepper, self.job, self.data.info, self.device)
        model.eval()
        return stepper

    def samples(self, subset: str) -> Samples:
        """Return the samples of a split. Raises EvaluationError if it is empty."""
        selected = {
            "training": self.data.train,
            "validation": self.data.val,
            "test": self.data.test,
        }[subset]
        if not len(selected):
            name = {"validation": "validation_fraction", "test": "test_fraction"}.get(
                subset, ""
            )
            raise EvaluationError(
                f"No samples are held out for {subset}: {name} (Training, Data) is 0, or less than one sample."
            )
        return selected

    def read(self, subset: str, numbers: Sequence[int]) -> tuple[Any, Any]:
        """Return some preprocessed samples and their labels, on the CPU."""
        with borrowed():
            indices = torch.tensor(list(numbers), device=self.device)
            inputs, labels = next(iter(self.samples(subset).batches([indices])))
        return inputs.to("cpu"), labels.to("cpu")

    def evaluate(
        self,
        subset: str = "validation",
        augment: Sequence[str] = (),
        watch: Watch = lambda done, total: None,
        stopping: Callable[[], bool] = lambda: False,
        weights_name: str = "",
    ) -> Evaluation:
        """Evaluate the network on all samples of a split.

        With `augment`, of AUGMENTATIONS, the predicted class is that of the mean probabilities over the picture and its
        augmented copies (test-time augmentation); the loss stays that of the picture itself. `watch(done, total)` is
        called with progress in samples. Raises EvaluationError, and Cancelled once `stopping()` is True.
        """
        samples, began = self.samples(subset), perf_counter()
        self._check(augment)
        count = len(samples)
        collected = _Collected(self, count, tuple(augment))
        for inputs, labels in self._batches(samples, count):
            if stopping():
                raise EvaluationCancelledError
            collected.take(inputs, labels)
            watch(collected.count, count)
        return collected.result(subset, weights_name, perf_counter() - began)

    def _check(self, augment: Sequence[str]) -> None:
        for name in augment:
            if name not in AUGMENTATIONS:
                raise EvaluationError(
                    f"There is no augmentation “{name}”; choose among {', '.join(AUGMENTATIONS)}."
                )
        shape = self.data.info.input_shape
        if augment and (
            self.task.kind != CLASSES or len(shape) != 3 or self.data.info.inputs
        ):
            raise EvaluationError(
                f"Test-time augmentation needs images with class labels; these samples are {shape}."
            )

    def _batches(self, samples: Samples, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches as a run reads them, restoring the random generators."""
        batches = iter(
            samples.batches(
                sample_numbers(count, self.job.training.batch_size, self.device)
            )
        )
        while True:
            with borrowed():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


class _Collected:
    """Results accumulated batch by batch."""

    def __init__(
        self, evaluator: Evaluator, count: int, augment: tuple[str, ...]
    ) -> None:
        self.stepper, self.task, self.augment = (
            evaluator.stepper,
            evaluator.task,
            augment,
        )
        self.info, self._rows = evaluator.data.info, evaluator.data.rows
        self.each = copy.deepcopy(self.stepper.chief_loss)
        self.each.reduction = "none"  # type: ignore[assignment]
        self.count = 0
        self._total = 0.0
        self._correct = 0
        self._ignored = 0
        self._own = isinstance(self.task.one, OwnTask)
        names = (
            ()
            if self._own
            else tuple(
                score.name for score in fitting(self.task.kind, self.task.classes)
            )
        )
        self.gathered = Gathered(names, self.task)
        self._columns: dict[str, list[Any]] = {}
        self._confusion: Any = None
        self._views = 1

    def take(self, inputs: Tensor, labels: Tensor) -> None:
        with borrowed(), torch.no_grad():
            output = self.stepper.output(self.stepper.model, inputs)
            if not self.count:
                self._must_fit(output, labels)
            loss = self.stepper.measured(output, labels)
            self._total += loss.item() * len(inputs)
            if self._own:  # it is one number for a batch, so each sample is one
                samples = range(len(inputs))
                self._keep(
                    loss=torch.stack(
                        [
                            self._loss_of(inputs[n : n + 1], labels[n : n + 1])
                            for n in samples
                        ]
                    )
                )
                self.count += len(inputs)
                return
            output, labels = self.task.chief(output, labels)
            sample_losses = self.each(
                *self.task.one.loss_inputs(output.float(), labels)
            )
            self._keep(loss=self._mean_of_judged(sample_losses.float(), labels))
            output = self.task.scores(output)
            {CLASSES: self._classes, TOKENS: self._tokens, VALUES: self._values}[
                self.task.kind
            ](inputs, output, labels)
        self.count += len(inputs)

    def _loss_of(self, inputs: Any, labels: Any) -> Tensor:
        return self.stepper.measured(
            self.stepper.output(self.stepper.model, inputs), labels
        ).float()

    def _must_fit(self, output: Any, labels: Any) -> None:
        """Refuse an output that cannot be compared. Raises OutputError."""
        output, labels = self.task.chief(output, labels)
        if hasattr(output, "detach") and output.is_floating_point():
            with torch.enable_grad():  # an evaluation turns gradients off, which a check takes for the model's doing
                self.task.one.check(output.detach().clone().requires_grad_(), labels)
        else:
            self.task.one.check(output, labels)

    def _keep(self, **columns: Tensor) -> None:
        for name, values in columns.items():
            self._columns.setdefault(name, []).append(values.cpu().numpy())

    def _classes(self, inputs: Tensor, output: Tensor, labels: Tensor) -> None:
        rows = probabilities(self.task.loss, output)
        if self.augment:
            view_outputs = (
                self.stepper.output(self.stepper.model, view)
                for view in views(inputs, self.augment)
            )
            changed = [
                self.task.scores(self.task.chief(view_output, labels)[0])
                for view_output in view_outputs
            ]
            self._views = 1 + len(changed)
            rows = (
                sum(
                    (
                        probabilities(self.task.loss, view_output)
                        for view_output in changed
                    ),
                    rows,
                )
                / self._views
            )
            called = rows.argmax(1)
        else:
            called = output.argmax(1)
        top = rows.topk(min(TOP, rows.shape[1]), 1)
        self.gathered.add_rows(rows, labels)
        right = self._judge(called, labels, rows.shape[1])
        sure = rows.gather(1, labels[:, None]).flatten()
        self._keep(
            true=labels[:, None],
            called=called[:, None],
            sure=sure,
            top=top.indices,
            shares=top.values,
        )
        self._keep(right=right.float())

    def _tokens(self, inputs: Tensor, output: Tensor, labels: Tensor) -> None:
        called = output.argmax(-1)
        self.gathered.add(output, labels)
        right = self._judge(called, labels, output.shape[-1])
        self._keep(true=labels.flatten(1), called=called.flatten(1))
        self._keep(right=self._mean_of_judged(right.float(), labels))

    def _values(self, inputs: Tensor, output: Tensor, labels: Tensor) -> None:
        self.gathered.add(output, labels)
        true, called = (
            self.task.in_units(tensor).reshape(len(labels), -1)
            for tensor in (labels, output)
        )
        self._keep(true=true[:, :WIDEST], called=called[:, :WIDEST])

    def _judge(self, called: Tensor, labels: Tensor, columns: int) -> Tensor:
        """Count what is predicted, without the labels that the loss ignores; return which labels are, bool (...)."""
        right, judged = (
            self.task.one.right(called, labels),
            self.task.one.judged(labels),
        )
        self._correct += int(right.sum())
        self._ignored += int((~judged).sum())
        self._count_pairs(labels[judged], called[judged], columns)
        return right

    def _mean_of_judged(self, values: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of each sample (N,) over its places whose labels the loss does not ignore."""
        if self.task.kind != TOKENS or self.task.one.ignore is None:
            return values.reshape(len(values), -1).mean(1)
        judged = self.task.one.judged(labels).flatten(1)
        return values.flatten(1).mul(judged).sum(1) / judged.sum(1).clamp(min=1)

    def _count_pairs(self, labels: Tensor, called: Tensor, columns: int) -> None:
        """Update the confusion matrix: rows are labels, columns predictions."""
        if columns > MOST_CLASSES:
            raise EvaluationError(
                f"The net has {columns:,} classes; an evaluation counts every pair of them and supports at most "
                f"{MOST_CLASSES:,}."
            )
        pairs = torch.bincount(
            labels * columns + called, minlength=columns * columns
        ).reshape(columns, columns)
        self._confusion = pairs if self._confusion is None else self._confusion + pairs

    def result(self, subset: str, weights: str, seconds: float) -> Evaluation:
        columns = {
            name: np.concatenate(values) for name, values in self._columns.items()
        }
        if subset in self._rows:
            columns["row"] = self._rows[subset].numpy()
        classes = tuple(VISIBLE.get(name, name) for name in self.info.classes)
        confusion = None
        if self._confusion is not None:
            confusion = self._confusion.cpu().numpy()
            classes += tuple(map(str, range(len(classes), len(confusion))))
        return Evaluation(
            self.info.source,
            subset,
            weights,
            self.task.kind,
            classes,
            self.count,
            self._total / self.count,
            self.task.share(self._correct, self.count, self._ignored),
            self.gathered.compute(),
            confusion,
            columns,
            self._views,
            self.augment,
            seconds,
        )


def views(inputs: Tensor, augment: Sequence[str]) -> list[Tensor]:
    """Return augmented copies of images (N, C, H, W): flipped, or shifted by 1/14 of their side with the edge
    repeated.
    """
    bases = [inputs, inputs.flip(-1)] if FLIP in augment else [inputs]
    augmented = bases[1:]
    if SHIFT not in augment:
        return augmented
    height, width = inputs.shape[-2:]
    down, right = max(height // 14, 1), max(width // 14, 1)

    def shifted(base: Tensor) -> list[Tensor]:
        wide = F.pad(base, (right, right, down, down), mode="replicate")
        offsets = ((0, right), (2 * down, right), (down, 0), (down, 2 * right))
        return [
            wide[..., top : top + height, left : left + width] for top, left in offsets
        ]

    return [*augmented, *chain.from_iterable(shifted(base) for base in bases)]


def checkpoint_weights(path: Any) -> dict[str, Tensor]:
    """Return the weights that a run would validate with at a checkpoint. Raises CheckpointError."""
    state = load_chosen(path)
    if state["average"] is None:
        return dict(state["model"])
    return {
        name.removeprefix("module."): value
        for name, value in state["average"].items()
        if "." in name
    }


def _put_in(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Load weights. Raises EvaluationError for weights of another network."""
    state_dict = model.state_dict()
    problems = misfits(
        {key: TensorInfo.from_tensor(value) for key, value in weights.items()},
        {key: TensorInfo.from_tensor(value) for key, value in state_dict.items()},
    )
    problems |= {
        key: "the weights have no tensor of that name"
        for key in state_dict
        if key not in weights
    }
    if problems:
        first = "; ".join(f"{key} ({why})" for key, why in list(problems.items())[:3])
        raise EvaluationError(
            f"The weights belong to another network: {first}. Choose weights of this network."
        )
    model.load_state_dict(dict(weights))
