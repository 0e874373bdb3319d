"""A torch class by name with a form for its parameters: an optimizer, a loss, a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout

from app.engine.protocol import Request
from app.training.choices import ChoiceError, ChoiceParam
from app.training.config import Choice
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.fields.form import ParamForm
from app.views.fields.settings_section import FoldingSection
from app.views.fields.values import equal_values, show
from app.views.ui.background import WorkerFailure
from app.views.ui.widgets import ChoiceField
from app.views.ui.widgets.painting import label


class ChoiceSection(FoldingSection):
    """Chooses a class and edits its parameters, whose signature comes from the engine.

    `chosen(Choice, merge)` is emitted for choices that torch accepted: the engine constructed the object once.
    """

    chosen = Signal(object, object)

    def __init__(
        self,
        title: str,
        names: Sequence[Any],
        ask_params: Callable[[str], Request[tuple[ChoiceParam, ...]]],
        check: Callable[[Choice], Request[None]],
        engine: EngineService,
        *,
        opened: bool = True,
        pairs: bool = False,
    ) -> None:
        super().__init__(title, opened=opened)
        self._ask_params, self._check, self._engine = ask_params, check, engine
        self._key = f"training.{title.lower()}"
        self._choice = Choice("")
        self._shown_name = ""
        self._loaded = False
        self._marked: set[str] = set()  # parameters with the reason of a refusal
        self._refusals: dict[
            str, Any
        ] = {}  # values that fields show, and the project does not have
        self.form: ParamForm | None = None
        self.name = ChoiceField(names, pairs=pairs)
        self.name.setAccessibleName(title)
        self.name.edited.connect(self.choose)
        self.place = QVBoxLayout()
        self.words = label(
            "PyTorch is loading; parameters appear when it is ready.",
            "label",
            "text3",
            wrap=True,
        )
        self.body_layout.addWidget(self.name)
        self.body_layout.addWidget(self.words)
        self.body_layout.addLayout(self.place)
        self.acted.connect(lambda: self.choose(self._choice.name))

    def choose(self, name: str) -> None:
        """Choose a class, with torch's defaults where there are some."""
        self.chosen.emit(Choice(name), None)

    def set_torch_loaded(self) -> None:
        """Enable requests to torch."""
        self._loaded = True
        self._request_params()

    def show_choice(self, choice: Choice) -> None:
        """Show the project's choice."""
        self._choice = choice
        self.name.set_value(choice.name)
        self.set_summary(
            ", ".join(
                [choice.name, *(f"{k} {show(v)}" for k, v in choice.params.items())]
            ),
            bool(choice.params),
        )
        if self._shown_name != choice.name:
            self._request_params()
        elif self.form is not None:
            self.form.set_values(choice.params)

    def _request_params(self) -> None:
        if self._loaded and self._shown_name != self._choice.name:
            name = self._choice.name
            self._engine.ask(
                f"{self._key}.params",
                self._ask_params(name),
                on_answer=lambda params: self._make_form(name, params),
                on_error=self._no_params,
            )

    def forget(self) -> None:
        """Drop refused text and open questions: the next choice is that of another project, or there is none."""
        self._engine.forget(f"{self._key}.params")
        if self.form is not None:
            self.form.forget()
            self._refusals.clear()
            for name in self.form.rows:
                self._engine.forget(f"{self._key}.check.{name}")

    def _make_form(self, name: str, params: tuple[ChoiceParam, ...]) -> None:
        if name != self._choice.name:
            return
        self._drop_form()
        self._shown_name = name
        self.form = ParamForm(params)
        self.form.edited.connect(self._edited)
        self.form.restored.connect(self._restored)
        self.form.reset.connect(
            lambda param: self.chosen.emit(
                self._with_param(param, self._default(param)), None
            )
        )
        self.form.set_values(self._choice.params)
        self.place.addWidget(self.form)
        self.words.hide()

    def _drop_form(self) -> None:
        if self.form is not None:
            self.place.removeWidget(self.form)
            self.form.hide()
            self.form.deleteLater()
            self.form = None
        self._marked.clear()
        self._refusals.clear()
        self._shown_name = ""

    def _no_params(self, failure: WorkerFailure) -> None:
        self.words.setText(failure.message)
        self.words.show()

    def _default(self, name: str) -> Any:
        assert self.form is not None
        return self.form.rows[name].param.default

    def _with_param(self, name: str, value: Any) -> Choice:
        """Return the choice with one parameter changed; defaults are omitted."""
        params = self._choice.params
        params = (
            params.without(name)
            if equal_values(value, self._default(name))
            else params.set(name, value)
        )
        return Choice(self._choice.name, FrozenMap(params))

    def _edited(self, name: str, value: Any, merge: str | None) -> None:
        """Have torch construct the new choice; emit it only if that succeeds. Each parameter has a question of its
        own, so that an edit of one does not drop that of another.
        """
        before, choice = self._choice, self._with_param(name, value)

        def accept(_none: None) -> None:
            if before == self._choice:
                self._accepted(choice, name, merge)
            elif (
                before.name == self._choice.name
            ):  # another parameter changed meanwhile
                self._edited(name, value, merge)

        self._engine.ask(
            f"{self._key}.check.{name}",
            self._question(choice),
            on_answer=accept,
            on_error=lambda failure: self._refused(name, value, failure),
        )

    def _question(self, choice: Choice) -> Request[None]:
        """Return the request that validates a choice."""
        return self._check(choice)

    def _accepted(self, choice: Choice, name: str, merge: str | None) -> None:
        """Emit the choice, and try those again that were refused beside the values of before."""
        refusals = {
            other: value for other, value in self._refusals.items() if other != name
        }
        self._unmark({name})
        self.chosen.emit(choice, f"{self._key}/{merge}" if merge else None)
        for other, value in refusals.items():
            self._edited(other, value, None)

    def _restored(self, name: str) -> None:
        """A refused value is given up: the fields that it contradicted are no longer marked."""
        if name in self._refusals:
            del self._refusals[name]
            if not self._refusals:
                self._unmark()

    def _unmark(self, names: Iterable[str] = ()) -> None:
        if self.form is not None:
            for marked in {*names, *self._marked}:
                self.form.set_problem(marked, "")
        self._marked.clear()
        self._refusals.clear()

    def _refused(self, name: str, value: Any, failure: WorkerFailure) -> None:
        if self.form is not None:
            self._refusals[name] = value
            blamed = (
                failure.error.param if isinstance(failure.error, ChoiceError) else None
            )
            # Also the one that was edited: its field shows a value that is not the project's.
            for marked in {name, blamed or name} & self.form.rows.keys():
                self._marked.add(marked)
                self.form.set_problem(marked, failure.message)
