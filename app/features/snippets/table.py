"""The table of a snippet's named tensors and their autograd state."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from PySide6.QtWidgets import QAbstractItemView, QHeaderView

from app.features.snippets.values import NamedTensor, SnippetAnswer
from app.util.columns import Column
from app.util.formatting import shape_text, significant, typeset
from app.views.autograd.graph.playback_state import PREDICT
from app.views.ui.tables import Table

WIDEST = 190  # px of a column of text
SPACE = 18  # px beside it


def _grad(tensor: NamedTensor) -> str:
    if not tensor.grad and tensor.grad_norm is None:
        return "None"
    grad = typeset(tensor.grad)
    if tensor.grad_norm is None:
        return grad
    return f"{grad}  norm {significant(tensor.grad_norm, 4)}"


def _version(tensor: NamedTensor) -> str:
    return "not counted" if tensor.version is None else str(tensor.version)


def _formula(title: str, text: Callable[[NamedTensor], str], **more: Any) -> Column:
    return Column(title, text, font=lambda _tensor: "formula", **more)


def _faint(title: str, text: Callable[[NamedTensor], str], **more: Any) -> Column:
    return Column(title, text, color=lambda _tensor: "text2", **more)


def columns_of(
    graphs: Collection[str], concealed: Collection[str] = ()
) -> list[Column]:
    """Return the columns of named tensors; those that a graph can be shown of have their grad_fn in the accent's
    colour, those that are concealed no gradient."""

    def color(tensor: NamedTensor) -> str:
        if tensor.name in graphs:
            return "accent"
        return "text" if tensor.grad_fn else "text2"

    def tip(tensor: NamedTensor) -> str:
        return f"Show the graph below {tensor.name}" if tensor.name in graphs else ""

    def grad(tensor: NamedTensor) -> str:
        return "?" if tensor.name in concealed else _grad(tensor)

    def grad_tip(tensor: NamedTensor) -> str:
        if tensor.name in concealed:
            return PREDICT
        retained = f"{_grad(tensor)}\nretain_grad() was called on it"
        return retained if tensor.retains_grad else ""

    return [
        _formula("Name", lambda tensor: tensor.name),
        _faint("Shape", lambda tensor: shape_text(tensor.shape, "()")),
        Column(
            "requires_grad",
            lambda tensor: str(tensor.requires_grad),
            color=lambda tensor: "text" if tensor.requires_grad else "text2",
        ),
        Column(
            "grad_fn", lambda tensor: tensor.grad_fn or "None", color=color, tip=tip
        ),
        _formula(
            ".grad",
            grad,
            tip=grad_tip,
            color=lambda tensor: "text2" if grad(tensor) == "None" else "text",
        ),
        _faint("is_leaf", lambda tensor: str(tensor.is_leaf)),
        _faint("_version", _version),
        _faint("dtype", lambda tensor: tensor.dtype),
        _formula(
            "Values",
            lambda tensor: typeset(tensor.values),
            color=lambda _tensor: "text2",
        ),
    ]


class TensorTable(Table):
    """The tensors of an answer, one a row."""

    def __init__(self) -> None:
        super().__init__(columns_of(()), "Named tensors", 22, 5)
        self._answer: SnippetAnswer | None = None
        self._concealed: frozenset[str] = frozenset()
        self.setAccessibleDescription(
            "A row with a grad_fn shows the graph below that tensor"
        )
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)

    def set_answer(self, answer: SnippetAnswer | None) -> None:
        """Show the tensors of an answer."""
        self._answer = answer
        graphs = {graph.name for graph in answer.graphs} if answer else ()
        columns = columns_of(graphs, self._concealed)
        self.selectionModel().blockSignals(True)
        self.cells.set_rows(answer.tensors if answer else (), columns)
        self.selectionModel().blockSignals(False)
        self.fit_columns(WIDEST, SPACE)

    def conceal(self, names: frozenset[str]) -> None:
        """Hide the gradients of these tensors."""
        if names != self._concealed:
            self._concealed = names
            self.set_answer(self._answer)

    def wanted_height(self) -> int:
        """Return the height that shows all rows above a scroll bar."""
        return self.whole_height + self.horizontalScrollBar().sizeHint().height()

    def choose(self, name: str) -> None:
        """Select a row without a word of it."""
        self.choose_quietly(next((row for row in self.rows if row.name == name), None))
