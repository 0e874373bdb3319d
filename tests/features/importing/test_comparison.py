"""The drawing of a large model is shown while it is compared: what counts meanwhile, and what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtWidgets import QPushButton

from app.features.importing.dialogs import ImportDialog
from app.features.importing.feature import OPEN, STOP, ComparingControl
from app.features.importing.values import UNCHECKED
from app.util.frozen import FrozenMap
from tests.features.importing.test_window import asked, trust
from tests.support.whole_window import WholeWindow
from tests.support.windows import messages

# Its comparison waits until the test lets it go on; `worth` is what the drawing alone may see otherwise.
LARGE = """
import time
from pathlib import Path
from torch import nn


def held_up(x):
    while not (x.is_meta or Path({gate!r}).exists()):
        time.sleep(0.01)
    return {worth}


class Unit(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2100, 2000)

    def forward(self, x):
        return self.fc(x) * held_up(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit, self.out = Unit(), nn.Linear(2000, 2)

    def forward(self, x):
        return self.out(self.unit(x))
"""
pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.fixture
def gate(tmp_path) -> Path:
    return tmp_path / "gate"


def drawn(
    qtbot, window: WholeWindow, gate: Path, worth: str = "2.0"
) -> ComparingControl:
    """What waits for the comparison, once the drawing stands in the window."""
    path = gate.with_name("large.py")
    path.write_text(LARGE.format(gate=str(gate), worth=worth))
    dialog = asked(qtbot, window)
    dialog.choose_file(path)
    dialog.file.inputs.setPlainText("2x2100")
    dialog.go.click()
    before = window.document.project
    trust(window).trust_button.click()
    qtbot.waitUntil(
        lambda: dialog._read is not None or window.document.project is not before,
    )
    if (
        window.document.project is before
    ):  # what holds for the example alone is read first
        dialog.go.click()
    qtbot.waitUntil(lambda: not window.findChildren(ImportDialog))
    comparing = window.import_control.comparing
    assert comparing is not None and comparing.running and comparing.banner.isVisible()
    origin = window.document.project.origin
    assert origin is not None and not origin.checked and origin.reference is None
    assert UNCHECKED in window.document.project.notes
    return comparing


def press(comparing: ComparingControl, text: str) -> None:
    next(
        button
        for button in comparing.banner.findChildren(QPushButton)
        if button.text() == text
    ).click()


def test_it_can_be_edited_meanwhile_and_every_step_of_undo_knows_the_answer(
    qtbot, window, gate
) -> None:
    comparing, document, told = (
        drawn(qtbot, window, gate),
        window.document,
        messages(window),
    )
    before = document.project
    name = next(iter(before.positions))
    document.apply(
        "Move",
        replace(before, positions=FrozenMap({**before.positions, name: (7.0, 7.0)})),
    )
    qtbot.waitUntil(lambda: "Checking" in comparing.banner.reason())
    gate.touch()
    qtbot.waitUntil(lambda: not comparing.running)
    assert not comparing.banner.isVisible() and "Compared Net" in told[-1]
    for project in (
        document.project,
        (document.undo_stack.undo(), document.project)[1],
    ):
        assert project.origin.checked.startswith(
            "Checked against the model: outputs, gradients"
        )
        assert (
            Path(project.origin.reference.path).is_file()
            and Path(project.origin.weights.path).is_file()
        )
        assert (
            UNCHECKED not in project.notes and project.origin.checked in project.notes
        )
    assert document.project.positions == before.positions


def test_another_net_is_never_taken_for_the_model_and_the_corrected_one_is_offered(
    qtbot, window, gate, monkeypatch
) -> None:
    comparing = drawn(qtbot, window, gate, worth="2.0 if x.is_meta else 3.0")
    gate.touch()
    qtbot.waitUntil(lambda: not comparing.running)
    project = window.document.project
    assert (
        "differs from Net" in comparing.banner.title() and comparing.banner.isVisible()
    )
    assert (
        "The network differs" in project.notes
        and not project.origin.checked
        and project.origin.reference is None
    )
    monkeypatch.setattr(window.files, "may_leave", lambda: True)
    press(comparing, OPEN)
    project = window.document.project
    assert (
        "unit (Unit" in project.notes
        and "is one node" in project.notes
        and project.origin.checked
    )
    assert (
        Path(project.origin.reference.path).is_file()
        and not comparing.banner.isVisible()
    )


def test_one_that_is_stopped_stays_unchecked_and_its_process_ends(
    qtbot, window, gate
) -> None:
    comparing, told = drawn(qtbot, window, gate), messages(window)
    work = comparing._work
    press(comparing, STOP)
    qtbot.waitUntil(work.isFinished)
    # The message of the import may come after it.
    assert any(UNCHECKED in message for message in told)
    assert not comparing.running and not comparing.banner.isVisible()
    assert (
        UNCHECKED in window.document.project.notes
        and not window.document.project.origin.checked
    )
