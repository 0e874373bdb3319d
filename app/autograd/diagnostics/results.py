"""Results of the diagnostics, as frozen plain data that holds no tensor."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as with_values

from app.autograd.diagnostics.gradient_gain import Ladder
from app.autograd.grouping import group_by_layer
from app.autograd.place import OpLocation
from app.autograd.tape import Tape
from app.util.formatting import MINUS, bytes_text, scientific
from app.util.frozen import FrozenMap
from app.util.language import tr, trn

FEWEST = 3  # rounds, at least, to tell a difference from noise


@cache
def looked_for() -> tuple[str, ...]:
    """Return what diagnostics look for, in English: `LOOKED_FOR` of `findings`, read from its source.

    The window lists it, and cannot import that module, which needs torch.
    """
    source = Path(__file__).with_name("findings.py").read_text("utf-8")
    (phrases,) = (
        statement.value.elts
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Tuple)
        and ast.unparse(statement.targets[0]) == "LOOKED_FOR"
    )
    return tuple(
        ast.literal_eval(phrase.args[0])
        for phrase in phrases
        if isinstance(phrase, ast.Call)
    )


class PathStep(Struct, frozen=True):
    """One step on the path from a parameter to a cut: the autograd node, and the location of its operation."""

    node: str
    place: OpLocation


class Cut(Struct, frozen=True):
    """A location where a gradient path ends.

    `kind` is "detach", "data", "item", "numpy", "no_grad", "inference_mode", "argmax", "comparison", "dtype" (an
    integer or bool result), "custom" or "checkpoint" (inside a custom Function that returns no gradient, or inside a
    reentrant checkpoint) or "no derivative". `in_place` means that a tensor was written to. `dtype` is that of the
    result. `parameters` are those whose path ends here, by first name; `reaches_end` means that the loss depends on the
    result.
    """

    kind: str
    place: OpLocation
    dtype: str = ""
    in_place: bool = False
    function: str = ""
    parameters: tuple[str, ...] = ()
    reaches_end: bool = False
    chains: Mapping[str, tuple[PathStep, ...]] = {}


class GradAnswer(Struct, frozen=True):
    """Explanation of the `.grad` of one parameter.

    `state` is "none" (`.grad` stays None), "zero" (all its elements are 0), "cancelled" (only rounding errors remain
    after a norm layer), "flows", "not finite", or "unknown" if backward fails. `kind` is that of the cut, or "frozen",
    "unused" (by any operation), "not in the loss", "zero", "cancelled", "" if it flows. `place` is its location;
    `chain` are the autograd nodes from the parameter up to it; `tape_node` is the node of the tape that stops it.
    `norm` is the measured Euclidean norm. `others` are further cuts of the same parameter.
    """

    parameter: str
    state: str
    kind: str
    sentence: str
    cure: str = ""
    place: OpLocation | None = None
    chain: tuple[PathStep, ...] = ()
    norm: float | None = None
    tape_node: int | None = None
    others: tuple[Cut, ...] = ()


class GradientPaths(Struct, frozen=True):
    """Gradient paths of one forward and backward pass. `answers` has parameters by each of their names.

    `requires` maps the drawing's nodes, `layer_requires` the modules' paths, to whether their output requires grad.
    `tape` is None if nothing did. `error` is torch's error in backward, "" if none.
    """

    answers: FrozenMap[str, GradAnswer]
    cuts: tuple[Cut, ...]
    requires: FrozenMap[str, bool] = FrozenMap()
    layer_requires: FrozenMap[str, bool] = FrozenMap()
    tape: Tape | None = None
    error: str = ""

    @property
    def without(self) -> tuple[GradAnswer, ...]:
        """The answers of those whose gradient does not flow."""
        return tuple(
            answer for answer in self.answers.values() if answer.state != "flows"
        )


def line_text(line: int | None, file: str) -> str:
    """Return a line with its file: "line 12", "line 12 of net.py", or ""."""
    if line is None:
        return ""
    if file:
        return tr("line {line} of {file}", line=line, file=PurePath(file).name)
    return tr("line {line}", line=line)


class Finding(Struct, frozen=True):
    """One thing that was found.

    `kind` is what its check calls it, such as "in place" or "dead"; `severity` is "error", "warning" or "info". `title`
    names the layer or the parameter. `tape_node` is the backward node, `node` the drawing's, `line` a line of the
    generated text or of `file`. `before` is that line and `after` what to write in its place, where that is known.
    `others` are findings of the same cause, which this one stands for.
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
    others: tuple[Finding, ...] = ()

    @property
    def location_text(self) -> str:
        """Layer and line: "conv1, line 12"; the line alone without a layer."""
        line = "" if self.line is None else tr("line {line}", line=self.line)
        return ", ".join(filter(None, (self.title, line)))

    @property
    def line_text(self) -> str:
        """The line with its file: "line 12", "line 12 of net.py", or ""."""
        return line_text(self.line, self.file)


class Findings(Struct, frozen=True):
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
        return tuple(
            answer for answer in answers if answer.parameter.rpartition(".")[0] == path
        )


class StepCost(Struct, frozen=True):
    """Cost of one forward and backward pass: bytes saved for backward after forward, peak bytes (activations, gradients
    and temporaries), and seconds per round."""

    held: int
    peak: int
    times: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median of the rounds; 0 without any."""
        return statistics.median(self.times) if self.times else 0.0


class WhatIf(Struct, frozen=True):
    """Effect of checkpointing one block. `plain` is the step without it, `again` with it.

    `freed` is the reduction of the peak in bytes (negative if it grows), `held_less` that of the bytes held after
    forward. `slower` are the additional seconds per step: the median difference over rounds, within `spread`.
    `difference` is the largest relative difference of any gradient; `equal` means bitwise equal. `remark` warns of
    other changes.
    """

    path: str
    kind: str
    plain: StepCost
    again: StepCost
    difference: float
    remark: str = ""

    @property
    def freed(self) -> int:
        """Bytes that the checkpoint saves at the peak; negative where it needs more."""
        return self.plain.peak - self.again.peak

    @property
    def held_less(self) -> int:
        """Bytes that less is held for backward after the forward pass."""
        return self.plain.held - self.again.held

    @property
    def slower(self) -> float:
        """Seconds that a step takes longer, the median of the rounds."""
        return statistics.median(self._apart) if self._apart else 0.0

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest difference of a round, in seconds."""
        return (min(self._apart), max(self._apart)) if self._apart else (0.0, 0.0)

    @property
    def measurable(self) -> bool:
        """True if a step was slower in every round, of at least FEWEST. A checkpoint only adds work, so rounds in which
        it was faster show the noise of the machine."""
        return len(self._apart) >= FEWEST and self.spread[0] > 0

    @property
    def _apart(self) -> tuple[float, ...]:
        return tuple(
            again - plain
            for plain, again in zip(self.plain.times, self.again.times, strict=True)
        )

    @property
    def equal(self) -> bool:
        return self.difference == 0

    @property
    def sentence(self) -> str:
        """Bytes against time, and the setting of a training that does it."""
        low, high = (
            f"{bound * 1000:+.1f}".replace("-", MINUS) for bound in self.spread
        )
        rounds = trn(
            "{low} to {high} ms in {count} round",
            "{low} to {high} ms in {count} rounds",
            len(self._apart),
            low=low,
            high=high,
        )
        if self.measurable:
            time = f"{self.slower * 1000:+.1f} ms ({100 * self.slower / self.plain.seconds:+.0f} %; {rounds})"
        else:
            time = tr(
                "no measurable time more: the difference was {rounds}, so noise exceeds the effect",
                rounds=rounds,
            )
        saved, peak = bytes_text(abs(self.freed)), bytes_text(self.plain.peak)
        if self.freed > 0:
            memory = tr(
                "{saved} less at the peak ({peak} without)", saved=saved, peak=peak
            )
        elif self.freed:
            memory = tr(
                "{saved} more at the peak ({peak} without)", saved=saved, peak=peak
            )
        else:
            memory = tr("as much at the peak as without ({peak})", peak=peak)
        grads = tr("the gradients are the same")
        if not self.equal:
            difference = scientific(self.difference, 1)
            grads = tr("gradients differ by up to {difference}", difference=difference)
        text = tr(
            "With {path} checkpointed a step takes {memory} and {time}; {gradients}.",
            path=self.path,
            memory=memory,
            time=time,
            gradients=grads,
        )
        if self.freed > 0:
            text += " " + tr("In training: recompute = {path}.", path=self.path)
        return f"{text} {self.remark}".rstrip()


def by_module(tape: Tape) -> Tape:
    """Split the tape by module, even if the drawing has one node for a whole block."""
    return replace(
        tape,
        nodes=tuple(
            with_values(node, node=None) if node.layer else node for node in tape.nodes
        ),
    )


def first_nodes(tape: Tape) -> dict[str, int]:
    """Map each rung's key to its first node in backward order."""
    return {
        group.key: min(group.nodes, key=tape.steps.__getitem__)
        for group in group_by_layer(by_module(tape))
    }
