"""Results of a recomputed step for inspection: its batch, outputs, activations, weights and gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from app.data.targets import first
from app.telemetry.histogram import Histogram
from app.telemetry.histogram_of import histogram
from app.training.inputs import arguments
from app.training.monitoring import snapshots
from app.training.monitoring.activations import label_text
from app.training.monitoring.looks import BatchPeek, LayerInside, StepLayer
from app.training.objectives import first_classes
from app.util import module_tree
from app.util.formatting import bytes_text

if TYPE_CHECKING:
    from torch import Tensor

    from app.data.spec import DataInfo
    from app.training.recomputing.snapshot import Snapshot
    from app.training.stepper import Stepper

BUDGET = 256 << 20  # bytes of activations that are kept


class StepState:
    """The state of a step, from one forward pass in train mode from the snapshot before it, which is restored then.

    Its weights are those before the step. Activations and outputs are of the first `snapshots.SAMPLES` samples.
    """

    def __init__(
        self,
        stepper: Stepper,
        snapshot: Snapshot,
        gradients: Sequence[Tensor | None],
        info: DataInfo,
        step: int,
    ) -> None:
        self._stepper, self._given, self._info, self._step = (
            stepper,
            snapshot.given,
            info,
            step,
        )
        self._scale = snapshot.scale
        self._outputs: dict[str, Tensor] = {}
        self._left_out = False
        self._peek = self._run(snapshot)
        names = [name for name, _ in stepper.model.named_parameters()]
        self._weights = {
            name: parameter.detach()
            for name, parameter in stepper.model.named_parameters()
        }
        self._gradients = dict(zip(names, gradients, strict=True))

    def _run(self, snapshot: Snapshot) -> BatchPeek:
        """Run the forward pass of the step and keep the output of each module."""
        step_inputs, stepper = self._given, self._stepper
        snapshot.restore()
        outputs = losses = None
        problem = ""
        labels = first(step_inputs.labels)
        try:
            with torch.no_grad(), self._keeping():
                output, labels = stepper.task.chief(
                    stepper.output(stepper.model, step_inputs.inputs),
                    step_inputs.labels,
                )
                if isinstance(output, torch.Tensor):
                    outputs = (
                        stepper.task.scores(output[: snapshots.SAMPLES])
                        .float()
                        .cpu()
                        .numpy()
                    )
                if step_inputs.others is None:  # a mixed sample has two labels
                    losses = snapshots.losses_of(stepper, output, labels)
        except (
            Exception
        ) as error:  # custom layers may raise anything; the batch is shown nevertheless
            problem = f"{type(error).__name__}: {error}"
        finally:
            snapshot.restore()
        shown = slice(snapshots.SAMPLES)
        info, inputs = self._info, first(step_inputs.inputs)
        return BatchPeek(
            len(inputs),
            snapshots.array(inputs[shown]),
            snapshots.array(labels[shown]),
            outputs,
            None if losses is None else losses[shown],
            tuple(map(str, info.classes)),
            info.task,
            problem,
            exact=True,
        )

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Keep the first output of each module on its first call, as long as there is room."""

        hooks: list[Any] = []
        room = BUDGET

        def keep(path: str, output: Any) -> None:
            nonlocal room
            tensor = next(
                (
                    candidate
                    for candidate in snapshots.tensors(output)
                    if candidate.ndim
                ),
                None,
            )
            if tensor is None or path in self._outputs:
                return
            few = tensor[: snapshots.SAMPLES]
            size = few.numel() * few.element_size()
            if size > room:
                self._left_out = True
                return
            room -= size
            self._outputs[path] = few.detach().to("cpu", copy=True)

        for path, module in module_tree.named_modules(self._stepper.model):
            if path:
                hooks.append(
                    module_tree.on_call(
                        module, lambda _m, _i, output, path=path: keep(path, output)
                    )
                )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def batch(self) -> BatchPeek:
        """Return the first samples of the batch, with outputs and losses as the step computed them."""
        return self._peek

    def layer(self, path: str, sample: int) -> StepLayer:
        """Return a module's activations for a sample of the batch, from 0, its filters and its histograms.

        Raises AttributeError for a module that the net has not.
        """
        module_tree.submodule(self._stepper.model, path)
        output = self._outputs.get(path)
        inputs = arguments(self._given.inputs, self._stepper.fields)[0]
        count = min(len(inputs), snapshots.SAMPLES)
        sample = min(max(sample, 0), count - 1)
        label = first(self._given.labels)[sample]
        inside = LayerInside(
            path,
            sample,
            count,
            label_text(label, tuple(map(str, first_classes(self._info)))),
            snapshots.array(inputs[sample]) if inputs.is_floating_point() else None,
            None
            if output is None or len(output) <= sample
            else snapshots.described(path, output[sample]),
            snapshots.filters(self._stepper.model, path, tuple(inputs.shape[1:])),
            "the step's weights, in train mode",
        )
        note = ""
        if output is None and self._left_out:
            note = f"The activations of this step take more than {bytes_text(BUDGET)}; this layer's were not kept."
        return StepLayer(self._step, inside, self._histograms(path, output), note)

    def _histograms(self, path: str, outputs: Tensor | None) -> dict[str, Histogram]:
        histograms = (
            {"activations": histogram(path, outputs)} if outputs is not None else {}
        )
        weights, gradients = (
            _below(path, values) for values in (self._weights, self._gradients)
        )
        if weights:
            histograms["weights"] = histogram(path, _joined(weights))
        if gradients:
            scale = self._scale if math.isfinite(self._scale) and self._scale else 1.0
            histograms["gradients"] = histogram(path, _joined(gradients) / scale)
        return histograms


def _below(path: str, values: dict[str, Any]) -> list[Tensor]:
    return [
        value
        for name, value in values.items()
        if value is not None and f"{name}.".startswith(f"{path}.")
    ]


def _joined(values: list[Tensor]) -> Tensor:
    dense = (
        tensor.to_dense() if tensor.layout != torch.strided else tensor
        for tensor in values
    )
    return torch.cat([tensor.detach().float().cpu().flatten() for tensor in dense])
