"""Compare a model with itself in another interpreter, such as one with another version of torch.

Each side runs in its own process; what A takes and gives at every call goes to B's in a file, and B's numbers come back
in one. `Exchange` is how they go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from app.features.compare.compute.compare import Batch, ComparisonError, Numbers
from app.features.compare.compute.facts import facts_of
from app.features.compare.compute.other_python_pass import about
from app.features.compare.compute.passes import Call, Forced, ModelPass, Recording, Spot
from app.features.compare.compute.structure import compare as match
from app.features.compare.values import Difference, First, Layer, Setting
from app.source import raised
from app.util import module_tree

# Run B in the other interpreter: takes weights, inputs and the calls of A, returns the recorded calls of B.
Exchange = Callable[[dict[str, Any]], dict[str, Any]]


def compare_interpreters(
    model: nn.Module,
    batch: Batch,
    trains: tuple[bool, ...],
    names: tuple[str, str],
    exchange: Exchange,
    tell: Callable[[str], None] = lambda _words: None,
) -> Difference:
    """Compare a model here, as A, with itself in another interpreter, as B, in its own precision. Raises
    ComparisonError, and what `exchange` raises."""
    structure = match(facts_of(model), facts_of(model))
    difference = Difference(*names, structure=structure)
    for train in trains:
        mode = "train" if train else "eval"
        tell(f"Running both in {mode} mode")
        numbers = OtherNumbers(
            model, model, structure, batch, train, train, double=False
        )
        first, layers = numbers.compared_with(exchange, mode)
        here = about()
        settings = tuple(
            Setting(name, value, numbers.about.get(name, ""))
            for name, value in here.items()
        )
        difference = Difference(
            *names, first, layers, structure, (), settings, tuple(numbers.remarks), mode
        )
        if first is not None:
            break
    return difference


class OtherNumbers(Numbers):
    """Runs A here; `about` describes the other interpreter afterwards."""

    about: dict[str, str]

    def compared_with(
        self, exchange: Exchange, mode: str
    ) -> tuple[First | None, tuple[Layer, ...]]:
        """Return the first layer that adds more than rounding explains, and all of them."""
        reference, failed = self._recorded(self.a, self._paths_a, self.trains[0])
        if failed is not None:
            raise ComparisonError(
                f"A does not run: {raised.sentence(failed)}. Describe other inputs"
            )
        args, kwargs = self._inputs(self.a, self.trains[0])
        answer = exchange(
            {
                "args": args,
                "kwargs": kwargs,
                "train": self.trains[1],
                "seed": self.batch.seed,
                "state": self.a.state_dict(),
                "calls": [_plain(call) for call in reference.calls.values()],
            }
        )
        self.about = answer["about"]
        self._called = {key: number for number, key in enumerate(reference.calls)}
        other = Recording(self.b, self._to_a)
        _take_own(other, reference, answer["own"])
        layers = self._layers(reference, other)
        self._places = {
            layer.a: ((layer.file_a, layer.line_a), (layer.file_b, layer.line_b))
            for layer in layers
        }
        for name, refused in (
            ("A", reference.gradients.refused),
            ("B", other.gradients.refused),
        ):
            if refused:
                self.remarks.append(f"Backward of {name} stops: {refused}")
        ran = answer["own"] if answer["own"]["error"] else answer["forced"]
        if ran["error"]:
            path, number = ran["at"]
            location = (
                reference.calls[path, number].place
                if (path, number) in reference.calls
                else ("", 0)
            )
            return First(
                path,
                path,
                "forward",
                mode,
                f"B raises {ran['error']}",
                *location,
                *location,
            ), tuple(layers)
        forced = _RemotePass(self.b, self._to_a, reference)
        forced.judge(answer["forced"])
        return self._first(reference, forced, mode), self._with_added(
            layers, reference, forced
        )

    def _operations(
        self, deviation: Any, reference: Recording, forced: Forced, limit: float
    ) -> tuple[Any, Any]:
        return None, None  # the other interpreter keeps calls alone


def _plain(call: Call) -> dict[str, Any]:
    """Serialize a recorded call to dicts and lists of tensors."""

    def spot(entry: Spot) -> list[Any]:
        return [entry.value, entry.needs_gradient, entry.gradient]

    return {
        "path": call.path,
        "number": call.number,
        "inputs": [spot(entry) for entry in call.inputs],
        "outputs": [spot(entry) for entry in call.outputs],
        "written": {number: spot(entry) for number, entry in call.written.items()},
        "buffers": call.buffers,
        "before": call.before,
        "after": call.after,
    }


def _call_of(recorded: dict[str, Any], run: ModelPass, reference: Recording) -> Call:
    """Add a call that the other interpreter recorded to those of B, with the reference call of A."""
    key = recorded["path"], recorded["number"]
    reference_call = reference.calls.get(key)
    caller = (
        run.calls.get(tuple(recorded["caller"]))
        if recorded["caller"] is not None
        else None
    )
    call = Call(
        *key,
        module_tree.submodule(run.model, key[0]),
        caller=caller,
        reference=reference_call,
    )
    if reference_call is not None:
        call.place, call.roundoff, call.length = (
            reference_call.place,
            reference_call.roundoff,
            reference_call.length,
        )
    run.calls[key] = call
    return call


def _take_own(run: Recording, reference: Recording, recorded: dict[str, Any]) -> None:
    run.gradients.of_parameters, run.gradients.refused = (
        recorded["gradients"],
        recorded["refused"],
    )
    for call_record in recorded["calls"]:
        call = _call_of(call_record, run, reference)
        call.outputs = [
            Spot(value, gradient is not None, gradient)
            for value, gradient in call_record["outputs"]
        ]


class _RemotePass(Forced):
    """A pass of B on the tensors of A that ran elsewhere, judged here."""

    def judge(self, recorded: dict[str, Any]) -> None:
        """Compare the results of B on the tensors of A, in the order of execution."""
        self.gradients.of_parameters, self.gradients.refused = (
            recorded["gradients"],
            recorded["refused"],
        )
        for kind, number in recorded["events"]:
            call_record = recorded["calls"][number]
            if kind == "enter":
                self._entered(
                    _call_of(call_record, self, self.reference), call_record["arrived"]
                )
            else:
                self._left(
                    self.calls[call_record["path"], call_record["number"]], call_record
                )
        for path, number, kind, at, gradient in recorded["leaves"]:
            self._came_back(self.calls[path, number], kind, at, gradient)
        self.finished()

    def _entered(self, call: Call, arrived: list[Tensor]) -> None:
        reference = call.reference
        if reference is None:
            return
        call.inputs = reference.inputs[: len(arrived)]
        for number, (value, spot) in enumerate(
            zip(arrived, reference.inputs, strict=False)
        ):
            self._judge(
                call.caller,
                value,
                spot.value,
                f"input {number + 1} of {call.path or 'the model'}",
                call,
            )
        self.begun(call)

    def _left(self, call: Call, recorded: dict[str, Any]) -> None:
        reference = call.reference
        if reference is None:
            return
        for number, value in recorded["left"].items():
            spot = reference.written.get(number) or reference.inputs[number]
            self._judge(
                call, value, spot.value, f"what it leaves in its input {number + 1}"
            )
        call.outputs = reference.outputs[: len(recorded["outputs"])]
        for number, ((value, _), spot) in enumerate(
            zip(recorded["outputs"], reference.outputs, strict=False)
        ):
            self._judge(call, value, spot.value, self._output_words(reference, number))
        self._count_outputs(call, len(recorded["outputs"]))
        for name, value in recorded["made_buffers"].items():
            if name in reference.buffers:
                self._judge(call, value, reference.buffers[name], f"its buffer {name}")

    def _came_back(
        self, call: Call, kind: str, at: int, gradient: Tensor | None
    ) -> None:
        reference = call.reference
        assert reference is not None
        if kind == "in":
            spot, description = (
                reference.inputs[at],
                f"the gradient at its input {at + 1}",
            )
        elif kind == "out":
            spot, description = (
                reference.outputs[at],
                f"the gradient at the output of {call.path or 'the model'}",
            )
        else:
            spot, description = (
                reference.written.get(at) or reference.inputs[at],
                f"the gradient at what {call.path} wrote",
            )
        blamed = call if kind == "in" else call.caller
        if blamed is not None:
            self._leaves.append(
                (_leaf(spot.value, gradient), spot, blamed, description)
            )


def _leaf(value: Tensor, gradient: Tensor | None) -> Tensor:
    """Return a tensor with a gradient, as a pass leaves it."""
    leaf = torch.empty_like(value if gradient is None else gradient).requires_grad_()
    leaf.grad = gradient
    return leaf
