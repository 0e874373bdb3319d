"""From data of one's own to a trained net and a prediction: each click in the real window, counted and photographed.

python scripts/under_xvfb.py scripts/first_nets.py OUT [--data houses digits text plane] [--sizes 1280x800 …]
                                                       [--looks dark light projector] [--keys]

The data are written as a user has them: houses, folders of handwritten digits, a text, two inputs.
Ends with 1 where a prediction takes more than ten clicks, or steps of the keys.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from PySide6.QtCore import QSettings, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit, QPushButton

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from app.util import resources  # noqa: E402
from app.views.app import make_application  # noqa: E402
from app.views.settings import Settings  # noqa: E402
from app.views.ui import theme  # noqa: E402
from scripts.screenshots import idle, until  # noqa: E402
from tests.support.hands import Keyboard, Mouse  # noqa: E402
from tests.support.whole_window import WholeWindow  # noqa: E402

MOST = 10
LONGEST_RUN = 1_800_000  # milliseconds
HOUSES, A_DIGIT, EACH = 600, 60, 300  # rows, pictures of a class, points of a class


def houses(folder: Path) -> Path:
    """Write a table of areas, rooms, years and prices that depend on them, with noise."""
    random = np.random.default_rng(0)
    area = random.uniform(45, 260, HOUSES).round()
    rooms = np.clip((area / 30 + random.normal(0, 1, HOUSES)).round(), 1, 9)
    year = random.integers(1920, 2021, HOUSES)
    price = 1500 * area + 9000 * rooms + 700 * (year - 1920) + 40_000
    price += random.normal(0, 15_000, HOUSES)
    rows = zip(area, rooms, year, price, strict=True)
    lines = (f"{a:.0f},{r:.0f},{y},{p:.0f}\n" for a, r, y, p in rows)
    path = folder / "houses.csv"
    path.write_text("area,rooms,year,price\n" + "".join(lines), "utf-8")
    return path


def digits(folder: Path) -> Path:
    """Write handwritten digits as pictures, a folder a class."""
    from sklearn.datasets import load_digits

    read = load_digits()
    for digit in range(10):
        (folder / "digits" / str(digit)).mkdir(parents=True)
        for number, image in enumerate(read.images[read.target == digit][:A_DIGIT]):
            picture = Image.fromarray((image * 255 / 16).astype(np.uint8))
            picture = picture.resize((24, 24), Image.Resampling.BICUBIC)
            picture.save(folder / "digits" / str(digit) / f"{number:03}.png")
    return folder / "digits"


def text(folder: Path) -> Path:
    """Write the texts of the lessons as one."""
    texts = resources.path("lessons").glob("*/lesson.md")
    path = folder / "lessons.txt"
    path.write_text("\n".join(each.read_text("utf-8") for each in sorted(texts)))
    return path


def plane(folder: Path) -> Path:
    """Write points of two rings, one around the other."""
    random = np.random.default_rng(1)
    lines = []
    for kind, radius in (("inner", 1.0), ("outer", 3.0)):
        angles = random.uniform(0, 2 * np.pi, EACH)
        radii = radius + random.normal(0, 0.4, EACH)
        east, north = radii * np.cos(angles), radii * np.sin(angles)
        pairs = zip(east, north, strict=True)
        lines += [f"{x:.3f},{y:.3f},{kind}\n" for x, y in pairs]
    path = folder / "rings.csv"
    path.write_text("east,north,ring\n" + "".join(lines), "utf-8")
    return path


class Data(NamedTuple):
    """Data of a user: what writes them, the name in the list of data, words for Ctrl+K, and an input to predict on."""

    write: Callable[[Path], Path]
    name: str
    words: str
    tried: tuple[str, ...]


DATA = {
    "houses": Data(houses, "CSV file…", "csv", ("120", "4", "1990")),
    "digits": Data(digits, "Image folder…", "image folder", ("3/055.png",)),
    "text": Data(text, "Text file as characters…", "text file", ("the gradient of",)),
    "plane": Data(plane, "CSV file…", "csv", ("0.5", "0.5")),
}


class Series:
    """A window in which one net is made, and its pictures."""

    def __init__(
        self, out: Path, name: str, look: str, size: tuple[int, int], folder: Path
    ) -> None:
        self.data, self.path = DATA[name], DATA[name].write(folder)
        self.out, self.prefix = out, f"{name}-{look}-{size[0]}"
        self.taken = 0
        self.window = WholeWindow(Settings("TapedeckPictures", self.prefix))
        self.window.resize(*size)
        self.window.show()
        self.window.start()
        self.window.activateWindow()
        if look == "projector":
            self.window.actions_by_key["projector"].trigger()
        self.settle()

    def settle(self) -> None:
        window = self.window
        until(lambda: window.furnished and window.live.up_to_date)
        until(lambda: not window.training_form.data.reader.busy)

    def take(self, step: str) -> None:
        idle(600)
        self.taken += 1
        path = self.out / f"{self.prefix}-{self.taken}-{step}.png"
        self.window.screen().grabWindow(self.window.winId()).save(str(path))
        print(path, flush=True)

    def name_in_dialog(self, path: Path) -> None:
        """Type a path into the dialog for files that opens next."""

        def type_it() -> None:
            dialog = QApplication.activeModalWidget()
            if not isinstance(dialog, QFileDialog):
                QTimer.singleShot(100, type_it)
                return
            (field,) = dialog.findChildren(QLineEdit, "fileNameEdit")
            field.setText(str(path))
            accept = dialog.findChild(QPushButton)
            QTest.keyClick(field, Qt.Key.Key_Return)
            if dialog.isVisible() and accept is not None:
                dialog.accept()

        QTimer.singleShot(300, type_it)

    def trained(self) -> None:
        session = self.window.session
        until(lambda: session.active)
        until(lambda: not session.active or self.epochs > 1, LONGEST_RUN)
        self.take("training")
        until(lambda: not session.active, LONGEST_RUN)
        if session.state != "done":
            sys.exit(f"the run has ended: {session.state} {session.current}")
        self.take("trained")

    @property
    def epochs(self) -> int:
        history = self.window.session.history
        return len(history.epochs) if history else 0

    def by_mouse(self) -> int:
        """Go from the empty window to a prediction; return the clicks."""
        window = self.window
        mouse = Mouse(window, until)
        self.take("empty")
        mouse.tab(window.right.pane, "training")
        mouse.data(self.data.name)
        self.name_in_dialog(self.path)
        mouse.click(window.training_form.data.pick)
        mouse.clicks += 1  # in the dialog: a double click on the file
        self.settle()
        self.take("chosen")
        mouse.start_net()
        self.settle()
        self.take("net")
        mouse.run()
        self.trained()
        mouse.predict()
        trying = window.evaluation.trying
        until(lambda: trying.survey is not None)
        self.take("predict")
        if self.path.is_dir():
            self.name_in_dialog(self.path / self.data.tried[0])
            mouse.click(trying.choose)
            mouse.clicks += 1  # in the dialog: a double click on the picture
        else:
            fields = trying.findChildren(QLineEdit)
            mouse.click(next(field for field in fields if field.isVisible()))
            self.type_values(self.data.tried)
        self.take("predicted")
        if window.pages.is_offered("centre", "playground"):
            window.pages.show("playground")
            idle(1500)
            self.take("playground")
        return mouse.clicks

    def by_keys(self) -> int:
        """Go from the empty window to a prediction by the keys alone; return the steps."""
        self.prefix += "-keys"
        window = self.window
        keys = Keyboard(window, until)
        self.name_in_dialog(self.path)
        keys.steps += 1  # in the dialog: the name and Enter
        keys.find(self.data.words)
        self.settle()
        self.take("chosen")
        keys.find("start with a net")
        self.settle()
        until(lambda: not window.run_control.blocked)
        keys.press(Qt.Key.Key_F5)
        self.trained()
        keys.find("predict")
        trying = window.evaluation.trying
        until(lambda: trying.survey is not None)
        if self.path.is_dir():
            self.name_in_dialog(self.path / self.data.tried[0])
            keys.press(Qt.Key.Key_Space)
            keys.steps += 1
        else:
            self.type_values(self.data.tried[:1])
            keys.steps += 1
        self.take("predicted")
        return keys.steps

    def type_values(self, values: tuple[str, ...]) -> None:
        for value in values:
            focus = self.window.focusWidget()
            QTest.keyClick(focus, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
            QTest.keyClicks(focus, value)
            QTest.keyClick(focus, Qt.Key.Key_Tab)

    def end(self) -> None:
        self.window.document.undo_stack.setClean()
        self.window.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--sizes", nargs="+", default=["1280x800", "1920x1080"])
    looks = ["dark", "light", "projector"]
    parser.add_argument("--looks", nargs="+", default=looks, choices=looks)
    parser.add_argument("--keys", action="store_true", help="by the keys alone")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    application = make_application(["tapedeck"])
    application.setAttribute(Qt.ApplicationAttribute.AA_DontUseNativeDialogs)
    most = 0
    for name, look, size in product(options.data, options.looks, options.sizes):
        with tempfile.TemporaryDirectory() as home:
            QSettings.setPath(
                QSettings.Format.IniFormat, QSettings.Scope.UserScope, home
            )
            theme.apply(application, "light" if look == "projector" else look)
            width, _, height = size.partition("x")
            series = Series(
                options.out, name, look, (int(width), int(height)), Path(home)
            )
            count = series.by_keys() if options.keys else series.by_mouse()
            series.end()
        kind = "steps of the keys" if options.keys else "clicks"
        print(f"{name}, {look}, {size}: {count} {kind}", flush=True)
        most = max(most, count)
    return most > MOST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
