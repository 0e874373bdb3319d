"""What a capture measured in a module of an opened model, as frozen plain data."""

from __future__ import annotations

from msgspec import Struct

from app.util.formatting import bytes_text, figure

NONFINITE = "NaN or Inf"


class ModuleFigures(Struct, frozen=True, array_like=True):
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
    def rows(self) -> tuple[tuple[str, str], ...]:
        """All figures as names and values."""
        rows = [("Parameters", f"{self.parameters:,}")] if self.parameters else []
        if self.parameters:
            rows.append(
                (
                    "Gradient norm",
                    "no gradient" if self.gradient is None else figure(self.gradient),
                )
            )
        rows.append(("Saved for backward", bytes_text(self.saved)))
        if self.shape is not None:
            rows += [
                ("Output mean", figure(self.mean)),
                ("Output max |x|", figure(self.absmax)),
                ("Output zeros", f"{100 * self.zeros:.1f} %"),
            ]
            if self.nonfinite:
                rows.append(("Output NaN or Inf", f"{self.nonfinite:,}"))
        return tuple(rows)


def of_modules(modules: tuple[ModuleFigures, ...]) -> tuple[str, ...]:
    """Return the most important figures of a module, or of several equal ones together, as texts for a tag: from the
    longest to the shortest, all of them for what holds none.

    >>> of_modules((ModuleFigures("fc", 5130, 0.25, 2048),))
    ('5,130 parameters · ‖grad‖ 0.250 · 2.00 KiB saved', '‖grad‖ 0.250 · 2.00 KiB saved', '‖grad‖ 0.250')
    >>> of_modules((ModuleFigures("a", 10, 0.5), ModuleFigures("b", 10, 0.1, nonfinite=3)))
    ('20 parameters · 3 NaN or Inf · ‖grad‖ 0.100 to 0.500', '3 NaN or Inf · ‖grad‖ 0.100 to 0.500', '3 NaN or Inf')
    """
    count = sum(module.parameters for module in modules)
    norms = sorted(module.gradient for module in modules if module.gradient is not None)
    saved, broken = (
        sum(module.saved for module in modules),
        sum(module.nonfinite for module in modules),
    )
    parts = [f"{broken:,} {NONFINITE}"] if broken else []
    if norms:
        shown = dict.fromkeys((figure(norms[0]), figure(norms[-1])))
        parts.append(f"‖grad‖ {' to '.join(shown)}")
    if saved:
        parts.append(f"{bytes_text(saved)} saved")
    every = [f"{count:,} parameters", *parts] if count else parts
    shorter = (every, *(parts[:length] for length in range(len(parts), 0, -1)))
    return tuple(dict.fromkeys(" · ".join(texts) for texts in shorter if texts))
