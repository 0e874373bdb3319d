"""Functions, methods and operators: the rows of `ops` other than modules, and corrections of their signatures."""

from __future__ import annotations

from typing import Any

from app.builder.literals import DType

FUNCTIONS: dict[str, str] = {
    "conv": """
        F.conv2d F.conv1d F.conv3d F.conv_transpose1d F.conv_transpose2d F.conv_transpose3d F.unfold F.fold
        Tensor.unfold
    """,
    "linear": "F.linear F.bilinear",
    "act": """
        F.relu F.relu6 F.leaky_relu F.elu F.selu F.gelu F.silu F.mish F.hardswish F.hardtanh F.softplus F.logsigmoid
        F.glu F.softmax F.log_softmax torch.sigmoid torch.tanh torch.abs torch.neg torch.sign torch.exp torch.log
        torch.sqrt torch.rsqrt torch.square torch.reciprocal torch.sin torch.cos torch.pow torch.clamp torch.cumsum
        torch.floor torch.ceil torch.round torch.erf torch.log1p torch.expm1 torch.exp2 torch.log2 torch.log10
        torch.trunc torch.frac torch.tan torch.asin torch.acos torch.atan torch.sinh torch.cosh torch.asinh torch.acosh
        torch.atanh torch.sinc torch.erfc torch.erfinv torch.lgamma torch.digamma torch.sgn torch.nan_to_num
        torch.isnan torch.isinf torch.isfinite torch.bitwise_not torch.cumprod torch.logcumsumexp torch.cummax
        torch.cummin F.hardsigmoid
    """,
    "norm": "F.normalize F.layer_norm F.rms_norm F.group_norm F.instance_norm F.local_response_norm F.batch_norm",
    "shape": """
        F.max_pool2d F.max_pool1d F.max_pool3d F.avg_pool2d F.avg_pool1d F.avg_pool3d F.adaptive_avg_pool2d
        F.adaptive_avg_pool1d F.adaptive_avg_pool3d F.adaptive_max_pool2d F.adaptive_max_pool1d F.adaptive_max_pool3d
        F.grid_sample F.interpolate F.pad F.pixel_shuffle F.pixel_unshuffle
        Tensor.view torch.reshape torch.flatten torch.permute torch.transpose torch.movedim torch.squeeze
        torch.unsqueeze Tensor.expand torch.tile torch.repeat_interleave torch.chunk torch.split torch.select
        torch.unbind torch.index_select torch.narrow torch.roll torch.flip torch.tril torch.triu
        torch.mean torch.sum torch.prod torch.std torch.var torch.norm torch.logsumexp torch.amax torch.amin torch.max
        torch.min torch.argmax torch.argmin torch.topk torch.sort torch.any torch.all
        torch.var_mean torch.std_mean torch.median torch.mode torch.kthvalue torch.quantile torch.nansum torch.nanmean
        torch.argsort torch.diagonal torch.diag_embed torch.trace torch.take_along_dim torch.index_add torch.index_fill
        torch.zeros_like torch.ones_like torch.full_like torch.randn_like torch.rand_like
        torch.zeros torch.ones torch.full torch.arange torch.linspace torch.eye
        torch.rand torch.randn torch.randint torch.randperm
        Tensor.new_zeros Tensor.new_ones Tensor.new_full operator.getitem operator.setitem Tensor.size Tensor.shape
        Tensor.dim Tensor.numel torch.finfo tuple unpack
        Tensor.to Tensor.type_as Tensor.float Tensor.long Tensor.contiguous torch.clone torch.detach
        Tensor.requires_grad_
        torch.fft.fft torch.fft.ifft torch.fft.rfft torch.fft.irfft torch.fft.fft2 torch.fft.ifft2 torch.fft.rfft2
        torch.fft.irfft2 torch.fft.fftn torch.fft.ifftn torch.fft.rfftn torch.fft.irfftn torch.fft.fftshift
        torch.fft.ifftshift torch.view_as_real torch.view_as_complex torch.real torch.imag torch.angle torch.conj
    """,
    "drop": "F.dropout F.dropout1d F.dropout2d F.dropout3d F.alpha_dropout",
    "merge": """
        operator.add operator.sub operator.mul operator.truediv operator.floordiv operator.mod operator.pow
        operator.neg torch.maximum torch.minimum torch.matmul torch.bmm
        torch.einsum torch.cat torch.stack torch.eq torch.ne torch.lt torch.le torch.gt torch.ge torch.logical_and
        torch.logical_or torch.logical_not torch.logical_xor torch.bitwise_and torch.bitwise_or torch.bitwise_xor
        torch.bitwise_left_shift torch.bitwise_right_shift torch.isclose torch.where torch.masked_fill torch.complex
        torch.polar torch.lerp torch.atan2 torch.hypot torch.copysign torch.fmax torch.fmin torch.fmod torch.xlogy
        torch.logaddexp torch.cdist torch.linalg.inv torch.linalg.solve torch.linalg.det torch.linalg.svdvals
        torch.linalg.qr torch.linalg.cholesky torch.linalg.eigvalsh torch.logdet torch.matrix_exp
    """,
    "seq": """
        F.scaled_dot_product_attention F.embedding F.embedding_bag F.one_hot torch.gather torch.scatter
        torch.scatter_add torch.scatter_reduce torch.bucketize torch.searchsorted torch.stft
    """,
}

# Of two tensors, or of one and a number.
_WITH_NUMBER = (
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "fmod",
    "xlogy",
    "copysign",
)
_TRANSFORMS = tuple(
    f"{inverse}{kind}{over}"
    for kind in ("fft", "rfft")
    for over in ("", "2", "n")
    for inverse in ("", "i")
)
# Builtins have schemas instead of Python signatures: the default overload of the function's name, unless another is
# named here. Functions whose signature in Python says less than their schema are here too.
SCHEMAS: dict[str, str] = {
    **{
        f"torch.{name}": f"{name}.Tensor"
        for name in ("eq", "ne", "lt", "le", "gt", "ge", *_WITH_NUMBER)
    },
    "F.conv_transpose2d": "conv_transpose2d.input",
    "F.conv_transpose3d": "conv_transpose3d.input",
    "torch.cdist": "cdist.default",
    "torch.einsum": "einsum.default",
    "torch.lerp": "lerp.Tensor",
    "torch.bucketize": "bucketize.Tensor",
    "torch.searchsorted": "searchsorted.Tensor",
    "torch.median": "median.dim",
    "torch.var_mean": "var_mean.correction",
    "torch.std_mean": "std_mean.correction",
    "torch.quantile": "quantile.scalar",
    "torch.index_fill": "index_fill.int_Scalar",
    "torch.scatter_reduce": "scatter_reduce.two",
    "torch.stft": "stft.center",
    "operator.add": "add.Tensor",
    "operator.sub": "sub.Tensor",
    "operator.mul": "mul.Tensor",
    "operator.truediv": "div.Tensor",
    "F.logsigmoid": "log_sigmoid.default",
    "torch.pow": "pow.Tensor_Scalar",
    "torch.transpose": "transpose.int",
    "torch.flatten": "flatten.using_ints",
    "torch.movedim": "movedim.int",
    "torch.squeeze": "squeeze.dims",
    "torch.repeat_interleave": "repeat_interleave.self_int",
    "torch.select": "select.int",
    "torch.mean": "mean.dim",
    "torch.sum": "sum.dim_IntList",
    "torch.prod": "prod.dim_int",
    "torch.std": "std.correction",
    "torch.var": "var.correction",
    "torch.norm": "norm.ScalarOpt_dim",
    "torch.max": "max.dim",
    "torch.min": "min.dim",
    "torch.any": "any.dims",
    "torch.all": "all.dims",
    "Tensor.to": "to.dtype",
    "torch.where": "where.self",
    "torch.unbind": "unbind.int",
    "torch.arange": "arange.start_step",
    "torch.randint": "randint.low",
    "torch.masked_fill": "masked_fill.Scalar",
    "torch.scatter": "scatter.src",
}

# Arguments that are not shown: where and how a tensor lies in memory, and what means the same without.
_LIKE = frozenset({"layout", "device", "pin_memory", "memory_format"})
_MAKING = tuple(
    f"torch.{name}"
    for name in (
        "zeros",
        "ones",
        "full",
        "arange",
        "linspace",
        "eye",
        "rand",
        "randn",
        "randint",
        "randperm",
    )
)
HIDDEN: dict[str, frozenset[str]] = {
    "F.max_pool2d": frozenset({"return_indices"}),
    "operator.add": frozenset({"alpha"}),
    "operator.sub": frozenset({"alpha"}),
    "F.normalize": frozenset({"out"}),
    **{
        f"F.{kind}max_pool{n}d": frozenset({"return_indices"})
        for kind, n in (
            ("", 1),
            ("", 3),
            ("adaptive_", 1),
            ("adaptive_", 2),
            ("adaptive_", 3),
        )
    },
    "torch.cdist": frozenset({"compute_mode"}),
    "torch.stft": frozenset({"align_to_window"}),
    "torch.linalg.svdvals": frozenset({"driver"}),
    "F.embedding_bag": frozenset(
        {"sparse", "scale_grad_by_freq", "include_last_offset"}
    ),
    "torch.repeat_interleave": frozenset({"output_size"}),
    "torch.einsum": frozenset({"path"}),
    "torch.gather": frozenset({"sparse_grad"}),
    "Tensor.to": frozenset({"non_blocking", "copy", "memory_format"}),
    "Tensor.expand": frozenset({"implicit"}),
    **dict.fromkeys(
        (f"torch.{name}_like" for name in ("zeros", "ones", "full", "randn", "rand")),
        _LIKE,
    ),
    **dict.fromkeys(_MAKING, _LIKE),
    **dict.fromkeys(("torch.clone", "Tensor.contiguous"), _LIKE),
}

# The maximum number of outputs of one call.
PARTS = 16
_PARTS = tuple((f"part{i}", "tensor") for i in range(PARTS))
_FOUND = (("values", "tensor"), ("indices", "tensor"))
OUTPUTS: dict[str, tuple[tuple[str, str], ...]] = {
    **{
        f"torch.{name}": _FOUND
        for name in (
            "max",
            "min",
            "topk",
            "sort",
            "median",
            "mode",
            "kthvalue",
            "cummax",
            "cummin",
        )
    },
    "torch.var_mean": (("var", "tensor"), ("mean", "tensor")),
    "torch.std_mean": (("std", "tensor"), ("mean", "tensor")),
    "torch.linalg.qr": (("Q", "tensor"), ("R", "tensor")),
    **dict.fromkeys(("torch.chunk", "torch.split"), _PARTS),
    "torch.unbind": (("output", "tuple"),),
    **{
        f"operator.{name}": (("output", "tensor or number"),)
        for name in ("add", "sub", "mul", "truediv")
    },
}
OUTPUTS_BY: dict[str, str] = {
    "torch.chunk": "chunks",
    "torch.split": "split_size_or_sections",
}

# Inputs in whose place a number may be typed.
OPERANDS: dict[str, tuple[str, ...]] = {
    **{
        f"operator.{name}": ("input", "other")
        for name in ("add", "sub", "mul", "truediv")
    },
    **{f"torch.{name}": ("other",) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"torch.{name}": ("other",) for name in _WITH_NUMBER},
    "torch.where": ("input", "other"),
    "torch.lerp": ("weight",),
}

# Factories on the device of another tensor, which has the port `like`.
LIKE = frozenset(_MAKING)

INTERPOLATION_MODES = (
    "nearest",
    "nearest-exact",
    "linear",
    "bilinear",
    "bicubic",
    "trilinear",
    "area",
)
_OVER_DIMS = (
    "sum",
    "std",
    "var",
    "norm",
    "amax",
    "amin",
    "logsumexp",
    "var_mean",
    "std_mean",
    "nansum",
    "nanmean",
)
_OVER_DIM = (
    "prod",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    "cumsum",
    "topk",
    "sort",
    "unsqueeze",
    "chunk",
    "split",
    "select",
    "narrow",
    "repeat_interleave",
    "gather",
    "scatter",
    "index_select",
    "unbind",
    "cumprod",
    "logcumsumexp",
    "cummax",
    "cummin",
    "median",
    "mode",
    "kthvalue",
    "quantile",
    "argsort",
    "take_along_dim",
    "index_fill",
    "scatter_add",
    "scatter_reduce",
)

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")

# Facts about single parameters that schemas and annotations leave open.
PARAMS: dict[tuple[str, str], dict[str, Any]] = {
    **{
        (key, "dim"): {"start": 1, "required": True}
        for key in ("F.softmax", "F.log_softmax")
    },
    **{
        (f"F.conv{n}d", param): {"count": n, "default": 1}
        for n in (1, 2, 3)
        for param in ("stride", "dilation")
    },
    **{
        (f"F.conv{n}d", "padding"): {
            "count": n,
            "default": 0,
            "choices": ("same", "valid"),
        }
        for n in (1, 2, 3)
    },
    ("F.layer_norm", "normalized_shape"): {"start": (8,), "minimum": 1, "count": 0},
    ("F.group_norm", "num_groups"): {"start": 1, "minimum": 1},
    ("F.softmax", "dtype"): {"kind": "dtype"},
    ("F.log_softmax", "dtype"): {"kind": "dtype"},
    ("F.gelu", "approximate"): {"kind": "choice", "choices": ("none", "tanh")},
    ("F.max_pool2d", "kernel_size"): {"start": 2},
    **{
        (f"torch.fft.{name}", "norm"): {
            "kind": "choice",
            "choices": ("backward", "ortho", "forward"),
            "optional": True,
        }
        for name in _TRANSFORMS
    },
    **{
        (f"torch.fft.{name}2", "dim"): {"start": (-2, -1)}
        for name in ("fft", "ifft", "rfft", "irfft")
    },
    **{
        (f"F.{name}", param): {"count": 2}
        for name in ("fold", "unfold")
        for param in ("dilation", "padding", "stride")
    },
    ("F.unfold", "kernel_size"): {"count": 2},
    ("F.fold", "kernel_size"): {"start": 2, "count": 2},
    ("F.fold", "stride"): {"start": 2, "count": 2},
    ("F.fold", "output_size"): {"start": (8, 8), "count": 2},
    ("F.avg_pool2d", "padding"): {"count": 2, "default": 0},
    ("F.avg_pool2d", "kernel_size"): {"start": 2, "count": 2},
    ("F.avg_pool2d", "stride"): {"count": 2, "default": None, "optional": True},
    ("F.interpolate", "size"): {"kind": "ints", "count": 0, "minimum": 1},
    ("F.interpolate", "scale_factor"): {
        "kind": "float",
        "optional": True,
        "start": 2.0,
        "minimum": 0,
    },
    ("F.interpolate", "mode"): {"kind": "choice", "choices": INTERPOLATION_MODES},
    ("F.pad", "pad"): {"start": (1, 1, 1, 1)},
    ("F.pad", "mode"): {
        "kind": "choice",
        "choices": ("constant", "reflect", "replicate", "circular"),
    },
    ("F.pixel_shuffle", "upscale_factor"): {"start": 2, "minimum": 1},
    ("F.pixel_unshuffle", "downscale_factor"): {"start": 2, "minimum": 1},
    ("Tensor.unfold", "dimension"): {"start": 1},
    ("Tensor.unfold", "size"): {"start": 3, "minimum": 0},
    ("Tensor.unfold", "step"): {"start": 1, "minimum": 1},
    ("F.one_hot", "num_classes"): {
        "start": 10,
        "required": True,
        "default": None,
        "minimum": 1,
    },
    ("F.normalize", "p"): {"minimum": None, "maximum": None},
    ("torch.pow", "exponent"): {"start": 2.0},
    ("torch.clamp", "min"): {"start": -1.0},
    ("torch.clamp", "max"): {"start": 1.0},
    ("torch.masked_fill", "value"): {"start": 0.0},
    ("torch.full_like", "fill_value"): {"start": 1.0},
    ("torch.full", "fill_value"): {"kind": "number", "start": 1.0},
    **{
        (f"torch.{name}", "size"): {"start": (4, 4), "minimum": 0}
        for name in ("zeros", "ones", "full", "rand", "randn", "randint")
    },
    ("torch.randint", "low"): {"default": 0, "required": False},
    ("torch.randint", "high"): {"start": 10},
    ("torch.randperm", "n"): {"start": 8, "minimum": 0},
    ("torch.arange", "end"): {"kind": "number", "start": 10},
    ("torch.arange", "start"): {"kind": "number", "default": 0, "required": False},
    ("torch.arange", "step"): {"kind": "number", "default": 1},
    ("torch.linspace", "start"): {"kind": "number", "start": 0.0},
    ("torch.linspace", "end"): {"kind": "number", "start": 1.0},
    ("torch.linspace", "steps"): {"start": 10, "minimum": 0},
    ("torch.eye", "n"): {"start": 8, "minimum": 0},
    **{
        (key, "dtype"): {"kind": "dtype", "optional": True, "default": None}
        for key in sorted(LIKE)
    },
    **{
        (f"torch.{name}_like", "dtype"): {"kind": "dtype", "optional": True}
        for name in ("zeros", "ones", "full", "randn", "rand")
    },
    ("torch.einsum", "equation"): {"kind": "equation", "start": "bij,bjk->bik"},
    ("torch.mean", "dim"): {"start": (2, 3), "required": True},
    **{
        (f"torch.{name}", "dim"): {
            "start": (1,),
            "required": True,
            "default": None,
            "optional": False,
        }
        for name in _OVER_DIMS
    },
    **{(f"torch.{name}", "dim"): {"start": 1} for name in _OVER_DIM},
    **{
        (f"torch.{name}", "correction"): {
            "kind": "int",
            "default": 1,
            "optional": False,
        }
        for name in ("std", "var", "var_mean", "std_mean")
    },
    **{
        (f"F.{name}", "training"): {"kind": "bool", "default": None, "optional": True}
        for name in DROPOUTS
    },
    **{
        (f"F.conv_transpose{n}d", param): {
            "count": n,
            "default": int(param in ("stride", "dilation")),
        }
        for n in (1, 2, 3)
        for param in ("stride", "padding", "output_padding", "dilation")
    },
    **{(f"F.max_pool{n}d", "kernel_size"): {"start": 2} for n in (1, 3)},
    **{(f"F.avg_pool{n}d", "padding"): {"count": n, "default": 0} for n in (1, 3)},
    **{(f"F.avg_pool{n}d", "kernel_size"): {"start": 2, "count": n} for n in (1, 3)},
    **{
        (f"F.avg_pool{n}d", "stride"): {"count": n, "default": None, "optional": True}
        for n in (1, 3)
    },
    ("F.adaptive_avg_pool1d", "output_size"): {"count": 1, "start": 1, "minimum": 1},
    ("F.rms_norm", "normalized_shape"): {"start": (8,), "minimum": 1, "count": 0},
    ("F.local_response_norm", "size"): {"start": 5, "minimum": 1},
    ("F.grid_sample", "mode"): {
        "kind": "choice",
        "choices": ("bilinear", "nearest", "bicubic"),
    },
    ("F.grid_sample", "padding_mode"): {
        "kind": "choice",
        "choices": ("zeros", "border", "reflection"),
    },
    ("F.embedding_bag", "mode"): {"kind": "choice", "choices": ("mean", "sum", "max")},
    ("torch.cdist", "p"): {"minimum": 0, "maximum": None},
    ("torch.kthvalue", "k"): {"start": 1, "minimum": 1},
    ("torch.quantile", "q"): {"start": 0.5, "minimum": 0, "maximum": 1},
    ("torch.quantile", "interpolation"): {
        "kind": "choice",
        "choices": ("linear", "lower", "higher", "midpoint", "nearest"),
    },
    ("torch.index_fill", "value"): {"start": 0.0},
    ("torch.scatter_reduce", "reduce"): {
        "kind": "choice",
        "choices": ("sum", "prod", "mean", "amax", "amin"),
        "start": "sum",
    },
    ("torch.linalg.qr", "mode"): {
        "kind": "choice",
        "choices": ("reduced", "complete", "r"),
    },
    ("torch.linalg.eigvalsh", "UPLO"): {"kind": "choice", "choices": ("L", "U")},
    ("torch.searchsorted", "side"): {
        "kind": "choice",
        "choices": ("left", "right"),
        "optional": True,
    },
    ("torch.stft", "n_fft"): {"start": 8, "minimum": 1},
    ("torch.index_add", "dim"): {"start": 0},
    ("torch.diagonal", "dim1"): {"start": 1},
    ("torch.diagonal", "dim2"): {"start": 2},
    ("torch.stft", "return_complex"): {"start": True},
    ("torch.stft", "pad_mode"): {
        "kind": "choice",
        "choices": ("reflect", "constant", "replicate", "circular"),
    },
    **{
        (f"torch.{name}", "dtype"): {"kind": "dtype", "optional": True}
        for name in ("sum", "mean", "prod", "cumsum", "cumprod", "nansum", "nanmean")
    },
    ("torch.norm", "p"): {
        "start": 2.0,
        "optional": False,
        "minimum": None,
        "maximum": None,
    },
    **{
        (f"torch.{name}", "dim"): {"start": 1, "required": True}
        for name in ("cat", "stack")
    },
    ("torch.squeeze", "dim"): {
        "start": 1,
        "optional": True,
        "required": False,
        "default": None,
    },
    ("torch.topk", "k"): {"start": 1, "minimum": 1},
    ("torch.chunk", "chunks"): {"start": 2, "minimum": 1, "maximum": PARTS},
    ("torch.split", "split_size_or_sections"): {
        "kind": "ints",
        "count": 0,
        "start": (4, 4),
        "minimum": 0,
    },
    ("torch.select", "index"): {"start": 0},
    ("torch.narrow", "start"): {"start": 0},
    ("torch.narrow", "length"): {"start": 1, "minimum": 0},
    ("torch.roll", "shifts"): {"start": (1,)},
    ("torch.roll", "dims"): {"start": (-1,), "required": True, "default": None},
    ("torch.flip", "dims"): {"start": (-1,)},
    ("torch.tile", "dims"): {"start": (2,)},
    ("torch.repeat_interleave", "repeats"): {"start": 2, "minimum": 1},
    ("torch.movedim", "source"): {"start": 1},
    ("torch.movedim", "destination"): {"start": -1},
    ("torch.permute", "dims"): {"start": (0, 2, 1)},
    ("torch.transpose", "dim0"): {"start": 1},
    ("torch.transpose", "dim1"): {"start": 2},
    ("torch.flatten", "start_dim"): {"start": 1},
    ("torch.reshape", "shape"): {"start": (-1, 64)},
    ("Tensor.view", "size"): {"start": (-1, 64)},
    ("Tensor.expand", "size"): {"start": (-1, 64)},
    ("Tensor.to", "dtype"): {"kind": "dtype", "start": DType("float32")},
}

# Calls with literals before the tensors.
LITERALS_FIRST = frozenset({"torch.einsum"})

# Tensors after a literal, which are passed by keyword.
NAMED = frozenset(
    {
        ("F.rms_norm", "weight"),
        ("torch.index_add", "source"),
        ("torch.stft", "window"),
        *(
            (f"torch.{name}", "index")
            for name in ("gather", "index_select", "index_fill", "index_add")
        ),
        *(
            (f"torch.{name}", port)
            for name in ("scatter", "scatter_add", "scatter_reduce")
            for port in ("index", "src")
        ),
    }
)

# Implied arguments of functions, which do not know the mode of the net.
WRITTEN: dict[str, str] = dict.fromkeys(
    (*(f"F.{name}" for name in DROPOUTS), "F.batch_norm"), "training=self.training"
)

# Arguments with random behaviour in training only, which the caller has to switch off.
IN_TRAINING: dict[str, str] = {"F.scaled_dot_product_attention": "dropout_p"}

# A buffer wired to this port counts training batches; it is no argument of the call.
COUNTED = "num_batches_tracked"

# Names that differ from Python's operator module.
LABELS: dict[str, str] = {"operator.truediv": "div"}

STEMS: dict[str, str] = {
    "operator.truediv": "div",
    **{f"F.conv{n}d": "conv" for n in (1, 2, 3)},
    "F.max_pool2d": "max_pool",
    "F.scaled_dot_product_attention": "attention",
    "torch.repeat_interleave": "repeat",
    "torch.index_select": "index",
}

# Descriptions of arguments that override torch's.
ARGUMENTS: dict[str, dict[str, str]] = {
    f"F.{name}": {
        "training": "None follows train() and eval(); True always drops, False never."
    }
    for name in DROPOUTS
}

# Summaries of ops whose documentation is missing or a formula.
SUMMARIES: dict[str, str] = {
    "Tensor.float": "The same values as float32.",
    "Tensor.long": "The same values as int64, fractions truncated.",
    "F.gelu": "Applies GELU(x) = x * Phi(x) element-wise, where Phi is the distribution function of a Gaussian.",
    "F.logsigmoid": "Applies LogSigmoid(x) = log(1 / (1 + exp(-x))) element-wise.",
    "torch.detach": "Returns the same values detached from the graph: no gradient flows back.",
    "torch.masked_fill": "Fills in value wherever mask is True.",
    "torch.index_fill": "Fills value at the positions of a dimension given by index.",
    "torch.cummax": "Returns the cumulative maximum along a dimension, and its indices.",
    "torch.cummin": "Returns the cumulative minimum along a dimension, and its indices.",
}
