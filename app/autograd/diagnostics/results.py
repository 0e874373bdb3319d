"""Results of the diagnostics, as frozen plain data that holds no tensor."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as with_values

from app.autograd.diagnostics.gradient_gain import Ladder
from app.autograd.grouping import group_by_layer
from app.autograd.place import Place
from app.autograd.tape import Tape
from app.util.formatting import bytes_text
from app.util.frozen import FrozenMap

FEWEST = 3  # rounds, at least, to tell a difference from noise
LOOKED_FOR = (
    "parameters whose .grad stays None",
    "gradients that are exactly zero",
    "in-place changes that break backward",
    "writes through .data",
    "the first NaN or Inf, forward and backward",
    "layers where the gradient vanishes or explodes",
    "dead units",
)


@dataclass(frozen=True)
class Link:
    """One step on the way from a parameter to a cut: autograd's node, and where its operation was asked for."""

    node: str
    place: Place


@dataclass(frozen=True)
class Cut:
    """A place where the path of a gradient ends.

    `kind` is "detach", "data", "item", "numpy", "no_grad", "inference_mode", "argmax", "comparison", "dtype" (a result
    of whole numbers or truth values), "custom" or "checkpoint" (inside a custom Function that returns no gradient, or
    inside a reentrant checkpoint) or "no derivative". `in_place` says that a tensor was written to. `dtype` is that of
    the result. `parameters` are the first names of those whose path ends here; `reaches_end` says that the loss was
    computed from the result.
    """

    kind: str
    place: Place
    dtype: str = ""
    in_place: bool = False
    function: str = ""
    parameters: tuple[str, ...] = ()
    reaches_end: bool = False
    chains: Mapping[str, tuple[Link, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class GradAnswer:
    """Explanation of the `.grad` of one parameter.

    `state` is "none" (`.grad` stays None), "zero" (all its elements are 0), "cancelled" (rounding alone, for a norm
    takes it away), "flows", "not finite", or "unknown" where backward itself fails. `kind` is that of the cut, or
    "frozen", "unused" (no operation took it), "not in the loss", "zero", "cancelled", "" where it flows. `place` is
    where that happens; `chain` are autograd's nodes from the parameter up to it; `tape_node` is the node of the tape
    that stops it. `norm` is the Euclidean norm that was measured. `others` are further cuts of the same parameter.
    """

    parameter: str
    state: str
    kind: str
    sentence: str
    cure: str = ""
    place: Place | None = None
    chain: tuple[Link, ...] = ()
    norm: float | None = None
    tape_node: int | None = None
    others: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class GradientPaths:
    """Gradient paths of one forward and backward pass. `answers` has parameters by each of their names.

    `requires` maps the drawing's nodes, `layer_requires` the modules' paths, to whether what they compute requires a
    gradient. `tape` is None where nothing required one. `error` is what torch raised in backward, "" if nothing.
    """

    answers: FrozenMap[str, GradAnswer]
    cuts: tuple[Cut, ...]
    requires: FrozenMap[str, bool] = field(default_factory=FrozenMap)
    layer_requires: FrozenMap[str, bool] = field(default_factory=FrozenMap)
    tape: Tape | None = None
    error: str = ""

    def why_no_grad(self, parameter: str) -> GradAnswer:
        """The answer for a parameter, by any of its names. Raises KeyError for a name that the net does not have."""
        return self.answers[parameter]

    @property
    def without(self) -> tuple[GradAnswer, ...]:
        """The answers of those whose gradient does not flow."""
        return tuple(answer for answer in self.answers.values() if answer.state != "flows")


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    `kind` is "failed", "in place", "silent", "non-finite", "none", "zero", "cancelled", "vanishes", "explodes" or
    "dead"; `severity` is "error", "warning" or "info". `title` names the layer or the parameter. `tape_node` is the
    backward node, `node` the drawing's, `line` a line of the generated text or of `file`. `before` is that line and
    `after` what to write in its place, where that is known.
    """

    kind: str
    severity: str
    title: str
    sentence: str
    cure: str = ""
    layer: str = ""
    tape_node: int | None = None
    node: str | None = None
    line: int | None = None
    before: str = ""
    after: str = ""
    file: str = ""

    @property
    def place(self) -> str:
        """Layer and line, for people: "conv1, line 12"; the line alone where there is no layer."""
        line = "" if self.line is None else f"line {self.line}"
        return ", ".join(filter(None, (self.title, line)))


@dataclass(frozen=True)
class Findings:
    """Findings of one batch, the worst first. `paths`, `ladder` and `tape` are None where the diagnostics did not get
    that far. With `cancelled` these are the findings until then."""

    found: tuple[Finding, ...]
    tape: Tape | None = None
    paths: GradientPaths | None = None
    ladder: Ladder | None = None
    cancelled: bool = False

    def of_layer(self, path: str) -> tuple[GradAnswer, ...]:
        """Return the answers for the parameters of the module at `path`, "" for the net's own."""
        answers = self.paths.answers.values() if self.paths is not None else ()
        return tuple(answer for answer in answers if answer.parameter.rpartition(".")[0] == path)


@dataclass(frozen=True)
class StepCost:
    """One forward and backward pass: bytes held for backward alone when forward is done, the most that was alive at
    once (activations, gradients and what lies between), and its seconds in each round."""

    held: int
    peak: int
    times: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median of the rounds; 0 without any."""
        return statistics.median(self.times) if self.times else 0.0


@dataclass(frozen=True)
class WhatIf:
    """One block checkpointed. `plain` is the step without it, `again` with it.

    `freed` are bytes less at the peak (below 0 where it costs some), `held_less` bytes less held when forward is done.
    `slower` are the seconds that a step takes longer: the median of the differences of each round, which lie between
    the two of `spread`. `difference` is the largest relative difference of any gradient;
    `equal` says that all are the same to the last bit. `remark` warns of what else changes.
    """

    path: str
    kind: str
    plain: StepCost
    again: StepCost
    difference: float
    remark: str = ""

    @property
    def freed(self) -> int:
        return self.plain.peak - self.again.peak

    @property
    def held_less(self) -> int:
        return self.plain.held - self.again.held

    @property
    def slower(self) -> float:
        return statistics.median(self._apart) if self._apart else 0.0

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest difference of a round, in seconds."""
        return (min(self._apart), max(self._apart)) if self._apart else (0.0, 0.0)

    @property
    def measurable(self) -> bool:
        """True if a step took longer in every round, of enough of them. A checkpoint computes more and never less, so
        rounds in which it was faster say how much else the machine had to do."""
        return len(self._apart) >= FEWEST and self.spread[0] > 0

    @property
    def _apart(self) -> tuple[float, ...]:
        return tuple(again - plain for plain, again in zip(self.plain.times, self.again.times, strict=True))

    @property
    def equal(self) -> bool:
        return self.difference == 0

    @property
    def sentence(self) -> str:
        """Bytes against time, and the setting of a training that does it."""
        low, high = (f"{bound * 1000:+.1f}" for bound in self.spread)
        rounds = f"{low} to {high} ms in {len(self._apart)} rounds"
        if self.measurable:
            time = f"{self.slower * 1000:+.1f} ms ({self.slower / self.plain.seconds:+.0%}; {rounds})"
        else:
            time = f"no measurable time more: the difference was {rounds}, so noise exceeds the effect"
        if self.freed:
            less = "less" if self.freed > 0 else "more"
            memory = f"{bytes_text(abs(self.freed))} {less} at the peak ({bytes_text(self.plain.peak)} without)"
        else:
            memory = f"as much at the peak as without ({bytes_text(self.plain.peak)})"
        grads = "the gradients are the same" if self.equal else f"gradients differ by up to {self.difference:.1e}"
        text = f"With {self.path} checkpointed a step takes {memory} and {time}; {grads}."
        if self.freed > 0:
            text += f" In training: recompute = {self.path}."
        return f"{text} {self.remark}".rstrip()


def by_module(tape: Tape) -> Tape:
    """The tape with the layers of each module told apart, also where the drawing has one node for a whole block."""
    return replace(tape, nodes=tuple(with_values(node, node=None) if node.layer else node for node in tape.nodes))


def first_nodes(tape: Tape) -> dict[str, int]:
    """For each rung of the ladder, by its key, the node of it that runs first in backward."""
    return {group.key: min(group.nodes, key=tape.steps.__getitem__) for group in group_by_layer(by_module(tape))}
