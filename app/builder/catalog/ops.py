"""The table of operations, and corrections where a signature is insufficient.

A row is (key, category). Everything else is read from torch by `introspect`.
"""

from __future__ import annotations

from typing import Any

from app.builder.catalog import ops_functions
from app.builder.catalog.ops_functions import (
    ARGUMENTS,
    COUNTED,
    IN_TRAINING,
    INTERPOLATION_MODES,
    LABELS,
    LIKE,
    LITERALS_FIRST,
    NAMED,
    OPERANDS,
    SCHEMAS,
    WRITTEN,
)


def _rows(category: str, keys: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, category) for key in keys.split())


def _functions(category: str) -> tuple[tuple[str, str], ...]:
    return _rows(category, ops_functions.FUNCTIONS[category])


OPS: tuple[tuple[str, str], ...] = (
    *_rows("io", "input output parameter buffer constant packed number"),
    *_rows(
        "conv",
        """
        nn.Conv2d nn.Conv1d nn.Conv3d nn.ConvTranspose2d nn.ConvTranspose1d nn.ConvTranspose3d nn.Unfold nn.Fold
    """,
    ),
    *_functions("conv"),
    *_rows("linear", "nn.Linear nn.Bilinear nn.Identity"),
    *_functions("linear"),
    *_rows(
        "act",
        """
        nn.ReLU nn.LeakyReLU nn.PReLU nn.RReLU nn.ReLU6 nn.ELU nn.CELU nn.SELU nn.GELU nn.SiLU nn.Mish nn.GLU
        nn.Hardswish nn.Hardsigmoid nn.Hardtanh nn.Hardshrink nn.Softshrink nn.Tanhshrink nn.Softplus nn.Softsign
        nn.Sigmoid nn.LogSigmoid nn.Tanh nn.Threshold nn.Softmax nn.Softmax2d nn.Softmin nn.LogSoftmax
    """,
    ),
    *_functions("act"),
    *_rows(
        "norm",
        """
        nn.BatchNorm2d nn.BatchNorm1d nn.BatchNorm3d nn.LayerNorm nn.RMSNorm nn.GroupNorm nn.InstanceNorm2d
        nn.InstanceNorm1d nn.InstanceNorm3d nn.LocalResponseNorm nn.CrossMapLRN2d
    """,
    ),
    *_functions("norm"),
    *_rows(
        "shape",
        """
        nn.MaxPool2d nn.MaxPool1d nn.MaxPool3d nn.MaxUnpool2d nn.MaxUnpool1d nn.MaxUnpool3d
        nn.AvgPool2d nn.AvgPool1d nn.AvgPool3d nn.AdaptiveAvgPool2d nn.AdaptiveAvgPool1d nn.AdaptiveAvgPool3d
        nn.AdaptiveMaxPool2d nn.AdaptiveMaxPool1d nn.AdaptiveMaxPool3d nn.FractionalMaxPool2d nn.FractionalMaxPool3d
        nn.LPPool2d nn.LPPool1d nn.LPPool3d
        nn.ZeroPad2d nn.ZeroPad1d nn.ZeroPad3d nn.ConstantPad2d nn.ConstantPad1d nn.ConstantPad3d
        nn.ReflectionPad2d nn.ReflectionPad1d nn.ReflectionPad3d nn.ReplicationPad2d nn.ReplicationPad1d
        nn.ReplicationPad3d nn.CircularPad2d nn.CircularPad1d nn.CircularPad3d
        nn.Upsample nn.UpsamplingNearest2d nn.UpsamplingBilinear2d nn.PixelShuffle nn.PixelUnshuffle nn.ChannelShuffle
        nn.Flatten nn.Unflatten
    """,
    ),
    *_functions("shape"),
    *_rows(
        "drop",
        """
        nn.Dropout nn.Dropout2d nn.Dropout1d nn.Dropout3d nn.AlphaDropout nn.FeatureAlphaDropout ops.StochasticDepth
    """,
    ),
    *_functions("drop"),
    *_functions("merge"),
    *_rows("merge", "nn.CosineSimilarity nn.PairwiseDistance"),
    *_rows(
        "seq",
        """
        nn.Embedding nn.EmbeddingBag nn.LSTM nn.GRU nn.RNN nn.LSTMCell nn.GRUCell nn.RNNCell nn.MultiheadAttention
        nn.TransformerEncoderLayer nn.TransformerDecoderLayer nn.Transformer
    """,
    ),
    *_functions("seq"),
)

# Public classes of torch.nn that are not in the palette, by reason.
LEFT_OUT: dict[str, str] = {
    "a container; the network itself is one": """
        Container Sequential ModuleList ModuleDict ParameterList ParameterDict
    """,
    "a base class that computes nothing itself": "Module RNNBase RNNCellBase",
    "a value that modules hold, not a module": "Buffer Parameter UninitializedBuffer UninitializedParameter",
    "takes a layer as its argument; add the layer and repeat it instead": "TransformerEncoder TransformerDecoder",
    "spreads a net over several devices, which is set for the run": "DataParallel SyncBatchNorm",
    "infers its sizes from the input, as any parameter left on auto does": """
        LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d
        LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear
    """,
    "a loss, which is chosen under Training and is not part of the net": """
        AdaptiveLogSoftmaxWithLoss BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss
        GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss LinearCrossEntropyOptions
        MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d
        PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss
    """,
}

RECURRENT = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
# Pooling ops that can return the indices of the maxima.
WITH_INDICES = (
    *(f"nn.{kind}MaxPool{n}d" for kind in ("", "Adaptive") for n in (1, 2, 3)),
    "nn.FractionalMaxPool2d",
    "nn.FractionalMaxPool3d",
)

# Ops with the signature of another object: recurrent layers take *args, pooling is dispatched on a flag.
SIGNATURES: dict[str, str] = {
    **dict.fromkeys(
        ("nn.LSTM", "nn.GRU", "nn.RNN"), "torch.nn.modules.rnn.RNNBase.__init__"
    ),
    **{
        f"F.{name}": f"torch.nn.functional._{name}"
        for name in (
            "max_pool1d",
            "max_pool2d",
            "max_pool3d",
            "adaptive_max_pool1d",
            "adaptive_max_pool2d",
            "adaptive_max_pool3d",
        )
    },
}

# Arguments of the constructor that are not in that signature.
MORE: dict[str, tuple[dict[str, Any], ...]] = {
    "nn.RNN": (
        {
            "name": "nonlinearity",
            "kind": "choice",
            "default": "tanh",
            "choices": ("tanh", "relu"),
        },
    ),
}

# Arguments that are not shown: placement is the run's business, the rest are private, old names or other layers.
HIDDEN: dict[str, frozenset[str]] = {
    "*": frozenset({"device", "_stacklevel", "_weight", "_freeze", "_random_samples"}),
    **dict.fromkeys(("nn.GRU", "nn.RNN"), frozenset({"mode", "proj_size"})),
    "nn.LSTM": frozenset({"mode"}),
    **ops_functions.HIDDEN,
    **dict.fromkeys(
        (f"nn.ConvTranspose{n}d" for n in (1, 2, 3)), frozenset({"output_size"})
    ),
    "nn.Hardtanh": frozenset({"min_value", "max_value"}),
    "nn.Transformer": frozenset({"custom_encoder", "custom_decoder"}),
}

# Outputs that are more than one tensor, as the documentation of the layer names them: (name, kind).
OUTPUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "nn.LSTM": (("output", "tensor"), ("(h_n, c_n)", "tuple")),
    **dict.fromkeys(("nn.GRU", "nn.RNN"), (("output", "tensor"), ("h_n", "tensor"))),
    "nn.LSTMCell": (("h_1", "tensor"), ("c_1", "tensor")),
    "nn.MultiheadAttention": (
        ("attn_output", "tensor"),
        ("attn_output_weights", "tensor"),
    ),
    **dict.fromkeys(WITH_INDICES, (("output", "tensor"), ("indices", "tensor"))),
    **ops_functions.OUTPUTS,
}

# The parameter that decides how many of these outputs come: a flag, a number or the sizes of each.
OUTPUTS_BY: dict[str, str] = {
    **dict.fromkeys(WITH_INDICES, "return_indices"),
    **ops_functions.OUTPUTS_BY,
}

# Input ports that carry something else than a tensor, and those that take several as one argument.
PORT_KINDS: dict[tuple[str, str], str] = {("nn.LSTM", "hx"): "tuple"}
VARIADIC = frozenset({("nn.LSTMCell", "hx")})

# Parameters that the arriving shape decides: which input, and which dimensions of it (a slice gives a tuple).
AUTO_RULES: dict[tuple[str, str], tuple[str, int | slice]] = {
    **{(f"nn.Conv{n}d", "in_channels"): ("input", 1) for n in (1, 2, 3)},
    **{(f"nn.ConvTranspose{n}d", "in_channels"): ("input", 1) for n in (1, 2, 3)},
    ("nn.Linear", "in_features"): ("input", -1),
    ("nn.Bilinear", "in1_features"): ("input1", -1),
    ("nn.Bilinear", "in2_features"): ("input2", -1),
    **{(f"nn.BatchNorm{n}d", "num_features"): ("input", 1) for n in (1, 2, 3)},
    **{(f"nn.InstanceNorm{n}d", "num_features"): ("input", 1) for n in (1, 2, 3)},
    ("nn.GroupNorm", "num_channels"): ("input", 1),
    ("nn.LayerNorm", "normalized_shape"): ("input", slice(-1, None)),
    ("nn.RMSNorm", "normalized_shape"): ("x", slice(-1, None)),
    **{(f"nn.{name}", "input_size"): ("input", -1) for name in RECURRENT},
    ("nn.MultiheadAttention", "embed_dim"): ("query", -1),
    ("nn.TransformerEncoderLayer", "d_model"): ("src", -1),
    ("nn.TransformerDecoderLayer", "d_model"): ("tgt", -1),
    ("nn.Transformer", "d_model"): ("src", -1),
}

_PADS = tuple(
    f"nn.{kind}Pad{n}d"
    for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular")
    for n in (1, 2, 3)
)
_TRANSFORMERS = (
    "nn.TransformerEncoderLayer",
    "nn.TransformerDecoderLayer",
    "nn.Transformer",
)
_POOLS = tuple(
    f"nn.{kind}{n}d"
    for kind in ("MaxPool", "MaxUnpool", "AvgPool", "LPPool")
    for n in (1, 2, 3)
)
_ADAPTIVE = tuple(
    f"nn.Adaptive{kind}Pool{n}d" for kind in ("Avg", "Max") for n in (1, 2, 3)
)

# Calls that take their sizes one by one rather than as a tuple.
SPREAD_SIZES = {
    "Tensor.view": "size",
    "Tensor.expand": "size",
    "torch.zeros": "size",
    "torch.ones": "size",
    "torch.rand": "size",
    "torch.randn": "size",
}

# Facts about single parameters that annotations leave open.
PARAMS: dict[tuple[str, str], dict[str, Any]] = {
    **{
        (f"nn.ConvTranspose{n}d", "padding_mode"): {"choices": ("zeros",)}
        for n in (1, 2, 3)
    },
    ("nn.GELU", "approximate"): {"kind": "choice", "choices": ("none", "tanh")},
    **{
        (f"nn.{name}", "batch_first"): {"start": True}
        for name in ("LSTM", "GRU", "RNN", "MultiheadAttention")
    },
    ("nn.RNNCell", "nonlinearity"): {"kind": "choice", "choices": ("tanh", "relu")},
    ("nn.MultiheadAttention", "embed_dim"): {"optional": False},
    ("nn.MultiheadAttention", "num_heads"): {"optional": False},
    **{
        (key, "dim"): {"start": 1, "required": True}
        for key in ("nn.Softmax", "nn.Softmin", "nn.LogSoftmax")
    },
    ("nn.MultiheadAttention", "kdim"): {"kind": "int", "optional": True},
    ("nn.MultiheadAttention", "vdim"): {"kind": "int", "optional": True},
    ("nn.Unflatten", "dim"): {"start": 1},
    ("nn.Unflatten", "unflattened_size"): {"start": (1, -1)},
    **{
        (key, "kernel_size"): {"start": 2}
        for key in (
            *_POOLS,
            "nn.FractionalMaxPool2d",
            "nn.FractionalMaxPool3d",
            "nn.Fold",
        )
    },
    **{
        (f"nn.MaxUnpool{n}d", "output_size"): {
            "kind": "ints",
            "count": 0,
            "start": None,
            "minimum": 1,
        }
        for n in (1, 2, 3)
    },
    **{
        (f"nn.{name}", param): {"count": 2}
        for name in ("Fold", "Unfold")
        for param in ("dilation", "padding", "stride")
    },
    ("nn.Fold", "output_size"): {"start": (8, 8), "count": 2},
    ("nn.Fold", "kernel_size"): {"start": 2, "count": 2},
    ("nn.Fold", "stride"): {"start": 2, "count": 2},
    ("nn.Unfold", "kernel_size"): {"count": 2},
    **{(f"nn.FractionalMaxPool{n}d", "output_size"): {"start": None} for n in (2, 3)},
    **{
        (f"nn.FractionalMaxPool{n}d", "output_ratio"): {
            "kind": "float",
            "optional": True,
            "start": 0.5,
            "minimum": 0,
            "maximum": 1,
        }
        for n in (2, 3)
    },
    **{(f"nn.LPPool{n}d", "norm_type"): {"start": 2.0} for n in (1, 2, 3)},
    **{(key, "padding"): {"start": 1, "minimum": None} for key in _PADS},
    **{(f"nn.ConstantPad{n}d", "value"): {"start": 0.0} for n in (1, 2, 3)},
    ("nn.PairwiseDistance", "p"): {"maximum": None, "minimum": None},
    ("nn.Threshold", "threshold"): {"start": 0.1},
    ("nn.Threshold", "value"): {"start": 0.0},
    ("nn.Upsample", "size"): {"count": 0},
    ("nn.Upsample", "mode"): {"kind": "choice", "choices": INTERPOLATION_MODES},
    **{
        (f"nn.{name}", "scale_factor"): {
            "kind": "float",
            "optional": True,
            "start": 2.0,
            "minimum": 0,
        }
        for name in ("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d")
    },
    ("nn.EmbeddingBag", "mode"): {"kind": "choice", "choices": ("mean", "sum", "max")},
    ("nn.GroupNorm", "num_groups"): {"start": 8},
    **{
        (f"nn.{name}", "size"): {"start": 5, "minimum": 1}
        for name in ("LocalResponseNorm", "CrossMapLRN2d")
    },
    ("nn.PixelShuffle", "upscale_factor"): {"start": 2, "minimum": 1},
    ("nn.PixelUnshuffle", "downscale_factor"): {"start": 2, "minimum": 1},
    ("nn.ChannelShuffle", "groups"): {"start": 2},
    **{
        (key, "activation"): {
            "kind": "choice",
            "choices": ("relu", "gelu"),
            "default": "relu",
        }
        for key in _TRANSFORMERS
    },
    **{(key, "batch_first"): {"start": True} for key in _TRANSFORMERS},
    **{(key, "nhead"): {"start": 4} for key in _TRANSFORMERS},
    **{
        (key, "output_size"): {"optional": False, "holes": not key.endswith("1d")}
        for key in (
            *_ADAPTIVE,
            "F.adaptive_avg_pool2d",
            "F.adaptive_avg_pool3d",
            "F.adaptive_max_pool1d",
            "F.adaptive_max_pool2d",
            "F.adaptive_max_pool3d",
        )
    },
    **ops_functions.PARAMS,
}

# Values in a new node for arguments without default, by name.
STARTS: dict[str, Any] = {
    "out_channels": 32,
    "kernel_size": 3,
    "out_features": 64,
    "output_size": 1,
    "num_embeddings": 1000,
    "embedding_dim": 64,
    "hidden_size": 64,
    "num_heads": 4,
}

MINIMUM: dict[str, float] = {
    **dict.fromkeys(
        (
            "in_channels",
            "out_channels",
            "in_features",
            "out_features",
            "num_features",
            "kernel_size",
            "stride",
            "dilation",
            "groups",
            "num_embeddings",
            "embedding_dim",
            "input_size",
            "hidden_size",
            "num_layers",
            "embed_dim",
            "num_heads",
            "in1_features",
            "in2_features",
            "num_channels",
            "num_groups",
            "d_model",
            "nhead",
            "dim_feedforward",
            "num_encoder_layers",
            "num_decoder_layers",
            "kdim",
            "vdim",
            "output_size",
            "num_parameters",
            "normalized_shape",
        ),
        1,
    ),
    **dict.fromkeys(
        ("padding", "output_padding", "p", "dropout", "eps", "proj_size"), 0
    ),
}

# Limits above which torch hangs or rejects the module.
MAXIMUM: dict[str, float] = {
    **{"num_layers": 256, "num_encoder_layers": 64, "num_decoder_layers": 64},
    **{"p": 1, "dropout": 1, "dropout_p": 1},
}

# Calls that run on meta tensors where real ones are refused; they are tried on small real ones too.
LENIENT = frozenset(
    """
    nn.ConvTranspose1d nn.ConvTranspose2d nn.ConvTranspose3d nn.Softmax nn.Softmin F.softmax nn.CELU torch.sort
    torch.index_select torch.arange torch.linspace torch.eye torch.full F.log_softmax F.linear
    F.conv1d F.conv2d F.conv3d
    nn.Upsample nn.UpsamplingNearest2d nn.UpsamplingBilinear2d F.interpolate nn.FractionalMaxPool2d
    nn.FractionalMaxPool3d F.conv_transpose1d F.conv_transpose2d F.conv_transpose3d torch.bucketize torch.bitwise_not
    torch.bitwise_and torch.bitwise_or torch.bitwise_xor torch.bitwise_left_shift torch.bitwise_right_shift
    """.split()
)

# Elementwise calls that keep the shape of any input, so that inference skips torch; verified by a test.
SAME = frozenset(
    """
    nn.ReLU nn.LeakyReLU nn.ReLU6 nn.ELU nn.SELU nn.GELU nn.SiLU nn.Mish nn.Hardswish nn.Hardsigmoid nn.Sigmoid nn.Tanh
    nn.Identity F.relu F.gelu F.silu torch.sigmoid torch.tanh
    """.split()
)

# The dtypes that torch draws no random numbers of, where the same call on meta tensors takes any.
UNDRAWN: dict[str, tuple[str, ...]] = {
    "torch.rand_like": ("int", "uint", "bool"),
    "torch.randn_like": ("int", "uint", "bool"),
    **{f"F.{name}": ("complex",) for name in ops_functions.DROPOUTS},
    **{
        f"nn.{name}": ("complex",)
        for name in (
            "Dropout",
            "Dropout1d",
            "Dropout2d",
            "Dropout3d",
            "AlphaDropout",
            "FeatureAlphaDropout",
        )
    },
}
# Calls that draw random numbers even in eval mode; never tried on real tensors.
RANDOM = frozenset(
    {
        "torch.randn_like",
        "torch.rand_like",
        "torch.rand",
        "torch.randn",
        "torch.randint",
        "torch.randperm",
        *(f"F.{name}" for name in ops_functions.DROPOUTS),
    }
)

# Summaries of ops without documentation in torch.
SUMMARIES: dict[str, str] = {
    "nn.CrossMapLRN2d": "Local response normalization across channels, computed as in early versions of Torch.",
    **ops_functions.SUMMARIES,
}

# Name stems of new nodes other than the lower-case class name.
STEMS: dict[str, str] = {
    **{
        f"nn.{kind}{n}d": stem
        for n in (1, 2, 3)
        for kind, stem in (
            ("Conv", "conv"),
            ("ConvTranspose", "deconv"),
            ("BatchNorm", "bn"),
            ("InstanceNorm", "instnorm"),
            ("MaxPool", "pool"),
            ("AvgPool", "pool"),
            ("LPPool", "pool"),
            ("MaxUnpool", "unpool"),
            ("AdaptiveAvgPool", "avgpool"),
            ("AdaptiveMaxPool", "maxpool"),
            ("Dropout", "drop"),
        )
    },
    **dict.fromkeys(_PADS, "pad"),
    "nn.FractionalMaxPool2d": "pool",
    "nn.FractionalMaxPool3d": "pool",
    "nn.Linear": "fc",
    "nn.LayerNorm": "ln",
    "nn.RMSNorm": "rmsnorm",
    "nn.GroupNorm": "gn",
    "nn.Dropout": "drop",
    "nn.AlphaDropout": "drop",
    "nn.FeatureAlphaDropout": "drop",
    "nn.Embedding": "embed",
    "nn.EmbeddingBag": "bag",
    "nn.LocalResponseNorm": "lrn",
    "nn.CrossMapLRN2d": "lrn",
    "nn.UpsamplingNearest2d": "upsample",
    "nn.UpsamplingBilinear2d": "upsample",
    "nn.PixelShuffle": "shuffle",
    "nn.PixelUnshuffle": "unshuffle",
    "nn.ChannelShuffle": "shuffle",
    "nn.MultiheadAttention": "attn",
    "nn.TransformerEncoderLayer": "encoder",
    "nn.TransformerDecoderLayer": "decoder",
    "nn.LeakyReLU": "lrelu",
    "nn.LSTMCell": "cell",
    "nn.GRUCell": "cell",
    "nn.RNNCell": "cell",
    "nn.CosineSimilarity": "cosine",
    "nn.PairwiseDistance": "distance",
    **ops_functions.STEMS,
}

__all__ = (
    "ARGUMENTS",
    "AUTO_RULES",
    "COUNTED",
    "HIDDEN",
    "IN_TRAINING",
    "LABELS",
    "LEFT_OUT",
    "LENIENT",
    "LIKE",
    "LITERALS_FIRST",
    "MAXIMUM",
    "MINIMUM",
    "MORE",
    "NAMED",
    "OPERANDS",
    "OPS",
    "OUTPUTS",
    "OUTPUTS_BY",
    "PARAMS",
    "PORT_KINDS",
    "RANDOM",
    "RECURRENT",
    "SCHEMAS",
    "SIGNATURES",
    "STARTS",
    "STEMS",
    "SUMMARIES",
    "UNDRAWN",
    "VARIADIC",
    "WITH_INDICES",
    "WRITTEN",
)
