"""The initialisation of a layer's parameters: PyTorch's default or a function of `torch.nn.init`."""

from __future__ import annotations

from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from app.builder.catalog import inits
from app.builder.catalog.catalog import OpSpec
from app.builder.graph import Init
from app.builder.literals import AUTO
from app.engine.requests.layer import Initialisable, Initialisations
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.fields.values import computes, equal_values
from app.views.inspector.sections import emptied
from app.views.ui import theme
from app.views.ui.background import WorkerFailure
from app.views.ui.layouts import vbox
from app.views.ui.widgets import Button, ChoiceField, Section
from app.views.ui.widgets.painting import label

KEY = "inspector.inits"
AS_MADE = "PyTorch's default"
_FEW = 4
_NAME_MOST, _LINE_MOST = 104, 200  # widths of a name beside its field, and above it, px


class InitLine(QWidget):
    """One parameter: name and shape, the init function, and its arguments.

    `changed(Init | None, merge)` carries an edit.
    """

    changed = Signal(object, object)

    def __init__(self, name: str, shape: tuple[int, ...] | None) -> None:
        super().__init__()
        self.name = name
        self._init: Init | None = None
        self.form: ParamForm | None = None
        self.choice = ChoiceField(
            [(None, AS_MADE), *((key, key) for key in inits.FUNCTIONS)], pairs=True
        )
        self.choice.setAccessibleName(f"Initialise {name}")
        self.problem = label("", "caption", "error", wrap=True)
        self.problem.hide()
        title = label(name, "code", "text2")
        sizes = (
            shape_text(shape)
            if shape
            else "a number"
            if shape is not None
            else "not there"
        )
        self.shape = label(sizes, "caption", "text3")
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 2)
        self._grid.setHorizontalSpacing(8)
        self._grid.setVerticalSpacing(0)
        self._grid.setColumnStretch(1, 1)
        if title.sizeHint().width() > _NAME_MOST:  # a long name gets a separate line
            title.setText(
                title.fontMetrics().elidedText(
                    name, Qt.TextElideMode.ElideMiddle, _LINE_MOST
                )
            )
            title.setToolTip(name)
            self._grid.addWidget(title, 0, 0)
            self._grid.addWidget(
                self.shape,
                0,
                1,
                Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            )
            self._grid.addWidget(self.choice, 1, 0, 1, 2)
            self._grid.setRowMinimumHeight(0, 22)
        else:
            self._grid.setColumnMinimumWidth(0, _NAME_MOST)
            self._grid.addWidget(title, 0, 0)
            self._grid.addWidget(self.choice, 0, 1)
            self._grid.addWidget(self.shape, 1, 0, 1, 2)
        self._grid.addWidget(self.problem, 3, 0, 1, 2)
        self.choice.edited.connect(self._choose)
        self._parts = vbox(margins=(12, 0, 0, 0))
        self._grid.addLayout(self._parts, 2, 0, 1, 2)

    def show_init(self, init: Init | None, refusal: str) -> None:
        """Show how the parameter is initialised, None for PyTorch's default, and why that cannot be."""
        before, self._init = self._init, init
        self.choice.set_value(init.name if init else None)
        if (before and before.name) != (init and init.name):
            self._make_form(init)
        if self.form is not None and init is not None:
            self.form.set_values(init.params)
        self.problem.setText(f"PyTorch: {refusal}" if refusal else "")
        self.problem.setVisible(bool(refusal))

    def _make_form(self, init: Init | None) -> None:
        if self.form is not None:
            self.form.hide()
            self.form.deleteLater()
            self.form = None
        params = inits.FUNCTIONS.get(init.name, ()) if init else ()
        if params:
            self.form = ParamForm(params)
            self.form.edited.connect(self._set)
            self.form.reset.connect(self._reset)
            self._parts.addWidget(self.form)

    def _choose(self, name: str | None) -> None:
        params = inits.FUNCTIONS.get(name, ()) if name else ()
        start = FrozenMap(
            {param.name: param.start for param in params if param.start is not None}
        )
        self.changed.emit(Init(name, start) if name else None, None)

    def _set(self, name: str, value: Any, merge: str | None) -> None:
        if self._init is None:
            return
        param = next(
            param for param in inits.FUNCTIONS[self._init.name] if param.name == name
        )
        params = self._init.params.set(name, value)
        if not param.required and equal_values(value, param.default):
            params = params.without(name)
        self.changed.emit(Init(self._init.name, params), merge)

    def _reset(self, name: str) -> None:
        if self._init is not None:
            param = next(
                param
                for param in inits.FUNCTIONS[self._init.name]
                if param.name == name
            )
            self._set(name, param.start if param.required else param.default, None)


class InitsSection(Section):
    """A row per parameter, which torch lists once the section is open.

    `initialise_requested(name, Init | None, merge)`.
    """

    initialise_requested = Signal(str, object, object)

    def __init__(self, engine: EngineService) -> None:
        super().__init__("Initialisation", opened=False)
        self._engine = engine
        self._question: (
            tuple[OpSpec, FrozenMap[str, Any], FrozenMap[str, Init]] | None
        ) = None
        self._answered: object = None
        self._known: Initialisable | None = None
        self._torch = self._all = False
        self._node = ""
        self._shown: object = None
        self.lines: dict[str, InitLine] = {}
        self.more = Button("", "link")
        self.toggled.connect(lambda _: self._request())
        theme.manager().changed.connect(self.update)

    def set_torch_loaded(self) -> None:
        """Enable requests to torch."""
        self._torch = True
        self._request()

    def show_layer(
        self,
        node: str,
        spec: OpSpec,
        resolved: FrozenMap[str, Any],
        layer_inits: FrozenMap[str, Init],
    ) -> None:
        """Show how the parameters of a layer are initialised. `resolved` are its arguments as far as they are known."""
        if node != self._node:
            self._node, self._all = node, False
        if self._question is not None and (self._question[0], self._question[1]) != (
            spec,
            resolved,
        ):
            self._known = None
        self._question = (spec, resolved, layer_inits)
        self.set_caption(f"{len(layer_inits)} set" if layer_inits else AS_MADE)
        self._request()

    def _request(self) -> None:
        if not self.is_open() or self._question is None:
            return
        spec, resolved, _ = self._question
        complete = not any(
            value is AUTO or computes(value) for value in resolved.values()
        )
        if self._torch and complete and self._answered != self._question:
            self._answered = self._question
            question = self._question
            self._engine.ask(
                KEY,
                Initialisations(*question),
                on_answer=partial(self._learn, question),
                on_error=self._failed,
            )
        self._write(complete)

    def _learn(self, question: object, initialisable: Initialisable) -> None:
        if question == self._question:
            self._known = initialisable
            self._write(True)

    def _failed(self, failure: WorkerFailure) -> None:
        self._known = None
        self._show_text("Available once the layer can be constructed: see Problems.")

    def _write(self, complete: bool) -> None:
        assert self._question is not None
        layer_inits = self._question[2]
        shapes = dict(self._known.shapes) if self._known else {}
        names = [*shapes, *(name for name in layer_inits if name not in shapes)]
        if self._known is None and not names:
            waiting = (
                "Reading the parameters…" if self._torch else "PyTorch is loading."
            )
            self._show_text(
                waiting if complete else "Available once the input shapes are known."
            )
            return
        if not names:
            self._show_text(f"{self._question[0].label} has no weights.")
            return
        few = (
            names
            if self._all or len(names) <= _FEW + 1
            else [n for n in names if n in layer_inits or n in names[:_FEW]]
        )
        self._fill(few, shapes, len(names) - len(few))
        for name, line in self.lines.items():
            line.show_init(
                layer_inits.get(name),
                self._known.refusals.get(name, "") if self._known else "",
            )

    def _fill(
        self, names: list[str], shapes: dict[str, tuple[int, ...]], hidden: int
    ) -> None:
        """Create rows for the parameters, unless the same ones are shown already."""
        sized = self._known is not None
        if (
            state := (
                self._node,
                tuple((n, shapes.get(n)) for n in names),
                hidden,
                sized,
            )
        ) == self._shown:
            return
        self._shown = state
        column = emptied(self)
        self.lines = {}
        for name in names:
            line = self.lines[name] = InitLine(name, shapes.get(name))
            line.shape.setVisible(sized)
            line.changed.connect(
                lambda init, merge, name=name: self.initialise_requested.emit(
                    name, init, merge
                )
            )
            column.addWidget(line)
        if hidden:
            self.more = Button(f"Show {hidden} more", "link")
            self.more.clicked.connect(self._show_all)
            column.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)

    def _show_all(self) -> None:
        self._all = True
        self._request()

    def _show_text(self, message: str) -> None:
        if message != self._shown:
            self._shown = message
            self.lines = {}
            emptied(self).addWidget(label(message, "label", "text3", wrap=True))
