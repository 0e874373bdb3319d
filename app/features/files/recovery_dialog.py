"""Offer unsaved work of crashed windows for recovery, with a thumbnail, the file and the time of each."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent, QPixmap
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.builder.catalog.catalog import Catalog
from app.project import file_lock
from app.project.journal import ClaimedJournal
from app.util.formatting import counted
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox, vbox
from app.views.ui.thumbnails import ThumbnailRequest, Thumbnails
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import box, elided, label, start

PICTURE = QSize(216, 108)
MOST = 4  # cards that are seen without scrolling
WORDS = (
    "Tapedeck ended before these changes were saved. Restoring opens them as they were last autosaved; "
    "no file is changed until you save."
)
NO_PICTURE = "No preview: Tapedeck ended while it was rendered"


class RecoveryOffer(Struct, frozen=True):
    """A journal, the op catalog for its thumbnail, and a remark."""

    found: ClaimedJournal
    ops: Catalog | None
    remark: str = ""

    @property
    def title(self) -> str:
        entry = self.found.entry
        if entry is None:
            return "Unsaved work"
        return (
            entry.file.name
            if entry.file is not None
            else f"{entry.project.name} (not saved to a file yet)"
        )

    @property
    def size(self) -> str:
        """`12 nodes, 2 blocks, autosaved at 14:02`, or the source of an opened model in place of nodes."""
        entry = self.found.entry
        if entry is None:
            return ""
        blocks, runs = len(entry.project.blocks), len(entry.runs)
        opened = entry.project.opened
        parts = [
            counted(len(entry.project.graph.nodes), "node")
            if opened is None
            else str(opened.source)
        ]
        parts += [counted(blocks, "block")] if blocks else []
        parts += [counted(runs, "run")] if runs else []
        return f"{', '.join(parts)}, autosaved {file_lock.clock(entry.saved)}"


class RecoveryDialog(Dialog):
    """A card for each journal. `restored(Found)` and `discarded(Found)` report choices; Esc defers the rest."""

    restored = Signal(object)
    discarded = Signal(object)

    def __init__(
        self, offers: tuple[RecoveryOffer, ...], parent: QWidget | None = None
    ) -> None:
        title = (
            "Restore unsaved work?"
            if len(offers) == 1
            else f"Restore unsaved work of {len(offers)} windows?"
        )
        super().__init__(title, parent, icon="info")
        self.setWindowTitle("Tapedeck")
        self.thumbnails = Thumbnails(PICTURE, self)
        self.thumbnails.ready.connect(self._painted)
        self.body.addWidget(label(WORDS, "body", "text2", wrap=True))
        self.cards = [RecoveryCard(offer, self) for offer in offers]
        inside = QWidget()
        column = vbox(on=inside, margins=(0, 0, 8, 0), spacing=8)
        for card in self.cards:
            column.addWidget(card)
            card.restore_button.clicked.connect(
                lambda _=False, card=card: self._restore(card)
            )
            card.discarded.connect(lambda card=card: self._discard(card))
        column.addStretch(1)
        area = QScrollArea()
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(inside)
        self.body.addWidget(area, 1)
        later = self.add_button("Later")
        later.setToolTip(
            "Ask again at the next start, or use File > Recover unsaved work… before."
        )
        later.clicked.connect(self.reject)
        shown = min(len(self.cards), MOST)
        self.setMinimumSize(680, 250)
        self.resize(720, 152 + shown * (self.cards[0].minimumHeight() + 8))
        self.cards[0].restore_button.setFocus()
        self._ask_pictures()
        theme.manager().changed.connect(self._ask_pictures)
        self.finished.connect(self._leave)

    def _ask_pictures(self) -> None:
        """Request previews, except of a net whose painting crashed the program before."""
        for card in self.cards:
            claimed, entry = card.offer.found, card.offer.found.entry
            if entry is None or card.offer.ops is None:
                continue
            if card.picture is None and not claimed.begin_painting():
                card.words = NO_PICTURE
            elif not card.words:
                self.thumbnails.request(
                    ThumbnailRequest(
                        (claimed.path, entry.saved), entry.project, card.offer.ops
                    )
                )

    def _painted(self, key: tuple[Path, object], picture: QPixmap) -> None:
        for card in self.cards:
            if card.offer.found.path == key[0]:
                card.picture = picture
                card.offer.found.end_painting()
                card.update()

    def _leave(self) -> None:
        self.thumbnails.forget()
        for card in self.cards:
            card.offer.found.end_painting()

    def _restore(self, card: RecoveryCard) -> None:
        self.restored.emit(card.offer.found)
        self._take_away(card)

    def _discard(self, card: RecoveryCard) -> None:
        self.discarded.emit(card.offer.found)
        self._take_away(card)

    def _take_away(self, card: RecoveryCard) -> None:
        card.offer.found.end_painting()
        self.cards.remove(card)
        card.hide()
        if not self.cards:
            self.accept()


class RecoveryCard(QFrame):
    """Thumbnail, name, path and time of a journal. `discarded` takes a second press, as it cannot be undone."""

    discarded = Signal()

    def __init__(self, offer: RecoveryOffer, parent: QWidget) -> None:
        super().__init__(parent)
        self.offer = offer
        self.picture: QPixmap | None = None
        self.words = ""
        entry = offer.found.entry
        self.setAccessibleName(f"{offer.title}, {offer.size}")
        self.restore_button = Button("Restore", "primary")
        self.restore_button.setAccessibleName(f"Restore {offer.title}")
        self.restore_button.setEnabled(entry is not None)
        self.discard_button = Button("Discard", "flat")
        self.discard_button.setAccessibleName(f"Discard {offer.title}")
        self.discard_button.clicked.connect(self._discard)
        column = vbox(label(offer.title, "node", wrap=True), spacing=3)
        folder = (
            str(entry.file.parent)
            if entry is not None and entry.file is not None
            else ""
        )
        lines = (
            (folder, "text3"),
            (offer.size, "text2"),
            (offer.found.problem, "error"),
            (offer.remark, "warn"),
        )
        for text, tone in lines:
            if text:
                column.addWidget(label(text, "caption", tone, wrap=True))
        column.addStretch(1)
        buttons = hbox(1, self.discard_button, self.restore_button, spacing=8)
        column.addLayout(buttons)
        hbox((column, 1), on=self, margins=(PICTURE.width() + 16, 10, 12, 10))
        self.setMinimumHeight(PICTURE.height() + 4)

    def _discard(self) -> None:
        if self.discard_button.text() == "Discard":
            self.discard_button.setText("Discard permanently")
            return
        self.discarded.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 6, colors.raised, colors.line2)
        stage = QRectF(1, 1, PICTURE.width(), self.height() - 2)
        box(painter, stage, 5, colors.canvas)
        if self.picture is not None:
            area = QRectF(0, 0, PICTURE.width(), PICTURE.height())
            area.moveCenter(stage.center())
            painter.drawPixmap(area, self.picture, QRectF(self.picture.rect()))
        elif self.words:
            line = elided(self.words, "caption", stage.width() - 16)
            line.draw_in(painter, stage.left() + 8, stage, colors.text3)
        painter.end()
