"""Feature "custom layers": files of layers below the palette, and the banner that asks for a review."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QMimeData, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QDragEnterEvent,
    QDropEvent,
    QGuiApplication,
    QPaintEvent,
)
from PySide6.QtWidgets import QAbstractButton, QMenu, QScrollArea, QSizePolicy, QWidget

from app.builder.catalog.custom import CustomFile, is_custom, module_of
from app.util.formatting import plural
from app.views.feature import Action, Feature
from app.views.ui import icons
from app.views.ui.layouts import hbox, vbox
from app.views.ui.op_rows import OP_ROW
from app.views.ui.theme import current
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import (
    Divider,
    KeyboardFocus,
    TextLine,
    box,
    elided,
    label,
    start,
)
from app.views.workspace import Workspace

# --- My layers: the project's layer files at the bottom of the palette, locked until trusted

MOST_ROWS = 5  # in sight at once


class FileRow(KeyboardFocus, QAbstractButton):
    """A row for one file. A click opens it for review; its menu has further commands."""

    menu_wanted = Signal(QPoint)

    def __init__(self, file: CustomFile, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.file = file
        self.setText(file.name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setToolTip(
            "\n".join(filter(None, (str(file.path), file.problem or self.state())))
        )
        self.setAccessibleName(f"{file.name}, {self.state()}")

    def state(self) -> str:
        """Return a short text of the file's state."""
        if self.file.problem:
            return "cannot be read" if self.file.file is None else "cannot be used"
        count = sum(not layer_class.reason for layer_class in self.file.classes)
        return (
            f"{count} {plural(count, 'layer')}"
            if self.file.trusted
            else "not trusted yet"
        )

    def sizeHint(self) -> QSize:
        return QSize(120, max(OP_ROW, round(TextLine("x", "label").height) + 6))

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = current()
        painter = start(self)
        area = QRectF(self.rect()).adjusted(5, 0, -5, 0)
        if self.underMouse() or self.isDown():
            box(painter, area, 5, colors.hover)
        bad, locked = bool(self.file.problem), not self.file.trusted
        icon, tone = (
            ("error", "error")
            if bad
            else ("lock", "warn")
            if locked
            else ("code", "text2")
        )
        icons.draw(painter, icon, tone, area.left() + 9, area.center().y() - 7, 14)
        state_text = TextLine(self.state(), "caption")
        state_text.draw_in(
            painter,
            area.right() - state_text.width - 6,
            area,
            colors.color("error" if bad else "text3"),
        )
        room = area.width() - 31 - state_text.width - 16
        name = elided(self.file.name, "label", room)
        name.draw_in(
            painter, area.left() + 31, area, colors.text3 if locked else colors.text2
        )
        self.paint_ring(painter, area, 5)
        painter.end()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        by_mouse = event.reason() == QContextMenuEvent.Reason.Mouse
        self.menu_wanted.emit(
            event.globalPos()
            if by_mouse
            else self.mapToGlobal(self.rect().bottomLeft())
        )


class OwnFiles(QWidget):
    """The section. Requests about a file carry its module name; files can be dropped on it."""

    add_wanted = Signal()
    dropped = Signal(object)
    look_wanted = Signal(str)
    remove_wanted = Signal(str)
    import_wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAcceptDrops(True)
        self.heading = label("My layers", "tab")
        self.add_button = Button("Add a file…", "link")
        self.add_button.setToolTip(
            "Classes of nn.Module and autograd.Function in a Python file become layers"
        )
        self.add_button.clicked.connect(self.add_wanted)
        self.words = label("Classes from your own Python files.", "caption", "text3")
        self.words.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        top = hbox((self.heading, 1), self.add_button, margins=(12, 6, 10, 2))
        self._rows = QWidget()
        self._column = vbox(on=self._rows, margins=0, spacing=0)
        self._scroll = QScrollArea()
        self._scroll.setWidget(self._rows)
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        below = vbox(self.words, margins=(12, 0, 10, 2))
        vbox(
            Divider(),
            top,
            below,
            self._scroll,
            on=self,
            margins=(0, 0, 0, 6),
            spacing=0,
        )
        self.set_files(())

    def set_files(self, files: Iterable[CustomFile]) -> None:
        """Show these files."""
        for row in self.rows():
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        for layer_file in files:
            row = FileRow(layer_file, self._rows)
            row.clicked.connect(
                lambda _checked=False, module=layer_file.module: self.look_wanted.emit(
                    module
                )
            )
            row.menu_wanted.connect(
                lambda spot, row=row: self.open_menu(row.file, spot)
            )
            self._column.addWidget(row)
            row.show()
        rows = self.rows()
        self.words.setVisible(not rows)
        self._scroll.setVisible(bool(rows))
        self._scroll.setFixedHeight(
            sum(row.sizeHint().height() for row in rows[:MOST_ROWS])
        )

    def rows(self) -> list[FileRow]:
        """Return the rows from top to bottom."""
        layout_items = (self._column.itemAt(i) for i in range(self._column.count()))
        return [
            row
            for layout_item in layout_items
            if layout_item is not None
            and isinstance(row := layout_item.widget(), FileRow)
        ]

    def menu(self, file: CustomFile) -> QMenu:
        """Return the context menu of a file."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        look = menu.addAction(icons.icon("eye"), "View and trust…")
        look.triggered.connect(lambda: self.look_wanted.emit(file.module))
        look.setEnabled(file.file is not None)
        model = menu.addAction(icons.icon("layers"), "Import a model from it…")
        model.triggered.connect(lambda: self.import_wanted.emit(file.path))
        model.setEnabled(file.file is not None)
        copy = menu.addAction(icons.icon("copy"), "Copy path")
        copy.triggered.connect(
            lambda: QGuiApplication.clipboard().setText(str(file.path))
        )
        menu.addSeparator()
        away = menu.addAction(icons.icon("remove"), "Remove from the project")
        away.triggered.connect(lambda: self.remove_wanted.emit(file.module))
        return menu

    def open_menu(self, file: CustomFile, spot: QPoint) -> None:
        self.menu(file).popup(spot)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if python_files(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        if paths := python_files(event.mimeData()):
            event.acceptProposedAction()
            self.dropped.emit(paths)


def python_files(data: QMimeData) -> list[Path]:
    """Return the Python files being dragged; none if other files are among them."""
    paths = [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
    good = (
        bool(paths)
        and len(paths) == len(data.urls())
        and all(path.suffix == ".py" for path in paths)
    )
    return paths if good else []


class CustomLayersFeature(Feature):
    rank = 60

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._title = ""  # of the banner that asks about a file
        self.own_files = OwnFiles()
        workspace.pages.add_below("layers", self.own_files)

    def actions(self) -> Iterable[Action]:
        yield Action(
            "add-layers",
            "Add a layer &file…",
            self.workspace.layers.choose,
            icon="code",
            menu="layer.file",
        )

    def begin(self) -> None:
        workspace, layers, rows = self.workspace, self.workspace.layers, self.own_files
        workspace.drawing.of_op.append(self._fill_menu)
        rows.add_wanted.connect(layers.choose)
        rows.dropped.connect(layers.add)
        rows.look_wanted.connect(layers.review)
        rows.remove_wanted.connect(layers.remove)
        rows.import_wanted.connect(
            lambda path: workspace.commands.trigger("import-file", path)
        )
        layers.changed.connect(rows.set_files)
        layers.waiting.connect(self._wait)
        layers.refused.connect(workspace.notifier.refuse)
        layers.said.connect(workspace.notifier.say)
        layers.changed.connect(self._settled)
        workspace.document.replaced.connect(self._forget)
        workspace.live.analysed.connect(
            lambda analysis: layers.note_tried(analysis.source.files)
        )
        rows.set_files(layers.files)

    def drop(self, data: QMimeData) -> Callable[[], object] | None:
        paths = python_files(data)
        return (lambda: self.workspace.layers.add(paths)) if paths else None

    def _fill_menu(self, menu: QMenu, key: str, _at: QPoint) -> None:
        if is_custom(key):
            look = self.workspace.layers.review
            menu.addAction(
                icons.icon("eye"), "View its file…", lambda: look(module_of(key))
            )

    def _wait(self, title: str, reason: str, action: str) -> None:
        """Ask in a banner, which does not interrupt the user as a dialog would."""
        self._title = title
        self.workspace.notifier.warn(
            title, reason, action, self.workspace.layers.review
        )

    def _settled(self, _files: object) -> None:
        """Hide the banner once its file is trusted or gone."""
        layer_file = self.workspace.layers.file_of(self.workspace.layers.asked_about)
        if self._title and (layer_file is None or layer_file.trusted):
            self.workspace.notifier.withdraw(self._title)
            self._title = ""

    def _forget(self, _project: object) -> None:
        """Hide the banner of the previous project, whose files may share titles with this one's."""
        self._title = ""
