"""What was done in the window, told to who notices it: features report, lessons follow; and what lessons hide."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal


class Activity(QObject):
    """`captured(Tape)`: one batch is on the tape. `played(share, norms)`: of its backward pass ran a share, 0 to 1, and
    gradients of these norms arrived at parameters, by name. `diagnosed(Findings)`: the diagnostics ran. `ran(key,
    error, tensors)`: a snippet ended, with the kind of its error or "", and what its tensors are by name.
    `measured(name, values)`: a feature of this name measured values, by name.

    Gradients of `parameters` of the net, and of `tensors` of a snippet, are to be predicted before they are shown;
    `concealed(parameters, tensors)` says that these are others.
    """

    captured = Signal(object)
    played = Signal(float, object)
    diagnosed = Signal(object)
    ran = Signal(str, str, object)
    measured = Signal(str, object)
    concealed = Signal(object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.parameters: frozenset[str] = frozenset()
        self.tensors: frozenset[str] = frozenset()

    def conceal(self, parameters: frozenset[str], tensors: frozenset[str]) -> None:
        """Have these gradients hidden, and no others."""
        if (parameters, tensors) != (self.parameters, self.tensors):
            self.parameters, self.tensors = parameters, tensors
            self.concealed.emit(parameters, tensors)
