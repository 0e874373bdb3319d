"""Transformers whose masks have no values yet: torch looks into a mask to find out whether it is causal."""

from __future__ import annotations

from typing import Any


def without_values() -> None:
    """Have torch take a mask on meta tensors as any other: whoever passes one has said so if it is causal. Masks with
    values are looked into as before."""
    from torch.nn.modules import transformer

    detect = transformer._detect_is_causal_mask
    if getattr(detect, "_takes_meta", False):
        return

    def detected(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        known = getattr(mask, "known", mask)  # while a model is followed, a mask knows an example of itself
        if known is not None and known.is_meta:
            return bool(is_causal)
        return bool(detect(mask, is_causal, size))

    detected._takes_meta = True  # type: ignore[attr-defined]
    transformer._detect_is_causal_mask = detected
