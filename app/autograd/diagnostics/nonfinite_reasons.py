"""Explain from the values of one operation why it makes a NaN or an Inf, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from app.autograd.playback.direct_call import is_custom
from app.util.language import marked, tr, trn

if TYPE_CHECKING:
    from torch import Tensor

Values = Mapping[
    str, Any
]  # the arguments of an operation by their names in torch's schema, and its `result`


class Reason(NamedTuple):
    """Why a value is not finite, as a sentence, and the cure. Both are "" where nothing is known."""

    sentence: str = ""
    cure: str = ""


UNKNOWN = Reason()
_EPSILON = marked(
    "Add a small constant inside it, as in {name}(x + 1e-8), or clamp its input away from that value."
)
_CLAMP = marked(
    "Clamp its input, as in x.clamp(min=1e-8), or use a form that takes logits (log_softmax, logsigmoid)."
)
_DIVISOR = marked(
    "Clamp the divisor, as in x / y.clamp(min=1e-8), or add a small constant to it."
)
_INSIDE = marked(
    "Clamp its input a little inside the bounds, as in x.clamp(-1 + 1e-6, 1 - 1e-6)."
)
_MASK_INPUT = marked(
    "Mask its input too: give it a harmless value where the result is not used, as in "
    "{name}(torch.where(mask, x, 1.0)), and then select the result."
)
_OPEN_ROW = marked(
    "Leave every row a value to look at, fill with torch.finfo(x.dtype).min in place of -inf, or set such rows to 0 "
    "before softmax."
)

_FINITE = marked(
    "Fill with a large finite number in place of inf, or select with torch.where in place of a product."
)


class _Point(NamedTuple):
    """Where an operation has no finite result or slope: a test of one of its values, the same as text, with `{where}`
    for the number of elements, and the cure."""

    value: str
    test: Callable[[Tensor], Tensor]
    text: str
    cure: str


def _zero(values: Tensor) -> Tensor:
    return values == 0


_BELOW = _Point(
    "self",
    lambda x: x < 0,
    marked("its input is below 0{where}"),
    marked("Clamp its input at 0 or above."),
)
_LOG = _Point(
    "self", lambda x: x <= 0, marked("its input is 0 or below{where}"), _CLAMP
)
_DIVISION = _Point("other", _zero, marked("it divides by 0{where}"), _DIVISOR)
_BEYOND = _Point(
    "self",
    lambda x: x.abs() >= 1,
    marked("its input is at or beyond 1 or -1{where}"),
    _INSIDE,
)
_UNIT = _Point(
    "self",
    lambda x: (x <= 0) | (x >= 1),
    marked("its input is at or beyond 0 or 1{where}"),
    marked("Clamp its input inside, as in x.clamp(1e-6, 1 - 1e-6)."),
)
_SPREAD = _Point(
    "result",
    _zero,
    marked("its values are all the same{where}, where its slope is infinite"),
    marked("Take var in place of std, or (var + 1e-8).sqrt()."),
)
_SLOPE = marked("its input is 0{where}, where its slope is infinite")
_POINTS: dict[str, tuple[_Point, ...]] = {
    "sqrt": (_BELOW, _Point("result", _zero, _SLOPE, _EPSILON)),
    "rsqrt": (
        _BELOW,
        _Point("self", _zero, marked("its input is 0{where}"), _EPSILON),
        _Point("result", torch.isinf, marked("its input is 0{where}"), _EPSILON),
    ),
    "reciprocal": (
        _Point("self", _zero, marked("it divides by 0{where}"), _DIVISOR),
        _Point("result", torch.isinf, marked("it divides by 0{where}"), _DIVISOR),
    ),
    "div": (_DIVISION,),
    "fmod": (_DIVISION,),
    "remainder": (_DIVISION,),
    "log": (_LOG,),
    "log2": (_LOG,),
    "log10": (_LOG,),
    "log1p": (
        _Point(
            "self",
            lambda x: x <= -1,
            marked("its input is -1 or below{where}"),
            marked("Clamp its input above -1."),
        ),
    ),
    "special_entr": (_LOG,),
    "xlogy": (
        _Point(
            "other",
            lambda x: x <= 0,
            marked("the value under its log is 0 or below{where}"),
            _CLAMP,
        ),
    ),
    "acos": (_BEYOND,),
    "asin": (_BEYOND,),
    "atanh": (_BEYOND,),
    "erfinv": (_BEYOND,),
    "acosh": (
        _Point(
            "self",
            lambda x: x <= 1,
            marked("its input is at or below 1{where}"),
            marked("Clamp its input above 1."),
        ),
    ),
    "logit": (_UNIT,),
    "binary_cross_entropy": (
        _Point(
            "self",
            lambda x: (x < 0) | (x > 1),
            marked("its input is no probability{where}"),
            marked("Use binary_cross_entropy_with_logits."),
        ),
    ),
    "std": (_SPREAD,),
    "std_mean": (_SPREAD._replace(value="result0"),),
    "exp": (
        _Point(
            "result",
            torch.isinf,
            marked("its result is larger than the dtype holds{where}"),
            marked(
                "Subtract the greatest value first, clamp its input, or use logsumexp."
            ),
        ),
    ),
    "linalg_vector_norm": (
        _Point("result", _zero, _SLOPE, marked("Add a small constant under the root.")),
    ),
    "dist": (
        _Point("result", _zero, _SLOPE, marked("Add a small constant under the root.")),
    ),
    "cdist": (
        _Point(
            "result",
            _zero,
            _SLOPE,
            marked("Add a small constant to one of its inputs."),
        ),
    ),
    "hypot": (_Point("result", _zero, _SLOPE, _EPSILON),),
}
_NAMES = {
    "softmax_data": "softmax",
    "safe_softmax": "softmax",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss",
    "nll_loss_nd": "nll_loss",
    "nll_loss2d": "nll_loss",
    "log1_p": "log1p",
}


def of_call(name: str, values: Values, answer: Any) -> Reason:
    """Explain what an operation of the forward pass made of its arguments."""
    return _of(_NAMES.get(name, name), {**values, "result": answer}, None)


def of_node(node: Any, arriving: Sequence[Tensor | None], unread: bool) -> Reason:
    """Explain what an autograd node makes of finite gradients, by the values that it saved.

    `unread` means that a `where`, a mask or an index stands between the operation and the loss.
    """
    if is_custom(node):
        return Reason(
            tr("Its backward is Python code of the model's own."),
            tr("Mend the backward of this Function."),
        )
    name, values = _operation(node.name()), _saved(node)
    gradient = next((incoming for incoming in arriving if incoming is not None), None)
    return _of(_NAMES.get(name, name), values, gradient if unread else None)


def _of(name: str, values: Values, unread: Tensor | None) -> Reason:
    """Explain by the first rule that fits; `unread` is the gradient that arrives through a mask, None without one."""
    with torch.no_grad():
        for rule in (
            _empty_mean,
            _masked_row,
            _ignored_targets,
            _power,
            _atan2,
            _few_values,
            _opposite_infinities,
            _bad_values,
        ):
            if (reason := rule(name, values)) is not None:
                return reason
        return _at_points(name, values, unread)


def _at_points(name: str, values: Values, unread: Tensor | None) -> Reason:
    for point in _POINTS.get(name, ()):
        value = _tensor(values, point.value)
        if value is None or value.is_complex() or not (hits := point.test(value)).any():
            continue
        text = tr(point.text, where=_share(hits))
        if (
            unread is not None
            and unread.shape == hits.shape
            and bool((unread[hits] == 0).any())
        ):
            return Reason(
                tr(
                    "Here {reason}. The gradient that arrives there is 0, because its result is not taken there: 0 "
                    "times infinity is NaN.",
                    reason=text,
                ),
                tr(_MASK_INPUT, name=name),
            )
        return Reason(tr("Here {reason}.", reason=text), tr(point.cure, name=name))
    return UNKNOWN


def _bad_values(_name: str, values: Values) -> Reason | None:
    tensors = [
        _tensor(values, name) for name in values if not name.startswith("result")
    ]
    floating = [
        tensor
        for tensor in tensors
        if tensor is not None and tensor.is_floating_point()
    ]
    if any(bool(tensor.isnan().any()) for tensor in floating):
        return Reason(
            tr("It computes with a NaN of the forward pass."),
            tr("Mend the operation that made it there first."),
        )
    if any(bool(tensor.isinf().any()) for tensor in floating):
        return Reason(
            tr("It computes with an infinite value of the forward pass."), tr(_FINITE)
        )
    return None


def _empty_mean(name: str, values: Values) -> Reason | None:
    sizes = values.get("self_sym_sizes")
    tensor = _tensor(values, "self")
    numel = values.get("self_sym_numel", tensor.numel() if tensor is not None else 1)
    if name not in ("mean", "nanmean", "var", "std", "var_mean", "std_mean"):
        return None
    shape = tuple(
        sizes if sizes is not None else tensor.shape if tensor is not None else ()
    )
    if numel and 0 not in shape:
        return None
    text = tr(
        "It is the {name} of no values at all (shape {shape}), which is 0 / 0.",
        name=name.partition("_")[0],
        shape=list(shape),
    )
    return Reason(
        text,
        tr(
            "Skip it where nothing is selected, or divide the sum by count.clamp(min=1)."
        ),
    )


def _masked_row(name: str, values: Values) -> Reason | None:
    if name not in ("softmax", "log_softmax", "logsumexp", "logcumsumexp"):
        return None
    scores, result = _tensor(values, "self"), _tensor(values, "result")
    dim = values.get("dim", -1)
    dims = tuple(dim) if isinstance(dim, (list, tuple)) else (dim,)
    if scores is not None and scores.ndim:
        hits = torch.isneginf(scores)
        for axis in sorted(
            (
                dimension % scores.ndim
                for dimension in dims
                if abs(dimension) <= scores.ndim
            ),
            reverse=True,
        ):
            hits = hits.all(axis)
    elif result is not None and name == "logsumexp":
        hits = torch.isneginf(result)
    elif (
        result is not None
        and result.ndim
        and isinstance(dim, int)
        and abs(dim) <= result.ndim
    ):
        hits = result.isnan().all(dim)
    else:
        return None
    if not hits.any():
        return None
    text = trn(
        "In {masked:,} of {count} row every value is -inf: all of its keys are masked, so {name} has nothing to "
        "distribute over.",
        "In {masked:,} of {count} rows every value is -inf: all of its keys are masked, so {name} has nothing to "
        "distribute over.",
        hits.numel(),
        masked=int(hits.sum()),
        name=name,
    )
    return Reason(text, tr(_OPEN_ROW))


def _ignored_targets(name: str, values: Values) -> Reason | None:
    target, ignored = _tensor(values, "target"), values.get("ignore_index", -100)
    if name != "nll_loss" or target is None or values.get("reduction", 1) != 1:
        return None
    if target.numel() and not bool((target == ignored).all()):
        return None
    text = tr(
        "Every target is ignored ({index}), so it is the mean over no targets, which is 0 / 0.",
        index=ignored,
    )
    return Reason(
        text,
        tr("Skip such a batch, or sum the losses and divide by count.clamp(min=1)."),
    )


def _power(name: str, values: Values) -> Reason | None:
    base, exponent = values.get("self"), values.get("exponent")
    if name != "pow" or base is None or exponent is None:
        return None
    base, exponent = torch.as_tensor(base), torch.as_tensor(exponent)
    if base.is_complex() or exponent.is_complex():
        return None
    negative = (
        (base < 0) & (exponent != exponent.floor())
        if exponent.is_floating_point()
        else base != base
    )
    if negative.any():
        where = _share(negative)
        text = tr("Here a number below 0 is raised to a fraction{where}.", where=where)
        return Reason(text, tr("Clamp its base at 0 or above."))
    zero = (base == 0) & (exponent < 1)
    if not zero.any():
        return None
    text = tr(
        "Here 0 is raised to a power below 1{where}, where its slope is infinite.",
        where=_share(zero),
    )
    return Reason(text, tr("Add a small constant to its base, as in (x + 1e-8) ** p."))


def _atan2(name: str, values: Values) -> Reason | None:
    first, second = _tensor(values, "self"), _tensor(values, "other")
    if (
        name != "atan2"
        or first is None
        or second is None
        or not (hits := (first == 0) & (second == 0)).any()
    ):
        return None
    return Reason(
        tr("Here both of its inputs are 0{where}.", where=_share(hits)),
        tr("Add a small constant to one of its inputs."),
    )


def _few_values(name: str, values: Values) -> Reason | None:
    tensor, correction = _tensor(values, "self"), values.get("correction", 1)
    if name not in ("var", "std", "var_mean", "std_mean") or tensor is None:
        return None
    dims = values.get("dim")
    count = 1
    for axis in (
        range(tensor.ndim)
        if not dims
        else (dimension % tensor.ndim for dimension in dims)
    ):
        count *= tensor.shape[axis]
    free = 1 if correction is None else correction
    if count > free:
        return None
    text = trn(
        "It is the {name} of {count} value with the correction {correction}, which is 0 / 0.",
        "It is the {name} of {count} values with the correction {correction}, which is 0 / 0.",
        count,
        name=name.partition("_")[0],
        correction=free,
    )
    return Reason(text, tr("Pass correction=0, or give it more values."))


def _opposite_infinities(name: str, values: Values) -> Reason | None:
    first, second = _tensor(values, "self"), _tensor(values, "other")
    if name not in ("mul", "add", "sub") or first is None or second is None:
        return None
    try:
        pairs = torch.broadcast_tensors(first, second)
    except RuntimeError:
        return None
    hits = pairs[0].isinf() & (pairs[1].isinf() if name != "mul" else pairs[1] == 0)
    hits = hits | (pairs[1].isinf() & (pairs[0] == 0)) if name == "mul" else hits
    if not hits.any():
        return None
    where = _share(hits)
    text = tr("Here it is infinity less infinity{where}.", where=where)
    if name == "mul":
        text = tr("Here it is 0 times infinity{where}.", where=where)
    return Reason(text, tr(_FINITE))


def _share(hits: Tensor) -> str:
    if hits.numel() == 1:
        return ""
    return trn(
        " at {hits:,} of {count} element",
        " at {hits:,} of {count} elements",
        hits.numel(),
        hits=int(hits.sum()),
    )


def _tensor(values: Values, name: str) -> Tensor | None:
    value = values.get(name)
    return (
        value.detach()
        if isinstance(value, torch.Tensor) and value.layout is torch.strided
        else None
    )


def _operation(node: str) -> str:
    """Return the name of the operation of a node.

    >>> _operation("LinalgVectorNormBackward0"), _operation("Log1PBackward0")
    ('linalg_vector_norm', 'log1p')
    """
    stem = node.rpartition("Backward")[0].removeprefix("Safe").removeprefix("Native")
    snake = "".join(
        f"_{letter.lower()}" if letter.isupper() else letter for letter in stem
    ).lstrip("_")
    return _NAMES.get(snake, snake)


def _saved(node: Any) -> dict[str, Any]:
    saved: dict[str, Any] = {}
    for attribute in dir(node):
        if attribute.startswith("_saved_"):
            try:
                value = getattr(node, attribute)
            except RuntimeError:  # freed, or changed in place
                continue
            saved[attribute.removeprefix("_saved_")] = _signed(value)
    return saved


def _signed(value: Any) -> Any:
    """Return negative dimensions, which torch shows as unsigned numbers of 64 bits, as they were."""
    if isinstance(value, tuple):
        return tuple(_signed(element) for element in value)
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value
