"""Which variable holds which value in `forward`, and which values are written where they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from app.builder.catalog.custom import is_custom
from app.builder.codegen.class_args import VALUES
from app.builder.names import UniqueNames
from app.builder.plan import OWNING, Ref, Step
from app.builder.results import Ran, StepResult
from app.builder.value_types import NumberType, TupleType

_LETTERS = ("x", "y", "z", "u", "v", "w")
_NUMBERS = ("n", "m", "k")
_OUTPUT_NAMES = {
    "(h_n, c_n)": "state",
    "h_n": "h_n",
    "c_1": "c",
    "attn_output_weights": "attn_weights",
    "indices": "indices",
}
# Short calls that are inlined at their only use.
_READ_IN_PLACE = (
    "Tensor.size",
    "Tensor.shape",
    "Tensor.dim",
    "Tensor.numel",
    "torch.finfo",
)
# Kinds of calls they may be inlined into; a loop over repeated modules would re-evaluate them.
_READERS = ("function", "method", "operator")


# Arithmetic with numbers reads best as one formula, if it is a short one.
_ARITHMETIC = frozenset(
    f"operator.{name}" for name in "add sub mul truediv floordiv mod pow neg".split()
)
_SIGNS_IN_ONE = 3


def in_place(steps: list[Step], results: Mapping[str, StepResult]) -> dict[str, Step]:
    """Find the steps without a separate line, by id: typed numbers, and sizes and subexpressions used once."""
    takers: dict[Ref, list[Step]] = {}
    for step in steps:
        for ref in step.refs():
            takers.setdefault(ref, []).append(step)
    inlined: dict[str, Step] = {}
    signs: dict[str, int] = {}
    for step in steps:
        takes = takers.get(Ref(step.id, 0), [])
        once = len(takes) == 1 and takes[0].spec.kind in _READERS
        if step.spec.kind == "number" or (step.spec.key in _READ_IN_PLACE and once):
            inlined[step.id] = step
        elif step.spec.key in _ARITHMETIC:
            count = signs[step.id] = 1 + sum(
                signs.get(ref.node, 0) for ref in step.refs() if ref.node in inlined
            )
            subexpression = (
                len(takes) == 1
                and takes[0].spec.key in _ARITHMETIC
                and not _named(step)
            )
            if subexpression and count < _SIGNS_IN_ONE and _is_number(results[step.id]):
                inlined[step.id] = step
    return inlined


def _is_number(result: StepResult) -> bool:
    return isinstance(result.outcome, Ran) and isinstance(
        result.outcome.outputs[0], NumberType
    )


def _named(step: Step) -> bool:
    """Return whether the node was renamed by the user."""
    return (
        len(step.spec.outputs) == 1
        and step.node.name.rstrip("0123456789") != step.spec.stem
    )


# Ops that create a new tensor, so that values can be assigned into it without a clone.
_MADE = frozenset(
    f"{kind}{name}"
    for kind in ("torch.", "Tensor.new_")
    for name in ("zeros", "ones", "full")
) | {
    "torch.zeros_like",
    "torch.ones_like",
    "torch.full_like",
    "torch.clone",
    "operator.setitem",
}


def filled_as_they_are(steps: list[Step]) -> frozenset[str]:
    """Find the index assignments into a tensor created for that alone, by id: they need no clone."""
    uses = Counter(ref for step in steps for ref in step.refs())
    created = {step.id for step in steps if step.spec.key in _MADE}
    fills = (
        (step.id, step.args["input"][0])
        for step in steps
        if step.spec.key == "operator.setitem" and step.args.get("input")
    )
    return frozenset(
        step for step, tensor in fills if tensor.node in created and uses[tensor] == 1
    )


def variables(
    steps: list[Step],
    results: Mapping[str, StepResult],
    inputs: Mapping[str, str],
    names: UniqueNames,
    owned: Mapping[Ref, str],
    written: Callable[[Step, Mapping[Ref, str]], str],
) -> dict[Ref, str]:
    """Assign a variable, or an inlined expression, to every value.

    A variable is reused for the result of the last call that reads it, so that a chain reads `x = ...; x = ...` and
    only values that outlive it have separate names. Arguments, states and numbers keep their descriptive names;
    `owned` are attributes of the module; `written` returns inlined expressions.
    """
    inline = in_place(steps, results)

    def refs(step: Step) -> Iterator[Ref]:
        for ref in step.refs():
            if ref.node in inline:
                yield from refs(inline[ref.node])
            else:
                yield ref

    uses = Counter(ref for step in steps if step.id not in inline for ref in refs(step))
    assigned = {**{Ref(node, 0): name for node, name in inputs.items()}, **owned}
    order = {name: i for i, name in enumerate(("x", *inputs.values(), *_LETTERS))}
    lettered: set[str] = set()
    spare: set[str] = set()  # letters whose values are dead
    telling = {name for name in inputs.values() if name != "x"} | {"_", *owned.values()}
    for step in steps:
        if step.id in inline:
            assigned[Ref(step.id, 0)] = written(step, assigned)
            continue
        if step.spec.kind in ("input", "output", *VALUES):
            continue
        uses.subtract(refs(step))
        ended = {
            assigned[ref] for ref in refs(step) if uses[ref] == 0 and ref in assigned
        } - telling
        if (
            step.spec.key == "operator.setitem"
        ):  # two lines, and the second still reads everything but the tensor
            ended &= {assigned.get(ref, "") for ref in step.args.get("input", ())}
            ended -= {
                assigned.get(ref, "")
                for port, argument in step.args.items()
                if port != "input"
                for ref in argument
            }
        if (
            step.spec.kind in OWNING and step.node.repeat > 1
        ):  # a loop, which reads the other arguments each time
            ended &= {assigned.get(ref, "") for ref in step.refs()[:1]}
            ended -= {assigned.get(ref, "") for ref in step.refs()[1:]}
        # Where branches join, the trunk's variable continues.
        free = sorted(ended, key=lambda name: (order.get(name, len(order)), name))
        spare |= ended & lettered
        unused = [
            not uses[Ref(step.id, number)] for number in range(len(step.spec.outputs))
        ]
        for number, port in enumerate(step.spec.outputs):
            ref = Ref(step.id, number)
            preferred = _telling(step, results, number) or _OUTPUT_NAMES.get(
                port.name, ""
            )
            preferred = preferred or (_field(step, number) if len(unused) > 1 else "")
            if len(unused) > 1 and unused[number] and not (number == 0 and all(unused)):
                assigned[ref] = "_"
            elif (
                free
                and number == 0
                and (not preferred or preferred in _OUTPUT_NAMES.values())
            ):
                assigned[ref] = free[0]
                spare.discard(free[0])
            elif preferred:
                assigned[ref] = names.take(
                    names.first_free(_NUMBERS) if preferred in _NUMBERS else preferred
                )
                telling.add(assigned[ref])
            elif spare - set(
                assigned.get(argument_ref, "") for argument_ref in refs(step)
            ):
                again = spare - set(
                    assigned.get(argument_ref, "") for argument_ref in refs(step)
                )
                assigned[ref] = min(
                    again,
                    key=lambda name: (order.get(name, len(order)), len(name), name),
                )
                spare.discard(assigned[ref])
            else:
                assigned[ref] = names.take(names.first_free(_LETTERS))
                lettered.add(assigned[ref])
    return assigned


def _field(step: Step, number: int) -> str:
    """Return the variable name of one of several results of a custom layer: that of the port, if it was named."""
    name = step.spec.outputs[number].name
    return name if is_custom(step.spec.key) and not name.startswith("output") else ""


def _telling(step: Step, results: Mapping[str, StepResult], number: int) -> str:
    """Return the variable name of a number or a tuple of numbers; "" for any other value."""
    outcome = results[step.id].outcome
    inferred = isinstance(outcome, Ran) and number < len(outcome.outputs)
    value = outcome.outputs[number] if isinstance(outcome, Ran) and inferred else None
    if isinstance(value, TupleType):
        sizes = bool(value.items) and all(
            isinstance(item, NumberType) for item in value.items
        )
        return "shape" if sizes else ""
    if not isinstance(value, NumberType) and (
        inferred or step.spec.outputs[number].kind != "number"
    ):
        return ""
    if _named(step):
        return step.node.name
    if step.spec.key == "Tensor.size" and results[step.id].resolved.get("dim") != 0:
        return "size"
    return {"Tensor.dim": "rank", "Tensor.numel": "numel"}.get(step.spec.key, "n")
