"""Review of a file of layers or Datasets before it runs, with the decision whether to trust it."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QTextCursor, QTextFormat
from PySide6.QtWidgets import (
    QListWidget,
    QPlainTextEdit,
    QStackedWidget,
    QTextEdit,
    QWidget,
)

from app.builder.catalog.custom import CustomFile, module_name
from app.builder.catalog.custom_review import difference, hidden_letters, imports
from app.source.layer_files import LayerFile, names_in
from app.source.own_files import OwnFile, OwnFiles
from app.views.ui import theme
from app.views.ui.code_edit import CodeEdit
from app.views.ui.dialogs.base import Dialog
from app.views.ui.layouts import hbox
from app.views.ui.widgets import Segmented
from app.views.ui.widgets.painting import Glyph, label

WARNING = (
    "Trusted code runs in Tapedeck with all your permissions: it can read and change your files and use the network. "
    "Trust it only if you know what it does. You are asked again after every edit."
)
_SHOWN = 6
_NAMES = 200  # width of the list of files


class DiffEdit(QPlainTextEdit):
    """A unified diff; added lines are green, removed ones red, and both keep their signs."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__()
        self.setReadOnly(True)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setFont(theme.font("code"))
        self.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setAccessibleName("Changes since it was trusted")
        self.set_lines(lines)
        theme.manager().changed.connect(self._mark)

    def set_lines(self, lines: tuple[str, ...]) -> None:
        """Show another difference."""
        self._lines = lines
        self.setPlainText("\n".join(lines))
        self._mark()

    def _mark(self) -> None:
        colors = theme.current()
        ground = {
            "+": theme.mix(colors.sunken, colors.run, 0.22),
            "-": colors.errorBg,
            "@": colors.hover,
        }
        marks = (
            self._mark_of(number, ground[line[:1]])
            for number, line in enumerate(self._lines)
            if line[:1] in ground
        )
        self.setExtraSelections(list(marks))

    def _mark_of(self, line: int, color: QColor) -> QTextEdit.ExtraSelection:
        mark = QTextEdit.ExtraSelection()
        mark.cursor = QTextCursor(self.document().findBlockByNumber(line))
        mark.format.setBackground(color)
        mark.format.setProperty(QTextFormat.Property.FullWidthSelection, True)
        return mark


class ReviewedText(Struct, frozen=True):
    """One text to review. `before` is the last one that was trusted at its place, None without any."""

    name: str
    text: str
    before: str | None = None
    new: bool = False

    @property
    def edited(self) -> bool:
        return self.before is not None and self.before != self.text

    @property
    def label(self) -> str:
        """Its name in the list, with what is not as it was trusted."""
        return self.name + (", edited" if self.edited else ", new" if self.new else "")


class TrustDialog(Dialog):
    """The file's name, path, hash and text, its contents and the consequences; of a model every file that runs.

    `trusted(file)` is emitted when the user trusts it, `revoked(file)` when they revoke that. `before` is the last
    trusted text, to show the changes since.
    """

    trusted = Signal(object)
    revoked = Signal(object)
    warning = WARNING
    trusted_words = "It is trusted: its classes are layers here."
    agree = "Trust and load"
    subject = "Custom layers"

    def __init__(
        self, file: CustomFile, before: str | None = None, parent: QWidget | None = None
    ) -> None:
        assert file.file is not None
        self.file, self.before = file, before
        edited = [review.name for review in self.reviewed() if review.edited]
        title = (
            f"{listed(edited)} {'was' if len(edited) == 1 else 'were'} edited"
            if edited
            else file.name
            if file.trusted
            else f"Trust {file.name}?"
        )
        icon, color = ("layers", None) if file.trusted else ("lock", "warn")
        super().__init__(title, parent, icon=icon, color=color)
        self.setWindowTitle(self.subject)
        self.setMinimumSize(560, 420)
        self.resize(820, 680)
        self.body.addWidget(self._file_label())
        notice = self.trusted_words if file.trusted else self.warning
        self.body.addWidget(label(notice, "body", wrap=True))
        for icon, color, text in self._facts():
            self.body.addWidget(_fact(icon, color, text))
        self.body.addSpacing(4)
        self._texts()
        self._offer()

    def reviewed(self) -> tuple[ReviewedText, ...]:
        """Return every text that would run."""
        assert self.file.file is not None
        before = None if self.file.trusted else self.before
        return (ReviewedText(self.file.name, self.file.file.text, before),)

    def _file_label(self) -> QWidget:
        assert self.file.file is not None
        path_label = label(
            f"{self.file.path}\nSHA-256 {self.file.file.sha256}",
            "formula",
            "text2",
            wrap=True,
        )
        path_label.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        path_label.setAccessibleName("Path and hash of the file")
        return path_label

    def contents(self) -> str:
        """List the usable contents of the file; "" if there are none."""
        usable = [
            layer_class.name
            for layer_class in self.file.classes
            if not layer_class.reason
        ]
        return f"Layers: {listed(usable)}" if usable else ""

    def missing(self) -> str:
        """Return why nothing of the file can be used."""
        return "It defines no subclass of nn.Module or autograd.Function."

    def _facts(self) -> list[tuple[str, str, str]]:
        """Return the facts about the text, each with an icon."""
        assert self.file.file is not None
        text, facts = self.file.file.text, []
        if contents := self.contents():
            facts.append(("layers", "text2", contents))
        for layer_class in [
            candidate for candidate in self.file.classes if candidate.reason
        ][:_SHOWN]:
            facts.append(
                (
                    "warning",
                    "warn",
                    f"{layer_class.name} cannot be used: {layer_class.reason}.",
                )
            )
        if self.file.problem:
            facts.append(("error", "error", self.file.problem))
        elif not self._usable():
            facts.append(("error", "error", self.missing()))
        if imported := imports(text):
            facts.append(("link", "text2", f"It imports {listed(list(imported))}"))
        facts += [
            ("error", "error", fact)
            for review in self.reviewed()
            if (fact := _hidden_fact(review))
        ]
        return facts

    def _usable(self) -> bool:
        return bool(self.file.classes or self.contents())

    def _texts(self) -> None:
        self.code = CodeEdit()
        self.changes: DiffEdit | None = None
        self.pages = QStackedWidget()
        self.pages.addWidget(self.code)
        texts = self.reviewed()
        if any(review.edited for review in texts):
            self.changes = DiffEdit(())
            self.pages.addWidget(self.changes)
            self.choice = Segmented(
                [("changes", "What changed"), ("text", "Full text")], "Shown"
            )
            self.choice.changed.connect(self._show)
            self.body.addLayout(hbox(self.choice, 1))
        if len(texts) == 1:
            self.body.addWidget(self.pages, 1)
        else:
            self.names = QListWidget()
            self.names.setAccessibleName("Files that run")
            self.names.addItems([review.label for review in texts])
            self.names.setTextElideMode(
                Qt.TextElideMode.ElideMiddle
            )  # the end says whether it was edited
            self.names.setHorizontalScrollBarPolicy(
                Qt.ScrollBarPolicy.ScrollBarAlwaysOff
            )
            self.names.setFixedWidth(_NAMES)
            for row, reviewed_text in enumerate(texts):
                self.names.item(row).setToolTip(reviewed_text.label)
            self.names.currentRowChanged.connect(self._show_text)
            self.body.addLayout(hbox(self.names, (self.pages, 1)), 1)
        self._show_text(
            next((number for number, review in enumerate(texts) if review.edited), 0)
        )

    def _show_text(self, number: int) -> None:
        """Show one of the texts, and what changed in it."""
        reviewed_text = self.reviewed()[number]
        if hasattr(self, "names"):
            self.names.setCurrentRow(number)
        self.code.setAccessibleName(f"Text of {reviewed_text.name}")
        self.code.show_text(reviewed_text.text.rstrip("\n"))
        if self.changes is not None:
            self.changes.set_lines(
                difference(reviewed_text.before or "", reviewed_text.text)
                if reviewed_text.edited
                else ()
            )
            self.choice.setVisible(reviewed_text.edited)
            self._show("changes" if reviewed_text.edited else "text")

    def _show(self, key: str) -> None:
        self.pages.setCurrentWidget(
            self.changes if key == "changes" and self.changes else self.code
        )

    def _offer(self) -> None:
        """Focus the button that declines: nothing is trusted by Enter alone."""
        if self.file.trusted:
            self.revoke_button = self.add_button("Revoke trust", left=True)
            self.revoke_button.clicked.connect(self._revoke)
            close = self.add_button("Close", "primary", default=True)
            close.clicked.connect(self.accept)
            close.setFocus()
            return
        later = self.add_button("Not now")
        later.clicked.connect(self.reject)
        self.trust_button = self.add_button(self.agree, "primary")
        self.trust_button.clicked.connect(self._trust)
        self.trust_button.setEnabled(self._usable())
        later.setFocus()

    def _trust(self) -> None:
        self.trusted.emit(self.file)
        self.accept()

    def _revoke(self) -> None:
        self.revoked.emit(self.file)
        self.accept()


def _hidden_fact(reviewed_text: ReviewedText) -> str:
    hidden = hidden_letters(reviewed_text.text)
    if not hidden:
        return ""
    lines = ", ".join(str(number) for number, _ in hidden[:_SHOWN])
    message = f"Invisible characters ({hidden[0][1].capitalize()}) in line {lines} of {reviewed_text.name}: "
    return message + "the code may not do what it appears to do."


def _fact(icon: str, color: str, text: str) -> QWidget:
    """Return an icon with a line of text."""
    holder = QWidget()
    hbox(
        (Glyph(icon, color, 14), 0, Qt.AlignmentFlag.AlignTop),
        (label(text, "label", "" if color == "text2" else color, wrap=True), 1),
        on=holder,
        margins=0,
        spacing=8,
    )
    return holder


def listed(names: list[str]) -> str:
    """Return the first few, and the number of the others."""
    shown = ", ".join(names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


class DatasetTrustDialog(TrustDialog):
    """Like the review of a layer file, for Dataset classes."""

    problem = "It defines no class, so it has no Dataset."
    trusted_words = "It is trusted: its Dataset classes can be trained on."

    def __init__(
        self, file: CustomFile, before: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(file, before, parent)
        self.setWindowTitle("Dataset class")

    def contents(self) -> str:
        assert self.file.file is not None
        try:
            tree = ast.parse(self.file.file.text)
        except (SyntaxError, ValueError, RecursionError) as error:
            self.problem = f"It cannot be read as Python: {error}."
            return ""
        # A base may have any name here, such as a class of the file itself: which are datasets is seen once it runs.
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        return f"Classes: {listed(names)}" if names else ""

    def missing(self) -> str:
        return self.problem


PERMISSIONS = (
    "in a separate process with all your permissions: it can read and change your files and use the network. Trust it "
    "only if you know what it does. You are asked again when any of its files changes."
)


class ModelTrustDialog(TrustDialog):
    """Shows the file of a model with every file of the user's that it imports; `before` are the texts that were trusted
    last, by path. `trusted(files)` is emitted when the user trusts them all."""

    warning = f"To import its model, Python runs this code {PERMISSIONS}"
    agree = "Trust and import"
    subject = "Your own model"

    def __init__(
        self,
        files: OwnFiles,
        before: Mapping[str, str | None],
        parent: QWidget | None = None,
    ) -> None:
        self.files, self._before = files, before
        entry = files.entry
        assert entry.text is not None
        path = Path(entry.path)
        module = module_name(path)
        super().__init__(
            CustomFile(
                path, module, LayerFile.from_text(module, entry.text, entry.path)
            ),
            before[entry.path],
            parent,
        )

    def reviewed(self) -> tuple[ReviewedText, ...]:
        again = any(before is not None for before in self._before.values())
        return tuple(self._text(file, again) for file in self.files.files)

    def _text(self, file: OwnFile, again: bool) -> ReviewedText:
        name = os.path.relpath(file.path, os.path.dirname(self.files.entry.path))
        before = self._before[file.path]
        return ReviewedText(
            name, file.reviewed_text, before, new=again and before is None
        )

    def contents(self) -> str:
        assert self.file.file is not None
        sentence = f"It contains {listed(list(names_in(self.file.file.text)))}"
        others = [review.name for review in self.reviewed()[1:]]
        return f"{sentence}; with it run {listed(others)}" if others else sentence

    def _trust(self) -> None:
        self.trusted.emit(self.files)
        self.accept()
