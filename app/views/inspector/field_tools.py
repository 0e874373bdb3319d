"""Further actions of a field: expose it on the block, wire it, return to a number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QMenu, QWidget

from app.builder.catalog.catalog import OpSpec
from app.builder.rules import ConnectError
from app.builder.value_types import ValueType
from app.engine.requests.layer import ConstructorError
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.fields.values import BlockScope, computes, show
from app.views.inspector.node_edits import NodeEdits
from app.views.ui.pick_box import Picker, PickRow

KEY = "inspector.words"
_NOTHING = "No node outputs a matching value. Number, Tensor.size and Tensor.shape output numbers."


class FieldTools(QObject):
    """Fills the context menu of a node's field.

    `form` and `resolved` are those of the node in view, `values` the known types of all wires.
    """

    def __init__(
        self, edits: NodeEdits, engine: EngineService, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._edits, self._engine = edits, engine
        self.form: ParamForm | None = None
        self._torch = False
        self.resolved: FrozenMap[str, Any] = FrozenMap()
        self.values: Mapping[tuple[str, int], ValueType] = FrozenMap()

    def set_torch_loaded(self) -> None:
        """Enable requests to torch for its message about a refused value."""
        self._torch = True

    @staticmethod
    def any_for(spec: OpSpec, scope: BlockScope | None) -> bool:
        """Return whether the fields of an op have any further actions."""
        if scope is not None and any(scope.allows(param) for param in spec.params):
            return True
        return any(
            spec.operand(param.name) or spec.wirable(param.name)
            for param in spec.params
        )

    def fill(self, menu: QMenu, name: str) -> None:
        """Put into a menu what can be done with a parameter."""
        form = self.form
        if form is None:
            return
        row, param = form.rows[name], form.rows[name].param
        if form.scope is not None and form.scope.allows(param):
            if computes(row.value):
                value = self.resolved.get(name)
                resolves = name in self.resolved and not computes(value)
                text = (
                    f"Type a value instead ({show(value)})"
                    if resolves
                    else "Type a value instead"
                )
                action = menu.addAction(
                    text, lambda: self._edits.set(name, value, None)
                )
                action.setEnabled(resolves)
            elif not row.wired:
                menu.addAction(
                    f"Expose on {form.scope.block}…", lambda: self._ask_name(name)
                )
        wire_sources = {wire.port: wire.source for wire in self._edits.wires()}
        for port in self._edits.ports(name):
            if port in wire_sources:
                to = f" to {port}" if port != name else ""
                menu.addAction(
                    f"Cut the wire from {wire_sources[port]}{to}",
                    partial(self._edits.cut, port),
                )
            else:
                menu.addAction(f"Wire {port}…", partial(self._pick_source, name, port))
        if not menu.isEmpty():
            menu.addSeparator()

    # --- Expose

    def _ask_name(self, name: str) -> None:
        """Ask for the name under which to expose the parameter; show why if it cannot be exposed."""
        assert self.form is not None
        row = self.form.rows[name]
        why = self._edits.why_not_exposed(name)
        if why:
            row.show_refusal(why)
        else:
            row.ask_name(name, "Expose", lambda typed: self._edits.expose(name, typed))

    # --- Wire

    def _pick_source(self, name: str, port: str) -> None:
        """Open a list of the outputs that a parameter can be wired to."""
        assert self.form is not None
        graph, catalog = self._edits.front.graph, self._edits.front.catalog
        picks = []
        for source in self._edits.sources(port, self.values):
            spec = catalog.spec_of(graph, graph.nodes[source.node])
            value = self.values.get((source.node, source.number))
            picks.append(
                PickRow(
                    source.name,
                    spec.category,
                    source,
                    f"{spec.label} {value or ''}".strip(),
                )
            )
        picker = Picker(f"Wire {port} from", picks, _NOTHING, self.form)
        picker.picked.connect(lambda source: self._wire(name, source, port))
        picker.open_below(self.form.rows[name].editor or self.form)

    def _wire(self, name: str, source: Any, port: str) -> None:
        try:
            self._edits.wire(source, port)
        except ConnectError as error:
            if self.form is not None:
                self.form.rows[name].show_refusal(str(error))

    # --- Messages of torch

    def ask_torch(self, name: str, text: str) -> None:
        """Request torch's message about a refused text, and show it below ours."""
        form = self.form
        if not self._torch or form is None:
            return
        params = {**self._edits.owner.params, **self.resolved}
        row = form.rows[name]

        def show_message(message: str) -> None:
            if self.form is form:
                row.show_torch_message(message, text)

        self._engine.ask(
            KEY,
            ConstructorError(self._edits.spec, FrozenMap(params), name, text),
            on_answer=show_message,
        )
