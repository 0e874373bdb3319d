"""Random numbers that do not depend on the order in which they are drawn."""

from __future__ import annotations

import hashlib
import random
from types import FrameType
from typing import Any

import torch

from app.util.torch_calls import KernelCalls


class SameDraws(KernelCalls):
    """Every random operation draws with a seed made from the generator's own, its name, its sizes and its numbers.

    Two nets that draw the same in another order give the same in here.
    """

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        seed_text = f"{torch.initial_seed()} {func} {_signature(args)} {_signature(sorted(kwargs.items()))}"
        generator_state, plain = torch.default_generator.get_state(), random.getstate()
        number = int.from_bytes(
            hashlib.sha256(seed_text.encode()).digest()[:7], "little"
        )
        torch.default_generator.manual_seed(number)
        try:
            return func(*args, **kwargs)
        finally:
            torch.default_generator.set_state(generator_state)
            random.setstate(plain)


def _signature(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.dtype}"
    if isinstance(value, torch.Generator):
        return "generator"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_signature, value))}]"
    return repr(value)
