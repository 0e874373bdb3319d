"""A gradcheck as it is asked for, and its result as plain data and as sentences."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.autograd.place import OpLocation
from app.engine.protocol import Request
from app.engine.requests.observe import AnyCapture
from app.util.formatting import scientific, significant
from app.util.language import tr, trn

# The help of `tapedeck autograd --gradcheck`.
CHECK = "compare backward's gradient with finite differences (gradcheck), for a layer or for all"


class Kink(Struct, frozen=True):
    """An operation that is not differentiable at the point where it was checked, or so near that a step crosses it.

    `ties` counts its inputs that lie exactly there (a ReLU's zeros, a window whose maximum is there twice).
    """

    place: OpLocation
    ties: int

    @property
    def sentence(self) -> str:
        """Explanation, such as "relu at line 3 is not differentiable here: 2 of its inputs are at the kink."."""
        if self.ties:
            why = trn(
                "{count} of its inputs is exactly at the kink",
                "{count} of its inputs are exactly at the kink",
                self.ties,
            )
        else:
            why = tr("a step of finite differences crosses a kink")
        return tr(
            "{op} {where} is not differentiable here: {reason}.",
            op=self.place.op,
            where=self.place.where,
            reason=why,
        )


class Element(Struct, frozen=True):
    """One element of one input: derivatives by backward and by finite differences, in double precision.

    `error` is |analytic - numeric| over its tolerance, as in `torch.autograd.gradcheck` (1e-5 plus 1e-3 of the numeric
    one) and rounding: up to 1 is fine. `relative` is the difference over the largest gradient of the input. `kink`
    explains why the two need not agree, None if they must. `tiny` means that they differ by more than rounding and by
    more than 1e-3, and only the absolute tolerance allows it. `output` is the index of the differentiated output, if
    there are several. `index` is empty for a derivative along a random direction of the whole input, of length 1.
    """

    input: str
    index: tuple[int, ...]
    analytic: float
    numeric: float
    error: float
    relative: float
    kink: Kink | None = None
    tiny: bool = False
    output: int | None = None

    @property
    def fine(self) -> bool:
        return self.error <= 1 or self.kink is not None

    @property
    def of_output(self) -> str:
        """For a sentence: " of output 2", "" where there is one alone."""
        if self.output is None:
            return ""
        return tr(" of output {number}", number=self.output + 1)


class CheckedInput(Struct, frozen=True):
    """Result for one input: `checked` of its `elements` were compared one by one, and all of them along a random
    direction: `direction` is that comparison, None if every element was compared. `worst` is the element with the
    largest error. `single` is the largest relative difference between backward's float32 and float64 gradients."""

    name: str
    shape: tuple[int, ...]
    elements: int
    checked: int
    worst: Element | None
    direction: Element | None
    single: float | None

    @property
    def fine(self) -> bool:
        return all(
            element is None or element.fine for element in (self.worst, self.direction)
        )


class EpsRow(Struct, frozen=True):
    """Finite differences with one step along one random direction of all inputs, in one precision.

    `relative` is their difference from backward's derivative in the same precision, over the larger of the two.
    """

    dtype: str
    eps: float
    numeric: float
    analytic: float
    relative: float


class GradcheckReport(Struct, frozen=True):
    """`what` was checked ("layer conv1", "custom Function MulConstant", "the whole net").

    `random` are operations that draw random numbers; the check reseeds each call. `changes` means that results differ
    for the same input even so. `kinks` are operations that are not differentiable at this point. `evaluations` counts
    forward passes. With `cancelled` the report is partial. `note` tells what was checked instead of the requested
    target, "" if that was possible.
    """

    what: str
    inputs: tuple[CheckedInput, ...]
    table: tuple[EpsRow, ...]
    kinks: tuple[Kink, ...]
    random: tuple[OpLocation, ...]
    changes: bool
    evaluations: int
    cancelled: bool = False
    note: str = ""

    @property
    def worst(self) -> Element | None:
        """The element with the largest error of those that must agree, else of all."""
        elements = [
            element
            for input_report in self.inputs
            for element in (input_report.worst, input_report.direction)
            if element is not None
        ]
        return max(
            elements,
            key=lambda element: (element.kink is None, element.error),
            default=None,
        )

    @property
    def passed(self) -> bool:
        return (
            bool(self.inputs)
            and all(input_report.fine for input_report in self.inputs)
            and not self.changes
        )

    def best(self, dtype: str) -> EpsRow | None:
        """Return the row of a precision with the smallest difference."""
        return min(
            (row for row in self.table if row.dtype == dtype),
            key=lambda row: row.relative,
            default=None,
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict, with remarks."""
        return tuple(_sentences(self))


class WholeNet(Struct, frozen=True):
    """The net with its loss."""


class LayerCall(Struct, frozen=True):
    """The `call`-th call of the module at `path`."""

    path: str
    call: int = 1


class NodeOperation(Struct, frozen=True):
    """The operation of backward node `number` in a graph whose nodes have these names."""

    number: int
    names: tuple[str, ...]


class GradcheckRequest(Request[GradcheckReport], frozen=True):
    """Compare backward's gradient with finite differences. Progress is a sentence."""

    lane: ClassVar[str] = "findings"
    batch: AnyCapture
    what: WholeNet | LayerCall | NodeOperation
    title: str


def _sentences(report: GradcheckReport) -> list[str]:
    sentences = [report.note] if report.note else []
    if report.cancelled:
        sentences.append(tr("The check was stopped; results so far."))
    worst = report.worst
    if report.changes:
        sentences.append(
            tr(
                "{what} returns different values for the same input, so it cannot be checked.",
                what=upper(report.what),
            )
        )
    elif worst is None:
        text = tr("Nothing of {what} has a derivative to check.", what=report.what)
        sentences.append(text)
    elif report.passed:
        sentences.append(
            tr(
                "The gradient of {what} is correct: in float64 it agrees with finite differences to {difference}.",
                what=report.what,
                difference=scientific(max(_relative(report), 1e-16), 1),
            )
        )
    else:
        sentences.append(
            tr(
                "The gradient of {what} is wrong: {element} has {analytic} in backward{output}, and finite differences "
                "give {numeric}.",
                what=report.what,
                element=f"{worst.input}{_index_text(worst.index)}",
                analytic=significant(worst.analytic, 6),
                output=worst.of_output,
                numeric=significant(worst.numeric, 6),
            )
        )
    sentences += [
        tr(
            "{op} {where} draws random numbers; the check used the same ones in each call.",
            op=location.op,
            where=location.where,
        )
        for location in report.random
    ]
    sentences += [
        kink.sentence
        + " "
        + tr("Finite differences and backward may differ there, and neither is wrong.")
        for kink in report.kinks
    ]
    return sentences + _on_tiny(report) + _on_precision(report)


def _on_tiny(report: GradcheckReport) -> list[str]:
    """Note if the check passed only by the absolute tolerance."""
    tiny = [
        element
        for input_report in report.inputs
        for element in (input_report.worst, input_report.direction)
        if element is not None
        and element.tiny
        and element.fine
        and element.kink is None
    ]
    if not tiny or not report.passed:
        return []
    worst = max(tiny, key=lambda element: element.error)
    analytic, numeric = significant(worst.analytic, 3), significant(worst.numeric, 3)
    return [
        tr(
            "{element} has {analytic} in backward and {numeric} by finite differences: both so near to 0 that the "
            "absolute tolerance of 1e−5 (as in torch.autograd.gradcheck) allows it. Scale the loss up to check it more "
            "closely.",
            element=f"{worst.input}{_index_text(worst.index)}",
            analytic=analytic,
            numeric=numeric,
        )
    ]


def _on_precision(report: GradcheckReport) -> list[str]:
    single, double = report.best("float32"), report.best("float64")
    if single is None or double is None or not report.passed or double.relative > 1e-4:
        return []  # steps cannot make good what backward has wrong, and a kink has no best step
    text = tr(
        "Finite differences are at their best with a step of {double_step} in float64 (relative difference "
        "{double_error}) and of {single_step} in float32 ({single_error}): a larger step is cut off too early "
        "(truncation), a smaller one loses digits (rounding).",
        double_step=scientific(double.eps, 0),
        double_error=scientific(double.relative, 1),
        single_step=scientific(single.eps, 0),
        single_error=scientific(single.relative, 1),
    )
    apart = max(
        (
            input_report.single
            for input_report in report.inputs
            if input_report.single is not None
        ),
        default=None,
    )
    if apart is None:
        return [text]
    return [
        text,
        tr(
            "Backward's own gradient in float32 is within {difference} of the one in float64: where single precision "
            "does not check, it is the finite differences that fail.",
            difference=scientific(apart, 1),
        ),
    ]


def _relative(report: GradcheckReport) -> float:
    differences = [
        element.relative
        for input_report in report.inputs
        for element in (input_report.worst, input_report.direction)
        if element is not None and element.kink is None
    ]
    return max(differences, default=0.0)


def _index_text(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


def upper(text: str) -> str:
    return text[:1].upper() + text[1:]
