"""The dialog "Compare with": two models, or one in two modes; user code runs only once it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QFileDialog, QLineEdit, QMenu, QPlainTextEdit

from app.engine.requests.observe import Observe
from app.features.compare.side_reader import AskedSide, SideReader
from app.features.compare.values import Diff, DiffSide, Modes, interpreter
from app.project.weights.state_dict_diff import PATTERNS
from app.runs.checkpoint_files import checkpoints
from app.sources.spec import parse_arguments, parse_input
from app.views.fields.form_field import FormField, code_field
from app.views.ui import theme
from app.views.ui.dialogs.base import Dialog
from app.views.ui.widgets import Button
from app.views.ui.widgets.fields import ChoiceField
from app.views.ui.widgets.painting import label
from app.views.ui.widgets.segmented import Segmented

if TYPE_CHECKING:
    from app.runs.store import Kept
    from app.views.workspace import Workspace

SOURCES = (
    "A class in a file (file.py:Class), a model of torchvision:NAME, timm:NAME or hf:NAME, a project (net.tape), "
    "weights alone (w.pt), the folder of a run, its weights after a step (RUN@STEP), or a model with other weights "
    "(MODEL@w.pt)"
)
INPUTS = "One per line, batch dimension first: 1x3x224x224, 1x16:int64, NAME=1x16:int64. Empty: Tapedeck proposes them."
PYTHON = "A Python with torch installed, for example another version. Both run the same weights and batch"
FILTER = f"Models, projects and weights (*.py *.tape {PATTERNS})"
MOST = 20  # checkpoints of a run that are listed
OTHER, ITSELF, ELSEWHERE = "other", "itself", "elsewhere"
PAIRS = (
    ("float32", "bfloat16"),
    ("float32", "float16"),
    ("float64", "float32"),
    ("eval", "train"),
    ("eager", "compiled"),
)
TRAINS = (
    ("both", "eval() and train()", (False, True)),
    ("eval", "eval()", (False,)),
    ("train", "train()", (True,)),
)


class AskDiffDialog(Dialog):
    """`current` is the open project or model as a side, None with the reason `why` where it cannot run; an empty field
    A means it. `compare(request, sides)` receives what is to be compared, and which sides are what is open."""

    def __init__(
        self,
        workspace: Workspace,
        current: DiffSide | None,
        why: str,
        runs: Iterable[Kept],
        compare: Callable[[Diff, frozenset[str]], object],
    ) -> None:
        super().__init__("Compare models", workspace.window)
        self._current, self._compare = current, compare
        self._reader = SideReader(workspace, self)
        self._data_root = str(workspace.settings.data_folder)
        ways = [
            (OTHER, "With another model"),
            (ITSELF, "In two modes"),
            (ELSEWHERE, "In another Python"),
        ]
        self.what = Segmented(ways, "What is compared")
        self.a, self.b = code_field(""), code_field("file.py:Class")
        if current is not None:
            self.a.setPlaceholderText(f"{current.name}, which is open")
        else:
            self.a.setPlaceholderText("file.py:Class")
        loaded = workspace.live.torch
        ids = [device.id for device in loaded.devices] if loaded is not None else []
        pairs = (*PAIRS, *(("cpu", name) for name in ids if name != "cpu"))
        self.pair = ChoiceField(
            [(pair, f"{pair[0]} and {pair[1]}") for pair in pairs], PAIRS[0], pairs=True
        )
        self.python = code_field("/path/to/environment/bin/python")
        choose = Button("Choose", icon="folder")
        choose.clicked.connect(self._browse_python)
        self.trains = ChoiceField(
            [(key, text) for key, text, _ in TRAINS], "both", pairs=True
        )
        self.arguments = code_field('{"num_classes": 10}')
        self.inputs = QPlainTextEdit()
        self.inputs.setFont(theme.font("code"))
        self.inputs.setPlaceholderText("1x3x224x224")
        self.inputs.setTabChangesFocus(True)
        self.inputs.setFixedHeight(
            round(2 * QFontMetricsF(self.inputs.font()).lineSpacing()) + 18
        )
        without = f"{why} Name another model." if why else "If empty: the open model"
        self.entries = {
            "a": FormField("A", self.a, without, self._chooser(self.a, runs)),
            "b": FormField("B", self.b, SOURCES, self._chooser(self.b, runs)),
            "pair": FormField("Modes", self.pair, "The same weights and batch in both"),
            "python": FormField("Interpreter", self.python, PYTHON, choose),
            "trains": FormField("Run in", self.trains),
            "arguments": FormField(
                "Arguments of constructors, as JSON", self.arguments
            ),
            "inputs": FormField("Inputs", self.inputs, INPUTS),
        }
        self.body.addWidget(self.what)
        for entry in self.entries.values():
            self.body.addWidget(entry)
        self.state = label("", "label", "text3", wrap=True)
        self.body.addWidget(self.state)
        self.body.addStretch(1)
        self.add_button("Cancel").clicked.connect(self.reject)
        self.compare_button = self.add_button("Compare", "primary", default=True)
        self.compare_button.clicked.connect(self.start)
        for name, field in (
            ("a", self.a),
            ("b", self.b),
            ("arguments", self.arguments),
            ("python", self.python),
        ):
            field.textChanged.connect(lambda _text, name=name: self._typed(name))
        self.inputs.textChanged.connect(lambda: self._typed("inputs"))
        self.what.changed.connect(lambda _key: self._offer())
        self.setMinimumSize(520, 420)
        self.resize(640, 520)
        self._offer()
        (self.b if current is not None else self.a).setFocus()

    def _chooser(self, field: QLineEdit, runs: Iterable[Kept]) -> Button:
        """Return a button that fills a field from a file or from the project's runs."""
        button = Button("Choose", icon="folder")
        menu = QMenu(button)
        menu.addAction("File…", lambda: self._browse(field))
        menu.addSeparator()
        for stored_run in runs:
            of_run = menu.addMenu(stored_run.record.title.replace("&", "&&"))
            of_run.aboutToShow.connect(
                partial(self._list_weights, of_run, field, stored_run)
            )
        button.setMenu(menu)
        return button

    def _list_weights(self, menu: QMenu, field: QLineEdit, stored_run: Kept) -> None:
        """Offer the weights of a run: the best, a checkpoint, or those after a step."""
        menu.clear()
        menu.addAction("Best weights", partial(field.setText, str(stored_run.folder)))
        menu.addAction("After a step…", partial(self._ask_step, field, stored_run))
        menu.addSeparator()
        for checkpoint in checkpoints(stored_run)[:MOST]:
            menu.addAction(
                f"Checkpoint: {checkpoint.label}",
                partial(field.setText, str(checkpoint.path)),
            )

    def _ask_step(self, field: QLineEdit, stored_run: Kept) -> None:
        """Have the number of a step typed after the run."""
        field.setText(f"{stored_run.folder}@")
        field.setFocus()
        field.end(False)
        entry = next(
            candidate for candidate in self.entries.values() if candidate.field is field
        )
        steps = stored_run.record.summary.steps
        last = f", up to {steps:,}" if steps else ""
        entry.complain(
            f"Type the step after the @: 0 is the start of {stored_run.record.title}{last}",
            "text3",
        )

    def _browse(self, field: QLineEdit) -> None:
        name, _ = QFileDialog.getOpenFileName(
            self, "Compare with a file", str(Path.home()), FILTER
        )
        if name:
            field.setText(f"{name}:" if name.endswith(".py") else name)
            field.setFocus()

    def _browse_python(self) -> None:
        name, _ = QFileDialog.getOpenFileName(
            self, "Compare in another Python", str(Path.home())
        )
        if name:
            self.python.setText(name)

    def _check_python(self) -> None:
        interpreter(self.python.text().strip())

    def _offer(self) -> None:
        for key, entry in ((OTHER, "b"), (ITSELF, "pair"), (ELSEWHERE, "python")):
            self.entries[entry].setVisible(self.what.value() == key)
        self._typed("a")

    def _typed(self, entry: str) -> None:
        self.entries[entry].complain("")
        has_a = self._current is not None or bool(self.a.text().strip())
        needed = {OTHER: self.b, ELSEWHERE: self.python}.get(self.what.value())
        ready = has_a and (needed is None or bool(needed.text().strip()))
        self.compare_button.setEnabled(ready)

    # -- comparing

    def start(self) -> None:
        """Read both sides, and hand over what is to be compared."""
        lines = tuple(
            line for line in self.inputs.toPlainText().splitlines() if line.strip()
        )
        arguments = self.arguments.text().strip()
        checks: tuple[tuple[str, Callable[[], object]], ...] = (
            ("arguments", lambda: parse_arguments(arguments)),
            ("inputs", lambda: [*map(parse_input, lines)]),
        )
        if self.what.value() == ELSEWHERE:
            checks += (("python", self._check_python),)
        if not all([self.entries[entry].fits(check) for entry, check in checks]):
            return
        typed = self.a.text().strip()
        first: AskedSide | DiffSide | None = (
            AskedSide(typed, arguments, lines) if typed else self._current
        )
        if first is None:
            return
        if (
            not typed
            and lines
            and isinstance(first, DiffSide)
            and isinstance(first.model, Observe)
        ):
            first = replace(
                first, model=replace(first.model, inputs=tuple(map(parse_input, lines)))
            )
        sides = [first]
        if self.what.value() == OTHER:
            sides.append(
                AskedSide(self.b.text().strip(), arguments, lines or _inputs_of(first))
            )
        self._enable(False)
        self._reader.read(sides, self._read, self._refuse)

    def _read(self, sides: tuple[DiffSide, ...]) -> None:
        trains = next(values for key, _, values in TRAINS if key == self.trains.value())
        a, modes, python = sides[0], None, ""
        b = sides[-1]
        if self.what.value() == ITSELF:
            modes = Modes(*self.pair.value())
            a, b = (
                replace(a, name=f"{a.name} in {mode}") for mode in (modes.a, modes.b)
            )
        if self.what.value() == ELSEWHERE:
            python = interpreter(self.python.text().strip())
            a, b = (
                replace(a, name=f"{a.name} here"),
                replace(a, name=f"{a.name} in {python}"),
            )
        is_open = not self.a.text().strip()
        which = (
            frozenset(("a",) if self.what.value() == OTHER else ("a", "b"))
            if is_open
            else frozenset[str]()
        )
        self.accept()
        self._compare(
            Diff(a, b, modes, trains, data_root=self._data_root, python=python), which
        )

    def _refuse(self, side: int, message: str) -> None:
        self._enable(True)
        entry = ("a", "b")[side]
        self.entries[entry].complain(message)
        self.entries[entry].field.setFocus()

    def _enable(self, on: bool) -> None:
        for entry in self.entries.values():
            entry.setEnabled(on)
        self.what.setEnabled(on)
        self.compare_button.setEnabled(on)
        self.state.setText("" if on else "Reading both models…")

    def reject(self) -> None:
        """Close it; what is being read is dropped."""
        self._reader.forget()
        super().reject()


def _inputs_of(side: AskedSide | DiffSide) -> tuple[str, ...]:
    """Return the inputs that the other side is called with."""
    if isinstance(side, DiffSide) and isinstance(side.model, Observe):
        return tuple(map(str, side.model.inputs))
    return ()
