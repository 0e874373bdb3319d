"""Nothing of a captured graph stays behind: no tensor, no autograd node, and no tape that is shown no more."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import torch
from torch import nn

from app.autograd.batch import TrainingBatch
from app.autograd.errors import NoGraphError
from app.views.autograd.page import AutogradPage
from app.views.ui import theme
from tests.support.autograd_tapes import small_tape


class Watched(nn.Module):
    """Keeps weak references to everything that its forward pass made."""

    def __init__(self, learns: bool = True) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = (
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.Linear(4 * 36, 3),
        )
        self.requires_grad_(learns)
        self.seen: list[weakref.ref[Any]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.conv(x)
        b = self.norm(a)
        c = b.relu()
        d = self.fc(c.flatten(1))
        self.seen += map(weakref.ref, (a, b, c, d))
        return d

    def alive(self) -> int:
        gc.collect()
        return sum(ref() is not None for ref in self.seen)


def loss(output: torch.Tensor, _: Any) -> torch.Tensor:
    return output.square().sum()


def counted() -> Counter[str]:
    """Objects that could be left of a capture, by their types."""
    gc.collect()
    kinds = (
        "Tensor",
        "Parameter",
        "UntypedStorage",
        "Tape",
        "TapeNode",
        "SavedTensor",
        "NodeOrigin",
        "OriginRecorder",
    )
    return Counter(
        name
        for thing in gc.get_objects()
        if (name := type(thing).__name__) in kinds or "Backward" in name
    )


def test_many_captures_leave_no_object_behind() -> None:
    model, x = Watched(), torch.randn(2, 1, 8, 8)
    TrainingBatch(model, x, loss).capture()
    before = counted()
    for _ in range(40):
        tape = TrainingBatch(model, x, loss).capture()
        assert tape.held_bytes > 0
    del tape
    assert model.alive() == 0
    # Whatever else the process does meanwhile, 40 captures would leave at least 40 of what they leave.
    assert not [name for name, count in (counted() - before).items() if count >= 20]


def test_a_capture_that_fails_leaves_nothing_behind() -> None:
    model, x = Watched(learns=False), torch.randn(2, 1, 8, 8)
    for number in range(3):
        try:
            TrainingBatch(model, x, loss).capture()
        except NoGraphError:
            continue
        raise AssertionError(number)
    assert (
        model.alive() == 0 and not model._forward_hooks and not model._forward_pre_hooks
    )


def test_looking_for_garbage_goes_on_after_a_capture() -> None:
    gc.enable()
    TrainingBatch(Watched(), torch.randn(2, 1, 8, 8), loss).capture()
    assert gc.isenabled()
    gc.disable()
    try:
        TrainingBatch(Watched(), torch.randn(2, 1, 8, 8), loss).capture()
        assert not gc.isenabled(), "who turned it off turns it on"
    finally:
        gc.enable()


def test_the_room_holds_no_tensor_and_lets_go_of_a_tape(qtbot, qapp) -> None:
    theme.apply(qapp, "dark")
    room = AutogradPage()
    qtbot.addWidget(room)
    room.resize(1200, 800)
    room.show()
    model = Watched()
    first = TrainingBatch(model, torch.randn(2, 1, 8, 8), loss).capture()
    ref = weakref.ref(first)
    room.set_tape(first)
    room.find_nodes("conv")
    room.scene.choose(next(iter(room.scene.boxes)))
    room.way.mark(list(room.scene.boxes)[-1])
    room.view.viewport().repaint()
    assert model.alive() == 0, "a tape that is shown holds no tensor"
    del first
    room.set_tape(small_tape())
    gc.collect()
    assert ref() is None, "a tape that is replaced is let go of"
    room.view.viewport().repaint()
    scene = room.scene
    items = [*scene.boxes.values(), *scene.groups.values(), scene.far]
    parts = [weakref.ref(item) for item in items]
    assert len(parts) > 10
    del items
    room.set_tape(None)
    gc.collect()
    assert not [part for part in parts if part() is not None], (
        "nor is anything left of its picture"
    )


def test_a_room_that_is_closed_lets_go_of_its_tape(qtbot, qapp) -> None:
    theme.apply(qapp, "dark")
    room = AutogradPage()
    tape = TrainingBatch(Watched(), torch.randn(2, 1, 8, 8), loss).capture()
    ref = weakref.ref(tape)
    room.set_tape(tape)
    del tape
    room.close()
    room.deleteLater()
    with qtbot.waitSignal(room.destroyed):
        pass
    del room
    gc.collect()
    assert ref() is None
