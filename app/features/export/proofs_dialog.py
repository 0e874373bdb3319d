"""Progress and results of a certified export, in a non-modal dialog."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QGridLayout, QLayout, QProgressBar, QWidget

from app.features.export.values import Proofs, Prove, ToProve
from app.views.engine_service import EngineService
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.progress import ProgressDialog
from app.views.ui.layouts import vbox
from app.views.ui.present import present
from app.views.ui.widgets.painting import Glyph, label, set_property

WIDE = 48  # letters of a figure that fit beside the other columns
COLUMNS = ("Compared", "Mode", "Precision", "Tensors", "Largest relative difference")
MEANS = (
    "Without Tapedeck these files compute the same outputs and gradients as this network. That says nothing about its "
    "quality or about other versions of torch."
)
DIFFERS = "Do not rely on these files: they differ from the network on the canvas. Export them again."
UNPROVEN = (
    "Nothing is proven of these files: the network itself has numbers that are not finite. Export other weights, such "
    "as those of the best validation loss, or fix the network."
)


class ProofsDialog(ProgressDialog):
    """Proves at once when it is shown. `proved(Proofs)` comes when it is done, also when something does not pass."""

    proved = Signal(object)

    def __init__(
        self, engine: EngineService, wanted: ToProve, parent: QWidget | None = None
    ) -> None:
        names = " and ".join(
            filter(None, (", ".join(wanted.names[:-1]), wanted.names[-1]))
        )
        super().__init__(f"Writing {names}", parent)
        self.setWindowTitle("Export")
        self.setModal(False)
        self.setMinimumWidth(600)
        self.finished.connect(self.deleteLater)
        # Wrapped labels claim the height of a dialog narrower than its minimum.
        present(self.layout()).setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        self.bar = QProgressBar()
        self.bar.setRange(0, 0)
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of the export")
        self.state = label("", "label", "text2", wrap=True)
        self.results = vbox(spacing=10)
        self.body.addLayout(self.results)
        self.body.addWidget(self.bar)
        self.body.addWidget(self.state)
        self.body.addStretch(1)
        self.stop_button = self.add_button("Cancel")
        self.stop_button.clicked.connect(self.reject)
        self.finished.connect(lambda: engine.release(wanted.handle))
        self.ask(engine, Prove(wanted.handle))

    def show_progress(self, message: str) -> None:
        self.state.setText(message)

    def finished_with(self, answer: Proofs | WorkerFailure, cancelled: bool) -> None:
        self.bar.hide()
        self.stop_button.setText("Close")
        self.stop_button.setEnabled(True)
        if cancelled:
            self.reject()
        elif isinstance(answer, WorkerFailure):
            self.heading.setText("The export is not complete")
            self.state.setText(answer.message)
            self.state.setToolTip(answer.traceback)
            set_property(self.state, "tone", "error")
        else:
            self._show(answer)
            self.proved.emit(answer)
        QTimer.singleShot(
            0, self, self._fit
        )  # new widgets have their height only once shown

    def _fit(self) -> None:
        present(self.layout()).activate()
        self.resize(
            self.width(), present(self.layout()).totalHeightForWidth(self.width())
        )

    def _show(self, proofs: Proofs) -> None:
        self.heading.setText(
            "The export matches this network" if proofs.passed else "Some checks failed"
        )
        for written in proofs.written:
            self._line(written.passed, written.message)
        for refusal in proofs.refused:
            self._line(False, refusal)
        certificate = proofs.certificate
        self.state.setVisible(certificate is not None)
        if certificate is None:
            return
        self._line(certificate.passed, certificate.message)
        if certificate.checks:
            self.results.addLayout(self._table(proofs))
        where = (
            f" The measurements are in {proofs.path.name}, beside the code."
            if proofs.path
            else ""
        )
        unproven = any(check.odd for check in certificate.checks) and all(
            check.passed or check.odd for check in certificate.checks
        )
        self.state.setText(
            (MEANS if certificate.passed else UNPROVEN if unproven else DIFFERS) + where
        )
        set_property(self.state, "tone", "text3" if certificate.passed else "error")

    def _line(self, passed: bool, message: str) -> None:
        row = QGridLayout()
        row.setHorizontalSpacing(8)
        row.setColumnStretch(1, 1)
        glyph = Glyph("check", "run") if passed else Glyph("error", "error")
        glyph.setAccessibleName("Passed" if passed else "Failed")
        row.addWidget(glyph, 0, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(
            label(message, "body", "text" if passed else "error", wrap=True), 0, 1
        )
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
            subject = f"{check.what}, source model" if check.source else check.what
            for column, text in enumerate((subject, check.mode, check.dtype, count)):
                grid.addWidget(
                    label(text, "label", tone), row, column, Qt.AlignmentFlag.AlignTop
                )
            grid.addWidget(
                label(check.figure, "label", tone, wrap=len(check.figure) > WIDE),
                row,
                len(COLUMNS) - 1,
            )
        return grid
