"""Every page and dialog of the real window, photographed at sizes, themes, scales of the screen and sizes of the text.

python scripts/under_xvfb.py scripts/every_page.py OUT [--sizes 1024x700 …] [--themes dark …] [--texts 1 1.5 …]
                                                       [--scale 2] [--pages curves …] [--example NAME] [--sheets]

The net is trained, evaluated, captured, inspected and compared once; then each page is shown in each look, also in its
other views (`--pages` names them too: attention-changes, diff-structure, snippet). `--sheets` also puts the pictures of
one look beside one another, a sheet a look, to look them through at once.
Attention has maps with `--example "Transformer on digits.tape"`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

EPOCHS = 12
COLUMNS, SHEET = 3, 2400  # of a sheet, and its width in pixels
DIALOGS = (
    "gallery",
    "settings",
    "export",
    "export-drawing",
    "import",
    "trust",
    "compare-with",
    "commands",
    "shortcuts",
    "about",
)
VIEWS = {
    "attention": ("attention", "changes", "attribution"),
    "diff": ("layers", "structure", "report"),
    "panels": ("metrics", "samples"),
}
SNIPPET, SNIPPET_PAGE = "inplace_saved", "snippet"
LAYERS = '''import torch
from torch import nn


class Scale(nn.Module):
    """Multiply by one learned number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight
'''


class Shoot:
    """One window that has trained and captured, and its pictures."""

    def __init__(
        self, folder: Path, scale: str, example: str, wanted: list[str]
    ) -> None:
        from app.views.settings import Settings
        from tests.support.whole_window import WholeWindow

        self.folder, self.scale, self.wanted = folder, scale, wanted
        self.window = WholeWindow(Settings("TapedeckPictures", "every"))
        self.window.show()
        self.window.files.open_example(example)
        self.window.start()
        self.taken: dict[str, list[Path]] = {}

    def work(self) -> None:
        """Train, evaluate and capture, so that no page is empty."""
        from scripts.screenshots import until

        window = self.window
        until(lambda: window.live.up_to_date and window.furnished)
        window.furnish()
        project = window.document.project
        window.document.apply(
            "Shorten",
            replace(project, training=replace(project.training, epochs=EPOCHS)),
        )
        until(lambda: window.live.up_to_date)
        window.selection.set([self._first("Conv", "Linear")])
        window.pages.show("layer")
        window.start_run()
        until(lambda: window.session.active)
        until(lambda: not window.session.active)
        window.pages.show("evaluation")
        window.evaluation_control.evaluate()
        window.pages.show("autograd")
        window.autograd_control.capture()
        until(lambda: window.room.tape is not None)
        window.pages.show("findings")
        window.actions_by_key["findings"].trigger()
        self._inspect()
        self._compare()
        self._show_samples()
        self._run_snippet()
        self.idle(3000)
        window.room.view.frame_all()
        node = next(
            (
                node
                for node in window.room.tape.nodes
                if node.name.startswith("ConvolutionBackward")
            ),
            None,
        )
        window.room.scene.choose(str((node or window.room.tape.nodes[0]).id))
        window.pages.show("network")
        window.toasts.clear()

    def _inspect(self) -> None:
        """Fill the page Attention: maps, a muted head and its effect, and attributions."""
        from scripts.screenshots import until

        window, page = self.window, self.window.interpreted
        window.pages.show("attention")
        page.readRequested.emit()
        until(lambda: page.attention_answer is not None)
        if page.reading is not None:
            until(lambda: page.reading is not None and page.reading.maps is not None)
            page.muteToggled.emit(1)
        page.attributionRequested.emit()
        until(lambda: not page.cancel.isVisibleTo(page))
        page.changes.layer.setText(page.net.layers[0])
        page.changes.add.click()

    def _compare(self) -> None:
        """Fill the page Compare: the open net in two precisions."""
        from app.features.compare.feature import DiffFeature
        from app.features.compare.values import Diff, parse_modes
        from scripts.screenshots import until

        control = next(
            each for each in self.window.features if isinstance(each, DiffFeature)
        ).diff_control
        side, why = control.current()
        assert side is not None, why
        modes = "float32", "bfloat16"
        a, b = (replace(side, name=f"{side.name} in {mode}") for mode in modes)
        control.compare(Diff(a, b, parse_modes(*modes)), frozenset("a"))
        until(lambda: self.window.diff.compared is not None)

    def _show_samples(self) -> None:
        """Fill the page Panels: metrics of the run, and its samples."""
        from scripts.screenshots import until

        page = self.window.panels
        self.window.pages.show("panels")
        page.view.set_value("samples")
        until(lambda: bool(page.samples.cells))
        page.samples.cells[0].evaluate.click()
        until(lambda: bool(page.samples.model.rows))

    def _run_snippet(self) -> None:
        from app.features.snippets.values import ready_snippet
        from scripts.screenshots import until

        window = self.window
        window.pages.show("autograd")
        window.actions_by_key["snippet"].trigger()
        window.snippets.page.load_ready(ready_snippet(SNIPPET))
        window.snippets.run()
        until(lambda: not window.snippets.running)
        window.graphs.show("net")

    def _first(self, *kinds: str) -> str:
        nodes = self.window.document.project.graph.nodes.values()
        return next(node.id for kind in kinds for node in nodes if kind in node.op)

    def idle(self, milliseconds: int = 250) -> None:
        from scripts.screenshots import idle

        idle(milliseconds)

    def look(self, look: str, text: float, size: tuple[int, int]) -> None:
        """Photograph all that is wanted in one theme, text size and size of the window."""
        from PySide6.QtCore import Qt, QTimer
        from PySide6.QtWidgets import QApplication

        from app.views.main_window import bottom_height
        from app.views.ui import theme
        from app.views.ui.docks import beside_text
        from scripts.screenshots import until

        application = QApplication.instance()
        assert isinstance(application, QApplication)
        QTimer.singleShot(
            0, lambda: theme.apply(application, look, text)
        )  # from the event loop, as users do
        window = self.window
        until(
            lambda: theme.manager().choice == look and window.updatesEnabled()
        )  # else nothing is painted yet
        self.idle(1000)
        window.resize(*size)
        self.idle()
        window.resizeDocks(
            [window.bottom], [bottom_height(size[1])], Qt.Orientation.Vertical
        )
        window.resizeDocks(
            [window.left, window.right],
            [beside_text(220), beside_text(304)],
            Qt.Orientation.Horizontal,
        )
        self.idle()
        name = f"{look}-{size[0]}x{size[1]}" + (f"-text{text:g}" if text != 1 else "")
        name += f"-scale{self.scale}" if self.scale != "1" else ""
        for pane in (
            window.centre,
            window.bottom.pane,
            window.right.pane,
            window.left.pane,
        ):
            before = pane.page
            for key in list(pane._keys):
                self._take_views(key, name) if key in VIEWS else None
                if (
                    key in VIEWS
                    or not self._wants(key)
                    or not pane.tabs.isTabVisible(pane.tabs.index(key))
                ):
                    continue
                if key == "steps":
                    window.pages.show("autograd")
                pane.show_page(key)
                if key == "network":
                    window.canvas.frame_all()
                if key == "autograd":
                    window.room.view.frame_all()
                self._take(key, name, window)
            pane.show_page(before)
            window.pages.show("network")
        if self._wants("steps") and "steps" in window.left.pane._keys:
            window.pages.show("autograd")
            window.pages.show("steps")
            self._take("steps", name, window)
            window.pages.show("layers")
            window.pages.show("network")
        if self._wants(SNIPPET_PAGE):
            window.pages.show("autograd")
            window.graphs.show("snippet")
            self._take(SNIPPET_PAGE, name, window)
            window.graphs.show("net")
            window.pages.show("network")
        for key in DIALOGS:
            if self._wants(key):
                self._dialog(key, name)

    def _take_views(self, key: str, name: str) -> None:
        """Photograph each view of a page that has several."""
        page = self.window.pages.widget(key)
        segments = page.which if key == "diff" else page.view
        self.window.pages.show(key)
        for view in VIEWS[key]:
            called = key if view == VIEWS[key][0] else f"{key}-{view}"
            if self._wants(called):
                segments.set_value(view)
                segments.changed.emit(view)
                self._take(called, name, self.window)
        segments.set_value(VIEWS[key][0])
        segments.changed.emit(VIEWS[key][0])

    def _wants(self, key: str) -> bool:
        return not self.wanted or key in self.wanted

    def _dialog(self, key: str, name: str) -> None:
        from PySide6.QtCore import QTimer
        from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QWidget

        window = self.window
        does: Callable[[], Any] = (
            window.actions_by_key[key].trigger
            if key != "trust"
            else partial(window.layers.review, "scale_layers")
        )
        taken: list[bool] = []

        def shown() -> list[QWidget]:
            return [
                each
                for each in QApplication.topLevelWidgets()
                if each.isVisible()
                and each is not window
                and (isinstance(each, QDialog) or each.isModal())
            ]

        def photograph() -> None:
            dialogs = shown()
            if not dialogs:
                popup = QApplication.activePopupWidget()
                dialogs = [popup] if popup is not None else [window]
            for dialog in dialogs:
                if not isinstance(dialog, QFileDialog):
                    self._take(f"dialog-{key}", name, dialog)
                if dialog is not window:
                    dialog.reject() if isinstance(dialog, QDialog) else dialog.close()
            taken.append(True)

        def close_all() -> None:
            for _ in range(2):
                for dialog in shown():
                    dialog.reject() if isinstance(dialog, QDialog) else dialog.close()
                self.idle(100)

        close_all()  # such as the review of a file that was added
        QTimer.singleShot(1500, photograph)
        does()
        while not taken:
            self.idle(50)
        close_all()

    def _take(self, key: str, name: str, widget: Any) -> None:
        self.idle()
        target = self.folder / f"{name}-{key}.png"
        if not widget.grab().save(str(target)):
            sys.exit(f"{target} cannot be written")
        self.taken.setdefault(name, []).append(target)
        print(target, flush=True)

    def sheets(self) -> Iterator[Path]:
        """Put the pictures of each look beside one another."""
        from PySide6.QtCore import QRect, Qt
        from PySide6.QtGui import QColor, QImage, QPainter

        for name, pictures in self.taken.items():
            width = SHEET // COLUMNS
            images = [QImage(str(each)) for each in pictures]
            scaled = [
                image.scaledToWidth(width, Qt.TransformationMode.SmoothTransformation)
                for image in images
            ]
            rows = [
                scaled[start : start + COLUMNS]
                for start in range(0, len(scaled), COLUMNS)
            ]
            heights = [max(image.height() for image in row) + 22 for row in rows]
            sheet = QImage(SHEET, sum(heights), QImage.Format.Format_RGB32)
            sheet.fill(QColor("#777777"))
            painter = QPainter(sheet)
            top, names = 0, iter(pictures)
            for row, high in zip(rows, heights, strict=True):
                for column, image in enumerate(row):
                    painter.drawText(
                        QRect(column * width, top, width, 20), next(names).stem
                    )
                    painter.drawImage(column * width, top + 20, image)
                top += high
            painter.end()
            target = self.folder / f"sheet-{name}.png"
            sheet.save(str(target))
            yield target


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["1280x800"])
    parser.add_argument("--themes", nargs="+", default=["dark", "light"])
    parser.add_argument("--texts", nargs="+", type=float, default=[1.0])
    parser.add_argument("--scale", default="1", help="of the screen: QT_SCALE_FACTOR")
    parser.add_argument(
        "--pages",
        nargs="+",
        default=[],
        help=f"keys of pages, or of {', '.join(DIALOGS)}",
    )
    parser.add_argument("--example", default="digits.tape")
    parser.add_argument("--sheets", action="store_true")
    options = parser.parse_args(arguments)
    os.environ["QT_SCALE_FACTOR"] = options.scale
    options.out.mkdir(parents=True, exist_ok=True)
    from PySide6.QtCore import QSettings

    from app.views.app import make_application
    from app.views.ui import theme

    application = make_application(["tapedeck"])
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, home)
        theme.apply(application, options.themes[0])
        shoot = Shoot(options.out, options.scale, options.example, options.pages)
        shoot.work()
        layers = Path(home) / "scale_layers.py"
        layers.write_text(LAYERS, encoding="utf-8")
        if not options.pages or "trust" in options.pages:
            shoot.window.layers.add([layers])
        for look, text, size in product(options.themes, options.texts, options.sizes):
            width, _, height = size.partition("x")
            shoot.look(look, text, (int(width), int(height)))
        if options.sheets:
            for sheet in shoot.sheets():
                print(sheet)
        shoot.window.document.undo_stack.setClean()
        shoot.window.close()


if __name__ == "__main__":
    main(sys.argv[1:])
