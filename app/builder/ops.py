"""The one table of operations, and the one of corrections where a signature does not tell.

A row is (key, category). Everything else is read off torch by `introspect`.
"""

from __future__ import annotations

from typing import Any

OPS: tuple[tuple[str, str], ...] = (
    ("input", "io"),
    ("output", "io"),
    ("nn.Conv2d", "conv"),
    ("nn.Conv1d", "conv"),
    ("nn.ConvTranspose2d", "conv"),
    ("nn.Linear", "linear"),
    ("nn.ReLU", "act"),
    ("nn.LeakyReLU", "act"),
    ("nn.PReLU", "act"),
    ("nn.ELU", "act"),
    ("nn.GELU", "act"),
    ("nn.SiLU", "act"),
    ("nn.Hardswish", "act"),
    ("nn.Softplus", "act"),
    ("nn.Sigmoid", "act"),
    ("nn.Tanh", "act"),
    ("nn.Softmax", "act"),
    ("nn.LogSoftmax", "act"),
    ("F.relu", "act"),
    ("F.softmax", "act"),
    ("F.log_softmax", "act"),
    ("nn.BatchNorm2d", "norm"),
    ("nn.BatchNorm1d", "norm"),
    ("nn.LayerNorm", "norm"),
    ("nn.MaxPool2d", "shape"),
    ("nn.AvgPool2d", "shape"),
    ("nn.AdaptiveAvgPool2d", "shape"),
    ("F.max_pool2d", "shape"),
    ("nn.Flatten", "shape"),
    ("nn.Unflatten", "shape"),
    ("Tensor.view", "shape"),
    ("torch.reshape", "shape"),
    ("torch.permute", "shape"),
    ("torch.transpose", "shape"),
    ("torch.mean", "shape"),
    ("nn.Dropout", "drop"),
    ("nn.Dropout2d", "drop"),
    ("operator.add", "merge"),
    ("operator.sub", "merge"),
    ("operator.mul", "merge"),
    ("torch.matmul", "merge"),
    ("torch.cat", "merge"),
    ("nn.Embedding", "seq"),
    ("nn.LSTM", "seq"),
    ("nn.GRU", "seq"),
    ("nn.MultiheadAttention", "seq"),
)

# Builtins have no Python signature; their schemas do. Several overloads exist, this names the one meant.
SCHEMAS: dict[str, str] = {
    "Tensor.view": "aten.view.default",
    "torch.reshape": "aten.reshape.default",
    "torch.permute": "aten.permute.default",
    "torch.transpose": "aten.transpose.int",
    "torch.mean": "aten.mean.dim",
    "torch.matmul": "aten.matmul.default",
    "torch.cat": "aten.cat.default",
    "operator.add": "aten.add.Tensor",
    "operator.sub": "aten.sub.Tensor",
    "operator.mul": "aten.mul.Tensor",
}

# Where the signature that tells is another object's: recurrent layers take *args, pooling is dispatched on a flag.
SIGNATURES: dict[str, str] = {
    "nn.LSTM": "torch.nn.modules.rnn.RNNBase.__init__",
    "nn.GRU": "torch.nn.modules.rnn.RNNBase.__init__",
    "F.max_pool2d": "torch.nn.functional._max_pool2d",
}

# Arguments that are not shown: placement is the run's business, the rest are private or change what is returned.
HIDDEN: dict[str, frozenset[str]] = {
    "*": frozenset({"device", "dtype", "mode", "return_indices", "_stacklevel", "_weight", "_freeze"}),
    "nn.GRU": frozenset({"proj_size"}),
    "operator.add": frozenset({"alpha"}),
    "operator.sub": frozenset({"alpha"}),
    "nn.ConvTranspose2d": frozenset({"output_size"}),
}

# Outputs that are more than one tensor, as the documentation of the layer names them: (name, kind).
OUTPUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "nn.LSTM": (("output", "tensor"), ("(h_n, c_n)", "tuple")),
    "nn.GRU": (("output", "tensor"), ("h_n", "tensor")),
    "nn.MultiheadAttention": (("attn_output", "tensor"), ("attn_output_weights", "tensor")),
}

# Input ports that carry something else than a tensor.
PORT_KINDS: dict[tuple[str, str], str] = {("nn.LSTM", "hx"): "tuple"}

# Parameters that the arriving shape decides: which input, and which dimensions of it (a slice gives a tuple).
AUTO_RULES: dict[tuple[str, str], tuple[str, int | slice]] = {
    ("nn.Conv1d", "in_channels"): ("input", 1),
    ("nn.Conv2d", "in_channels"): ("input", 1),
    ("nn.ConvTranspose2d", "in_channels"): ("input", 1),
    ("nn.Linear", "in_features"): ("input", -1),
    ("nn.BatchNorm1d", "num_features"): ("input", 1),
    ("nn.BatchNorm2d", "num_features"): ("input", 1),
    ("nn.LayerNorm", "normalized_shape"): ("input", slice(-1, None)),
    ("nn.LSTM", "input_size"): ("input", -1),
    ("nn.GRU", "input_size"): ("input", -1),
    ("nn.MultiheadAttention", "embed_dim"): ("query", -1),
}

# Facts about single parameters that annotations leave open.
PARAMS: dict[tuple[str, str], dict[str, Any]] = {
    ("nn.ConvTranspose2d", "padding_mode"): {"choices": ("zeros",)},
    ("nn.GELU", "approximate"): {"kind": "choice", "choices": ("none", "tanh")},
    ("nn.LSTM", "batch_first"): {"start": True},
    ("nn.GRU", "batch_first"): {"start": True},
    ("nn.MultiheadAttention", "batch_first"): {"start": True},
    ("nn.MultiheadAttention", "embed_dim"): {"optional": False},
    ("nn.MultiheadAttention", "num_heads"): {"optional": False},
    ("nn.Softmax", "dim"): {"start": 1, "required": True},
    ("nn.LogSoftmax", "dim"): {"start": 1, "required": True},
    ("F.softmax", "dim"): {"start": 1, "required": True},
    ("F.log_softmax", "dim"): {"start": 1, "required": True},
    ("F.softmax", "dtype"): {"kind": "dtype"},
    ("F.log_softmax", "dtype"): {"kind": "dtype"},
    ("nn.MultiheadAttention", "kdim"): {"kind": "int", "optional": True},
    ("nn.MultiheadAttention", "vdim"): {"kind": "int", "optional": True},
    ("nn.Unflatten", "dim"): {"start": 1},
    ("nn.Unflatten", "unflattened_size"): {"start": (1, -1)},
    ("nn.MaxPool2d", "kernel_size"): {"start": 2},
    ("F.max_pool2d", "kernel_size"): {"start": 2},
    ("nn.AvgPool2d", "kernel_size"): {"start": 2},
    ("torch.mean", "dim"): {"start": (2, 3), "required": True},
    ("torch.cat", "dim"): {"start": 1, "required": True},
    ("torch.permute", "dims"): {"start": (0, 2, 1)},
    ("torch.transpose", "dim0"): {"start": 1},
    ("torch.transpose", "dim1"): {"start": 2},
    ("Tensor.view", "size"): {"start": (-1, 64)},
    ("torch.reshape", "shape"): {"start": (-1, 64)},
    ("nn.AdaptiveAvgPool2d", "output_size"): {"optional": False},
}

# What a new node gets where torch has no default, by the name of the argument.
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
        ("in_channels", "out_channels", "in_features", "out_features", "num_features", "kernel_size", "stride",
         "dilation", "groups", "num_embeddings", "embedding_dim", "input_size", "hidden_size", "num_layers",
         "embed_dim", "num_heads", "kdim", "vdim", "output_size", "num_parameters", "normalized_shape"),
        1,
    ),
    **dict.fromkeys(("padding", "output_padding", "p", "dropout", "eps", "proj_size"), 0),
}  # fmt: skip

# What torch would take and never come back from, or refuse when the module is made.
MAXIMUM: dict[str, float] = {"num_layers": 256, "p": 1, "dropout": 1}

# Calls that run on meta tensors where real ones are refused; they are tried on small real ones too.
LENIENT = frozenset({"nn.ConvTranspose2d", "nn.Softmax", "F.softmax"})

# Name stems of new nodes, where the lower-case class name is not what people write.
STEMS: dict[str, str] = {
    "nn.Conv1d": "conv", "nn.Conv2d": "conv", "nn.ConvTranspose2d": "deconv", "nn.Linear": "fc",
    "nn.BatchNorm1d": "bn", "nn.BatchNorm2d": "bn", "nn.LayerNorm": "ln", "nn.MaxPool2d": "pool",
    "nn.AvgPool2d": "pool", "nn.AdaptiveAvgPool2d": "avgpool", "nn.Dropout": "drop", "nn.Dropout2d": "drop",
    "nn.Embedding": "embed", "nn.MultiheadAttention": "attn", "nn.LeakyReLU": "lrelu",
}  # fmt: skip
