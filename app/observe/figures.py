"""What a capture measured in a module of an opened model, as frozen plain data."""

from __future__ import annotations

import msgspec

from app.util.formatting import bytes_text, figure


class ModuleFigures(msgspec.Struct, frozen=True, array_like=True):
    """Of the module at `path` with all modules in it: how many numbers its parameters are, the L2 norm of their `.grad`
    (None where none got one), and the bytes that backward keeps for its operations, each storage once. Of the output of
    its last call, all tensors together: mean, largest magnitude, fraction of zeros, and how many elements are NaN or
    Inf; `shape` is None where it gave no float tensor."""

    path: str
    parameters: int = 0
    gradient: float | None = None
    saved: int = 0
    shape: tuple[int, ...] | None = None
    mean: float = 0.0
    absmax: float = 0.0
    zeros: float = 0.0
    nonfinite: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The most important figures, each short enough for a box.

        >>> ModuleFigures("fc", 5130, 0.25, 2048).lines
        ('5,130 parameters · ‖grad‖ 0.25', '2.0 KiB saved')
        """
        weights = [f"{self.parameters:,} parameters"] if self.parameters else []
        if self.gradient is not None:
            weights.append(f"‖grad‖ {figure(self.gradient)}")
        kept = [f"{bytes_text(self.saved)} saved"] if self.saved else []
        if self.nonfinite:
            kept.append(f"{self.nonfinite:,} NaN or Inf")
        return tuple(" · ".join(parts) for parts in (weights, kept) if parts)

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """All figures as names and values."""
        rows = [("Parameters", f"{self.parameters:,}")] if self.parameters else []
        if self.parameters:
            rows.append(("Gradient norm", "no gradient" if self.gradient is None else figure(self.gradient)))
        rows.append(("Saved for backward", bytes_text(self.saved)))
        if self.shape is not None:
            rows += [("Output mean", figure(self.mean)), ("Output max |x|", figure(self.absmax)),
                     ("Output zeros", f"{self.zeros:.1%}")]  # fmt: skip
            if self.nonfinite:
                rows.append(("Output NaN or Inf", f"{self.nonfinite:,}"))
        return tuple(rows)
