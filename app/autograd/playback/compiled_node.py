"""Run the node of a compiled part more than once, although its backward may overwrite what its forward saved.

AOTAutograd donates unshared saved tensors to the compiled backward as buffers, and refuses to run it with
`retain_graph`. Here those tensors are restored afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.autograd.playback.direct_call import is_custom


def is_compiled(node: Any) -> bool:
    """Return whether torch.compile made this node of a part of the forward pass."""
    return type(node).__name__.startswith("CompiledFunction")


def donates(node: Any) -> bool:
    """Return whether the backward of a compiled node may overwrite its saved tensors."""
    metadata = (
        getattr(getattr(node, "_forward_cls", None), "metadata", None)
        if is_compiled(node)
        else None
    )
    return bool(getattr(metadata, "bw_donated_idxs", None))


@contextmanager
def rerunnable(node: Any) -> Iterator[None]:
    """Restore the saved tensors that running a node overwrites; of any other node than a compiled one none are."""
    config: Any = sys.modules.get("torch._functorch.config")
    if not is_custom(node) or config is None or not donates(node):
        yield
        return
    saved = [*node.saved_tensors, *getattr(node, "_tensors_no_vc_check", ())]
    backups = [(tensor, tensor.detach().clone()) for tensor in saved]
    try:
        with config.patch(donated_buffer=False):  # which refuses a second run
            yield
    finally:
        for saved_tensor, before in backups:
            saved_tensor.data.copy_(
                before
            )  # `data` leaves the version alone that saved tensors are checked by
