"""How an export is proved: what goes on, then the figures, and what they mean. The window stays free meanwhile."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QGridLayout, QLayout, QProgressBar, QVBoxLayout, QWidget

from app.background import Failure
from app.views.dialogs.base import Dialog
from app.views.proving import Proofs, Prover, ToProve
from app.views.widgets.painting import Glyph, label, set_property

LOOK = 100  # ms between two looks at the progress
WIDE = 48  # letters of a figure that fit beside the other columns
COLUMNS = ("Compared", "Mode", "Precision", "Tensors", "Largest relative difference")
MEANS = (
    "Without Tapedeck these files give the numbers that this net gives, and they learn by the same gradients. It says "
    "nothing of how good the net is, nor of another version of torch."
)
DIFFERS = "Do not rely on these files: what was certified is not what is on the canvas. Export them anew."


class ProofsDialog(Dialog):
    """Proves at once when it is shown. `proved(Proofs)` comes when it is done, also when something does not pass."""

    proved = Signal(object)

    def __init__(self, wanted: ToProve, parent: QWidget | None = None) -> None:
        names = " and ".join(filter(None, (", ".join(wanted.names[:-1]), wanted.names[-1])))
        super().__init__(f"Making {names}", parent)
        self.setWindowTitle("Export")
        self.setModal(False)
        self.setMinimumWidth(600)
        self.finished.connect(self.deleteLater)
        # Wrapped labels ask for the height that they would need in a dialog narrower than it can be.
        self.layout().setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        self._began = time.monotonic()
        self.bar = QProgressBar()
        self.bar.setRange(0, 0)
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of the export")
        self.state = label("", "label", "text2", wrap=True)
        self.results = QVBoxLayout()
        self.results.setSpacing(10)
        self.body.addLayout(self.results)
        self.body.addWidget(self.bar)
        self.body.addWidget(self.state)
        self.body.addStretch(1)
        self.close_button = self.add_button("Cancel")
        self.close_button.clicked.connect(self.reject)
        self._timer = QTimer(self, interval=LOOK, timeout=self._look)
        self._prover: Prover | None = Prover(wanted)
        self._prover.ended.connect(self._ended, Qt.ConnectionType.QueuedConnection)
        self._look()
        self._prover.start()
        self._timer.start()

    @property
    def running(self) -> bool:
        return self._prover is not None

    def _look(self) -> None:
        """What goes on, and for how long."""
        if self._prover is not None:
            words = "Stopping" if self._prover.cancelled else self._prover.progress or "Starting"
            self.state.setText(f"{words} …  {time.monotonic() - self._began:.0f} s")

    def _ended(self, answer: Proofs | Failure) -> None:
        prover, self._prover = self._prover, None
        assert prover is not None
        self._timer.stop()
        prover.wait()
        self.bar.hide()
        self.close_button.setText("Close")
        self.close_button.setEnabled(True)
        if prover.cancelled:
            super().reject()
        elif isinstance(answer, Failure):
            self.heading.setText("The export is not complete")
            self.state.setText(str(answer.error))
            self.state.setToolTip(answer.traceback)
            set_property(self.state, "tone", "error")
        else:
            self._show(answer)
            self.proved.emit(answer)
        QTimer.singleShot(0, self, self._fit)  # what is new here tells its height once it has been shown

    def _fit(self) -> None:
        self.layout().activate()
        self.resize(self.width(), self.layout().totalHeightForWidth(self.width()))

    def _show(self, proofs: Proofs) -> None:
        self.heading.setText("What was exported is this net" if proofs.passed else "Not all of it passed")
        for one in proofs.written:
            self._line(one.passed, one.message)
        for words in proofs.refused:
            self._line(False, words)
        certificate = proofs.certificate
        self.state.setVisible(certificate is not None)
        if certificate is None:
            return
        self._line(certificate.passed, certificate.message)
        if certificate.checks:
            self.results.addLayout(self._table(proofs))
        where = f" The figures are in {proofs.path.name}, beside the code." if proofs.path else ""
        self.state.setText((MEANS if certificate.passed else DIFFERS) + where)
        set_property(self.state, "tone", "text3" if certificate.passed else "error")

    def _line(self, passed: bool, words: str) -> None:
        row = QGridLayout()
        row.setHorizontalSpacing(8)
        row.setColumnStretch(1, 1)
        glyph = Glyph("check", "run") if passed else Glyph("error", "error")
        glyph.setAccessibleName("Passed" if passed else "Failed")
        row.addWidget(glyph, 0, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(label(words, "body", "text" if passed else "error", wrap=True), 0, 1)
        self.results.addLayout(row)

    def _table(self, proofs: Proofs) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(len(COLUMNS) - 1, 1)
        for column, title in enumerate(COLUMNS):
            grid.addWidget(label(title, "label", "text3"), 0, column)
        assert proofs.certificate is not None
        for row, check in enumerate(proofs.certificate.checks, 1):
            tone = "text2" if check.passed else "error"
            count = str(check.count) if check.count else ""
            for column, words in enumerate((check.what, check.mode, check.dtype, count)):
                grid.addWidget(label(words, "label", tone), row, column, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(label(check.figure, "label", tone, wrap=len(check.figure) > WIDE), row, len(COLUMNS) - 1)
        return grid

    def reject(self) -> None:
        """Close; while something is being made, stop that first."""
        if self._prover is None:
            super().reject()
            return
        self._prover.cancel()
        self.close_button.setEnabled(False)
        self._look()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.running:
            event.ignore()
            self.reject()
        else:
            super().closeEvent(event)
