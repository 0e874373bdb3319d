"""The two pages of the import dialog: one of torchvision's models, or a class or function of a Python file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QEvent, QModelIndex, QObject, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QKeyEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QFileDialog,
    QPlainTextEdit,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from app.builder.catalog.custom import module_name, read_text
from app.features.importing.values import (
    ImportModel,
    KnownModel,
    ModelImportError,
    parse_inputs,
)
from app.source.layer_files import LayerFile, LayerFileError, names_in
from app.sources.finding import digest_of
from app.sources.spec import SourceError, SourceSpec, parse_arguments
from app.util.user_folders import typed_path
from app.views.fields.form_field import FormField, code_field
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.widgets import Button, SearchField
from app.views.ui.widgets.fields import StillComboBox
from app.views.ui.widgets.painting import label, set_property

ARGUMENTS = '{"num_classes": 10}'
NOT_CHOSEN = "Choose a model in the list."
NOTHING = "The file has no class and no function that can be called without arguments."

T = TypeVar("T")


class ImportPage(QWidget):
    """Base class of the pages: entries by name. `blame(entry, words)` shows an error at one of them.

    A subclass implements `ready()`, which returns what is missing, and `request()`.
    """

    changed = Signal()
    asked = Signal()  # Import, by a double click

    def __init__(self) -> None:
        super().__init__()
        self.arguments = code_field(ARGUMENTS)
        self.entries: dict[str, FormField] = {
            "arguments": FormField("Arguments, as JSON", self.arguments)
        }
        self.column = vbox(on=self, margins=0, spacing=10)

    def blame(self, entry: str, message: str) -> bool:
        """Show an error at an entry; False if there is none of that name."""
        if entry in self.entries:
            self.entries[entry].complain(message)
            self.entries[entry].field.setFocus()
        return entry in self.entries

    def forgive(self) -> None:
        for entry in self.entries.values():
            entry.complain("")

    def _parsed(self, entry: str, parse: Callable[[], T]) -> T | None:
        try:
            return parse()
        except (SourceError, ModelImportError) as error:
            self.blame(entry, _sentence(str(error)))
            return None


class TorchvisionPage(ImportPage):
    """A list to filter, and how the model is made."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, KnownModel] = {}
        self.search = SearchField("Type to filter")
        self.search.installEventFilter(self)
        self.search.textChanged.connect(self._filter)
        self.list = QTreeWidget()
        self.list.setColumnCount(3)
        self.list.setHeaderHidden(True)
        self.list.setRootIsDecorated(False)
        self.list.setUniformRowHeights(True)
        self.list.setAccessibleName("torchvision models")
        self.list.currentItemChanged.connect(lambda *_: self._model_selected())
        self.list.itemDoubleClicked.connect(lambda *_: self.asked.emit())
        self.state = label("Loading torchvision…", "label", "text3", wrap=True)
        self.input = code_field("1x3x224x224")
        self.pretrained = QCheckBox("Pretrained weights, if already downloaded")
        several = "Separate several inputs with spaces."
        self.entries["inputs"] = FormField(
            "Input, batch dimension first", self.input, several
        )
        self.entries["pretrained"] = FormField(
            "Weights",
            self.pretrained,
            "Otherwise: random initialisation by torchvision.",
        )
        row = hbox(spacing=12)
        for name, field in (("arguments", self.arguments), ("inputs", self.input)):
            row.addWidget(self.entries[name], 1, Qt.AlignmentFlag.AlignTop)
            field.textEdited.connect(
                lambda _text, name=name: self.entries[name].complain("")
            )
        self.pretrained.toggled.connect(
            lambda _on: self.entries["pretrained"].complain("")
        )
        self.column.addWidget(self.search)
        self.column.addWidget(self.state)
        self.column.addWidget(self.list, 1)
        self.column.addLayout(row)
        self.column.addWidget(self.entries["pretrained"])

    def show_models(self, models: tuple[KnownModel, ...]) -> None:
        """Fill the list."""
        self.known = {entry.name: entry for entry in models}
        quiet = theme.current().text3
        for model in models:
            item = QTreeWidgetItem([model.name, model.kind, str(model.input)])
            item.setForeground(1, quiet)
            item.setForeground(2, quiet)
            self.list.addTopLevelItem(item)
        wide = QFontMetricsF(self.list.font())
        self.list.setColumnWidth(
            0, round(max(map(wide.horizontalAdvance, self.known), default=120.0)) + 32
        )
        self.list.setColumnWidth(
            1, round(max(wide.horizontalAdvance(entry.kind) for entry in models)) + 32
        )
        self._filter(self.search.text())

    def show_failure(self, message: str) -> None:
        """There is no torchvision."""
        self.list.hide()
        self._show_state(message, "error")

    def _show_state(self, message: str, tone: str = "text3") -> None:
        self.state.setText(message)
        set_property(self.state, "tone", tone)
        self.state.setVisible(bool(message))

    @property
    def name(self) -> str:
        """The chosen model, "" if none is."""
        item = self.list.currentItem()
        return item.text(0) if item is not None and not item.isHidden() else ""

    def _filter(self, query: str) -> None:
        if not self.known:
            return
        terms = query.casefold().split()
        rows = [
            present(self.list.topLevelItem(row))
            for row in range(self.list.topLevelItemCount())
        ]
        for item in rows:
            text = f"{item.text(0)} {item.text(1)}".casefold()
            item.setHidden(not all(word in text for word in terms))
        there = [item for item in rows if not item.isHidden()]
        exact = next((item for item in there if item.text(0) == query.strip()), None)
        best = exact or next(
            (item for item in there if item.text(0).startswith(query.strip())), None
        )
        if there:
            self.list.setCurrentItem(best or there[0])
        else:
            self.list.setCurrentIndex(QModelIndex())
        self._show_state("" if there else "No model matches.")
        self._model_selected()

    def _model_selected(self) -> None:
        if item := self.list.currentItem():
            self.list.scrollToItem(item)
        if self.name:
            self.input.setText(str(self.known[self.name].input))
            self.forgive()
        self.changed.emit()

    def ready(self) -> str:
        """Return what is missing, "" if nothing is, " " if a message elsewhere says it."""
        return "" if self.name else NOT_CHOSEN if self.known else " "

    def request(self) -> ImportModel | None:
        """Return the request; None, with an error at its field, if an entry cannot be parsed."""
        arguments = self._parsed(
            "arguments", lambda: parse_arguments(self.arguments.text().strip())
        )
        typed = self.input.text().split() or [""]
        inputs = self._parsed("inputs", lambda: parse_inputs(typed))
        if arguments is None or inputs is None:
            return None
        return ImportModel(
            SourceSpec("torchvision", "", self.name),
            arguments,
            inputs,
            self.pretrained.isChecked(),
        )

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let arrow keys in the search field move the selection of the list."""
        keys = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() in keys
        ):
            self.list.event(event)
            return True
        return super().eventFilter(watched, event)


class FilePage(ImportPage):
    """A file, a class or function in it, and its arguments and inputs. Nothing of the file runs here."""

    def __init__(self) -> None:
        super().__init__()
        self.text: LayerFile | None = None
        self.path = code_field("Path of a .py file")
        self.browse_button = Button("Choose…", icon="folder")
        self.browse_button.clicked.connect(self._browse)
        self.names = StillComboBox()
        self.names.setFont(theme.font("code"))
        self.names.setMinimumHeight(26)
        self.inputs = QPlainTextEdit()
        self.inputs.setFont(theme.font("code"))
        self.inputs.setPlaceholderText("1x3x32x32\n1x16:int64")
        self.inputs.setTabChangesFocus(True)
        self.inputs.setFixedHeight(
            round(4 * QFontMetricsF(self.inputs.font()).lineSpacing()) + 18
        )
        read, colon = (
            "Its code is shown before any of it runs.",
            "Proposed if empty. With dtype and values: ids=1x16:int64:0..99.",
        )
        self.entries |= {
            "file": FormField("File", self.path, read, self.browse_button),
            "name": FormField("Class or function that returns the model", self.names),
            "inputs": FormField(
                "Inputs, one per line, batch dimension first", self.inputs, colon
            ),
        }
        for name in ("file", "name", "arguments", "inputs"):
            self.column.addWidget(self.entries[name])
        self.column.addStretch(1)
        self.path.textChanged.connect(lambda _text: self._read())
        self.names.currentTextChanged.connect(lambda _text: self._named())
        self.arguments.textEdited.connect(
            lambda _text: self.entries["arguments"].complain("")
        )
        self.inputs.textChanged.connect(self._typed)

    def choose(self, path: Path) -> None:
        self.path.setText(str(path))

    def _browse(self) -> None:
        here = typed_path(self.path.text()).parent if self.path.text() else Path.home()
        name, _ = QFileDialog.getOpenFileName(
            self, "Import a model from a file", str(here), "Python file (*.py)"
        )
        if name:
            self.choose(Path(name))

    def _read(self) -> None:
        """Read the file again and list the classes and functions that it defines."""
        before, problem = self.names.currentText(), ""
        path = typed_path(self.path.text())
        self.text = None
        names: tuple[str, ...] = ()
        try:
            if self.path.text().strip():
                self.text = LayerFile.from_text(
                    module_name(path), read_text(path), str(path.absolute())
                )
                names = names_in(self.text.text)
                problem = "" if names else NOTHING
        except LayerFileError as error:
            problem = _sentence(str(error))
        self.names.clear()
        self.names.addItems(names)
        if names:  # most files define the whole model last, after its parts
            self.names.setCurrentText(before if before in names else names[-1])
        self.entries["file"].complain(problem)
        self.changed.emit()

    def _named(self) -> None:
        self.entries["name"].complain("")
        self.entries["arguments"].complain("")
        self.changed.emit()

    def _typed(self) -> None:
        self.entries["inputs"].complain("")
        self.changed.emit()

    def ready(self) -> str:
        """Return what is missing, "" if nothing is, " " if a message elsewhere says it."""
        if self.text is None or not self.names.currentText():
            return " " if self.path.text().strip() else "Choose a Python file."
        return ""

    def request(self) -> ImportModel | None:
        """Return the request; None, with an error at its field, if an entry cannot be parsed."""
        self._read()  # it may have been edited since
        if self.text is None or not self.names.currentText():
            return None
        arguments = self._parsed(
            "arguments", lambda: parse_arguments(self.arguments.text().strip())
        )
        lines = [
            line for line in self.inputs.toPlainText().splitlines() if line.strip()
        ]
        inputs = self._parsed("inputs", lambda: parse_inputs(lines))
        if arguments is None or inputs is None:
            return None
        name = self.names.currentText()
        source = SourceSpec(
            "file", self.text.path, name.removesuffix("()"), name.endswith("()")
        )
        folder = str(Path(self.text.path).parent)
        return ImportModel(
            source,
            arguments,
            inputs,
            where=folder,
            sha256=digest_of(source, folder),
        )


def _sentence(message: str) -> str:
    """Format an exception's message with a capital letter and a full stop."""
    message = message.strip()
    return message if message.endswith((".", "?")) else f"{message}."
