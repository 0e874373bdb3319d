"""What was done in the window, told to who notices it: features report, lessons follow."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal


class Activity(QObject):
    """`captured(Tape)`: one batch is on the tape. `played(share, norms)`: of its backward pass ran a share, 0 to 1, and
    gradients of these norms arrived at parameters, by name. `diagnosed(Findings)`: the diagnostics ran. `ran(key,
    error, tensors)`: a snippet ended, with the kind of its error or "", and what its tensors are by name.
    `measured(name, values)`: a feature of this name measured values, by name.
    """

    captured = Signal(object)
    played = Signal(float, object)
    diagnosed = Signal(object)
    ran = Signal(str, str, object)
    measured = Signal(str, object)
