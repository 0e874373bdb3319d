"""Layer statistics of one step: weight norms, updates, dead activations and histograms.

It is put on for a step and taken off after it, reads and never writes, and draws from no generator, so the numbers of
the run are the same bit for bit with and without it.
"""

from __future__ import annotations

import sys
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from app.source.generated import Source
from app.telemetry.gain_probe import GainProbe
from app.telemetry.gradient_gains import Gains
from app.telemetry.gradients import GradientSampler
from app.telemetry.histogram import Histogram
from app.telemetry.histogram_of import histogram
from app.telemetry.throttle import Meter
from app.util import module_tree
from app.util.torch_calls import FunctionCalls
from tapedeck.norms import values_of

if TYPE_CHECKING:
    from torch import Tensor, nn

MOST = 65_536  # values sampled for a histogram
KINDS = ("weights", "gradients", "activations")

# Functions that return 0 for negative inputs, whose units may be dead.
_CUTTING = frozenset({"relu", "relu_", "relu6", "threshold", "threshold_"})


class Seen(Struct, frozen=True):
    """Measurements of one step. `weights` and `ratios` are by the sampler's layers: the norm of a layer's weights, and
    the norm of the optimizer's update over it; nan without any. `dead` is the fraction of units of each layer that cuts
    at 0 (features, or channels of pictures) that were 0 for the whole batch, by the layer's name, and `nodes` the
    drawing's node. `gains` is None without hooks."""

    weights: tuple[float, ...]
    ratios: tuple[float, ...]
    dead: dict[str, float]
    nodes: dict[str, str | None]
    histograms: dict[str, tuple[Histogram, ...]]
    gains: Gains | None = None


class Look:
    """Created once per run, used per measured step: `begin`, `forward_done`, `gradients`, `end`, `fetch`.

    Measurements stay on the device until `fetch`. `hooks` is off for a compiled forward, which hooks would recompile.
    """

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        sampler: GradientSampler,
        meter: Meter,
        hooks: bool,
    ) -> None:
        self._sampler, self._source, self._meter, self._hooks = (
            sampler,
            source,
            meter,
            hooks,
        )
        self._paths = {
            id(module): path for path, module in module_tree.named_modules(model)
        }
        paths = (path for path in sampler.layers if _is_module(model, path))
        self._modules = [(path, module_tree.submodule(model, path)) for path in paths]
        self._gains = GainProbe(model, meter)
        self._inside: Any = None
        self._handles: list[Any] = []
        self.open = False
        self._clear()

    def _clear(self) -> None:
        self._before: list[Tensor] = []
        self._norms: Tensor | None = None
        self._changes: Tensor | None = None
        self._dead: dict[str, tuple[Tensor, str | None]] = {}
        self._samples: dict[str, dict[str, tuple[Tensor, int]]] = {
            kind: {} for kind in KINDS
        }

    def begin(self) -> None:
        """Start before the forward: copy the weights, and hook the layers' outputs."""
        with self._meter:
            self._clear()
            self.open = True
            self._before = [
                parameter.detach().clone() for parameter in self._sampler.parameters
            ]
            self._norms = _norms(self._before)
            self._sample("weights", self._before)
            if self._hooks:
                self._handles = [
                    module_tree.on_call(module, partial(self._take_output, path))
                    for path, module in self._modules
                ]
                self._gains.begin()
                self._inside = FunctionCalls(self._called)
                self._inside.__enter__()

    def tensors(self) -> list[Tensor]:
        """Return the tensors that are kept of the step: copies of weights, and samples of values."""
        samples = [
            values
            for by_layer in self._samples.values()
            for values, _ in by_layer.values()
        ]
        return [*self._before, *samples]

    def forward_done(self, loss: Tensor | None = None, scale: float = 1.0) -> None:
        """Take the hooks off after the first forward of the step, whatever came of it. May be called again.

        With a `loss` that backward is about to start from the gains are measured; `scale` is a gradient scaler's.
        """
        self._gains.forward_done(loss, scale)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._inside is not None:
            self._inside.__exit__(None, None, None)
            self._inside = None

    def gradients(self) -> None:
        """Sample the gradients, between backward and the optimizer's step."""
        with self._meter:
            self._sample(
                "gradients", [parameter.grad for parameter in self._sampler.parameters]
            )

    def end(self) -> None:
        """Measure by how much the weights changed, after the optimizer's step."""
        with self._meter, torch.no_grad():
            torch._foreach_sub_(
                self._before,
                [parameter.detach() for parameter in self._sampler.parameters],
            )
            self._changes = _norms(self._before)
            self._before = []
            self.open = False
        self._meter.schedule_next()

    def drop(self) -> None:
        """Discard the measurements of a failed step."""
        self.forward_done()
        self._gains.drop()
        self._clear()
        self.open = False

    def fetch(self) -> Seen:
        """Return the measurements; synchronises the device."""
        with self._meter:
            assert self._norms is not None and self._changes is not None
            weights, changes = torch.stack([self._norms, self._changes]).tolist()
            total, moved = (
                self._sampler.by_layer(weights),
                self._sampler.by_layer(changes),
            )
            ratios = tuple(
                change / norm if norm else float("nan")
                for change, norm in zip(moved, total, strict=True)
            )
            measurements = Seen(
                total,
                ratios,
                {name: float(share) for name, (share, _) in self._dead.items()},
                {name: node for name, (_, node) in self._dead.items()},
                {
                    kind: tuple(
                        histogram(layer, *values) for layer, values in samples.items()
                    )
                    for kind, samples in self._samples.items()
                    if samples
                },
                self._gains.fetch(),
            )
            self._clear()
        return measurements

    def _sample(self, kind: str, tensors: list[Any]) -> None:
        """Keep some values of each layer: of its largest tensor, which is the weight and not the bias."""
        largest: dict[str, Tensor] = {}
        for layer, tensor in zip(self._sampler.owners, tensors, strict=True):
            if tensor is not None and (
                layer not in largest or tensor.numel() > largest[layer].numel()
            ):
                largest[layer] = tensor
        for layer, tensor in largest.items():
            self._samples[kind][layer] = _some(tensor), tensor.numel()

    def _take_output(
        self, path: str, _module: nn.Module, _inputs: Any, output: Any
    ) -> None:
        while isinstance(output, tuple | list) and output:
            output = output[0]
        if (
            isinstance(output, torch.Tensor)
            and output.is_floating_point()
            and path not in self._samples["activations"]
        ):
            with self._meter, torch.no_grad():
                self._samples["activations"][path] = (
                    _some(output.detach()),
                    output.numel(),
                )

    def _called(self, func: Any, args: Any, kwargs: Any, _frame: FrameType) -> Any:
        output = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _CUTTING and isinstance(output, torch.Tensor):
            self._take_cut(name, output)
        return output

    def _take_cut(self, function: str, output: Tensor) -> None:
        """Measure dead units of a function's output, for the layer or line that called it."""
        if output.ndim < 2:
            return
        with self._meter, torch.no_grad():
            name, node = self._caller(function)
            while name in self._dead:
                name += "′"  # a further call of the layer in one forward
            unit = output.ndim - 1 if output.ndim == 3 else 1
            others = tuple(d for d in range(output.ndim) if d != unit)
            self._dead[name] = (
                (output.detach() != 0).sum(others).eq(0).float().mean(),
                node,
            )

    def _caller(self, function: str) -> tuple[str, str | None]:
        """Return the path of the running layer, or for a plain function its line; and the node."""
        frame: Any = sys._getframe(2)
        name, line = "", 0
        while frame is not None and not line:
            inside = frame.f_code.co_filename == self._source.filename
            path = self._paths.get(id(frame.f_locals.get("self"))) if not name else None
            if path is not None and not inside:
                name = path
            if inside:
                line = frame.f_lineno
                name = name or f"{path + ': ' if path else ''}{function}, line {line}"
            frame = frame.f_back
        return name or "outside the network", self._source.node_at(line)


def _some(tensor: Tensor) -> Tensor:
    """Sample up to `MOST` values of a tensor, evenly spaced, as a copy, since it may be modified in place."""
    values = values_of(tensor).reshape(-1)
    return values[:: -(-len(values) // MOST)].clone() if len(values) else values.clone()


def _norms(tensors: list[Tensor]) -> Tensor:
    """Return the norm of each, shape (tensors,), float32."""
    norms = torch._foreach_norm(tensors)
    return torch.stack([norm.to(norms[0].device, torch.float32) for norm in norms])


def _is_module(model: nn.Module, path: str) -> bool:
    try:
        module_tree.submodule(model, path)
    except AttributeError:  # a parameter of the network itself, listed by its name
        return False
    return bool(path)
