"""Patch for transformers with masks on meta tensors, whose values torch reads to detect causality."""

from __future__ import annotations

from typing import Any

from torch.nn.modules import transformer


def without_values() -> None:
    """Patch torch to rely on `is_causal` for masks on meta tensors; masks with values are inspected as before."""
    detect = transformer._detect_is_causal_mask
    if getattr(detect, "_takes_meta", False):
        return

    def detected(
        mask: Any, is_causal: bool | None = None, size: int | None = None
    ) -> bool:
        example = getattr(mask, "known", mask)  # a traced mask holds its example
        if example is not None and example.is_meta:
            return bool(is_causal)
        return bool(detect(mask, is_causal, size))

    detected._takes_meta = True  # type: ignore[attr-defined]
    transformer._detect_is_causal_mask = detected
