"""How an output of an opened model is laid out for its loss, as its shape in one call tells."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from app.data.spec import CLASSES, VALUES, TargetInfo
from app.source.interface import Argument, Returned
from app.training.choices import CLASS_IDS, LOSSES, OF_LOGITS, takes_one_output
from app.training.config import INPUT, Choice
from app.util.formatting import shape_text
from app.util.language import marked, tr, trn

Shape = tuple[int, ...]


class Layout(Struct, frozen=True):
    """`code` follows the output in an expression that is laid out as the loss takes it, "" if it is so already.

    `misfit` is a sentence about why it cannot be, `exact` says that each number has its counterpart in the target.
    """

    code: str = ""
    misfit: str = ""
    exact: bool = False


def layout_of(
    output: Returned,
    target: TargetInfo,
    loss: Choice,
    called: Argument | None,
    field: Shape,
) -> Layout:
    """Compare an output with its target; `called` is the argument that got samples of the shape `field` in that call.

    Where they had another shape, sizes that follow from them are not compared.
    """
    sample_shape = called.shape[1:] if called is not None and called.dtype else field
    ids = LOSSES.get(loss.name) == CLASS_IDS
    if target.task == VALUES:
        if (
            target.name == INPUT and sample_shape != field
        ):  # what comes out follows what goes in, or is flat
            fits = _of_values(output, sample_shape, True)
            return fits if fits.misfit else Layout(_reshaped(field), exact=True)
        return _of_values(output, target.label_shape, sample_shape == field)
    if target.task == CLASSES:
        return _of_classes(output, len(target.classes), loss.name)
    return _of_places(output, target, sample_shape, field, ids)


def _of_values(output: Returned, target_shape: Shape, certain: bool) -> Layout:
    have = output.shape[1:]
    if have == target_shape:
        return Layout(exact=True)
    plain = [
        tuple(size for size in shape if size != 1) for shape in (have, target_shape)
    ]
    flat = 1 in (len(have), len(target_shape)) and prod(have) == prod(target_shape)
    if plain[0] == plain[1] or flat:
        return Layout(_reshaped(target_shape), exact=True)
    if not certain:
        return Layout()
    reason = tr(
        "{name} is {shape}, and its target {target}: the loss compares them number by number.",
        name=output.name,
        shape=_text(have),
        target=_text(target_shape),
    )
    if len(have) == len(target_shape) and have[:-1] == target_shape[:-1]:
        reason += trn(
            " Give the last layer {count} output (out_features={size}).",
            " Give the last layer {count} outputs (out_features={size}).",
            target_shape[-1],
            size=target_shape[-1],
        )
    return Layout(misfit=reason)


def _reshaped(label: Shape) -> str:
    return f".reshape(-1, {', '.join(map(str, label))})" if label else ".flatten()"


def _of_classes(output: Returned, classes: int, loss: str) -> Layout:
    have, ids = output.shape[1:], LOSSES.get(loss) == CLASS_IDS
    if prod(have) == 1 and takes_one_output(loss, classes):
        return Layout("" if have == (1,) else ".flatten()", exact=True)
    plain = tuple(size for size in have if size != 1) or have[:1]
    enough = len(plain) == 1 and (plain[0] >= classes if ids else plain[0] == classes)
    if enough:
        return Layout(".flatten(1)" if len(have) > 1 else "", exact=plain[0] == classes)
    reason = tr(
        "{name} is {shape}, and the loss expects one value for each of {classes} classes.",
        name=output.name,
        shape=_text(have),
        classes=classes,
    )
    if len(have) == 1:
        reason += trn(
            " Give the last layer {count} output (out_features={size}).",
            " Give the last layer {count} outputs (out_features={size}).",
            classes,
            size=classes,
        )
    if classes == 2 and prod(have) == 1:
        reason += tr(
            " Or choose {loss}, which takes one value of two classes.",
            loss=OF_LOGITS,
        )
    return Layout(misfit=reason)


def _of_places(
    output: Returned, target: TargetInfo, sample_shape: Shape, field: Shape, ids: bool
) -> Layout:
    """Return the layout of an output with a value of each class for each place of a target, such as of each token."""
    have, classes, rank = output.shape[1:], len(target.classes), len(target.label_shape)
    follows = target.label_shape == field[-rank:]
    positions = sample_shape[-rank:] if follows else target.label_shape
    if not follows and sample_shape != field:
        return Layout()

    def enough(count: int) -> bool:
        return count >= classes if ids else count == classes

    last = len(have) == rank + 1 and have[:-1] == positions and enough(have[-1])
    second = len(have) == rank + 1 and have[1:] == positions and enough(have[0])
    if last and second:
        return Layout(
            misfit=tr(
                "{name} is {shape}: either axis may be that of the {classes:,} classes. Open the model with an "
                "example of another length (--input).",
                name=output.name,
                shape=_text(have),
                classes=classes,
            )
        )
    if last or second:
        return Layout("" if last else ".movedim(1, -1)", exact=True)
    if (
        len(have) == 1 and output.shape[0] % prod(positions) == 0 and enough(have[0])
    ):  # (N·T, classes)
        return Layout(
            f".unflatten(0, (-1, {', '.join(map(str, target.label_shape))}))",
            exact=True,
        )
    reason = tr(
        "{name} is {shape}, and the loss expects a value of each class for each of the {places} places of a sample.",
        name=output.name,
        shape=_text(have),
        places=shape_text(positions),
    )
    if have[:-1] == positions or have[1:] == positions:
        text = marked(
            "{name} is {shape}, and the loss expects a value of each class for each of the {places} places of a "
            "sample: there are {classes:,} classes in the data, and it has {size:,}. Give the last layer {classes:,} "
            "outputs."
        )
        if ids:
            text = marked(
                "{name} is {shape}, and the loss expects a value of each class for each of the {places} places of a "
                "sample: there are {classes:,} classes in the data, and it has {size:,}. Give the last layer "
                "{classes:,} outputs or more."
            )
        reason = tr(
            text,
            name=output.name,
            shape=_text(have),
            places=shape_text(positions),
            classes=classes,
            size=have[-1] if have[:-1] == positions else have[0],
        )
    return Layout(misfit=reason)


def _text(shape: Shape) -> str:
    return shape_text(("N", *shape))
