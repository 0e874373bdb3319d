"""Ops specified by hand, without a signature: free tensors, numbers, tuples, indexing."""

from __future__ import annotations

from typing import Any

import torch

from app.builder.catalog.catalog import OpSpec, Param, Port
from app.builder.codegen.free_tensors import BUFFER_FILLS, FILLS
from app.builder.literals import DType, Slice

PARTS = 16
FACTS = ("min", "max", "eps", "tiny")  # of torch.finfo

_SHAPE = Param("shape", "ints", required=True, count=0, minimum=0, start=(1, 64))
_FLOAT32 = DType("float32")
_FILLED = (
    Param("value", "number", default=1.0),
    Param("std", "float", default=1.0, minimum=0),
    Param("low", "float", default=0.0),
    Param("high", "float", default=1.0),
)
_FILL_VALUE = Param("fill_value", "number", required=True, start=1.0, positional=True)
_TENSOR, _ANY = Port("input"), "any"
_OPERAND = "tensor or number"


def _spec(key: str, kind: str, category: str, label: str = "", **more: Any) -> OpSpec:
    name = key.rpartition(".")[2]
    return OpSpec(
        key,
        kind,
        more.pop("target", ""),
        label or name,
        category,
        more.pop("stem", name),
        **more,
    )


SPECS: dict[str, OpSpec] = {
    spec.key: spec
    for spec in (
        _spec(
            "number",
            "number",
            "io",
            "Number",
            inputs=(),
            outputs=(Port("output", "number"),),
            params=(Param("value", "number", required=True, start=1),),
        ),
        _spec(
            "constant",
            "buffer",
            "io",
            "Constant",
            inputs=(),
            params=(
                Param("value", "tensor", required=True, start=(1.0, 2.0)),
                Param("dtype", "dtype", optional=True),
                Param("persistent", "bool", default=True),
            ),
        ),
        _spec(
            "packed",
            "buffer",
            "io",
            "Packed values",
            inputs=(),
            params=(
                Param("values", "packed", required=True, start="c-muNXs~BsU~m8c1cLzp"),
                Param("shape", "ints", required=True, count=0, minimum=0, start=(2,)),
                Param("dtype", "dtype", default=_FLOAT32),
                Param("persistent", "bool", default=True),
            ),
        ),
        _spec(
            "parameter",
            "parameter",
            "io",
            "Parameter",
            stem="param",
            inputs=(),
            params=(
                _SHAPE,
                Param("fill", "choice", default="zeros", choices=FILLS),
                *_FILLED,
                Param("dtype", "dtype", default=_FLOAT32),
                Param("requires_grad", "bool", default=True),
            ),
        ),
        _spec(
            "buffer",
            "buffer",
            "io",
            "Buffer",
            inputs=(),
            params=(
                _SHAPE,
                Param("fill", "choice", default="zeros", choices=BUFFER_FILLS),
                *_FILLED,
                Param("dtype", "dtype", default=_FLOAT32),
                Param("persistent", "bool", default=True),
            ),
        ),
        _spec(
            "Tensor.size",
            "method",
            "shape",
            target="torch.Tensor.size",
            inputs=(_TENSOR,),
            outputs=(Port("output", "number"),),
            params=(Param("dim", "int", required=True, start=0, positional=True),),
        ),
        _spec(
            "Tensor.shape",
            "operator",
            "shape",
            target="own.shape",
            inputs=(_TENSOR,),
            outputs=(Port("output", "tuple"),),
        ),
        _spec(
            "Tensor.dim",
            "method",
            "shape",
            target="torch.Tensor.dim",
            inputs=(_TENSOR,),
            outputs=(Port("output", "number"),),
        ),
        _spec(
            "Tensor.numel",
            "method",
            "shape",
            target="torch.Tensor.numel",
            inputs=(_TENSOR,),
            outputs=(Port("output", "number"),),
        ),
        _spec(
            "torch.finfo",
            "operator",
            "shape",
            target="own.finfo",
            inputs=(_TENSOR,),
            outputs=(Port("output", "number"),),
            params=(
                Param("fact", "choice", required=True, choices=FACTS, start="min"),
            ),
        ),
        _spec(
            "operator.getitem",
            "operator",
            "shape",
            "getitem",
            target="operator.getitem",
            stem="item",
            inputs=(Port("input", "tensor or tuple"),),
            outputs=(Port("output", _ANY),),
            params=(
                Param(
                    "index", "index", required=True, optional=True, start=(Slice(), 0)
                ),
            ),
        ),
        _spec(
            "operator.setitem",
            "operator",
            "shape",
            "setitem",
            target="own.setitem",
            stem="filled",
            inputs=(_TENSOR, Port("value", _OPERAND)),
            params=(
                Param("index", "index", required=True, optional=True, start=Slice()),
                Param("value", "number", optional=True),
            ),
        ),
        _spec(
            "unpack",
            "operator",
            "shape",
            target="own.unpack",
            inputs=(Port("input", "tuple"),),
            outputs=tuple(Port(f"item{i}", _ANY) for i in range(PARTS)),
            outputs_by="count",
            params=(
                Param("count", "int", required=True, start=2, minimum=1, maximum=PARTS),
            ),
        ),
        _spec(
            "tuple",
            "operator",
            "shape",
            target="own.pack",
            inputs=(Port("items", _ANY, variadic=True),),
            outputs=(Port("output", "tuple"),),
        ),
        *(
            _spec(
                f"Tensor.{name}",
                "method",
                "shape",
                target=f"torch.Tensor.{name}",
                inputs=(_TENSOR,),
                params=(
                    Param(
                        "size",
                        "ints",
                        required=True,
                        count=0,
                        minimum=0,
                        start=(4, 4),
                        positional=True,
                    ),
                    *more,
                ),
            )
            for name, more in (
                ("new_zeros", ()),
                ("new_ones", ()),
                ("new_full", (_FILL_VALUE,)),
            )
        ),
        _spec(
            "Tensor.type_as",
            "method",
            "shape",
            target="torch.Tensor.type_as",
            inputs=(_TENSOR, Port("other")),
        ),
        _spec(
            "Tensor.float",
            "method",
            "shape",
            target="torch.Tensor.float",
            inputs=(_TENSOR,),
        ),
        _spec(
            "Tensor.long",
            "method",
            "shape",
            target="torch.Tensor.long",
            inputs=(_TENSOR,),
        ),
        _spec(
            "Tensor.requires_grad_",
            "method",
            "shape",
            target="torch.Tensor.requires_grad_",
            inputs=(_TENSOR,),
            params=(Param("requires_grad", "bool", default=True),),
        ),
        *(
            _spec(
                f"operator.{name}",
                "operator",
                "merge",
                target=f"operator.{name}",
                inputs=(Port("input", _OPERAND), Port("other", _OPERAND)),
                outputs=(Port("output", _OPERAND),),
                params=(
                    Param("input", "number", optional=True),
                    Param("other", "number", optional=True),
                ),
            )
            for name in ("floordiv", "mod", "pow")
        ),
        _spec(
            "ops.StochasticDepth",
            "module",
            "drop",
            target="torchvision.ops.StochasticDepth",
            stem="stochastic_depth",
            inputs=(Port("input"),),
            params=(
                Param(
                    "p",
                    "float",
                    required=True,
                    minimum=0,
                    maximum=1,
                    start=0.1,
                    positional=True,
                ),
                Param(
                    "mode",
                    "choice",
                    required=True,
                    choices=("batch", "row"),
                    start="row",
                    positional=True,
                ),
            ),
        ),
        _spec(
            "F.batch_norm",
            "function",
            "norm",
            target="own.batch_norm",
            inputs=(
                _TENSOR,
                *(
                    Port(name, required=False)
                    for name in (
                        "running_mean",
                        "running_var",
                        "weight",
                        "bias",
                        "num_batches_tracked",
                    )
                ),
            ),
            params=(
                Param("training", "bool", None, optional=True),
                Param("momentum", "float", default=0.1),
                Param("eps", "float", default=1e-5, minimum=0),
            ),
        ),
        _spec(
            "operator.neg",
            "operator",
            "merge",
            target="operator.neg",
            inputs=(Port("input", _OPERAND),),
            outputs=(Port("output", _OPERAND),),
        ),
    )
}

# Functions with the prefix `own.`, which neither `operator` nor torch has under a single name.
OWN: dict[str, Any] = {
    "shape": lambda tensor: tensor.shape,
    "setitem": lambda tensor, value, index: _filled(tensor, value, index),
    "unpack": lambda values, count: _taken_apart(values, count),
    "pack": lambda items: tuple(items),
    "finfo": lambda tensor, fact: _float_fact(tensor, fact),
    "batch_norm": lambda input, **arguments: _normalised(input, **arguments),
}


def _normalised(input: Any, **arguments: Any) -> Any:
    """Infer `F.batch_norm` without computing values or updating statistics."""
    if input.dim() < 2:
        raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")
    for name in ("running_mean", "running_var", "weight", "bias"):
        statistic = arguments.get(name)
        if statistic is not None and statistic.numel() != input.shape[1]:
            raise ValueError(
                f"{name} should contain {input.shape[1]} elements, not {statistic.numel()}"
            )
    return input.clone()


def _float_fact(tensor: Any, fact: str) -> float:
    return float(getattr(torch.finfo(tensor.dtype), fact))


def _filled(tensor: Any, value: Any, index: Any) -> Any:
    copied = tensor.clone()
    copied[index] = value
    return copied


def _taken_apart(values: Any, count: int) -> tuple[Any, ...]:
    if len(values) != count:
        raise ValueError(f"count is {count}, but the input has {len(values)} values")
    return tuple(values)


# Summaries and arguments of ops without documentation in torch.
WORDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "F.batch_norm": (
        "Batch normalization whose statistics and weights are wired: buffers and parameters of the net.",
        "In training it uses the batch statistics and updates the running ones, if they are wired.",
        {
            "training": "None follows train() and eval(); True always uses the batch statistics, False never.",
            "momentum": "Weight of the batch statistics in the update of the running ones.",
            "eps": "Added to the variance to avoid division by zero.",
        },
    ),
    "number": (
        "A number, for parameters and operands that are wired.",
        "It is written inline where it is used.",
        {"value": "An int, a float, or True or False."},
    ),
    "constant": (
        "A small constant tensor that you type, such as filter weights.",
        "It is a buffer: it moves to the device with the network and is in its state_dict.",
        {
            "value": "Numbers in brackets, rows of equal length: [[1, 2], [3, 4]].",
            "dtype": "Type of the values; None infers it, int64 for integers.",
            "persistent": "Whether it is in the state_dict.",
        },
    ),
    "packed": (
        "A large constant tensor, such as a table of positions, stored as compressed text.",
        "It is a buffer that comes with an imported model; it is viewed, not typed.",
        {
            "values": "The bytes of the tensor, compressed by zlib and written in base 85.",
            "shape": "Its sizes.",
            "dtype": "Type of the values.",
            "persistent": "Whether it is in the state_dict.",
        },
    ),
    "parameter": (
        "A free nn.Parameter: a trainable tensor, such as position embeddings or a class token.",
        "It has no input and is the same for every sample; add or multiply it, or expand it over the batch.",
        {
            "shape": "Its sizes, as for torch.zeros, without a batch dimension.",
            "fill": "Initial values.",
            "value": "The value for fill='full'.",
            "std": "The standard deviation for fill='normal'.",
            "low": "The lower end for fill='uniform'.",
            "high": "The upper end for fill='uniform'.",
            "dtype": "Type of the values.",
            "requires_grad": "Whether it is trained (requires_grad).",
        },
    ),
    "buffer": (
        "A tensor of the network that is not trained, such as a mask.",
        "It moves to the device with the network and is in its state_dict.",
        {
            "shape": "Its sizes, as for torch.zeros, without a batch dimension.",
            "fill": "Its values.",
            "value": "The value for fill='full'.",
            "std": "The standard deviation for fill='normal'.",
            "low": "The lower end for fill='uniform'.",
            "high": "The upper end for fill='uniform'.",
            "dtype": "Type of the values.",
            "persistent": "Whether it is in the state_dict.",
        },
    ),
    "ops.StochasticDepth": (
        "torchvision's stochastic depth: randomly drops a whole branch during training.",
        "Put it at the end of a residual branch; the expected value is unchanged.",
        {
            "p": "Probability of dropping a branch.",
            "mode": "batch drops it for all samples at once, row for each sample separately.",
        },
    ),
    **{
        f"Tensor.new_{suffix}": (
            f"A new tensor filled with {filling}, with the dtype and device of the input.",
            "The input gives only these two; the sizes are typed or wired.",
            {"size": "Its sizes.", "fill_value": "Fill value."},
        )
        for suffix, filling in (
            ("zeros", "zeros"),
            ("ones", "ones"),
            ("full", "fill_value"),
        )
    },
    "Tensor.size": (
        "One size of a tensor, as a number.",
        "Size 0 is the batch size.",
        {"dim": "Which size."},
    ),
    "torch.finfo": (
        "A limit of the dtype of a tensor, as a number: torch.finfo(x.dtype).min.",
        "Attention masks are filled with the smallest number.",
        {
            "fact": "The smallest and the largest number, the step after 1, and the smallest above 0."
        },
    ),
    "Tensor.shape": (
        "All sizes of a tensor, as a tuple.",
        "The first is the batch size.",
        {},
    ),
    "operator.getitem": (
        "Indexing: x[:, 0], x[..., 1:3], or an item of a tuple.",
        "An int removes a dimension, a slice keeps a range, None adds a dimension, ... means all in between.",
        {"index": "The index, as between the brackets."},
    ),
    "operator.setitem": (
        "A copy of a tensor with other values at an index: x[:, 0] = value.",
        "The input is not changed in place, so saved tensors stay valid for backward.",
        {
            "index": "The index, as between the brackets.",
            "value": "A number, or a tensor that can be broadcast to it.",
        },
    ),
    "unpack": (
        "Unpacks a tuple, such as the (h_n, c_n) of an LSTM or a shape.",
        "Each value has its own output port.",
        {"count": "Number of values."},
    ),
    "tuple": (
        "Packs values into a tuple, such as the (h_0, c_0) of an LSTM.",
        "In the order of the wires.",
        {},
    ),
}
