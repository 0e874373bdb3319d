"""A finding: dropout that drops nothing. It runs in an engine, beside the findings of Tapedeck, on one batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from tapedeck.plugin import Finding


def find(batch: Any) -> Iterator[Finding]:
    """Yield what is found in `batch.model`, which is called with `batch.inputs`; leave it as it is."""
    for path, module in batch.model.named_modules():
        if isinstance(module, nn.Dropout) and module.p == 0:
            yield Finding(
                kind="idle dropout",
                severity="info",
                title=path,
                sentence="This dropout drops nothing: its p is 0.",
                cure="Set p, or delete the layer.",
                layer=path,
            )
