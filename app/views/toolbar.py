"""The toolbar: project, undo and redo, the deck, the device, export."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QMenu,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from app.project.project import Project
from app.training.setup.device import Device
from app.views.run.targets import RunTargets
from app.views.run.transport_deck import RunDeck
from app.views.ui import icons
from app.views.ui.present import present
from app.views.ui.theme import manager
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.fields import StillComboBox
from app.views.workspace import Workspace

SCRIPT_ENDED, SCRIPT_FAILED = "The script has ended", "The script failed"
HEIGHT = 54
COUNTER = 38  # of it, the height of the tape counter
DECK = (
    500,
    860,
)  # px, the least and the greatest width of the deck, which has half of the window otherwise
MARGIN = SPACING = 12
SQUEEZED = 48  # px, the least width of what is cut where room is short
NARROW = 1150  # px, below which Export is an icon
APPLY_EDITS = (
    "Apply the edits on the canvas to the paused run; the effects are shown first"
)


class Toolbar(QFrame):
    """Emits `device_chosen(id)`, where "auto" is the fastest device, and `exported` to request an export."""

    device_chosen = Signal(str)
    exported = Signal()
    fits_text = True

    def __init__(
        self, undo: QAction, redo: QAction, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setProperty("role", "toolbar")
        self.setObjectName("toolbar")
        self._fit_text()
        manager().changed.connect(self._fit_text)
        manager().styled.connect(self._place)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.project = Button("", "flat", parent=self)
        self.project.setObjectName("project")
        self.project.setAccessibleName("Project")
        self.deck = RunDeck(self)
        self.device = StillComboBox(self)
        self.device.setAccessibleName("Device")
        self.device.setToolTip("Where the next run trains")
        self.device.setFixedHeight(30)
        self.device.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.device.activated.connect(self._choose_device)
        self.export = Button("Export", icon="export", parent=self)
        self.export.setFixedHeight(30)
        self.export.setAccessibleName("Export")
        self.export.setToolTip("Export the code, the weights or a picture")
        self.export.clicked.connect(self.exported)
        self.edits = icon_button("cut", APPLY_EDITS)
        self.edits.setFixedSize(30, 30)
        self.edits.hide()
        self._name, self._dirty = "", False
        self._targets: RunTargets | None = None
        self.set_devices((), "auto")
        self._lay_out(undo, redo)

    def _lay_out(self, undo: QAction, redo: QAction) -> None:
        self._sides = left, right = QWidget(self), QWidget(self)
        left_row, right_row = QHBoxLayout(left), QHBoxLayout(right)
        for row in (left_row, right_row):
            row.setContentsMargins(0, 0, 0, 0)
            row.setSpacing(8)
        left_row.addWidget(self.project)
        left_row.addWidget(_divider(left))
        left_row.addWidget(_tool(undo, left))
        left_row.addWidget(_tool(redo, left))
        left_row.addStretch(1)
        left_row.addWidget(self.edits)
        right_row.addStretch(1)
        right_row.addWidget(self.device)
        right_row.addWidget(self.export)
        for squeezed in (self.project, self.device):
            squeezed.setMinimumWidth(SQUEEZED)

    def sizeHint(self) -> QSize:
        return QSize(DECK[0], self.minimumHeight())

    def _fit_text(self) -> None:
        """Take the height that the tape counter needs at the text size in force, and place everything in it."""
        high = max(HEIGHT, round(COUNTER * manager().scale) + HEIGHT - COUNTER)
        if high != self.minimumHeight():
            self.setFixedHeight(high)
            QTimer.singleShot(0, self, self._place)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place the deck by the width of the window alone: a layout would move its keys with every word that the deck,
        the project's name or the device say.
        """
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        deck = min(max(self.width() // 2, DECK[0]), DECK[1])
        side = max((self.width() - deck) // 2 - MARGIN - SPACING, 0)
        left, right = self._sides
        top, height = (
            (self.height() - self.deck.sizeHint().height()) // 2,
            self.deck.sizeHint().height(),
        )
        left.setGeometry(MARGIN, 0, side, self.height())
        self.deck.setGeometry(MARGIN + side + SPACING, top, deck, height)
        right.setGeometry(self.width() - MARGIN - side, 0, side, self.height())
        narrow = self.width() < NARROW
        self.export.setText("" if narrow else "Export")
        policy = self.edits.sizePolicy()
        policy.setRetainSizeWhenHidden(
            not narrow
        )  # its room is the name's where that is short
        self.edits.setSizePolicy(policy)
        present(left.layout()).setSpacing(4 if narrow else 8)
        self._show_name()

    def set_project(self, name: str, dirty: bool, file: str = "") -> None:
        """Show the name, and where its file is; a dot marks unsaved changes."""
        self._name, self._dirty = name, dirty
        self.project.setToolTip(
            f"{name}\n{file}" + "\nThere are unsaved changes." * dirty
        )
        self._show_name()

    def _show_name(self) -> None:
        """Shorten the name to what the left side leaves, with the arrow of its menu and the mark of unsaved changes."""
        metrics, end = self.project.fontMetrics(), " •" if self._dirty else ""
        around = self.project.sizeHint().width() - metrics.horizontalAdvance(
            self.project.text()
        )
        room = (
            self._sides[0].width()
            - self._beside_name()
            - around
            - metrics.horizontalAdvance(end)
        )
        shown = metrics.elidedText(
            self._name,
            Qt.TextElideMode.ElideMiddle,
            max(room, metrics.averageCharWidth()),
        )
        self.project.setText(f"{shown}{end}")

    def _beside_name(self) -> int:
        """Return the width of the widgets left of the name."""
        row = present(self._sides[0].layout())
        others = (present(row.itemAt(index)) for index in range(row.count()))
        shown = [
            layout_item
            for layout_item in others
            if layout_item.widget() is not self.project and not layout_item.isEmpty()
        ]
        widths = [layout_item.sizeHint().width() for layout_item in shown]
        return sum(widths) + row.spacing() * len(widths)

    def follow(self, workspace: Workspace) -> None:
        """Connect the deck to the runs, and show the devices and the project's device."""
        self._workspace = workspace
        control, document = workspace.run_control, workspace.document
        for name in ("run", "pause", "step", "stop"):
            getattr(self.deck, name).connect(getattr(control, name))
        self.deck.follow(workspace.session)
        self.deck.capture.connect(lambda: workspace.commands.trigger("capture-step"))
        self.deck.counter.followed.connect(
            lambda: workspace.commands.trigger("next-problem")
        )
        self.deck.go_on.connect(lambda: workspace.commands.trigger("script-goes-on"))
        control.step_changed.connect(self.deck.set_step)
        self.edits.clicked.connect(lambda: workspace.commands.trigger("apply-edits"))
        control.edits_offered.connect(
            lambda on: self.edits.setVisible(
                on and workspace.commands.has("apply-edits")
            )
        )
        control.edits_offered.connect(lambda _on: self._show_name())
        control.blocked_changed.connect(self._blocked)
        workspace.session.stateChanged.connect(
            lambda _state: self._blocked(control.blocked)
        )
        self._blocked(control.blocked)
        self.device_chosen.connect(control.choose_device)
        self._targets = control.targets
        self._targets.changed.connect(self._list_devices)
        self._list_devices()
        self.exported.connect(lambda: workspace.commands.trigger("export"))
        self.export.setVisible(workspace.commands.has("export"))
        workspace.live.torch_loaded.connect(
            lambda torch: self.set_devices(
                torch.devices, document.project.training.device
            )
        )
        document.changed.connect(
            lambda _before, after: self.show_device(after.training.device)
        )
        document.replaced.connect(self._replaced)

    def _blocked(self, reason: str) -> None:
        live, session = self._workspace.live, self._workspace.session
        if not session.active:
            if self.deck.state != "idle" and self._workspace.run_control.shows_script:
                if session.state == "failed":
                    self.deck.set_blocked(SCRIPT_FAILED, "error", "error")
                else:
                    self.deck.set_blocked(
                        "" if session.state == "left" else SCRIPT_ENDED
                    )
                return
            errors = bool(live.errors) and live.up_to_date and not live.wants
            icon, color = ("error", "error") if errors else ("", "text2")
            self.deck.set_blocked(
                reason, icon, color, starts_later=self._workspace.run_control.waits
            )

    def _replaced(self, project: Project) -> None:
        """Reset the deck, unless the previous project's run is still active."""
        self.show_device(project.training.device)
        if not self._workspace.session.active:
            self.deck.set_state("idle")
            self.deck.show_progress(None)

    def set_project_menu(self, menu: QMenu) -> None:
        self.project.setMenu(menu)

    def set_devices(self, present: Sequence[Device], chosen: str) -> None:
        """Fill the list of devices, which are unknown until torch is loaded."""
        self._present = present
        self._chosen = chosen
        self._list_devices()

    def show_device(self, chosen: str) -> None:
        """Select a device without emitting a signal; one that is not here is listed while it is chosen."""
        if self.device.count() > self._listed:
            self.device.removeItem(self._listed)
        self._chosen = chosen
        target = self._targets.chosen if self._targets is not None else None
        shown = chosen if target is None else target.key
        if self.device.findData(shown) < 0:
            missing = bool(self._present)  # else nothing is known yet
            color, note = ("warn", " (not available)") if missing else ("run", "")
            self.device.addItem(icons.icon("chip", color), f"{chosen}{note}", chosen)
        self.device.setCurrentIndex(self.device.findData(shown))

    def _list_devices(self) -> None:
        self.device.clear()
        fastest = f" ({self._present[0].id})" if self._present else ""
        chip = icons.icon("chip", "run")
        self.device.addItem(chip, f"auto{fastest}", "auto")
        for device in self._present:
            name = f"{device.id} · {_short(device.name)}"
            self.device.addItem(chip, name, device.id)
        for target in self._targets.all if self._targets is not None else ():
            self.device.addItem(chip, target.title, target.key)
        self._listed = self.device.count()
        self.show_device(self._chosen)

    def _choose_device(self, index: int) -> None:
        chosen = self.device.itemData(index)
        if self._targets is not None and self._targets.offers(chosen):
            self._targets.choose(chosen)
        else:
            self.device_chosen.emit(chosen)


def _short(name: str) -> str:
    return name.removeprefix("NVIDIA ").split(",")[0]


def _tool(action: QAction, parent: QWidget) -> QToolButton:
    button = QToolButton(parent)
    button.setDefaultAction(action)
    button.setAutoRaise(True)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonIconOnly)
    return button


def _divider(parent: QWidget) -> QLabel:
    line = QLabel(parent)
    line.setFixedSize(1, 22)
    line.setProperty("role", "divider")
    return line
