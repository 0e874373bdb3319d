"""Parity of an imported net with the live model: outputs, gradients, buffers, in eval and train mode, for two batches.

Only results are compared, so anything that the import missed shows. In float64 nothing but rounding may differ; the
model's own precision runs too, for what only happens there (autocast).
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import nn

from app.export import measure
from app.export.precision import allowed, dtypes_of
from app.features.importing.compute.parity.differences import (
    CALL,
    Difference,
    first_difference,
    static_differences,
)
from app.features.importing.compute.parity.inputs import Inputs, InputShapes
from app.features.importing.compute.parity.subject import (
    SECOND,
    ComparedModule,
    ModuleResult,
    OutputBytes,
    SameDraws,
    free_bytes,
    parameter_count,
    run_module,
)
from app.features.importing.values import CHECKING
from app.util import module_tree
from app.util.rng import borrowed

SECONDS = 150.0  # limit of a comparison, as far as it can be estimated
BRISK = (
    1.0  # seconds; a longer comparison uses smaller images, if the model accepts them
)
SLOW = 4.0  # seconds; above this, expensive stages run once
SEED = 20_260

# Of a model that keeps something outside of itself.
UNREPEATABLE = "the model", "gives other results with the same inputs and seed"

Tell = Callable[[str], None]
Tensors = tuple[torch.Tensor, ...]


class Case(Struct, frozen=True):
    """A compared stage: inputs, mode and seed, and the model's results of the first call."""

    inputs: Tensors
    train: bool
    seed: int
    theirs: ModuleResult

    def record(self, keys: Container[str]) -> dict[str, Any]:
        """Return the case as a reference stores it; of buffers only those in `keys`."""
        theirs = self.theirs
        outputs = {
            name: value
            for name, value in theirs.outputs.items()
            if not name.endswith(SECOND)
        }
        record = {
            "outputs": {name: measure.sketch(value) for name, value in outputs.items()},
            "gradients": theirs.gradients,
            "buffers": {
                name: value for name, value in theirs.buffers.items() if name in keys
            },
        }
        refused = {"refused": theirs.refused} if theirs.refused else {}
        return {
            "inputs": self.inputs,
            "train": self.train,
            "seed": self.seed,
            "record": record | refused,
        }


class ParityResult(Struct, frozen=True):
    """The result of a comparison. `said` describes what is equal, "" if nothing was compared; `notes` are further
    remarks. `dtype` is the precision of the cases. A difference occurred with `inputs`, in train mode if `train`."""

    differences: tuple[Difference, ...] = ()
    said: str = ""
    notes: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    dtype: str = "float64"
    inputs: Tensors = ()
    train: bool = False

    @property
    def repeatable(self) -> bool:
        """Return whether the model gives the same results again, as far as is known."""
        return all(
            difference.where != UNREPEATABLE[0] for difference in self.differences
        )


class _State(Struct):
    """The state of the comparison so far."""

    modes: list[str] = []
    batches: list[int] = []
    notes: list[str] = []
    cases: list[Case] = []
    gradients: bool = False
    double: bool = True
    largest: float = 0.0


class ParityStage(Struct, frozen=True):
    """One comparison: mode, shapes, precision, with backward or not, with a second call or not."""

    train: bool
    shapes: InputShapes
    double: bool
    backward: bool = False
    twice: bool = True

    @property
    def quantity(self) -> str:
        return "gradients" if self.backward else "outputs"

    def __str__(self) -> str:
        batch = f", batch {self.shapes.batch}" if self.shapes.batch is not None else ""
        return f"in {'train' if self.train else 'eval'} mode{batch}{'' if self.double else ', own precision'}"


class _Differs(Exception):
    def __init__(
        self, difference: Difference, inputs: Tensors = (), train: bool = False
    ) -> None:
        super().__init__(str(difference))
        self.difference, self.inputs, self.train = difference, inputs, train


class ParityCheck:
    """Compares one net with the live model. Both have the same values, and neither is changed."""

    def __init__(
        self,
        ours: ComparedModule,
        theirs: ComparedModule,
        inputs: Inputs,
        tell: Tell = lambda _words: None,
        seconds: float = SECONDS,
    ) -> None:
        self._ours, self._theirs, self._inputs, self._say, self._seconds = (
            ours,
            theirs,
            inputs,
            tell,
            seconds,
        )
        self._began, self._forward, self._bytes = time.monotonic(), 0.0, 0
        self._dtypes = precisions(theirs.module)
        self._state = _State()
        self._done: set[ParityStage] = set()

    def run(self) -> ParityResult:
        """Compare as much as time and memory allow."""
        state = self._state
        try:
            with self._quiet():
                shapes = self._inputs.shapes(self._inputs.batch)
                for difference in static_differences(
                    self._ours.module, self._theirs.module
                ):
                    raise _Differs(
                        difference, self._inputs.tensors(shapes, "first", False)
                    )
                if not self._first(shapes):
                    return ParityResult(notes=tuple(state.notes))
                self._long(self._side(shapes))
        except _Differs as differs:
            notes = tuple(dict.fromkeys(state.notes))
            return ParityResult(
                (differs.difference,),
                notes=notes,
                inputs=differs.inputs,
                train=differs.train,
            )
        dtype = "float64" if state.double else self._dtypes
        return ParityResult(
            (),
            self._summary(),
            tuple(dict.fromkeys(state.notes)),
            tuple(state.cases),
            dtype,
        )

    # --- Stages

    def _first(self, shapes: InputShapes) -> bool:
        """Run both as they are, in eval mode; False if the model runs with no input that is tried."""
        stage = ParityStage(False, shapes, double=False, twice=False)
        self._report(f"outputs {stage}")
        error: Exception | None = None
        for high, spread in self._inputs.choices():
            self._inputs.high, self._inputs.spread = high, spread
            inputs, watched = (
                self._inputs.tensors(shapes, "first", False),
                OutputBytes(),
            )
            net = self._theirs.fresh(False, copied=False)
            began = time.monotonic()
            try:
                with watched.watching(net):
                    theirs = self._run_stage(self._theirs, stage, inputs, net)
            except (
                Exception
            ) as failed:  # whatever a model raises, other inputs are tried
                error = error or failed
                continue
            self._forward, self._bytes = time.monotonic() - began, watched.total
            began = time.monotonic()
            self._compare(theirs, stage, inputs)
            self._forward = min(
                self._forward, time.monotonic() - began
            )  # the first of two is slow for other reasons
            return True
        error_message = measure.error_text(error) if error else ""
        self._note(
            f"It was not checked against the model, which does not run with random inputs: {error_message}."
        )
        return False

    def _side(self, shapes: InputShapes) -> int:
        """Return the side of smaller images that both nets accept, 0 if there is none or no need. Completes the
        comparison of them in the model's own precision."""
        for side in self._inputs.smaller() if self._exceeds(BRISK) else ():
            small = self._inputs.shapes(self._inputs.batches()[-1], side)
            stages = [
                ParityStage(train, small, double=False) for train in (True, False)
            ]
            began = time.monotonic()
            try:
                for stage in stages:
                    self._report(f"{stage.quantity} {stage}")
                    inputs = self._make_inputs(stage)
                    self._compare(
                        self._run_stage(self._theirs, stage, inputs), stage, inputs
                    )
            except _Differs as differs:
                self._note(
                    f"With images of {side}×{side} it differs from the model: {differs}."
                )
                return 0
            except Exception:  # it takes no pictures of that size
                continue
            for stage in stages:
                self._is_done(stage)
            self._forward = min(self._forward, (time.monotonic() - began) / 8)
            self._bytes = int(
                self._bytes
                * _numbers(self._inputs.shapes(self._inputs.batch, side))
                / _numbers(shapes)
            )
            return side
        return 0

    def _long(self, side: int) -> None:
        """Run the stages with gradients, then those of the other batch in each mode, while time remains."""
        batches = self._inputs.batches()
        first, other = (
            self._inputs.shapes(batch, side) for batch in (batches[0], batches[-1])
        )
        self._state.double = self._double_fits()
        plan = [
            ParityStage(False, first, True, True),
            ParityStage(True, other, True, True),
            ParityStage(True, first, False),
        ]
        if len(batches) > 1:
            plan += [ParityStage(False, other, True), ParityStage(True, first, True)]
        if self._exceeds(
            SLOW
        ):  # expensive stages run once, cheap ones in the model's own precision
            plan = [
                ParityStage(False, first, True, True, False),
                ParityStage(True, first, True, True, False),
                ParityStage(True, other, False),
                ParityStage(False, other, False),
            ]
        for stage in plan:
            self._planned(stage)
        if self._exceeds(SLOW) and "train" not in self._state.modes and other != first:
            self._planned(
                ParityStage(True, other, True, True, False)
            )  # one sample has no statistics

    def _planned(self, stage: ParityStage) -> None:
        """Run a stage if there is time and memory, in the model's own precision where that is all it has."""
        double = stage.double and self._state.double
        stage = replace(
            stage,
            double=double,
            backward=stage.backward and self._gradients_fit(double),
        )
        if stage in self._done:
            return
        if self._estimated(stage) > self._seconds - (time.monotonic() - self._began):
            self._note(f"Not compared for lack of time: {stage.quantity} {stage}.")
        else:
            self._done.add(stage)
            self._report(f"{stage.quantity} {stage}")
            began, expected = time.monotonic(), self._estimated(stage)
            self._run(stage)
            if expected:
                self._forward = min(
                    self._forward, self._forward * (time.monotonic() - began) / expected
                )

    def _run(self, stage: ParityStage) -> None:
        state = self._state
        inputs = self._make_inputs(stage)
        try:
            theirs = self._run_stage(self._theirs, stage, inputs)
        except Exception as error:  # a batch of one has no statistics; a model need not take another batch
            if (
                stage.double and not state.cases
            ):  # something in it may be of one dtype for good
                state.double = False
                self._planned(replace(stage, double=False))
                if state.cases:
                    reason = f"the model does not run in float64 ({measure.error_text(error)})"
                    self._note(f"Compared in {self._dtypes}: {reason}.")
            else:
                self._note(
                    f"Not compared {stage}, where the model stops: {measure.error_text(error)}."
                )
            return
        self._compare(theirs, stage, inputs)
        if odd := measure.odd_numbers({**theirs.outputs, **theirs.gradients}):
            self._note(
                f"The model itself gives values that are not finite {stage}: {odd}."
            )
        self._is_done(stage)
        state.gradients = state.gradients or bool(theirs.gradients)
        if stage.backward and stage.double == state.double:
            state.cases.append(Case(inputs, stage.train, SEED, theirs))

    def _make_inputs(self, stage: ParityStage) -> Tensors:
        return self._inputs.tensors(
            stage.shapes, f"{stage.train} {stage.shapes}", stage.double, stage.train
        )

    def _is_done(self, stage: ParityStage) -> None:
        self._done.add(stage)
        self._state.modes.append("train" if stage.train else "eval")
        self._state.batches += (
            [stage.shapes.batch] if stage.shapes.batch is not None else []
        )

    # --- Comparing

    def _compare(
        self, theirs: ModuleResult, stage: ParityStage, inputs: Tensors
    ) -> None:
        """Run the drawing as the model was run. Raises _Differs if it is another net."""
        try:
            ours = self._run_stage(self._ours, stage, inputs)
        except Exception as error:  # the drawing must run where the model does
            difference = Difference(
                CALL, "the drawing", f"stops: {measure.error_text(error)}", f"{stage}"
            )
            raise _Differs(difference, inputs, stage.train) from error
        mismatch = self._apart(ours, theirs, stage)
        if mismatch is not None and not self._explained(
            mismatch, ours, theirs, stage, inputs
        ):
            raise _Differs(mismatch, inputs, stage.train)

    def _explained(
        self,
        difference: Difference,
        ours: ModuleResult,
        theirs: ModuleResult,
        stage: ParityStage,
        inputs: Tensors,
    ) -> bool:
        """Return whether randomness or rounding explains a difference; randomness is noted."""
        again = self._run_stage(
            self._theirs, stage, inputs, self._theirs.fresh(stage.double)
        )
        if self._apart(again, theirs, stage) is not None:
            raise _Differs(
                Difference(CALL, *UNREPEATABLE, f"{stage}"), inputs, stage.train
            )
        if theirs.drew or ours.drew:
            with SameDraws():
                ours_redrawn, other = (
                    self._run_stage(net, stage, inputs, net.fresh(stage.double))
                    for net in (self._ours, self._theirs)
                )
            if self._apart(ours_redrawn, other, stage) is None:
                self._note(
                    f"Random numbers are drawn in another order than in the model {stage}: with the same draws "
                    "both are equal, with the same seed they are not."
                )
                return True
        return not (stage.double or stage.backward) and self._is_rounding(
            difference, ours, theirs, stage, inputs
        )

    def _is_rounding(
        self,
        difference: Difference,
        ours: ModuleResult,
        theirs: ModuleResult,
        stage: ParityStage,
        inputs: Tensors,
    ) -> bool:
        """Return whether two results differ no more from each other than from the result in double precision."""
        if difference.size is None or difference.what != "outputs":
            return False
        try:
            exact = self._run_stage(
                self._theirs,
                replace(stage, double=True),
                tuple(map(measure.doubled, inputs)),
            )
        except Exception:  # it does not run in double precision
            return False
        off = []
        for net in (ours, theirs):
            values = zip(
                exact.outputs, map(measure.doubled, net.outputs.values()), strict=True
            )
            off.append(measure.compare(dict(values), exact.outputs)["largest"])
        return None not in off and difference.size <= 4 * min(off)

    def _apart(
        self, ours: ModuleResult, theirs: ModuleResult, stage: ParityStage
    ) -> Difference | None:
        tolerance = allowed("float64" if stage.double else self._dtypes)
        return first_difference(ours, theirs, f"{stage}", tolerance)

    def _run_stage(
        self,
        subject: ComparedModule,
        stage: ParityStage,
        inputs: Tensors,
        net: nn.Module | None = None,
    ) -> ModuleResult:
        net = net if net is not None else subject.fresh(stage.double, copied=False)
        return run_module(
            net,
            inputs,
            SEED,
            train=stage.train,
            backward=stage.backward,
            twice=stage.twice,
            call=subject.call,
        )

    # --- Bounds

    def _exceeds(self, seconds: float) -> bool:
        """Return whether running everything would take longer."""
        return 80 * self._forward > seconds

    def _double_fits(self) -> bool:
        needed = 32 * parameter_count(self._theirs.module) + 6 * self._bytes
        if needed <= free_bytes():
            return True
        self._note(
            f"Compared in {self._dtypes}: double precision takes {needed / 2**30:.1f} GiB of memory."
        )
        return False

    def _gradients_fit(self, double: bool) -> bool:
        needed = (32 if double else 20) * parameter_count(self._theirs.module) + (
            6 if double else 3
        ) * self._bytes
        if needed <= free_bytes():
            return True
        self._note(
            f"Gradients were not compared: that takes {needed / 2**30:.1f} GiB of memory."
        )
        return False

    def _estimated(self, stage: ParityStage) -> float:
        """Estimate the seconds that a stage takes of both nets."""
        forwards = (3 if stage.backward else 1) + stage.twice
        return 2 * forwards * self._forward * (2.2 if stage.double else 1.0)

    # --- Words

    def _summary(self) -> str:
        state = self._state
        if not state.modes:
            return ""
        quantities = (
            "outputs, gradients and buffers"
            if state.gradients
            else "outputs and buffers"
        )
        modes = " and ".join(sorted(set(state.modes)))
        batches = " and ".join(map(str, sorted(set(state.batches))))
        batch = f", batch {batches}" if batches else ""
        dtype_name = "float64" if state.double else self._dtypes
        last = (
            f", gradients in {dtype_name}" if state.gradients else f", in {dtype_name}"
        )
        return f"Checked against the model: {quantities} equal in {modes} mode{batch}{last}."

    def _note(self, remark: str) -> None:
        self._state.notes.append(" ".join(remark.split()))

    def _report(self, stage_text: str) -> None:
        self._say(f"{CHECKING}: {stage_text}")

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        with (
            borrowed(SEED),
            torch.inference_mode(False),
            torch.enable_grad(),
            warnings.catch_warnings(action="ignore"),
        ):
            yield


def precisions(model: nn.Module) -> str:
    """Return the dtypes that a model computes in, as text."""
    default = str(torch.get_default_dtype()).removeprefix("torch.")
    return dtypes_of(_floats(model), default)


def precision(model: nn.Module) -> torch.dtype:
    """Return the dtype that a model is called with."""
    return next((value.dtype for value in _floats(model)), torch.get_default_dtype())


def _floats(model: nn.Module) -> Iterator[torch.Tensor]:
    tensors = (*module_tree.parameters(model), *module_tree.buffers(model))
    return (tensor for tensor in tensors if tensor.is_floating_point())


def _numbers(shapes: InputShapes) -> int:
    return sum(torch.Size(size).numel() for size in shapes.sizes)
