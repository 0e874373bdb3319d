"""The arguments of forward and the tensors that it returned, read off one call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from app.source.interface import Argument, Interface, Returned, is_way

MOST = 200  # tensors that are listed, such as those of a cache


def interface_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Interface:
    """Describe `output = model(*args, **kwargs)`."""
    kind = type(model)
    named = [*model.named_parameters()]
    returns: list[Returned] = []
    for one in _returned(output, ""):
        if len(returns) == MOST:
            break
        returns.append(one)
    return Interface(
        f"{kind.__module__}.{kind.__qualname__}", tuple(_arguments(model, args, kwargs)), tuple(returns),
        tuple(dict.fromkeys(name.rpartition(".")[0] or name for name, _ in named)),
        sum(one.numel() for _, one in named),
    )  # fmt: skip


def _arguments(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Argument]:
    try:
        parameters = [*inspect.signature(model.forward).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    left, named = [*args], dict(kwargs)
    for one in parameters:
        if one.kind == one.VAR_POSITIONAL:
            for number, value in enumerate(left):
                yield _argument(f"{one.name}{number}", value, True, True)
            left = []
        elif one.kind == one.VAR_KEYWORD:
            for name in [*named]:
                yield _argument(name, named.pop(name), True, False)
        else:
            by_place = one.kind == one.POSITIONAL_ONLY
            given = left.pop(0) if left and one.kind != one.KEYWORD_ONLY else named.pop(one.name, None)
            yield _argument(one.name, given, one.default is one.empty, by_place)
    for number, value in enumerate(left):  # of a forward without a signature
        yield _argument(f"input{number}", value, True, True)


def _argument(name: str, value: Any, needed: bool, by_place: bool) -> Argument:
    if isinstance(value, Tensor):
        return Argument(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), needed, "", by_place)
    return Argument(name, needed=needed, other="" if value is None else type(value).__name__, by_place=by_place)


def _returned(value: Any, way: str) -> Iterator[Returned]:
    """Yield the tensors of a result, and at its top the fields of a record that are None this time."""
    if isinstance(value, Tensor):
        if is_way(way):
            yield Returned(way, tuple(value.shape), str(value.dtype).removeprefix("torch."))
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            part = getattr(value, one.name, None)
            if part is None and not way:
                yield Returned(f".{one.name}")
            yield from _returned(part, f"{way}.{one.name}")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if isinstance(key, str):
                if part is None and not way and is_way(f'["{key}"]'):
                    yield Returned(f'["{key}"]')
                yield from _returned(part, f'{way}["{key}"]')
            elif isinstance(key, int) and key >= 0:
                yield from _returned(part, f"{way}[{key}]")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _returned(part, f"{way}[{number}]")
