"""Type to find a layer and put it on the canvas: opened at the pointer, driven by the keyboard."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QWidget

from app.builder.catalog.catalog import Catalog, OpSpec
from app.views.canvas.search.pick_box import PickBox, PickRow
from app.views.ui import fuzzy

WIDTH = 320
CATEGORIES = {
    "io": "Input / output",
    "conv": "Convolution",
    "linear": "Linear",
    "act": "Activation",
    "norm": "Normalisation",
    "shape": "Pooling & shape",
    "drop": "Regularisation",
    "merge": "Merge",
    "seq": "Sequence & attention",
    "block": "Blocks",
    "loss": "Loss",
}


def matching_ops(
    catalog: Catalog, query: str, only: Iterable[str] | None = None
) -> list[OpSpec]:
    """Return the ops that match the letters, best first; all of them for no letters. The name weighs most."""
    keys = list(catalog) if only is None else [key for key in only if key in catalog]
    fits = []
    for order, key in enumerate(keys):
        spec = catalog[key]
        category = CATEGORIES.get(spec.category, spec.category)
        name = (
            1.0 if spec.kind == "module" else 0.95
        )  # a layer before the function of its name
        fit = fuzzy.best(
            query,
            ((spec.label, name), (spec.key, 0.8), (spec.stem, 0.7), (category, 0.5)),
        )
        if fit is not None:
            fits.append((-fit, order, spec))
    return [spec for _, _, spec in sorted(fits, key=lambda fit: fit[:2])]


class SearchBox(PickBox):
    """Lists ops; `chosen` emits the key of the chosen one."""

    chosen = Signal(str)

    def __init__(self, catalog: Catalog, parent: QWidget) -> None:
        super().__init__("Search layers", WIDTH, parent)
        self._catalog = catalog
        self._only: tuple[str, ...] | None = None
        self.setAccessibleName("Add a layer")
        self.rows.setAccessibleName("Layers found")
        self.picked.connect(self._emit_chosen)

    def _emit_chosen(self, key: str) -> None:
        self.chosen.emit(key)

    def open_at(
        self, spot: QPoint, only: Iterable[str] | None = None, hint: str = ""
    ) -> None:
        """Open near a spot of the parent with every op, or with those under the keys `only`."""
        self._only = None if only is None else tuple(only)
        self.show_at(spot, hint or "Enter adds, Esc closes")

    def keys(self) -> list[str]:
        """Return the listed ops, best first."""
        return self.values()

    def matches(self, query: str) -> list[PickRow]:
        """Return matching rows; the key's first part is at the right, to tell relu from ReLU."""
        return [_row(spec) for spec in matching_ops(self._catalog, query, self._only)]

    def nothing(self, query: str) -> str:
        return "No matching layer: try fewer letters"


def _row(spec: OpSpec) -> PickRow:
    where = spec.key.rpartition(".")[0] or CATEGORIES.get(spec.category, spec.category)
    return PickRow(spec.label, spec.category, spec.key, hint=where)
