"""The section with the installed torch's documentation of an op, loaded in the background."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from app.builder.catalog.catalog import Documentation, OpSpec
from app.builder.catalog.custom import documentation, is_custom
from app.engine.requests.documentation import ReadDocumentation
from app.util.frozen import FrozenMap
from app.views.engine_service import EngineService
from app.views.ui import theme
from app.views.ui.background import WorkerFailure
from app.views.ui.widgets import Button, Section
from app.views.ui.widgets.painting import label

# --- Convert torch's docstrings, reStructuredText with LaTeX, to simple HTML for a label

_SYMBOLS = {
    r"\times": "×",
    r"\cdot": "·",
    r"\lfloor": "⌊",
    r"\rfloor": "⌋",
    r"\lceil": "⌈",
    r"\rceil": "⌉",
    r"\leq": "≤",
    r"\geq": "≥",
    r"\le": "≤",
    r"\ge": "≥",
    r"\neq": "≠",
    r"\infty": "∞",
    r"\sum": "Σ",
    r"\prod": "∏",
    r"\max": "max",
    r"\min": "min",
    r"\exp": "exp",
    r"\log": "log",
    r"\tanh": "tanh",
    r"\star": "⋆",
    r"\in": "∈",
    r"\alpha": "α",
    r"\beta": "β",
    r"\gamma": "γ",
    r"\delta": "δ",
    r"\epsilon": "ε",
    r"\varepsilon": "ε",
    r"\lambda": "λ",
    r"\mu": "μ",
    r"\sigma": "σ",
    r"\theta": "θ",
    r"\phi": "φ",
    r"\Phi": "Φ",
    r"\pi": "π",
    r"\odot": "⊙",
    r"\ast": "∗",
    r"\sim": "∼",
    r"\ldots": "…",
    r"\dots": "…",
    r"\cdots": "…",
    r"\quad": " ",
    r"\to": "→",
    r"\rightarrow": "→",
    r"\mid": "|",
    r"\partial": "∂",
    r"\nabla": "∇",
    r"\pm": "±",
    r"\forall": "∀",
    r"\equiv": "≡",
    r"\approx": "≈",
    r"\ell": "ℓ",
    r"\{": "{",
    r"\}": "}",
    r"\_": "_",
    r"\%": "%",
    r"\,": " ",
    r"\ ": " ",
    r"\;": " ",
    r"\!": "",
    r"\left": "",
    r"\right": "",
    r"\displaystyle": "",
    r"\bigl": "",
    r"\bigr": "",
}
_SYMBOL = re.compile(r"\\(?:[A-Za-z]+|[^A-Za-z\s])|\\ ")
_STYLED = re.compile(
    r"\\(?:text(?:rm|bf)?|math(?:rm|bf|bb|cal)|operatorname|bm|boldsymbol)\*?\s*\{([^{}]*)\}"
)
_FRACTION = re.compile(r"\\d?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt\s*\{([^{}]*)\}")
_RAISED = re.compile(r"([_^])(?:\{([^{}]*)\}|(\\[A-Za-z]+|\w))")
_UNDERSCORE = "\ue000"  # placeholder of an underscore that is no subscript
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[^}]*\}(?:\{[^}]*\}|\[[^]]*\])?")

_HEADING = re.compile(r"([A-Z][\w ]*):{1,2}$")
_DIRECTIVE = re.compile(r"\.\. (?:(\w[\w:-]*)::|_)\s*(.*)$")
_ITEM = re.compile(r"[*-] +(.*)")
_ARGUMENT = re.compile(r"(\*{0,2}\w+)(?: ?\((.*?)\))?: ?(.*)$")
_CALLS = re.compile(r"[\w.]+\(.*\)(?: -> .*)?$")


def formula(text: str) -> str:
    """LaTeX as HTML that reads nearly like it.

    >>> formula(r"H_{\\text{out}} = \\frac{a}{b} \\times x^2")
    'H<sub>out</sub> = (a)/(b) × x<sup>2</sup>'
    """
    text = _ENVIRONMENT.sub("", text).replace(r"\_", _UNDERSCORE)
    for pattern, form in (
        (_STYLED, r"\1"),
        (_ROOT, r"√(\1)"),
        (_FRACTION, r"(\1)/(\2)"),
    ):
        text = _until_same(pattern, form, text)
    shown = html.escape(text, quote=False).replace("&amp;", "")
    shown = _until_same(_RAISED, _raise, shown)
    shown = shown.replace("\\\\", "\n")
    shown = _SYMBOL.sub(
        lambda match: _SYMBOLS.get(match[0], match[0].lstrip("\\")), shown
    )
    return shown.replace("{", "").replace("}", "").replace(_UNDERSCORE, "_")


def _until_same(
    pattern: re.Pattern[str], form: str | Callable[[re.Match[str]], str], text: str
) -> str:
    """Replace from the inside out, as braces nest."""
    for _ in range(12):
        changed = pattern.sub(form, text)
        if changed == text:
            break
        text = changed
    return text


def _raise(match: re.Match[str]) -> str:
    tag = "sub" if match[1] == "_" else "sup"
    return f"<{tag}>{match[2] if match[2] is not None else match[3]}</{tag}>"


_INLINE = re.compile(
    r"``(?P<code>.+?)``|:math:`(?P<math>.+?)`|:[\w:]+:`~?\.?(?P<role>[^`<]+?)(?:\s*<[^>]*>)?`"
    r"|`(?P<link>[^`<]+?)(?:\s*<[^>`]*>`_{0,2}|`_{1,2})|`(?P<quoted>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*",
    re.S,
)


def inline(text: str) -> str:
    """Convert inline markup.

    >>> inline("If :attr:`bias` is ``True`` & `see this <http://x>`__, :math:`k=1`")
    'If <code>bias</code> is <code>True</code> &amp; see this, <i>k=1</i>'
    """
    parts, position = [], 0
    for match in _INLINE.finditer(text):
        parts.append(html.escape(text[position : match.start()], quote=False))
        parts.append(_marked(match))
        position = match.end()
    return "".join([*parts, html.escape(text[position:], quote=False)])


def _marked(match: re.Match[str]) -> str:
    if match["math"] is not None:
        return f"<i>{formula(match['math'])}</i>"
    if match["link"] is not None:
        return html.escape(match["link"], quote=False)
    if match["bold"] is not None:
        return f"<b>{html.escape(match['bold'], quote=False)}</b>"
    return f"<code>{html.escape(match['code'] or match['role'] or match['quoted'], quote=False)}</code>"


def to_html(text: str) -> str:
    """Convert a docstring to HTML paragraphs, lists and blocks of code."""
    lines = text.expandtabs(4).splitlines()
    while lines and (not lines[0].strip() or _CALLS.match(lines[0].strip())):
        lines.pop(0)  # builtins begin with their signature
    return "".join(_blocks(lines))


def _blocks(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if not line:
            at += 1
            continue
        margin = _margin(lines[at])
        if match := _DIRECTIVE.match(line):
            body, at = _indented(lines, at + 1, margin)
            yield from _directive(match[1] or "", match[2], body)
        elif line.startswith(">>>"):
            code, at = _take_while(lines, at, lambda text: bool(text.strip()))
            yield _pre("\n".join(code))
        elif at + 1 < len(lines) and re.fullmatch(
            r"([-=~^])\1{2,}", lines[at + 1].strip()
        ):
            yield f"<h4>{inline(line)}</h4>"
            at += 2
        elif (match := _HEADING.match(line)) and _opens_block(lines, at, margin):
            body, at = _indented(lines, at + 1, margin)
            yield f"<h4>{inline(match[1])}</h4>"
            yield from _arguments(body)
        elif match := _ITEM.match(line):
            body, at = _indented(lines, at + 1, margin)
            yield f"<p>• {inline(' '.join([match[1], *_first_paragraph(body)]))}</p>"
            yield from _blocks(_rest(body))
        else:
            paragraph, at = _take_while(lines, at, lambda text: _runs_on(text))
            yield from _paragraph(paragraph)


def _paragraph(lines: list[str]) -> Iterator[str]:
    text = " ".join(word.strip() for word in lines)
    yield f"<p>{inline(re.sub(r'::$', ':', text))}</p>"


def _directive(name: str, first: str, body: list[str]) -> Iterator[str]:
    if name == "math":
        latex = " ".join([first, *(line.strip() for line in body)]).strip()
        yield f"<p><i>{formula(latex).strip()}</i></p>".replace("\n", "<br>")
    elif name in ("note", "warning", "deprecated"):
        yield f"<p><b>{name.capitalize()}.</b> {inline(' '.join([first, *_first_paragraph(body)]).strip())}</p>"
        yield from _blocks(_rest(body))
    elif name.startswith("code"):
        yield _pre("\n".join(body))


def _arguments(body: list[str]) -> Iterator[str]:
    """Convert the lines under `Args:`; lines that are no argument are converted as ordinary text."""
    body = textwrap.dedent("\n".join(body)).splitlines()
    at = 0
    while at < len(body):
        match = _ARGUMENT.match(body[at].strip()) if body[at][:1].strip() else None
        if match and " " not in match[1]:
            more, at = _indented(body, at + 1, 0)
            kind = f" <i>{inline(match[2])}</i>" if match[2] else ""
            description = inline(" ".join([match[3], *_first_paragraph(more)]).strip())
            yield f"<p><code><b>{html.escape(match[1])}</b></code>{kind}: {description}</p>"
            yield from _blocks(_rest(more))
        else:
            until = at + 1
            while until < len(body) and not (
                body[until][:1].strip() and _ARGUMENT.match(body[until].strip())
            ):
                until += 1
            yield from _blocks(body[at:until])
            at = until


def _first_paragraph(body: list[str]) -> list[str]:
    lines, _ = _take_while(body, 0, lambda line: _runs_on(line))
    return [word.strip() for word in lines]


def _rest(body: list[str]) -> list[str]:
    return textwrap.dedent("\n".join(body[len(_first_paragraph(body)) :])).splitlines()


def _runs_on(line: str) -> bool:
    """Return whether a line continues a paragraph."""
    stripped = line.strip()
    return bool(stripped) and not (
        _DIRECTIVE.match(stripped)
        or _ITEM.match(stripped)
        or stripped.startswith(">>>")
    )


def _opens_block(lines: list[str], at: int, margin: int) -> bool:
    following = next((line for line in lines[at + 1 :] if line.strip()), "")
    return bool(following) and (
        _margin(following) > margin or following.strip().startswith(">>>")
    )


def _indented(lines: list[str], at: int, margin: int) -> tuple[list[str], int]:
    """Return the lines from `at` on that are indented deeper than `margin`, dedented, and where they end."""
    return_to = at
    while return_to < len(lines) and (
        not lines[return_to].strip() or _margin(lines[return_to]) > margin
    ):
        return_to += 1
    body = textwrap.dedent("\n".join(lines[at:return_to])).strip("\n").splitlines()
    return body, return_to


def _take_while(
    lines: list[str], at: int, goes_on: Callable[[str], bool]
) -> tuple[list[str], int]:
    """Return the line at `at` and those after it for which `goes_on` holds."""
    until = at
    while until < len(lines) and (
        goes_on(lines[until]) or (until == at and lines[until].strip())
    ):
        until += 1
    return lines[at:until], until


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _pre(code: str) -> str:
    return f"<pre>{html.escape(textwrap.dedent(code), quote=False)}</pre>"


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
