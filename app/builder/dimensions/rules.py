"""Table of the size rules by op."""

from __future__ import annotations

import re

from app.builder.catalog.catalog import OpSpec
from app.builder.dimensions import conv as windows
from app.builder.dimensions import fft as spectra
from app.builder.dimensions import functions, layers, matrices, mixing, shapes, values
from app.builder.dimensions.calls import Rule, SizeCall, SizeNote, set_by, unchanged
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.value_types import Dim


def passed_by(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the sizes of a muted node: those of its input."""
    words = f"{call.name} is muted: its input passes through unchanged."
    return tuple(unchanged(call.first, i, words) for i in range(len(call.first.shape)))


def _input(call: SizeCall) -> tuple[SizeNote, ...]:
    n = Formula("N", (Symbol("N", "batch size", Dim(1)),))
    batch = SizeNote(n, "N is the batch size.")
    sizes, place = call.params.get("shape") or (), call.params.get("batch", 0)
    notes = [set_by(f"shape[{i}]", size) for i, size in enumerate(sizes)]
    if place is not None:
        notes.insert(place, batch)
    arrives = tuple(one.formula.result for one in notes if one.formula is not None)
    if arrives != call.shape:  # a block's input has the shape that its instance gets
        words = f"The input {call.name} of the block."
        return tuple(
            set_by(f"dim {i} of the input", size, words)
            for i, size in enumerate(call.shape)
        )
    return tuple(notes)


_RULES: tuple[tuple[str, Rule], ...] = (
    (r"F\.conv_transpose[123]d", matrices.transposed),
    (r"F\.bilinear", matrices.bilinear),
    (r"F\.embedding_bag", matrices.bags),
    (r"F\.grid_sample", matrices.sampled),
    (r"torch\.(nansum|nanmean|var_mean|std_mean)", shapes.reduction),
    (r"torch\.(median|mode|kthvalue|quantile)", matrices.over_last),
    (
        r"torch\.(index_add|index_fill|scatter_\w+|argsort|bucketize|matrix_exp)",
        functions.same_shape,
    ),
    (
        r"torch\.(bitwise_\w+|isclose|lerp|atan2|hypot|copysign|f(max|min|mod)|xlogy|logaddexp)",
        shapes.elementwise,
    ),
    (r"torch\.linalg\.(inv|cholesky)", functions.same_shape),
    (r"torch\.linalg\.det|torch\.logdet", matrices.numbers_of_matrices),
    (r"torch\.linalg\.(svdvals|eigvalsh)", matrices.values_of_matrices),
    (r"torch\.linalg\.qr", matrices.decomposed),
    (r"torch\.linalg\.solve|torch\.searchsorted", matrices.like_second),
    (r"torch\.take_along_dim", matrices.like_indices),
    (r"torch\.cdist", matrices.distances),
    (r"torch\.trace", matrices.traced),
    (r"torch\.diagonal", matrices.diagonal),
    (r"torch\.diag_embed", matrices.onto_diagonal),
    (r"torch\.stft", matrices.spectrum),
    (r"nn\.(Lazy)?ConvTranspose[123]d", windows.transposed),
    (r"nn\.(Lazy)?Conv[123]d", windows.convolution),
    (r"F\.conv[123]d", values.convolution),
    (r"F\.linear", values.linear),
    (r"(nn\.Adaptive(Avg|Max)Pool|F\.adaptive_(avg|max)_pool)[123]d", windows.adaptive),
    (r"(nn\.(Avg|Max|LP)Pool|F\.(avg|max|lp)_pool)[123]d", windows.pooling),
    (r"input", _input),
    (r"(nn\.(Lazy)?Linear)", layers.linear),
    (r"nn\.Flatten|(torch|Tensor)\.flatten", shapes.flatten),
    (r"nn\.Unflatten", shapes.unflatten),
    (r"Tensor\.(view|reshape)|torch\.reshape", shapes.view),
    (r"(torch|Tensor)\.permute", shapes.permute),
    (r"(torch|Tensor)\.(transpose|swapaxes|swapdims)", shapes.transpose),
    (
        r"(torch|Tensor)\.(mean|sum|std|var|prod|logsumexp|all|any|norm)",
        shapes.reduction,
    ),
    (r"(torch|Tensor)\.(a|arg)?(max|min)", shapes.reduction),
    (r"torch\.(cat|concat)", shapes.cat),
    (r"torch\.(matmul|bmm|mm)|operator\.matmul", shapes.matmul),
    (r"operator\.(add|sub|mul|truediv|pow|floordiv|mod)", shapes.elementwise),
    (
        r"torch\.(add|sub|mul|div|maximum|minimum|where|eq|ne|lt|gt|le|ge|logical_\w+|masked_fill)",
        shapes.elementwise,
    ),
    (r"torch\.(complex|polar)", shapes.elementwise),
    (r"nn\.Bilinear", layers.linear),
    (r"nn\.(LSTM|GRU|RNN)Cell", layers.cell),
    (r"nn\.EmbeddingBag", layers.bags),
    (r"nn\.Transformer\w*", layers.transformer),
    (r"nn\.GLU|F\.glu", layers.halved),
    (r"nn\.\w+Pad[123]d|F\.pad", layers.padded),
    (r"nn\.PixelShuffle|F\.pixel_shuffle", layers.shuffled),
    (r"nn\.PixelUnshuffle|F\.pixel_unshuffle", layers.unshuffled),
    (r"nn\.Upsampl\w+|F\.interpolate", layers.upsampled),
    (r"nn\.MaxUnpool[123]d", windows.unpooling),
    (r"nn\.FractionalMaxPool[23]d", windows.fractional),
    (r"nn\.Unfold|F\.unfold", windows.unfolding),
    (r"nn\.Fold|F\.fold", windows.folding),
    (r"nn\.(CosineSimilarity|PairwiseDistance)", functions.compared),
    (r"torch\.gather", functions.gather),
    (r"torch\.scatter", functions.same_shape),
    (
        r"nn\.(Softm(ax|in)|LogSoftmax|Softmax2d)|F\.(log_)?softmax",
        mixing.saying(mixing.softmax),
    ),
    (r"torch\.(cum(sum|prod|max|min)|logcumsumexp)", mixing.saying(mixing.running)),
    (
        r"nn\.(Lazy)?BatchNorm[123]d|nn\.SyncBatchNorm|F\.batch_norm",
        mixing.saying(mixing.batch_norm),
    ),
    (
        r"(nn|F)\.(LayerNorm|RMSNorm|layer_norm|rms_norm)",
        mixing.saying(mixing.layer_norm),
    ),
    (r"nn\.GroupNorm|F\.group_norm", mixing.saying(mixing.group_norm)),
    (
        r"nn\.(Lazy)?InstanceNorm[123]d|F\.instance_norm",
        mixing.saying(mixing.instance_norm),
    ),
    (
        r"nn\.(LocalResponseNorm|CrossMapLRN2d)|F\.local_response_norm",
        mixing.saying(mixing.across_channels),
    ),
    (r"F\.normalize", mixing.saying(mixing.normalize)),
    (
        r"nn\.(Dropout[123]d|FeatureAlphaDropout)|F\.dropout[123]d",
        mixing.saying(mixing.channels_dropped),
    ),
    (r"ops\.StochasticDepth", mixing.saying(mixing.samples_dropped)),
    (r"nn\.(Alpha)?Dropout|F\.(alpha_)?dropout", mixing.saying(mixing.values_dropped)),
    (
        r"parameter|buffer|packed|torch\.(zeros|ones|full|randn?|randint)|Tensor\.new_\w+",
        values.literal_shape,
    ),
    (r"constant", values.constant),
    (r"torch\.arange", values.counting),
    (r"torch\.linspace", values.steps),
    (r"torch\.randperm", values.numbered),
    (r"Tensor\.unfold", windows.sliding),
    (r"torch\.eye", values.square),
    (r"torch\.index_select", values.index_select),
    (r"operator\.getitem", values.item),
    (
        r"Tensor\.(type_as|float|long|requires_grad_)|torch\.(tril|triu)|operator\.neg|unpack",
        functions.same_shape,
    ),
    (
        r"operator\.setitem|torch\.(real|imag|angle|conj)|torch\.fft\.i?fftshift",
        functions.same_shape,
    ),
    (r"torch\.fft\.\w+", spectra.transformed),
    (r"torch\.view_as_real", spectra.as_pairs),
    (r"torch\.view_as_complex", spectra.of_pairs),
    (r"nn\.(Identity|ChannelShuffle)", functions.same_shape),
    (
        r"(torch|Tensor)\.(roll|flip|sort|\w+_like|to|contiguous|clone|detach)",
        functions.same_shape,
    ),
    (r"(torch|Tensor)\.(movedim|moveaxis)", functions.movedim),
    (r"(torch|Tensor)\.squeeze", functions.squeeze),
    (r"(torch|Tensor)\.unsqueeze", functions.unsqueeze),
    (r"Tensor\.expand", functions.expand),
    (r"torch\.tile|Tensor\.repeat", functions.tile),
    (r"torch\.repeat_interleave", functions.repeat_interleave),
    (r"torch\.chunk", functions.chunk),
    (r"torch\.split", functions.split),
    (r"torch\.select", functions.select),
    (r"torch\.narrow", functions.narrow),
    (r"torch\.topk", functions.topk),
    (r"torch\.stack", functions.stack),
    (r"torch\.einsum", functions.einsum),
    (r"F\.scaled_dot_product_attention", functions.attention),
    (r"F\.one_hot", functions.one_hot),
    (r"F\.embedding", layers.looked_up),
    (r"nn\.Embedding", layers.embedding),
    (r"nn\.(RNN|LSTM|GRU)", layers.recurrent),
    (r"nn\.MultiheadAttention", layers.attention),
    (r"output", shapes.elementwise),
)
_COMPILED = tuple((re.compile(pattern), rule) for pattern, rule in _RULES)


def rule_of(call: SizeCall, spec: OpSpec) -> Rule | None:
    """Return the size rule of a call; None if there is none for its op."""
    for pattern, rule in _COMPILED:
        if pattern.fullmatch(call.op):
            return rule
    if sum(len(many) for many in call.inputs.values()) != 1:
        return None
    if spec.category in ("norm", "drop"):
        return functions.same_shape
    return mixing.saying(mixing.by_itself) if spec.category == "act" else None


def stretches(op: str) -> bool:
    """Return whether an op broadcasts its tensors."""
    rule = next((rule for pattern, rule in _COMPILED if pattern.fullmatch(op)), None)
    return rule in (shapes.elementwise, functions.compared)
