"""Table of the size rules by op: those that people meet. Of other ops it is said that torch computed the sizes."""

from __future__ import annotations

import re

from app.builder.catalog.catalog import OpSpec
from app.builder.dimensions import conv as windows
from app.builder.dimensions import shapes, values
from app.builder.dimensions.calls import Rule, SizeCall, SizeNote, set_by, unchanged
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.value_types import Dim
from app.util.language import tr


def passed_by(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of a muted node: those of its input."""
    explanation = tr(
        "{name} is muted: its input passes through unchanged.", name=call.name
    )
    return tuple(
        unchanged(call.first, i, explanation) for i in range(len(call.first.shape))
    )


def _input(call: SizeCall) -> tuple[SizeNote, ...]:
    n = Formula("N", (Symbol("N", "batch size", Dim(1)),))
    batch = SizeNote(n, tr("N is the batch size."))
    sizes, batch_dim = call.params.get("shape") or (), call.params.get("batch", 0)
    notes = [set_by(f"shape[{i}]", size) for i, size in enumerate(sizes)]
    if batch_dim is not None:
        notes.insert(batch_dim, batch)
    if tuple(note.formula.result for note in notes) == call.shape:
        return tuple(notes)
    # a block's input has the shape that its instance gets
    explanation = tr("The input {name} of the block.", name=call.name)
    return tuple(
        set_by(tr("dim {dim} of the input", dim=i), size, explanation)
        for i, size in enumerate(call.shape)
    )


_RULES: dict[str, Rule] = {
    r"input": _input,
    r"output": shapes.elementwise,
    # layers, and the functions that compute the same
    r"nn\.Conv[123]d": windows.convolution,
    r"nn\.ConvTranspose[123]d": windows.transposed,
    r"(nn\.(Avg|Max|LP)Pool|F\.(avg|max)_pool)[123]d": windows.pooling,
    r"(nn\.Adaptive(Avg|Max)Pool|F\.adaptive_(avg|max)_pool)[123]d": windows.adaptive,
    r"F\.conv[123]d": values.convolution,
    r"F\.conv_transpose[123]d": values.transposed,
    r"nn\.(Linear|Bilinear)": values.features,
    r"F\.linear": values.linear,
    r"nn\.Embedding": values.embedding,
    # what keeps the shape, and over which values it computes
    r"nn\.(Softmax|Softmin|LogSoftmax|Softmax2d)|F\.(log_)?softmax": values.saying(
        values.softmax
    ),
    r"nn\.BatchNorm[123]d|F\.batch_norm": values.saying(values.batch_norm),
    r"nn\.(Layer|RMS)Norm|F\.(layer|rms)_norm": values.saying(values.layer_norm),
    r"nn\.GroupNorm|F\.group_norm": values.saying(values.group_norm),
    r"nn\.InstanceNorm[123]d|F\.instance_norm": values.saying(values.instance_norm),
    r"nn\.(Identity|ChannelShuffle)|unpack|operator\.(neg|setitem)": shapes.same_shape,
    r"nn\.\w*Dropout[123]?d?|F\.\w*dropout[123]?d?|ops\.StochasticDepth": shapes.same_shape,
    r"torch\.(cum(sum|prod|max|min)|logcumsumexp)|F\.normalize": shapes.same_shape,
    r"Tensor\.(type_as|float|long|requires_grad_|to|contiguous)": shapes.same_shape,
    r"torch\.(tril|triu|roll|flip|sort|argsort|clone|detach|\w+_like)": shapes.same_shape,
    r"torch\.(index_add|index_fill|scatter\w*|bucketize|real|imag|angle|conj)": shapes.same_shape,
    # shapes
    r"nn\.Flatten|torch\.flatten": shapes.flatten,
    r"nn\.Unflatten": shapes.unflatten,
    r"Tensor\.view|torch\.reshape": shapes.view,
    r"torch\.permute": shapes.permute,
    r"torch\.transpose": shapes.transpose,
    r"torch\.squeeze": shapes.squeeze,
    r"torch\.unsqueeze": shapes.unsqueeze,
    r"Tensor\.expand": shapes.expand,
    r"torch\.(mean|sum|std|var|prod|logsumexp|all|any|norm|a?max|a?min|arg(max|min))": shapes.reduction,
    r"torch\.(nansum|nanmean|var_mean|std_mean|median|mode|kthvalue|quantile)": shapes.reduction,
    r"torch\.cat": shapes.cat,
    r"torch\.stack": shapes.stack,
    r"operator\.getitem": values.item,
    r"torch\.(matmul|bmm)": shapes.matmul,
    r"operator\.(add|sub|mul|truediv|pow|floordiv|mod)": shapes.elementwise,
    r"torch\.(where|masked_fill|maximum|minimum|eq|ne|lt|gt|le|ge|logical_\w+)": shapes.elementwise,
    r"torch\.(bitwise_\w+|isclose|lerp|atan2|hypot|copysign|complex|polar)": shapes.elementwise,
    r"torch\.(fmax|fmin|fmod|xlogy|logaddexp)": shapes.elementwise,
    # values without an input
    r"parameter|buffer|packed|torch\.(zeros|ones|full|randn?|randint)|Tensor\.new_\w+": values.literal_shape,
}
_COMPILED = tuple((re.compile(pattern), rule) for pattern, rule in _RULES.items())


def rule_of(call: SizeCall, spec: OpSpec) -> Rule | None:
    """Return the size rule of a call; None if there is none for its op."""
    for pattern, rule in _COMPILED:
        if pattern.fullmatch(call.op):
            return rule
    shapes_in = [tensor.shape for tensors in call.inputs.values() for tensor in tensors]
    if spec.category == "act" and shapes_in == [call.shape]:
        return values.saying(values.by_itself)
    return None


def broadcasts(op: str) -> bool:
    """Return whether an op broadcasts its tensors."""
    rule = next((rule for pattern, rule in _COMPILED if pattern.fullmatch(op)), None)
    return rule is shapes.elementwise or op in (
        "nn.CosineSimilarity",
        "nn.PairwiseDistance",
    )
