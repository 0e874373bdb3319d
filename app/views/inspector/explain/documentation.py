"""The section with the installed torch's documentation of an op, loaded in the background."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from app.builder.catalog.catalog import Documentation, OpSpec
from app.builder.catalog.custom import documentation, is_custom
from app.engine.requests.documentation import ReadDocumentation
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.inspector.explain.doc_text import to_html
from app.views.ui import theme
from app.views.ui.background import WorkerFailure
from app.views.ui.widgets import Button, Section
from app.views.ui.widgets.painting import label

KEY = "inspector.documentation"
_SITE = "https://docs.pytorch.org/docs/stable/generated"


def page_url(spec: OpSpec) -> str:
    """Return the URL of an op on pytorch.org, "" for an op that is not PyTorch's."""
    if not spec.target or is_custom(spec.key):
        return ""
    name = (
        spec.target.replace("operator.", "torch.")
        if spec.kind == "operator"
        else spec.target
    )
    return f"{_SITE}/{name}.html"


class DocumentationSection(Section):
    """The first sentence; the full text and the page on pytorch.org open on request.

    `documented(Documentation)` passes the parameter docs to the form.
    """

    documented = Signal(object)

    def __init__(self, engine: EngineService) -> None:
        super().__init__("Documentation")
        self._engine = engine
        self._spec: OpSpec | None = None
        self._known: dict[str, Documentation] = {}
        self._may_ask = False
        self.summary = label("", "label", "text2", wrap=True)
        self.full = label("", "label", "text2", wrap=True)
        self.full.setTextFormat(Qt.TextFormat.RichText)
        self.full.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.full.hide()
        self.more = Button("Show all", "link")
        self.more.clicked.connect(self._toggle)
        self.body_layout.addWidget(self.summary)
        self.body_layout.addWidget(self.full)
        self.body_layout.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        self.acted.connect(self._open_page)
        theme.manager().changed.connect(self._write)

    def set_torch_loaded(self) -> None:
        """Enable requests to torch, and request the documentation of the op in view."""
        self._may_ask = True
        if self._spec is not None:
            self._write()
            self._request(self._spec)

    def show_op(self, spec: OpSpec) -> None:
        """Show the documentation of an op. A block has none but the note that its own page shows."""
        self.setVisible(spec.definition is None)
        if spec.definition is not None:
            return
        if self._spec is None or spec.key != self._spec.key:
            self._spec = spec
            self.full.hide()
            self.set_action("Open" if page_url(spec) else "")
            self._write()
            self._request(spec)
        if spec.key in self._known:
            self.documented.emit(self._known[spec.key])

    def _request(self, spec: OpSpec) -> None:
        if self._may_ask and spec.key not in self._known and spec.kind != "unknown":
            if is_custom(spec.key):
                self._learn(
                    spec.key, Documentation(*documentation(spec.key), FrozenMap())
                )
            else:
                self._engine.ask(
                    KEY,
                    ReadDocumentation(spec.key),
                    on_answer=partial(self._learn, spec.key),
                    on_error=self._failed,
                )

    def _learn(self, key: str, answer: Documentation) -> None:
        self._known[key] = answer
        if self._spec is not None and self._spec.key == key:
            self._write()
            self.documented.emit(answer)

    def _failed(self, failure: WorkerFailure) -> None:
        self.summary.setText(
            f"The documentation of torch could not be read: {failure.message}"
        )

    def _write(self) -> None:
        spec = self._spec
        answer = self._known.get(spec.key) if spec else None
        if answer is None:
            waiting = (
                "Reading the documentation of torch…"
                if self._may_ask
                else "PyTorch is loading."
            )
            self.summary.setText(
                "No documentation for this op."
                if spec and spec.kind == "unknown"
                else waiting
            )
            self.more.hide()
            return
        self.summary.setText(answer.summary)
        self.more.setVisible(bool(answer.text.strip()))
        self.summary.setVisible(self.full.isHidden())
        if not self.full.isHidden():
            self.full.setText(f"<style>{style()}</style>{to_html(answer.text)}")
        self.more.setText("Show less" if not self.full.isHidden() else "Show all")

    def _toggle(self) -> None:
        self.full.setVisible(self.full.isHidden())
        self._write()

    def _open_page(self) -> None:
        if self._spec is not None and (url := page_url(self._spec)):
            QDesktopServices.openUrl(QUrl(url))


def style() -> str:
    """Return the style sheet of the full text in the current theme."""
    colors = theme.current()
    mono = theme.font("code").family()
    return (
        f"p {{ margin: 0 0 7px 0; }} h4 {{ margin: 10px 0 4px 0; color: {colors.text.name()}; font-size: 12px; }}"
        f"code {{ font-family: '{mono}'; font-size: 11px; color: {colors.text.name()}; }}"
        f"pre {{ font-family: '{mono}'; font-size: 11px; color: {colors.text.name()}; white-space: pre-wrap; }}"
    )
