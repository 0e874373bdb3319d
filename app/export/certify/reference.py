"""The net of the program, measured stage by stage; what it gives lies in files for the clean process to hold to."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from app.export.certify import measure
from app.export.certify.clean_process import Cancelled, Stopped, Tell
from app.source.compiled import make_module, random_inputs
from app.source.generated import Source
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.export.weights import StateDict

# Two samples, since BatchNorm in train mode wants more than one; a net made for one sample gets one.
BATCHES = (2, 1)


class NotRunning(Exception):
    """The net itself gives no outputs; the text says why."""


@dataclass(frozen=True)
class Stage:
    """One measurement: `kind` is outputs, eval or train; its record lies in `file`.

    `double` converts the net first, `fresh` makes it anew, `refused` is why there are no gradients, or no record.
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
        """As the clean process wants it."""
        return {"kind": self.kind, "words": self.words, "file": str(self.file), "double": self.double,
                "fresh": self.fresh, "backward": self.backward and not self.refused}  # fmt: skip


@dataclass(frozen=True)
class Live:
    """What the net of the program gave: for these inputs, in these stages."""

    inputs: Mapping[str, Tensor]
    stages: tuple[Stage, ...]
    dtype: str
    double_refused: str = ""


class Measurement:
    """Measures one net. The generators are borrowed for a stage at a time, so that a run under way goes on between."""

    def __init__(self, source: Source, state_dict: StateDict, seed: int, folder: Path, tell: Tell,
                 cancelled: Cancelled) -> None:  # fmt: skip
        self._source, self._state, self._seed, self._folder = source, state_dict, seed, folder
        self._say, self._cancelled = tell, cancelled

    def run(self, inputs: tuple[Tensor, ...] | None = None) -> Live:
        """All stages. Raises NotRunning if not even the outputs come, Stopped."""
        net, given, record = self._outputs(inputs)
        first = self._kept(Stage("outputs", "outputs", self._folder / "outputs.pt"), record)
        floats = [value.dtype for value in record["outputs"].values() if value.is_floating_point()]
        dtype = str(next(iter(floats), torch.get_default_dtype())).removeprefix("torch.")
        net.double()
        one = self._step(net, given, "eval", double=True)
        if one.recorded:
            return Live(given, (first, one, self._step(net, given, "train", double=True)), dtype)
        # Something in the net is of one dtype for good: its gradients are compared in that.
        del net
        again = self._made()
        two = self._step(again, given, "eval", double=False, fresh=True)
        stages = (first, two, self._step(again, given, "train", double=False))
        return Live(given, stages, dtype, one.refused)

    def eval_outputs(self, batches: tuple[int, ...]) -> tuple[dict[int, dict[str, str]], bool]:
        """Files with inputs and outputs in eval mode for each size of batch that the net takes; and whether it draws.

        Raises NotRunning if it takes none of them, Stopped.
        """
        self._tell("Running the network here: outputs")
        net, files, random, reason = self._made(), {}, False, ""
        for batch in batches:
            with self._quiet():
                measure.seed_everything(self._seed)
                drawn = random_inputs(self._source, batch)
                given = {spec.name: value for spec, value in zip(self._source.inputs, drawn, strict=True)}
                try:
                    record = measure.outputs_of(net, given, self._seed)
                    again = measure.outputs_of(net, given, self._seed + 1)
                except Exception as error:  # a size that the net does not take; if it takes none, that is told
                    reason = measure.told(error)
                    continue
            random = random or not measure.compare(again["outputs"], record["outputs"])["equal"]
            files[batch] = {kind: str(self._folder / f"{kind}-{batch}.pt") for kind in ("inputs", "expected")}
            torch.save(given, files[batch]["inputs"])
            torch.save(record, files[batch]["expected"])
        if not files:
            raise NotRunning(reason)
        return files, random

    def _made(self) -> nn.Module:
        with self._quiet():
            measure.seed_everything(self._seed)
            net = make_module(self._source)
            net.load_state_dict(dict(self._state), strict=True)
            return net

    def _outputs(self, inputs: tuple[Tensor, ...] | None) -> tuple[nn.Module, dict[str, Tensor], measure.Record]:
        names = [spec.name for spec in self._source.inputs]
        for batch in BATCHES if inputs is None else (0,):
            self._tell("Running the network here: outputs")
            net = self._made()
            with self._quiet():
                measure.seed_everything(self._seed)
                chosen = inputs if inputs is not None else random_inputs(self._source, batch)
                given = dict(zip(names, chosen, strict=True))
                try:
                    return net, given, measure.outputs_of(net, given, self._seed)
                except Exception as error:  # whatever a net raises, it is told with the last batch tried
                    reason = error
        raise NotRunning(measure.told(reason)) from reason

    def _step(self, net: nn.Module, given: dict[str, Tensor], kind: str, *, double: bool, fresh: bool = False) -> Stage:
        words = f"gradients in {kind} mode"
        self._tell(f"Running the network here: {words}")
        file = self._folder / f"{kind}-{'double' if double else 'own'}.pt"
        with self._quiet():
            try:
                record = measure.step_of(net, given, self._seed, train=kind == "train", double=double, backward=True)
            except Exception as error:  # a net that does not run this way has nothing to compare, which is told
                return Stage(kind, words, file, double, fresh, True, measure.told(error))
        return self._kept(Stage(kind, words, file, double, fresh, True, record.get("refused", "")), record)

    def _kept(self, stage: Stage, record: measure.Record) -> Stage:
        torch.save(record, stage.file)
        return stage

    def _tell(self, words: str) -> None:
        if self._cancelled():
            raise Stopped
        self._say(words)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Nothing that the net draws is noticed outside, and it runs as in a process where nothing else is set."""
        numpy: Any = sys.modules.get("numpy")
        with borrowed(self._seed), torch.inference_mode(False), torch.enable_grad():
            kept = random.getstate(), numpy.random.get_state() if numpy is not None else None
            try:
                yield
            finally:
                random.setstate(kept[0])
                if numpy is not None:
                    numpy.random.set_state(kept[1])
