"""Handlers: attention, attributions and interventions on samples of a net."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from app.autograd.diagnostics.inplace_changes import find_broken
from app.autograd.errors import CaptureError
from app.engine.requests.observe import ModelCapture
from app.engine.server import Context, handles
from app.engine.tasks.evaluators import make_evaluator, tell_samples
from app.engine.tasks.observe import batch_of_model
from app.engine.tasks.weights import load_chosen
from app.features.interpret.compute import attention_maps, attribution, subject
from app.features.interpret.compute.interventions import Interventions
from app.features.interpret.compute.subject import Subject
from app.features.interpret.values import (
    AttentionFound,
    Attribution,
    Effect,
    FindWorst,
    Interpreted,
    InterpretedNet,
    InterpretError,
    MeasureEffect,
    PrepareInterpreted,
    ReadAttention,
    ReadAttributions,
    ReadLooks,
    SampleLook,
    Samples,
)
from app.training.evaluation.evaluator import VISIBLE, EvaluationError, Evaluator
from app.training.evaluation.result import is_picture
from app.training.evaluation.shown_samples import picture as picture_of
from app.training.inputs import arguments
from app.training.setup.torch_flags import cpu_threads
from app.training.task import CLASSES, TOKENS
from app.util import module_tree
from tapedeck import devices

LARGEST_BATCH = 64  # samples of one intervention


@handles(PrepareInterpreted)
def prepare(request: PrepareInterpreted, context: Context) -> InterpretedNet:
    job = request.job
    with cpu_threads(None):
        weights = load_chosen(
            request.weights, job.source, job.training.seed, job.training.start
        )
        evaluator = make_evaluator(job, weights.state_dict, context)
    layers = tuple(
        path for path, _ in module_tree.named_modules(evaluator.stepper.model) if path
    )
    return InterpretedNet(
        context.keep(evaluator),
        counts_of(evaluator),
        evaluator.data.info.classes,
        weights.words,
        layers,
    )


def counts_of(evaluator: Evaluator) -> tuple[tuple[str, int], ...]:
    """Return how many samples each split has, but for empty ones."""
    data = evaluator.data
    counts = (
        ("validation", len(data.val)),
        ("test", len(data.test)),
        ("training", len(data.train)),
    )
    return tuple((name, count) for name, count in counts if count)


# --- Subjects


def source_of(net: Interpreted, context: Context) -> Evaluator | ModelCapture:
    """Return the subject of a request. Raises HandleLostError."""
    if isinstance(net, ModelCapture):
        return net
    evaluator: Evaluator = context.object_of(net)
    return evaluator


def subject_of(
    source: Evaluator | ModelCapture, split_name: str, numbers: Sequence[int]
) -> Subject:
    """Return a net with some samples. Raises InterpretError for samples that do not exist, and as reading does."""
    if isinstance(source, ModelCapture):
        batch = batch_of_model(source)
        net = subject.of_model(batch.model, batch.inputs, batch.kwargs)
        net = subject.in_samples(
            replace(net, remarks=tuple(filter(None, [batch.remark])))
        )
        return net.of_samples(numbers)
    try:
        count = len(source.samples(split_name))
    except EvaluationError as error:
        raise InterpretError(str(error)) from error
    if not numbers or not all(0 <= number < count for number in numbers):
        raise InterpretError(
            f"there are {count:,} {split_name} samples, counted from 0; choose among them"
        )
    inputs, labels = source.read(split_name, numbers)
    inputs, labels = inputs.to(source.device), labels.to(source.device)
    stepper, task = source.stepper, source.task
    classes = tuple(VISIBLE.get(name, name) for name in source.data.info.classes)

    def run(*tensors: Tensor) -> Any:
        return stepper.output(lambda *_given: stepper.model(*tensors), inputs)

    def scores(output: Any) -> Tensor:
        return task.scores(task.chief(output, labels)[0])

    label_ids = (
        labels.flatten().tolist()
        if isinstance(labels, Tensor) and task.kind == CLASSES
        else ()
    )
    return Subject(
        stepper.model,
        arguments(inputs, stepper.fields),
        run,
        scores,
        _loss(source, labels),
        task.kind,
        source.job.training.loss.name,
        classes,
        tuple(
            _label(labels, index, task.kind, classes) for index in range(len(numbers))
        ),
        tuple(label_ids),
    )


def _loss(evaluator: Evaluator, labels: Any) -> Callable[[Any], tuple[Tensor, Tensor]]:
    stepper, task = evaluator.stepper, evaluator.task
    single = copy.deepcopy(stepper.chief_loss)

    def losses(output: Any) -> tuple[Tensor, Tensor]:
        total_loss = stepper.measured(output, labels)
        if not hasattr(single, "reduction"):
            return total_loss, total_loss.reshape(1)
        setattr(single, "reduction", "none")  # noqa: B010  a Module's attributes have no types
        chief_output, chief_labels = task.chief(output, labels)
        sample_losses = single(
            *task.one.loss_inputs(chief_output.float(), chief_labels)
        )
        return total_loss, sample_losses.float().reshape(len(chief_output), -1).mean(1)

    return losses


def _label(labels: Any, index: int, kind: str, classes: tuple[str, ...]) -> str:
    if not isinstance(labels, Tensor):
        return ""
    label = labels[index]
    if kind == CLASSES and label.ndim == 0:
        return classes[int(label)] if int(label) < len(classes) else str(int(label))
    return (
        ""
        if kind == TOKENS
        else ", ".join(f"{value:.3g}" for value in label.flatten().tolist()[:4])
    )


def numbers_of(source: Evaluator | ModelCapture, samples: Samples) -> tuple[int, ...]:
    """Return the numbers of samples; the worst are found by an evaluation. Raises InterpretError."""
    if not samples.worst:
        return samples.numbers
    if isinstance(source, ModelCapture):
        raise InterpretError(
            "the samples with the largest loss need data: choose data with --on DATA, or name samples"
        )
    return tuple(
        int(number) for number in source.evaluate(samples.part).worst()[: samples.worst]
    )


def look_of(net: Subject, number: int, output: Any = None) -> SampleLook:
    """Return the displayed sample of a subject with a batch of one."""
    picture: Any = None
    tokens: tuple[str, ...] = ()
    for tensor in net.tensors:
        sample = tensor[0].detach().cpu() if tensor.ndim else tensor
        if (
            picture is None
            and sample.is_floating_point()
            and is_picture(tuple(sample.shape))
        ):
            picture = picture_of(sample)
        elif (
            not tokens
            and not sample.is_floating_point()
            and sample.ndim == 1
            and sample.dtype != torch.bool
        ):
            named = net.kind == TOKENS
            tokens = tuple(
                net.name_of(int(value)) if named else str(int(value))
                for value in sample
            )
    prediction = subject.predictions(net, output)[0] if output is not None else ""
    return SampleLook(
        number, picture, tokens, net.labels[0] if net.labels else "", prediction
    )


# --- Requests


@handles(ReadAttention)
def read_attention(request: ReadAttention, context: Context) -> AttentionFound:
    return attention(source_of(request.net, context), request)


def attention(
    source: Evaluator | ModelCapture, request: ReadAttention
) -> AttentionFound:
    """Return the attentions of one forward pass. Raises as `subject_of`, and what the model raises."""
    number = numbers_of(source, request.samples)[0]
    net = subject_of(source, request.samples.part, (number,))
    outputs: list[Any] = []
    with net.quiet():
        attentions, remarks = attention_maps.attentions(
            net.model,
            lambda: outputs.append(net.run(*net.tensors)),
            net.batch,
            keep=request.layers,
        )
    return AttentionFound(
        look_of(net, number, outputs[-1]), attentions, (*remarks, *net.remarks)
    )


@handles(ReadAttributions)
def read_attributions(
    request: ReadAttributions, context: Context
) -> tuple[Attribution, ...]:
    return attributions(
        source_of(request.net, context), request, context.progress, context.cancelled
    )


def attributions(
    source: Evaluator | ModelCapture,
    request: ReadAttributions,
    tell: Callable[[str], None] = lambda _words: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[Attribution, ...]:
    """Return an attribution of each sample. Raises as `attribution.attribute` and `subject_of`."""
    results: list[Attribution] = []
    numbers = numbers_of(source, request.samples)
    for index, number in enumerate(numbers):
        if cancelled():
            break
        tell(f"Sample {index + 1} of {len(numbers)}")
        net = subject_of(source, request.samples.part, (number,))
        with net.quiet(), torch.no_grad():
            look = look_of(net, number, net.run(*net.tensors))
        with _named_changes(source):
            attributed = attribution.attribute(
                net,
                look,
                request.method,
                request.target,
                request.layer,
                request.argument,
            )
        results.append(
            replace(
                attributed,
                remark="; ".join(filter(None, (attributed.remark, *net.remarks))),
            )
        )
    return tuple(results)


@contextlib.contextmanager
def _named_changes(source: Evaluator | ModelCapture) -> Iterator[None]:
    """Say which operation of a model from anywhere overwrote what backward needs, if that is why it raised."""
    try:
        yield
    except RuntimeError as error:
        if "inplace operation" not in str(error) or not isinstance(
            source, ModelCapture
        ):
            raise
        broken = find_broken(batch_of_model(source)).first
        if broken is None:
            raise
        raise CaptureError(
            f"backward of {source.model.source} fails: {broken.sentence}"
        ) from error


@handles(MeasureEffect)
def measure_effect(request: MeasureEffect, context: Context) -> Effect:
    return effect(source_of(request.net, context), request)


def effect(source: Evaluator | ModelCapture, request: MeasureEffect) -> Effect:
    """Run the samples without and with the interventions. Raises as `Interventions` and `subject_of`."""
    numbers = numbers_of(source, request.samples)[:LARGEST_BATCH]
    net = subject_of(source, request.samples.part, numbers)
    changes = Interventions(net.model, request.interventions, net.batch)
    with net.quiet():
        for number in dict.fromkeys(
            intervention.source
            for intervention in request.interventions
            if intervention.source is not None
        ):
            other = subject_of(source, request.samples.part, (number,) * net.batch)
            with (
                changes.recording(
                    [
                        recorded_intervention
                        for recorded_intervention in request.interventions
                        if recorded_intervention.source == number
                    ]
                ),
                torch.no_grad(),
            ):
                net.run(*other.tensors)
        with changes.unchanged():
            plain = net.run(*net.tensors)
        with changes.applied():
            changed = net.run(*net.tensors)
        with torch.no_grad():
            measure, before, each_before = subject.losses(net, plain, plain)
            _, after, each_after = subject.losses(net, changed, plain)
            old, new = (devices.doubled(net.scores(each)) for each in (plain, changed))
            shift = float((new - old).norm() / old.norm().clamp_min(1e-300))
    return Effect(
        measure,
        float(before),
        float(after),
        tuple(numbers),
        tuple(each_before.tolist()),
        tuple(each_after.tolist()),
        tuple(
            zip(
                subject.predictions(net, plain),
                subject.predictions(net, changed),
                strict=True,
            )
        ),
        shift,
        (*changes.remarks, *net.remarks),
    )


@handles(FindWorst)
def find_worst(request: FindWorst, context: Context) -> tuple[int, ...]:
    evaluator = source_of(request.net, context)
    assert isinstance(evaluator, Evaluator)
    evaluation = evaluator.evaluate(
        request.part, (), tell_samples(context), context.cancelled
    )
    return tuple(int(number) for number in evaluation.worst()[: request.count])


@handles(ReadLooks)
def read_looks(request: ReadLooks, context: Context) -> tuple[SampleLook, ...]:
    source = source_of(request.net, context)
    looks = []
    for number in request.samples.numbers:
        net = subject_of(source, request.samples.part, (number,))
        with net.quiet(), torch.no_grad():
            looks.append(look_of(net, number, net.run(*net.tensors)))
    return tuple(looks)
