"""Compare two models: match their modules, run both on one batch, and name the first layer at which they part.

Each runs on its own, which tells how far every layer is off; then B runs with what A computed handed to each of its
layers, which tells what that layer adds. The second is done in double precision where both models can run in it, since
rounding is nine orders of magnitude smaller there and a wrong epsilon is not.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace as with_values
from torch import Tensor, nn

from app.features.compare.compute import metrics, weights
from app.features.compare.compute.containers import replace_tensors
from app.features.compare.compute.draws import default_precision
from app.features.compare.compute.facts import facts_of
from app.features.compare.compute.operations import first_by_name, first_different
from app.features.compare.compute.passes import (
    Call,
    Forced,
    ModelPass,
    Part,
    Recording,
    gradient_error,
)
from app.features.compare.compute.structure import compare as match
from app.features.compare.values import (
    KNOWN,
    PRECISIONS,
    Added,
    Apart,
    Difference,
    Distance,
    First,
    Layer,
    Modes,
    Pass,
    Structure,
)
from app.source.raised import sentence
from app.training.job import JobError
from app.training.setup.devices import devices, resolve
from app.util import module_tree, user_frames
from app.util.errors import CodedError

LARGEST_DOUBLE = (
    1 << 31
)  # bytes of both models' weights; larger ones are not copied in double precision
# Of two whole models in double precision: rounding of all layers together.
WHOLE_FACTOR = 64.0


class ComparisonError(CodedError, RuntimeError):
    """Two models that cannot be compared; the message says which one, why, and the cure."""


class Batch(Struct, frozen=True, eq=False):
    """What both models are called with; `targets` are inputs by name that they take in train mode alone."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    seed: int = 0
    targets: Mapping[str, Any] | None = None


def compare_models(
    a: nn.Module,
    b: nn.Module,
    batch: Batch,
    *,
    names: tuple[str, str] = ("A", "B"),
    share: bool = True,
    fill: bool = True,
    modes: Sequence[str] = ("eval", "train"),
    double: bool = True,
    tell: Callable[[str], None] = lambda _words: None,
) -> Difference:
    """Compare B with A on one batch, in each of `modes` until one shows a difference.

    With `share` B gets A's weights, else each keeps its own. With `fill` they are as they were initialised: how is
    compared, and constant ones get random values. Both models may be changed: pass copies. Raises ComparisonError if
    A cannot run.
    """
    tell("Matching the modules")
    structure = match(facts_of(a), facts_of(b))
    remarks: list[str] = []
    initial: list[weights.InitialDifference] = []
    distances: tuple[Distance, ...] = ()
    if share:
        if fill:
            initial = weights.initial_differences(a, b, structure.pairs)
        if fill and (filled := weights.fill_constants(a)):
            remarks.append(
                f"{filled} constant parameters and statistics got random values, the same in both models."
            )
        left = weights.share(a, b, structure.pairs)
        if left:
            shown = ", ".join(left[:5]) + (
                f" and {len(left) - 5} more" if len(left) > 5 else ""
            )
            remarks.append(
                f"{len(left)} tensors of B have no counterpart in A and keep their own values: {shown}."
            )
    else:
        distances = weights.distances(a, b, structure.pairs)
    difference = Difference(*names, structure=structure, distances=distances)
    for mode in modes:
        tell(f"Running both models in {mode} mode")
        numbers = Numbers(
            a, b, structure, batch, mode == "train", mode == "train", double, share
        )
        first, layers = numbers.compared(mode)
        if mode == modes[0] and initial:
            first = numbers.with_initial(first, initial, mode)
        remarks += [remark for remark in numbers.remarks if remark not in remarks]
        difference = Difference(
            *names,
            first,
            layers,
            structure,
            distances,
            (),
            tuple(remarks),
            mode,
        )
        if first is not None:
            break
    return difference


def compare_modes(
    model: nn.Module,
    modes: Modes,
    batch: Batch,
    trains: Sequence[bool] = (False, True),
    names: tuple[str, str] = ("A", "B"),
    tell: Callable[[str], None] = lambda _words: None,
) -> Difference:
    """Compare a model in two modes, the second as B. Raises ComparisonError for a mode that it cannot be put into, or
    that is not available here."""
    model_a, other = (_in_mode(model, mode) for mode in (modes.a, modes.b))
    structure = match(facts_of(model_a), facts_of(model_a))
    difference = Difference(*names, structure=structure)
    of_mode = {"eval": False, "train": True}
    if modes.a in of_mode:
        chosen = [(of_mode[modes.a], of_mode[modes.b])]
    else:
        chosen = [(train, train) for train in trains]
    for pair in chosen:
        mode = "train" if pair[1] else "eval"
        tell(f"Running both in {mode} mode")
        numbers = Numbers(
            model_a, other, structure, batch, *pair, double=False, single_draws=True
        )
        if modes.b == "compiled" or modes.a == "compiled":
            first, layers = numbers.compiled(mode)
        else:
            first, layers = numbers.compared(mode)
        difference = Difference(
            *names, first, layers, structure, remarks=tuple(numbers.remarks), mode=mode
        )
        if first is not None:
            break
    return difference


def _in_mode(model: nn.Module, mode: str) -> nn.Module:
    """Return a copy of a model in a precision, or on a device."""
    device = "" if mode in KNOWN else _device(mode)
    try:
        model = module_tree.copied(model)
        if mode in PRECISIONS:
            return model.to(getattr(torch, mode))
        if device:
            return model.to(device)
    except Exception as error:  # whatever a module keeps
        raise ComparisonError(
            f"{mode}: {type(error).__name__}: {error}".split("\n")[0]
        ) from error
    return model


def _device(name: str) -> str:
    """Return the name of a device that is here. Raises ComparisonError."""
    try:
        resolved = resolve(name)
    except JobError as error:
        raise ComparisonError(str(error)) from error
    if resolved.note is not None:
        present = ", ".join(device.id for device in devices())
        raise ComparisonError(
            f"{name} is not available here: this torch ({torch.__version__}) finds {present}"
        )
    return resolved.id


class Numbers:
    """Runs both models on one batch. `train_a` and `train_b` are their modes; `double` also compares in double
    precision, which tells rounding from other differences; `shared` says that B has A's weights."""

    def __init__(
        self,
        a: nn.Module,
        b: nn.Module,
        structure: Structure,
        batch: Batch,
        train_a: bool,
        train_b: bool,
        double: bool = True,
        shared: bool = True,
        single_draws: bool = False,
    ) -> None:
        self.a, self.b, self.structure, self.batch, self._shared = (
            a,
            b,
            structure,
            batch,
            shared,
        )
        self._single_draws = single_draws
        self.trains = (train_a, train_b)
        self.remarks: list[str] = []
        self._double = double and train_a == train_b
        self._to_b = dict(structure.pairs)
        self._to_a = {path_b: path_a for path_a, path_b in structure.pairs}
        if "" not in self._to_b:  # one wraps the other
            self._to_b[""] = ""
        self._to_a.setdefault("", "")
        self._paths_a = {path: path for path in self._to_b}
        self._native = max(metrics.roundoff_of(a), metrics.roundoff_of(b))
        self._functions = True
        self._modules_of_a = dict(module_tree.named_modules(a))
        self._called: dict[tuple[str, int], int] = {}
        self._places: dict[str, tuple[tuple[str, int], tuple[str, int]]] = {}

    def compared(self, mode: str) -> tuple[First | None, tuple[Layer, ...]]:
        """Return the first layer that adds more than rounding explains, and all of them."""
        reference, failed = self._recorded(self.a, self._paths_a, self.trains[0])
        if failed is not None:
            raise ComparisonError(
                f"A does not run: {sentence(failed)}. Describe other inputs"
            )
        other, failed = self._recorded(self.b, self._to_a, self.trains[1])
        self._called = {key: number for number, key in enumerate(reference.calls)}
        layers = self._layers(reference, other)
        if failed is not None:
            raised = self._raised(reference, other, failed, mode)
            forced = self._forced(
                self.b, reference
            )  # what raises may be behind what differs
            return self._first(reference, forced, mode) or raised, self._with_added(
                layers, reference, forced
            )
        self._places = {
            layer.a: ((layer.file_a, layer.line_a), (layer.file_b, layer.line_b))
            for layer in layers
        }
        for name, run in (("A", reference), ("B", other)):
            if run.gradients.refused:
                self.remarks.append(
                    f"Backward of {name} stops: {run.gradients.refused}"
                )
        if _identical(reference, other):
            return self._drawn_otherwise(reference, other, mode), tuple(
                with_values(layer, added=Added(), backward_added=Added())
                for layer in layers
            )
        exact = self._doubled() if self._double else None
        if exact is not None:
            reference, other = exact
            if self._whole_equal(reference, other):
                forced = self._forced(other.model, reference)
                return self._drawn_otherwise(reference, other, mode), self._with_added(
                    layers, reference, forced
                )
        forced = self._forced(other.model, reference)
        first = self._first(reference, forced, mode) or self._drawn_otherwise(
            reference, other, mode
        )
        return first, self._with_added(layers, reference, forced)

    def _drawn_otherwise(
        self, reference: Recording, other: Recording, mode: str
    ) -> First | None:
        """Return the innermost call that leaves another state of the generator from the same one: on this batch it
        gives the same, and what comes after it draws other numbers."""
        call_key: tuple[str, int] | None = None
        for key, call in reference.calls.items():
            twin = other.calls.get(key)
            if twin is None or any(
                state is None
                for state in (call.before, call.after, twin.before, twin.after)
            ):
                continue
            if not _same(call.before, twin.before) or _same(call.after, twin.after):
                continue
            if call_key is None or key[0].startswith(
                f"{call_key[0]}." if call_key[0] else ""
            ):
                call_key = key
        if call_key is None or not self._double:
            return None
        why = "its output is the same, but it draws another number of random numbers"
        locations = reference.calls[call_key].place, other.calls[call_key].place
        return First(
            call_key[0],
            self._to_b.get(call_key[0], call_key[0]),
            "forward",
            mode,
            why,
            *locations[0],
            *locations[1],
        )

    def compiled(self, mode: str) -> tuple[First | None, tuple[Layer, ...]]:
        """Compare the model with itself compiled as a whole; where that differs by more than rounding, compile layer
        after layer, each on what the plain one got."""
        reference, failed = self._recorded(self.a, self._paths_a, self.trains[0])
        if failed is not None:
            raise ComparisonError(
                f"A does not run: {sentence(failed)}. Describe other inputs"
            )
        root = {"": ""}
        compiled_pass, failed = self._recorded(
            _Compiled(self.b), root, self.trains[1], functions=False
        )
        if failed is not None:
            return self._raised(reference, compiled_pass, failed, mode), ()
        layers = [
            layer for layer in self._layers(reference, compiled_pass) if not layer.a
        ]
        self._called = {key: number for number, key in enumerate(reference.calls)}
        limit = WHOLE_FACTOR * max(
            self._bound(reference, compiled_pass, key) for key in reference.calls
        )
        errors = [
            apart.relative
            for layer in layers
            for apart in (layer.forward, layer.backward)
            if apart is not None
        ]
        if all(error <= limit for error in errors):
            added = Added(max(errors, default=0.0), limit)
            return None, tuple(with_values(layer, added=added) for layer in layers)
        leaves = {
            path
            for path, module in module_tree.named_modules(self.b)
            if not [*module_tree.children(module)]
        }
        for path in leaves:
            module = module_tree.submodule(self.b, path)
            module.forward = torch.compile(module.forward)
        forced = self._forced(self.b, reference)
        first = self._first(reference, forced, mode)
        if first is None:
            why = f"compiled as a whole it differs by {max(errors):.2g}, its layers compiled one by one do not"
            first = First("", "", "forward", mode, why)
        return first, self._with_added(layers, reference, forced)

    # -- passes

    def _recorded(
        self,
        model: nn.Module,
        paths: Mapping[str, str],
        train: bool,
        watch: tuple[str, int] | None = None,
        functions: bool = True,
    ) -> tuple[Recording, Exception | None]:
        args, kwargs = self._inputs(model, train)
        recording = Recording(model, paths, watch)
        failed: Exception | None = None
        for shown in (True, False) if functions and self._functions else (False,):
            recording = Recording(model, paths, watch)
            try:
                with default_precision(model, self._single_draws):
                    recording.run(args, kwargs, train, self.batch.seed, shown)
            except Exception as error:  # the model's own
                failed = error
            else:
                self._functions = self._functions and shown == functions
                return recording, None
        return recording, failed

    def _forced(
        self,
        model: nn.Module,
        reference: Recording,
        watch: tuple[str, int] | None = None,
    ) -> Forced:
        """Run B on the tensors of A. If it raises, it is compared up to there."""
        args, kwargs = self._inputs(model, self.trains[1])
        forced = Forced(model, self._to_a, reference, watch)
        with default_precision(model, self._single_draws):
            try:
                forced.run(
                    args, kwargs, self.trains[1], self.batch.seed, self._functions
                )
            except Exception as error:  # the model's own, on the tensors of another
                call = forced.stack[-1] if forced.stack else None
                reason = f"it raises {type(error).__name__} on the tensors of A: {error}".split(
                    "\n"
                )[0]
                key = call.key if call is not None else ("", 1)
                forced.parts.append(Part("forward", key, math.inf, reason))
        if forced.gradients.refused and not reference.gradients.refused:
            self.remarks.append(
                f"Backward of B stops on the tensors of A: {forced.gradients.refused}"
            )
        return forced

    def _inputs(
        self, model: nn.Module, train: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the batch on the model's device and in its precision."""
        like = next(
            (
                parameter
                for parameter in module_tree.parameters(model)
                if parameter.is_floating_point()
            ),
            None,
        )

        def suited(tensor: Tensor) -> Tensor:
            if like is None:
                return tensor
            return tensor.to(
                like.device, like.dtype if tensor.is_floating_point() else tensor.dtype
            )

        named = {
            **(self.batch.kwargs or {}),
            **((self.batch.targets or {}) if train else {}),
        }
        return replace_tensors((self.batch.args, named), suited)

    def _doubled(self) -> tuple[Recording, Recording] | None:
        """Run both models in double precision; None if one of them cannot."""
        recordings = []
        size = sum(_bytes(model) for model in (self.a, self.b))
        if size > LARGEST_DOUBLE:
            self.remarks.append(
                "The models are too large to be compared in double precision, too."
            )
            return None
        for model, paths, train in zip(
            (self.a, self.b), (self._paths_a, self._to_a), self.trains, strict=True
        ):
            try:
                model = module_tree.copied(model).double()
            except Exception as error:  # whatever a module keeps
                self._not_doubled(error)
                return None
            recording, failed = self._recorded(model, paths, train)
            if failed is not None:
                self._not_doubled(failed)
                return None
            recordings.append(recording)
        return recordings[0], recordings[1]

    def _not_doubled(self, error: Exception) -> None:
        message = str(error).split("\n")[0]
        self.remarks.append(
            f"Not compared in double precision, too: {type(error).__name__}: {message}"
        )

    # -- what the numbers say

    def _layers(self, reference: Recording, other: Recording) -> list[Layer]:
        layers = []
        for key, call in reference.calls.items():
            twin = other.calls.get(key)
            if twin is None:
                continue
            kind = type(call.module).__name__
            parts, back = _outputs_apart(call, twin)
            back += [
                metrics.apart(theirs, mine)
                for _, mine, theirs in self._parameters(reference, other, call.path)
                if mine is not None and theirs is not None
            ]
            layers.append(
                Layer(
                    call.path,
                    self._to_b.get(call.path, call.path),
                    kind,
                    call.number,
                    *call.place,
                    *twin.place,
                    metrics.furthest(parts),
                    None,
                    metrics.furthest(back),
                    None,
                )
            )
        return layers

    def _parameters(
        self, reference: ModelPass, other: ModelPass, path: str
    ) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
        """Yield the gradients of the parameters that a module of A and its match both have."""
        mine, theirs = reference.gradients.of_parameters, other.gradients.of_parameters
        prefix, others = (
            f"{module_path}." if module_path else ""
            for module_path in (path, self._to_b.get(path, path))
        )
        for name, parameter in self._modules_of_a.get(
            path, nn.Module()
        )._parameters.items():
            if (
                parameter is not None
                and f"{prefix}{name}" in mine
                and f"{others}{name}" in theirs
            ):
                yield name, mine[f"{prefix}{name}"], theirs[f"{others}{name}"]

    def _bound(
        self, reference: Recording, forced: ModelPass, key: tuple[str, int]
    ) -> float:
        """Return the relative error that rounding explains in a call: by the coarser precision of both models, but of
        those coarser than the models' own by the finer one, or a cast would explain itself."""
        calls = [run.calls[key] for run in (reference, forced) if key in run.calls]
        run = max(reference.roundoff, forced.roundoff)
        roundoffs = [call.roundoff or run for call in calls] or [run]
        native = max(self._native, run)
        roundoff = max(min(roundoffs), min(max(roundoffs), native), run)
        return metrics.bound(roundoff, max((call.length for call in calls), default=1))

    def _every_part(self, reference: Recording, forced: Forced) -> list[Part]:
        """Return forward parts in the order of the calls, then backward ones in theirs, each with parameters."""
        forward = [
            deviation for deviation in forced.parts if deviation.direction == "forward"
        ]
        backward = [
            deviation for deviation in forced.parts if deviation.direction == "backward"
        ]
        return [*forward, *self._parameter_parts(reference, forced), *backward]

    def _parameter_parts(self, reference: Recording, forced: Forced) -> list[Part]:
        if (
            reference.gradients.refused
            or forced.gradients.refused
            or not forced.gradients.of_parameters
        ):
            return []
        norms = [
            _mean_size(value)
            for value in reference.gradients.of_parameters.values()
            if value is not None
        ]
        largest = max(norms, default=0.0)
        deviations = []
        called: dict[str, Call] = {call.path: call for call in forced.calls.values()}
        for path in reversed([*self._to_b]):
            for name, mine, theirs in self._parameters(reference, forced, path):
                if (
                    mine is not None
                    and theirs is not None
                    and mine.shape != theirs.shape
                ):
                    continue
                count = (
                    mine
                    if mine is not None
                    else theirs
                    if theirs is not None
                    else torch.empty(0)
                ).numel()
                call = called.get(path)
                scale = max(largest, _summed(call, count) / metrics.FLOOR) * math.sqrt(
                    count
                )
                error, description = gradient_error(theirs, mine, scale)
                if error:
                    key = call.key if call is not None else (path, 1)
                    at_a = (
                        call.reference.place
                        if call is not None and call.reference is not None
                        else ("", 0)
                    )
                    at_b = call.place if call is not None else ("", 0)
                    deviations.append(
                        Part(
                            "backward",
                            key,
                            error,
                            f"the gradient of its {name}{description}",
                            at_a,
                            at_b,
                        )
                    )
        return deviations

    def _first(self, reference: Recording, forced: Forced, mode: str) -> First | None:
        for deviation in self._every_part(reference, forced):
            limit = self._bound(reference, forced, deviation.key)
            if not deviation.error <= limit:
                return self._named(deviation, limit, reference, forced, mode)
        return None

    def _named(
        self,
        deviation: Part,
        limit: float,
        reference: Recording,
        forced: Forced,
        mode: str,
    ) -> First:
        """Describe a difference, with the operations that make it where they are found."""
        path, number = deviation.key
        path_b = self._to_b.get(path, path)
        settings = next(
            (
                pair.settings
                for pair in self.structure.changed
                if (pair.a, pair.b) == (path, path_b)
            ),
            (),
        )
        size = (
            ""
            if math.isinf(deviation.error)
            else f" differs by {deviation.error:.2g}, and rounding explains {limit:.1g}"
        )
        why = f"{deviation.what}{size}"
        if settings:
            why = f"{', '.join(setting.text for setting in settings)}: {why}"
        at_a, at_b = deviation.at_a, deviation.at_b
        names = ["", ""]
        with contextlib.suppress(ComparisonError):
            operations = self._operations(deviation, reference, forced, limit)
            for number, operation in enumerate(operations):
                if operation is not None:
                    names[number] = operation.text
                    if number == 0:
                        at_a = operation.place if operation.place[1] else at_a
                    else:
                        at_b = operation.place if operation.place[1] else at_b
        return First(path, path_b, deviation.direction, mode, why, *at_a, *at_b, *names)

    def _operations(
        self, deviation: Part, reference: Recording, forced: Forced, limit: float
    ) -> tuple[Any, Any]:
        """Run both again and return the first operations of a call that differ."""
        if deviation.key not in reference.calls or deviation.key not in forced.calls:
            return None, None
        again, failed = self._recorded(
            reference.model, self._paths_a, self.trains[0], deviation.key
        )
        if failed is not None:
            return None, None
        other = self._forced(forced.model, again, deviation.key)
        ours, theirs = (
            run.calls[deviation.key].operations if deviation.key in run.calls else None
            for run in (again, other)
        )
        if ours is None or theirs is None:
            return None, None
        if deviation.direction == "backward":
            return first_by_name(ours, theirs)
        return first_different(ours, theirs, limit)

    def _with_added(
        self, layers: list[Layer], reference: Recording, forced: Forced
    ) -> tuple[Layer, ...]:
        worst: dict[tuple[Pass, tuple[str, int]], Part] = {}
        for deviation in self._every_part(reference, forced):
            previous = worst.get((deviation.direction, deviation.key))
            if previous is None or deviation.error > previous.error:
                worst[deviation.direction, deviation.key] = deviation
        measured = []
        for layer in layers:
            key = layer.a, layer.call
            limit = self._bound(reference, forced, key)
            added = []
            directions: tuple[Pass, ...] = ("forward", "backward")
            for direction in directions:
                most = worst.get((direction, key))
                added.append(
                    Added(most.error, limit, most.what)
                    if most is not None
                    else Added(0.0, limit)
                )
            measured.append(with_values(layer, added=added[0], backward_added=added[1]))
        return tuple(measured)

    def _whole_equal(self, reference: Recording, other: Recording) -> bool:
        """Return whether two models compute the same but for rounding, whatever their layers are: outputs, gradients of
        inputs and of the parameters that are equal, and buffers."""
        root, twin = reference.calls.get(("", 1)), other.calls.get(("", 1))
        if root is None or twin is None or len(root.outputs) != len(twin.outputs):
            return False
        if bool(reference.gradients.refused) != bool(other.gradients.refused):
            return False
        calls = (*reference.calls.values(), *other.calls.values())
        roundoff = metrics.unit_roundoff(torch.float64)
        if any(call.roundoff > roundoff for call in calls):
            return False  # a cast to a lower precision, whose rounding may be the difference
        limit = WHOLE_FACTOR * metrics.bound(
            roundoff, max(call.length for call in calls)
        )
        if (
            not self._shared and not self.structure.same
        ):  # weights that were folded into others were rounded then
            limit = max(
                limit, metrics.bound(self._native, max(call.length for call in calls))
            )
        for mine, theirs in zip(root.outputs, twin.outputs, strict=True):
            if (
                not metrics.relative_error(theirs.value, mine.value, _scale(root))
                <= limit
            ):
                return False
        for mine, theirs in zip(root.inputs, twin.inputs, strict=False):
            if not gradient_error(theirs.gradient, mine.gradient, 0.0)[0] <= limit:
                return False
        norms = [
            _mean_size(value)
            for value in reference.gradients.of_parameters.values()
            if value is not None
        ]
        largest = max(norms, default=0.0)
        values, others = (
            dict(module_tree.named_parameters(run.model, remove_duplicate=False))
            for run in (reference, other)
        )
        for path, path_b in self._to_b.items():
            for name, gradient, twin_gradient in self._parameters(
                reference, other, path
            ):
                value = values[f"{path}.{name}" if path else name]
                if not _same(value, others[f"{path_b}.{name}" if path_b else name]):
                    continue
                if (
                    not gradient_error(
                        twin_gradient, gradient, largest * math.sqrt(value.numel())
                    )[0]
                    <= limit
                ):
                    return False
        return all(
            metrics.relative_error(other.calls[key].buffers[name], value) <= limit
            for key, call in reference.calls.items()
            if key in other.calls
            for name, value in call.buffers.items()
            if name in other.calls[key].buffers
            and name.startswith(("running_", "num_batches"))
        )

    # -- what needs no numbers

    def with_initial(
        self,
        first: First | None,
        initial: Sequence[weights.InitialDifference],
        mode: str,
    ) -> First:
        """Return the first layer that differs, where layers that are initialised differently count too."""
        order = self._order
        earliest = min(initial, key=lambda difference: order(difference.path))
        if (
            first is not None
            and first.direction == "forward"
            and order(first.a) <= order(earliest.path)
        ):
            return first
        place_a, place_b = self._source_lines_of(earliest.path)
        path_b = self._to_b.get(earliest.path, earliest.path)
        return First(
            earliest.path, path_b, "forward", mode, earliest.text, *place_a, *place_b
        )

    def _order(self, path: str) -> int:
        """Return when a module of A was first called, or one that it is in."""
        while path and (path, 1) not in self._called:
            path = path.rpartition(".")[0]
        return self._called.get((path, 1), 0)

    def _source_lines_of(self, path: str) -> tuple[tuple[str, int], tuple[str, int]]:
        return self._places.get(path, (("", 0), ("", 0)))

    def _raised(
        self, reference: Recording, other: Recording, error: Exception, mode: str
    ) -> First:
        """Describe B raising where A runs."""
        call = other.stack[-1] if other.stack else None
        path, number = call.key if call is not None else ("", 1)
        twin = reference.calls.get((path, number))
        why = f"B raises {type(error).__name__}: {error}".split("\n")[0]
        at_a = twin.place if twin is not None else ("", 0)
        at_b = user_frames.location_of_error(error.__traceback__)
        at_b = at_b if at_b[1] or call is None else call.place
        return First(
            path, self._to_b.get(path, path), "forward", mode, why, *at_a, *at_b
        )


class _Compiled(nn.Module):
    """A model that is compiled as a whole: hooks are around it, and none inside."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.run = torch.compile(model.__call__)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


def _outputs_apart(call: Call, twin: Call) -> tuple[list[Apart], list[Apart]]:
    """Compare the outputs of two calls, and their gradients, of models that ran on their own."""
    if len(call.outputs) != len(twin.outputs):
        return [Apart(math.inf, 0.0, math.inf)], []
    pairs = list(zip(call.outputs, twin.outputs, strict=True))
    forward = [metrics.apart(theirs.value, mine.value) for mine, theirs in pairs]
    backward = [
        metrics.apart(theirs.gradient, mine.gradient)
        for mine, theirs in pairs
        if mine.gradient is not None and theirs.gradient is not None
    ]
    missing = any(
        (mine.gradient is None) != (theirs.gradient is None) for mine, theirs in pairs
    )
    return forward, [*backward, *([Apart(math.inf, 0.0, math.inf)] if missing else [])]


def _identical(reference: Recording, other: Recording) -> bool:
    """Return whether two models computed the very same numbers, call by call, forward and backward."""
    if reference.calls.keys() != other.calls.keys():
        return False
    for key, call in reference.calls.items():
        twin = other.calls[key]
        if [*map(len, (call.inputs, call.outputs, call.written))] != [
            *map(len, (twin.inputs, twin.outputs, twin.written))
        ]:
            return False
        spots = (*call.inputs, *call.outputs, *call.written.values())
        others = (*twin.inputs, *twin.outputs, *twin.written.values())
        for mine, theirs in zip(spots, others, strict=True):
            if not (
                _same(mine.value, theirs.value)
                and _same(mine.gradient, theirs.gradient)
            ):
                return False
        if call.buffers.keys() != twin.buffers.keys() or not all(
            _same(value, twin.buffers[name]) for name, value in call.buffers.items()
        ):
            return False
    ours, gradients = reference.gradients.of_parameters, other.gradients.of_parameters
    return ours.keys() == gradients.keys() and all(
        _same(value, gradients[name]) for name, value in ours.items()
    )


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    return torch.equal(a, b) or (
        a.is_floating_point() and torch.equal(a.nan_to_num(), b.nan_to_num())
    )


def _scale(call: Call) -> float:
    return max(
        (
            _mean_size(spot.value)
            for spot in call.inputs
            if spot.value.is_floating_point()
        ),
        default=0.0,
    )


def _summed(call: Call | None, count: int) -> float:
    """Return the size that an element of a parameter's gradient has if nothing cancels in its sum over the batch: the
    gradient of a bias in front of a normalisation is all rounding."""
    if call is None or call.reference is None:
        return 0.0
    largest = 0.0
    for spot in call.reference.outputs:
        if spot.gradient is not None:
            terms = math.sqrt(max(1.0, spot.gradient.numel() / count))
            largest = max(largest, _mean_size(spot.gradient) * terms)
    return largest


def _mean_size(tensor: Tensor) -> float:
    """Return the root mean square of a tensor."""
    return metrics.size_of(tensor) / math.sqrt(max(tensor.numel(), 1))


def _bytes(model: nn.Module) -> int:
    tensors = (*module_tree.parameters(model), *module_tree.buffers(model))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
