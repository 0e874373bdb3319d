"""The program's net, measured stage by stage; the results are files for the clean process to compare with."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from app.export import measure
from app.export.precision import dtypes_of
from app.features.export.compute.clean_process import (
    Cancelled,
    ExportCancelledError,
    Tell,
)
from app.source.compiled import make_module, random_inputs
from app.source.generated import Source
from app.util.errors import CodedError
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.export.weights import StateDict

# Two samples, as BatchNorm in train mode needs; one for nets with a fixed batch of one.
BATCHES = (2, 1)


class NetworkFailsError(CodedError):
    """The net itself fails; the message says why."""


class Stage(Struct, frozen=True):
    """One measurement: `kind` is outputs, eval or train; its record is in `file`.

    `double` converts the net first, `fresh` creates a new one, `refused` tells why there are no gradients, or no
    record.
    """

    kind: str
    words: str
    file: Path
    double: bool = False
    fresh: bool = False
    backward: bool = False
    refused: str = ""

    @property
    def recorded(self) -> bool:
        return self.file.exists()

    def question(self) -> dict[str, Any]:
        """Return the stage as a question for the clean process."""
        return {
            "kind": self.kind,
            "words": self.words,
            "file": str(self.file),
            "double": self.double,
            "fresh": self.fresh,
            "backward": self.backward and not self.refused,
        }


class Measurements(Struct, frozen=True):
    """Measurements of the program's net: its inputs, the stages, and its dtypes by what is compared."""

    inputs: Mapping[str, Tensor]
    stages: tuple[Stage, ...]
    dtypes: Mapping[str, str]
    double_refused: str = ""


class Measurement:
    """Measures one net. The generators are borrowed per stage, so that a concurrent run proceeds in between."""

    def __init__(
        self,
        source: Source,
        state_dict: StateDict,
        seed: int,
        folder: Path,
        tell: Tell,
        cancelled: Cancelled,
    ) -> None:
        self._source, self._state, self._seed, self._folder = (
            source,
            state_dict,
            seed,
            folder,
        )
        self._say, self._cancelled = tell, cancelled

    def run(self, inputs: tuple[Tensor, ...] | None = None) -> Measurements:
        """Run all stages. Raises NetworkFailsError if the forward fails, ExportCancelledError."""
        net, named_inputs, record = self._outputs(inputs)
        first = self._store(
            Stage("outputs", "outputs", self._folder / "outputs.pt"), record
        )
        default = str(torch.get_default_dtype()).removeprefix("torch.")
        outputs = dtypes_of(record["outputs"].values(), default)
        dtypes = {
            "outputs": outputs,
            "gradients": dtypes_of(net.parameters(), outputs),
            "buffers": dtypes_of(net.buffers(), outputs),
        }
        net.double()
        eval_stage = self._step(net, named_inputs, "eval", double=True)
        if eval_stage.recorded:
            return Measurements(
                named_inputs,
                (
                    first,
                    eval_stage,
                    self._step(net, named_inputs, "train", double=True),
                ),
                dtypes,
            )
        # Something in the net has a fixed dtype: compare its gradients in that.
        del net
        again = self._create_net()
        two = self._step(again, named_inputs, "eval", double=False, fresh=True)
        stages = (first, two, self._step(again, named_inputs, "train", double=False))
        return Measurements(named_inputs, stages, dtypes, eval_stage.refused)

    def eval_outputs(
        self, batches: tuple[int, ...], source: Source | None = None, suffix: str = ""
    ) -> tuple[dict[int, dict[str, str]], bool]:
        """Write inputs and outputs in eval mode for each supported batch size; return the files, and whether the net is
        random. The inputs are those of `source` if given, and `suffix` is part of the names of the files.

        Raises NetworkFailsError if it supports none of them, ExportCancelledError.
        """
        self._report("Running the network here: outputs")
        net, files, random, reason = self._create_net(), {}, False, ""
        for batch in batches:
            with self._quiet():
                measure.seed_everything(self._seed)
                drawn = random_inputs(source or self._source, batch)
                named_inputs = {
                    spec.name: value
                    for spec, value in zip(self._source.inputs, drawn, strict=True)
                }
                try:
                    record = measure.outputs_of(net, named_inputs, self._seed)
                    again = measure.outputs_of(net, named_inputs, self._seed + 1)
                except (
                    Exception
                ) as error:  # an unsupported batch size; reported if all are
                    reason = measure.error_text(error)
                    continue
            random = (
                random
                or not measure.compare(again["outputs"], record["outputs"])["equal"]
            )
            files[batch] = {
                kind: str(self._folder / f"{kind}{suffix}-{batch}.pt")
                for kind in ("inputs", "expected")
            }
            torch.save(named_inputs, files[batch]["inputs"])
            torch.save(record, files[batch]["expected"])
        if not files:
            raise NetworkFailsError(reason)
        return files, random

    def _create_net(self) -> nn.Module:
        with self._quiet():
            measure.seed_everything(self._seed)
            net = make_module(self._source)
            net.load_state_dict(dict(self._state), strict=True)
            return net

    def _outputs(
        self, inputs: tuple[Tensor, ...] | None
    ) -> tuple[nn.Module, dict[str, Tensor], measure.Record]:
        names = [spec.name for spec in self._source.inputs]
        for batch in BATCHES if inputs is None else (0,):
            self._report("Running the network here: outputs")
            net = self._create_net()
            with self._quiet():
                measure.seed_everything(self._seed)
                chosen = (
                    inputs if inputs is not None else random_inputs(self._source, batch)
                )
                named_inputs = dict(zip(names, chosen, strict=True))
                try:
                    return (
                        net,
                        named_inputs,
                        measure.outputs_of(net, named_inputs, self._seed),
                    )
                except (
                    Exception
                ) as error:  # any error; reported with the last batch tried
                    reason = error
        raise NetworkFailsError(measure.error_text(reason)) from reason

    def _step(
        self,
        net: nn.Module,
        named_inputs: dict[str, Tensor],
        kind: str,
        *,
        double: bool,
        fresh: bool = False,
    ) -> Stage:
        title = f"gradients in {kind} mode"
        self._report(f"Running the network here: {title}")
        file = self._folder / f"{kind}-{'double' if double else 'own'}.pt"
        with self._quiet():
            try:
                record = measure.step_of(
                    net,
                    named_inputs,
                    self._seed,
                    train=kind == "train",
                    double=double,
                    backward=True,
                )
            except Exception as error:  # a net that fails in this mode has nothing to compare; reported
                return Stage(
                    kind, title, file, double, fresh, True, measure.error_text(error)
                )
        return self._store(
            Stage(kind, title, file, double, fresh, True, record.get("refused", "")),
            record,
        )

    def _store(self, stage: Stage, record: measure.Record) -> Stage:
        torch.save(record, stage.file)
        return stage

    def _report(self, message: str) -> None:
        if self._cancelled():
            raise ExportCancelledError
        self._say(message)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Isolate the net: restore the random generators afterwards, and run in torch's default modes."""
        numpy: Any = sys.modules.get("numpy")
        with borrowed(self._seed), torch.inference_mode(False), torch.enable_grad():
            states = (
                random.getstate(),
                numpy.random.get_state() if numpy is not None else None,
            )
            try:
                yield
            finally:
                random.setstate(states[0])
                if numpy is not None:
                    numpy.random.set_state(states[1])
