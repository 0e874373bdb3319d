"""Category of a backward node by name, for nodes without a drawing.

The class of its module decides first, then torch's name of the node. Both are open sets, so patterns are matched;
without a match it is a "block".
"""

from __future__ import annotations

import re
from functools import lru_cache

_MODULES = (
    ("norm", r"Norm"),
    ("seq", r"RNN|LSTM|GRU|Attention|Transformer|Embedding"),
    ("shape", r"Pool|Flatten|Unflatten|Pad|Upsampl|Shuffle|Fold|Identity"),
    ("conv", r"Conv"),
    ("linear", r"Linear"),
    ("drop", r"Dropout"),
    ("loss", r"Loss"),
    (
        "act",
        r"LU\b|LU\d|GLU|SiLU|Mish|Sigmoid|Tanh|Softm|Softplus|Softsign|Shrink|Threshold|swish",
    ),
)
_NODES = (
    ("loss", r"Loss|CrossEntropy|Mse|BinaryCross|KlDiv"),
    ("norm", r"Norm"),
    ("drop", r"Dropout|Bernoulli"),
    ("shape", r"Pool"),
    ("conv", r"Conv"),
    ("seq", r"Rnn|Lstm|Gru|Embedding|ScaledDotProduct"),
    ("linear", r"Addmm|Addbmm|Baddbmm|^Mm|^Mv|^Dot|Bmm|Linear|Einsum"),
    (
        "act",
        r"Relu|Elu|Gelu|Silu|Mish|Sigmoid|Tanh|Softm|Softplus|Hardtanh|Hardswish|Threshold|Glu|Exp\b|Log",
    ),
    (
        "merge",
        r"^(Add|Sub|Rsub|Mul|Div|Pow|Cat|Stack|Maximum|Minimum|Where|Lerp|Sum|Mean)",
    ),
    (
        "shape",
        r"View|Reshape|^TBack|Transpose|Permute|Slice|Select|Squeeze|Unsqueeze|Index|Expand|Clone|Alias|Split|Unbind"
        r"|Repeat|Narrow|Gather|Pad|Flip|AsStrided|Copy",
    ),
)


@lru_cache(maxsize=4096)
def module_category(class_name: str) -> str | None:
    """Return the category of a module's class.

    >>> module_category("Conv2d"), module_category("LeakyReLU"), module_category("LSTM"), module_category("Mine")
    ('conv', 'act', 'seq', None)
    """
    return next(
        (category for category, pattern in _MODULES if re.search(pattern, class_name)),
        None,
    )


@lru_cache(maxsize=4096)
def node_category(name: str) -> str:
    """Return the category of a backward node.

    >>> node_category("ConvolutionBackward0"), node_category("TBackward0"), node_category("MyFunctionBackward")
    ('conv', 'shape', 'block')
    """
    return next(
        (category for category, pattern in _NODES if re.search(pattern, name)), "block"
    )
