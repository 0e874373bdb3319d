"""Error messages, and confirmation before something is lost."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.util.formatting import counted
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.icons import icon
from app.views.ui.widgets.painting import label


class ErrorDialog(Dialog):
    """Shows what happened, where, and the cure; the traceback can be unfolded and copied.

    Args:
        what: The sentence: `The project could not be opened`.
        where: The node, file or row it happened at.
        cure: What the user can do next.
        traceback: Shown on demand, and included in copied reports.
    """

    def __init__(
        self,
        what: str,
        where: str = "",
        cure: str = "",
        traceback: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(what, parent, icon="error")
        self.setWindowTitle("Tapedeck")
        self._what, self._where, self._cure, self._traceback = (
            what,
            where,
            cure,
            traceback,
        )
        self.setMinimumWidth(460)
        for text, role, tone in ((where, "label", "text2"), (cure, "body", "")):
            if text:
                self.body.addWidget(label(text, role, tone, wrap=True))
        self.details = QPlainTextEdit(traceback)
        self.details.setReadOnly(True)
        self.details.setFont(theme.font("formula"))
        self.details.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.details.setMinimumHeight(180)
        self.details.setAccessibleName("Traceback")
        self.details.hide()
        self.body.addWidget(self.details, 1)
        self.show_button = self.add_button("Show traceback", "flat", left=True)
        self.show_button.setVisible(bool(traceback))
        self.show_button.clicked.connect(self._toggle_details)
        self.copy_button = self.add_button("Copy")
        self.copy_button.setAccessibleName("Copy the message and the traceback")
        self.copy_button.clicked.connect(self.copy)
        self.close_button = self.add_button("Close", "primary", default=True)
        self.close_button.clicked.connect(self.accept)
        self.close_button.setFocus()

    def text(self) -> str:
        """Return the whole message as text for the clipboard."""
        return "\n".join(
            filter(None, (self._what, self._where, self._cure, self._traceback))
        )

    def copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text())
        self.copy_button.setText("Copied")
        self.copy_button.setIcon(icon("check"))

    def _toggle_details(self) -> None:
        opened = self.details.isHidden()
        self.details.setVisible(opened)
        self.show_button.setText("Hide traceback" if opened else "Show traceback")
        self.resize(
            max(self.width(), 680), self.height() + 200
        ) if opened else self.adjustSize()


class DialogAnswer(Enum):
    """The choice made in a `QuestionDialog`."""

    SAVE = "save"
    DISCARD = "discard"
    CANCEL = "cancel"


class QuestionDialog(Dialog):
    """A question before something is lost. Esc and the window's close button mean `CANCEL`."""

    def __init__(
        self, question: str, reason: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(question, parent, icon="warning")
        self.setWindowTitle("Tapedeck")
        self.setMinimumWidth(420)
        self.answer = DialogAnswer.CANCEL
        self.body.addWidget(label(reason, "body", "text2", wrap=True))

    def offer(
        self,
        text: str,
        answer: DialogAnswer,
        kind: str = "secondary",
        *,
        left: bool = False,
        default: bool = False,
    ) -> None:
        """Add a button that answers with `answer`."""
        button = self.add_button(text, kind, left=left, default=default)
        button.clicked.connect(lambda: self._choose(answer))
        if default:
            button.setFocus()

    def _choose(self, answer: DialogAnswer) -> None:
        self.answer = answer
        self.accept() if answer is not DialogAnswer.CANCEL else self.reject()


def unsaved_dialog(name: str, parent: QWidget | None = None) -> QuestionDialog:
    """Return a dialog about unsaved changes; run it and read its `answer`."""
    reason = "The changes since the last save are lost if you do not save them."
    dialog = QuestionDialog(f"Save the changes to {name}?", reason, parent)
    dialog.offer("Don't save", DialogAnswer.DISCARD, left=True)
    dialog.offer("Cancel", DialogAnswer.CANCEL)
    dialog.offer("Save", DialogAnswer.SAVE, "primary", default=True)
    return dialog


def ask_unsaved(parent: QWidget | None, name: str) -> DialogAnswer:
    """Ask whether to save `name`, modally, and return the answer."""
    dialog = unsaved_dialog(name, parent)
    dialog.exec()
    dialog.deleteLater()
    return dialog.answer


def running_dialog(
    progress: str,
    quits: bool = True,
    watches: bool = False,
    parent: QWidget | None = None,
    left: int = 0,
    saved: bool = True,
) -> QuestionDialog:
    """Return a dialog that confirms the end of a run; `progress` says how far it is (`epoch 3 of 20`).

    It ends because the user `quits`, else because another project is opened. One that is only watched (`watches`)
    goes on. `left` runs of a sweep would follow. One that is not `saved`, as no folder can be written, is lost.
    """
    why = "quit now" if quits else "open another project"
    stop, stay = (
        ("Stop watching", "Keep watching") if watches else ("Stop", "Keep training")
    )
    if watches:
        reason = f"The run is at {progress}. If you {why} it continues where it was started, but is no longer watched."
    else:
        runs = "Runs" if quits else "Runs of this project"
        fate = (
            f"it is saved and can be resumed from {runs}"
            if saved
            else "it is lost, as no folder for it can be written. To keep its weights, stop it and export them first"
        )
        reason = f"The run is at {progress}. If you {why} it stops there; {fate}."
    if left:
        reason += f" The sweep ends: {counted(left, 'run')} {'has' if left == 1 else 'have'} not begun."
    dialog = QuestionDialog("A training run is in progress", reason, parent)
    dialog.offer(
        f"{stop} and quit" if quits else f"{stop} and open",
        DialogAnswer.DISCARD,
        left=True,
    )
    dialog.offer(stay, DialogAnswer.CANCEL, "primary", default=True)
    return dialog


class ListingDialog(Dialog):
    """Shows lines of text below a title."""

    def __init__(
        self, title: str, lines: Sequence[str], parent: QWidget | None = None
    ) -> None:
        super().__init__(title, parent)
        self.setWindowTitle("Tapedeck")
        self.lines = QPlainTextEdit("\n".join(lines))
        self.lines.setReadOnly(True)
        self.lines.setFont(theme.font("formula"))
        self.lines.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.lines.setAccessibleName(title)
        self.body.addWidget(self.lines, 1)
        copy = self.add_button("Copy", left=True)
        copy.clicked.connect(
            lambda: QGuiApplication.clipboard().setText(self.lines.toPlainText())
        )
        self.add_button("Close", "primary", default=True).clicked.connect(self.accept)
        self.resize(620, 420)
