"""The pictures of README and docs, taken of the real window while it does real work.

    make screenshots                      all of them, into docs/
    make screenshots ARGS="OUT --all"     every page in both themes and two sizes, for looking at

The network is trained and its graph captured for the pictures; nothing in them is drawn by hand.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QWidget

from app.views.app import make_application
from app.views.settings import Settings
from app.views.ui import theme
from tests.support.whole_window import WholeWindow

DOCS = Path(__file__).resolve().parent.parent / "docs"
LONGEST = 180_000  # milliseconds that anything may take


def until(condition: Callable[[], bool], longest: int = LONGEST) -> None:
    """Let the window live until `condition` holds; ends the program if it does not within `longest` ms."""
    if condition():
        return
    loop, poll = QEventLoop(), QTimer()
    poll.timeout.connect(lambda: loop.quit() if condition() else None)
    poll.start(20)
    QTimer.singleShot(longest, loop.quit)
    loop.exec()
    if not condition():
        sys.exit("the window did not get there in time")


def idle(milliseconds: int = 400) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


class Photographer:
    """One window, photographed as it goes."""

    def __init__(
        self, folder: Path, look: str, size: tuple[int, int], suffix: str
    ) -> None:
        self.folder, self.suffix = folder, suffix
        self.window = WholeWindow(Settings("TapedeckPictures", f"{look}{size[0]}"))
        self.window.resize(*size)
        self.window.show()
        self.window.files.open_example("digits.tape")
        self.window.start()
        until(lambda: self.window.live.up_to_date)

    def take(self, name: str, widget: QWidget | None = None) -> None:
        idle()
        target = self.folder / f"{name}{self.suffix}.png"
        if not (widget or self.window).grab().save(str(target)):
            sys.exit(f"{target} cannot be written")
        print(target)

    def node(self, name: str) -> str:
        nodes = self.window.document.project.graph.nodes.values()
        return next(node.id for node in nodes if node.name == name)

    def build(self) -> None:
        window = self.window
        window.canvas.frame_all()
        window.selection.set([self.node("conv2")])
        self.take("build")

    def gallery(self) -> None:
        """Every example with its picture and what torch says of it."""
        from app.features.gallery.gallery import GalleryDialog

        self.window.actions_by_key["gallery"].trigger()
        dialog = self.window.findChild(GalleryDialog)
        until(
            lambda: (
                len(dialog.model.cards) > 1
                and all(card.facts for card in dialog.model.cards if card.path)
            )
        )
        self.take("gallery", dialog)
        dialog.reject()

    def error(self) -> None:
        """The last Linear with a wrong in_features: the callout, the problem, the blocked deck."""
        window = self.window
        project = window.document.project
        graph = project.graph.with_param(self.node("fc2"), "in_features", 10)
        from msgspec.structs import replace

        window.document.apply("Set in_features of fc2", replace(project, graph=graph))
        until(lambda: window.live.up_to_date and bool(window.live.errors))
        window.selection.set([self.node("fc2")])
        window.pages.show("problems")
        self.take("error")
        window.document.undo_stack.undo()
        until(lambda: window.live.up_to_date and not window.live.errors)

    def train(self) -> None:
        window = self.window
        window.selection.set([self.node("conv2")])
        window.overlay.set_value("Gradients")
        window.start_run()
        until(
            lambda: (
                bool(window.session.history)
                and len(window.session.history.epochs) >= 12
            )
        )
        self.take("train")
        until(lambda: not window.session.active)

    def autograd(self) -> None:
        window = self.window
        window.pages.show("autograd")
        window.autograd_control.capture()
        until(lambda: window.room.tape is not None)
        window.toasts.clear()
        window.pages.show("problems")
        idle()
        window.room.view.frame_all()
        node = next(
            node
            for node in window.room.tape.nodes
            if node.name.startswith("ConvolutionBackward")
        )
        window.room.scene.choose(str(node.id))
        self.take("autograd")

    def snippet(self) -> None:
        from app.features.snippets.values import ready_snippet

        window = self.window
        window.actions_by_key["snippet"].trigger()
        window.snippets.page.load_ready(ready_snippet("inplace_saved"))
        window.snippets.run()
        until(lambda: not window.snippets.running)
        self.take("snippet")
        window.graphs.show("net")

    def code(self) -> None:
        window = self.window
        window.pages.show("code")
        window.selection.set([self.node("conv2")])
        self.take("code")
        window.document.undo_stack.setClean()
        window.close()

    def everything(self) -> None:
        for picture in (
            self.build,
            self.gallery,
            self.error,
            self.train,
            self.autograd,
            self.snippet,
            self.code,
        ):
            picture()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", nargs="?", type=Path, default=DOCS)
    parser.add_argument(
        "--all", action="store_true", help="both themes, 1280x800 and 1920x1080"
    )
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    application = make_application(["tapedeck"])
    with tempfile.TemporaryDirectory() as home:
        from PySide6.QtCore import QSettings

        QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, home)
        shoots = [("dark", (1600, 1000), "-dark"), ("light", (1600, 1000), "-light")]
        if options.all:
            sizes = ((1280, 800), (1920, 1080))
            shoots = [
                (look, size, f"-{look}-{size[0]}")
                for look in ("dark", "light")
                for size in sizes
            ]
        for look, size, suffix in shoots:
            theme.apply(application, look)
            Photographer(options.out, look, size, suffix).everything()


if __name__ == "__main__":
    main(sys.argv[1:])
