"""A layer that is there already, as an op: its constructor's arguments read off the instance, and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_param
from app.builder.shapes.meta_calls import TorchCall
from app.features.importing.compute.lowering.binding import BindingError, literal_of
from app.util import module_tree
from app.util.frozen import FrozenMap

_EQUAL = re.compile(r"\((\d+)(?:, \1)+\)")
_ROUND = str.maketrans("[]", "()")

# Arguments not stored in an attribute of the same name.
_READ: dict[str, Callable[[Any], Any]] = {
    "nn.MultiheadAttention.bias": lambda m: m.in_proj_bias is not None,
    "nn.MultiheadAttention.add_bias_kv": lambda m: m.bias_k is not None,
    "nn.MultiheadAttention.kdim": lambda m: None if m.kdim == m.embed_dim else m.kdim,
    "nn.MultiheadAttention.vdim": lambda m: None if m.vdim == m.embed_dim else m.vdim,
    "nn.MultiheadAttention.dropout": lambda m: m.dropout,
    "nn.PReLU.init": lambda m: 0.25,
    "nn.LayerNorm.bias": lambda m: m.bias is not None if m.elementwise_affine else True,
    "nn.AlphaDropout.p": lambda m: m.p,
    "nn.CosineSimilarity.dim": lambda m: m.dim,
    "nn.PairwiseDistance.p": lambda m: m.norm,
    **{
        f"nn.{name}.{argument}": reader
        for name in ("TransformerEncoderLayer", "TransformerDecoderLayer")
        for argument, reader in {
            "d_model": lambda m: m.self_attn.embed_dim,
            "nhead": lambda m: m.self_attn.num_heads,
            "dim_feedforward": lambda m: m.linear1.out_features,
            "dropout": lambda m: m.dropout.p,
            "activation": lambda m: {
                nn.functional.relu: "relu",
                nn.functional.gelu: "gelu",
            }.get(m.activation, "?"),
            "layer_norm_eps": lambda m: m.norm1.eps,
            "batch_first": lambda m: m.self_attn.batch_first,
            "bias": lambda m: m.linear1.bias is not None,
        }.items()
    },
    **{f"nn.ConstantPad{n}d.value": lambda m: m.value for n in (1, 2, 3)},
}


def key_of(module: nn.Module, catalog: Catalog) -> str | None:
    """Return the op of a module's class, None if it is not in the catalog."""
    kind = type(module)
    if kind.__module__.startswith("torch.nn.modules"):
        key = f"nn.{kind.__name__}"
    elif kind.__module__.startswith("torchvision.ops"):
        key = f"ops.{kind.__name__}"
    else:
        return None
    return key if key in catalog else None


def described(module: nn.Module, catalog: Catalog) -> tuple[OpSpec, dict[str, Any]]:
    """Return the op of a module and its constructor arguments, those that differ from the defaults.

    Raises BindingError if there is no op, or if these arguments do not reproduce the module.
    """
    key = key_of(module, catalog)
    if key is None:
        raise BindingError(f"{type(module).__name__} is not a layer of the catalog")
    spec = catalog[key]
    params = arguments_of(module, key, spec)
    _check(module, spec, params)
    return spec, params


def arguments_of(module: nn.Module, key: str, spec: OpSpec) -> dict[str, Any]:
    """Read the constructor arguments of a layer that differ from the defaults. Raises BindingError."""
    params: dict[str, Any] = {}
    for param in spec.params:
        if param.call:
            continue
        value = literal_of(_simple(_read(module, key, param.name, param.default)))
        if (
            value == param.default
            and type(value) is type(param.default)
            and not param.required
        ):
            continue
        if value is None and not param.optional:
            continue
        try:
            check_param(param, value)
        except ParamError as error:
            raise BindingError(f"{type(module).__name__}: {error}") from error
        params[param.name] = value
    return params


def _read(module: nn.Module, key: str, name: str, default: Any) -> Any:
    reader = _READ.get(f"{key}.{name}")
    if reader is not None:
        return reader(module)
    if name == "dtype":
        return _dtype(module)
    if name in ("bias", "elementwise_affine", "affine") and hasattr(module, name):
        value = getattr(module, name)
        return value if isinstance(value, bool) else value is not None
    if name in module.__dict__ or hasattr(type(module), name):
        return getattr(module, name)
    return default


def _dtype(module: nn.Module) -> torch.dtype | None:
    """Return a dtype other than float32 that all parameters have."""
    kinds = {
        tensor.dtype
        for tensor in module_tree.parameters(module)
        if tensor.is_floating_point()
    }
    return next(iter(kinds)) if len(kinds) == 1 and kinds != {torch.float32} else None


def _simple(value: Any) -> Any:
    """Collapse a tuple of equal numbers to one."""
    if (
        isinstance(value, tuple | list)
        and len(value) > 1
        and all(type(item) is int for item in value)
    ):
        return value[0] if len(set(value)) == 1 else tuple(value)
    return value


def _check(module: nn.Module, spec: OpSpec, params: Mapping[str, Any]) -> None:
    """Construct the layer with these arguments and compare its repr and its tensors."""
    if any(value is AUTO for value in params.values()):
        return
    try:
        with torch.device("meta"):
            rebuilt = TorchCall.resolve(spec, FrozenMap(params)).target
    except Exception as error:  # torch's message is the reason
        raise BindingError(
            f"{type(module).__name__} cannot be constructed from its attributes: {error}"
        ) from error
    same = _tensor_shapes(rebuilt) == _tensor_shapes(module) and _normalized_repr(
        rebuilt
    ) == _normalized_repr(module)
    if not same:
        raise BindingError(f"{type(module).__name__} was changed after construction")


def _tensor_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def _normalized_repr(module: nn.Module) -> str:
    """Return its repr, with a tuple of equal numbers collapsed to one."""
    return _EQUAL.sub(r"\1", repr(module).translate(_ROUND))
