"""Describe data as text: sample counts, class balance, shapes of a batch."""

from __future__ import annotations

from app.data.config import DataConfig
from app.data.sample_counts import held_out
from app.data.spec import TOKENS, VALUES, BatchPreview, SourceSpec
from app.util.formatting import counted, shape_text

NAMED = 12
BAD_NAMED = 3  # unreadable samples in a sentence


def facts(spec: SourceSpec, config: DataConfig) -> str:
    """Describe sample count, shape and splits."""
    shape = shape_text(spec.shape, "one number")
    if spec.inputs:
        several = (
            f"{field.name} {shape_text(field.shape, 'one number')} {field.dtype}"
            for field in spec.inputs
        )
        shape = f"{len(spec.inputs)} inputs ({', '.join(several)})"
    target_text = counted(len(spec.classes), "class", "classes")
    if spec.task == VALUES:
        count = 1
        for side in spec.label_shape:
            count *= side
        target_text = f"{counted(count, 'value')} to predict"
    elif spec.task == TOKENS:
        target_text = f"{counted(len(spec.classes), 'different token')}, one to predict at each position"
    description = f"{counted(spec.count, 'sample')} of {shape}{'' if spec.inputs else f' {spec.dtype}'}, {target_text}."
    training, validation, test = parts(spec, config)
    if test or not spec.own_split:
        test_text = f", {test:,} for testing" if test else ""
        description += (
            f" {training:,} for training, {validation:,} for validation{test_text}."
        )
    return description


def parts(spec: SourceSpec, config: DataConfig) -> tuple[int, int, int]:
    """Return the number of training, validation and test samples."""
    if spec.own_split:
        test = round(spec.held_out * config.test_fraction)
        return sum(spec.per_class), spec.held_out - test, test
    validation, test = held_out(
        spec.per_class, config.validation_fraction, config.test_fraction
    )
    return spec.count - validation - test, validation, test


def balance(spec: SourceSpec) -> str:
    """Describe the class balance: rarest and most common of many."""
    if spec.task != "classes" or not spec.per_class:
        return ""
    pairs = list(zip(spec.classes, spec.per_class, strict=False))
    if len(set(spec.per_class)) == 1:
        return f"Balanced: {spec.per_class[0]:,} per class."
    if len(pairs) <= NAMED:
        return (
            "Samples per class: "
            + ", ".join(f"{name}: {count:,}" for name, count in pairs)
            + "."
        )
    pairs.sort(key=lambda pair: pair[1])
    few, many = pairs[0], pairs[-1]
    return f"From {few[1]:,} of {few[0]} to {many[1]:,} of {many[0]}."


def bad(spec: SourceSpec, policy: str) -> str:
    """Describe unreadable samples and the consequence."""
    if not spec.bad:
        return ""
    first, more = "; ".join(spec.bad[:BAD_NAMED]), len(spec.bad) - BAD_NAMED
    rest = f" and {more:,} more" if more > 0 else ""
    does = "skipped" if policy == "skip" else "blocking the run"
    be = "is" if len(spec.bad) == 1 else "are"
    return f"{counted(len(spec.bad), 'sample')} cannot be read and {be} {does}: {first}{rest}."


def _which(preview: BatchPreview) -> str:
    return "The first batch of a run" + (", shuffled" if preview.shuffled else "")


def batch(preview: BatchPreview) -> str:
    """Describe shape, dtype and range of a batch's inputs and labels."""
    shape, labels = shape_text(preview.shape), shape_text(preview.label_shape)
    if several := preview.spec.inputs:
        count = preview.shape[0]
        fields = ", ".join(
            f"{field.name} {shape_text((count, *field.shape))} {field.dtype}"
            for field in several
        )
        return f"{_which(preview)}: inputs {fields}; labels {labels} {preview.label_dtype}."
    remark = " Above: before the transforms." if preview.before else ""
    how = ", standardised" if preview.standardised else ""
    return (
        f"{_which(preview)}: inputs {shape} {preview.dtype}{how}, from {preview.low:.4g} to {preview.high:.4g}; "
        f"labels {labels} {preview.label_dtype}.{remark}"
    )
