r"""A sheet as TikZ: a file to `\input` in a document that loads tikz, which compiles alone too. Text is LaTeX's own."""

from __future__ import annotations

from collections.abc import Iterator

from app.views.pictures.printing.paper import Frame, Mark, Path, Sheet, Words

# Within a document `\@nodocument` is `\relax`; before it, this file makes a document of the picture's size.
HEAD = r"""% Drawn by Tapedeck: @TITLE@
% \input this file in a document with \usepackage{tikz}, or compile it alone.@NOTE@
\expandafter\ifx\csname @nodocument\endcsname\relax
  \let\tapedeckend\relax
\else
  \documentclass{article}
  \usepackage{tikz}
  \usepackage[paperwidth=@WIDTH@bp,paperheight=@HEIGHT@bp,margin=0pt]{geometry}
  \pagestyle{empty}\setlength{\parindent}{0pt}\setlength{\topskip}{0pt}
  \gdef\tapedeckend{\end{document}}
  \expandafter\begin\expandafter{document}
\fi
"""
UNKNOWN = "%\n% It has letters that pdflatex does not know: compile it with lualatex or xelatex."

_LETTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "-": "{-}",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↔": r"$\leftrightarrow$",
    "−": "$-$",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
    "∞": r"$\infty$",
    "²": r"$^2$",
    "³": r"$^3$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "µ": r"$\mu$",
    "–": "--",
    "—": "---",
    "\N{NO-BREAK SPACE}": "~",
    "’": "'",
    "“": "``",
    "”": "''",
}


def to_tikz(sheet: Sheet) -> str:
    """Return the file; coordinates are in big points, with y upwards."""
    colors: dict[str, str] = {}
    body = [line for mark in sheet.plate.marks for line in _mark(mark, sheet, colors)]
    texts = (mark.text for mark in sheet.plate.marks if isinstance(mark, Words))
    strange = any(
        letter > "\N{LATIN SMALL LETTER Y WITH DIAERESIS}" and letter not in _LETTERS
        for text in texts
        for letter in text
    )
    head = HEAD.replace("@TITLE@", _plain(sheet.plate.title)).replace(
        "@NOTE@", UNKNOWN[1:] if strange else ""
    )
    head = head.replace("@WIDTH@", f"{sheet.width:.2f}").replace(
        "@HEIGHT@", f"{sheet.height:.2f}"
    )
    return "\n".join(
        [
            head
            + r"\begin{tikzpicture}[x=1bp,y=1bp,every node/.style={inner sep=0pt,outer sep=0pt}]",
            *(
                f"\\definecolor{{{name}}}{{HTML}}{{{color[1:]}}}"
                for color, name in colors.items()
            ),
            f"\\useasboundingbox (0,0) rectangle ({sheet.width:.2f},{sheet.height:.2f});",
            *body,
            r"\end{tikzpicture}%",
            r"\tapedeckend",
            "",
        ]
    )


def latex(text: str) -> str:
    r"""Escape text for LaTeX.

    >>> print(latex("a_b 50 % {x} \\end $1$ 3×3"))
    a\_b 50 \% \{x\} \textbackslash{}end \$1\$ 3$\times$3
    """
    return "".join(
        _LETTERS.get(letter, letter if letter.isprintable() else "?") for letter in text
    )


def _plain(text: str) -> str:
    """Return text for a comment, which ends with its line."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _mark(mark: Mark, sheet: Sheet, colors: dict[str, str]) -> Iterator[str]:
    if isinstance(mark, Words):
        yield _text_node(mark, sheet, colors)
        return
    options = []
    if mark.line:
        options += [
            f"draw={_color(mark.line, colors)}",
            f"line width={mark.thick * sheet.scale:.2f}bp",
        ]
    if mark.fill:
        options.append(f"fill={_color(mark.fill, colors)}")
    if isinstance(mark, Frame):
        if mark.radius:
            options.append(f"rounded corners={mark.radius * sheet.scale:.2f}bp")
        if mark.dashed:
            options.append("densely dashed")
        a, b = (
            _at(mark.x, mark.y, sheet),
            _at(mark.x + mark.width, mark.y + mark.height, sheet),
        )
        yield f"\\path[{','.join(options)}] {a} rectangle {b};"
        return
    yield f"\\path[{','.join(options)}] {_route(mark, sheet)};"


def _route(path: Path, sheet: Sheet) -> str:
    parts = []
    for kind, points in path.segments:
        at = [_at(x, y, sheet) for x, y in points]
        before = " -- " if kind == "L" else " "
        parts.append(
            f" .. controls {at[0]} and {at[1]} .. {at[2]}"
            if kind == "C"
            else f"{before}{at[0]}"
        )
    return "".join(parts).strip() + (" -- cycle" if path.fill else "")


def _text_node(mark: Words, sheet: Sheet, colors: dict[str, str]) -> str:
    anchor = {"start": "base west", "middle": "base", "end": "base east"}[mark.anchor]
    size = mark.size * sheet.scale
    font = (
        f"\\fontsize{{{size:.2f}bp}}{{{1.2 * size:.2f}bp}}\\selectfont\\sffamily"
        + mark.bold * r"\bfseries"
    )
    options = f"anchor={anchor},font={font},text={_color(mark.color, colors)}"
    return f"\\node[{options}] at {_at(mark.x, mark.y, sheet)} {{{latex(mark.text)}}};"


def _at(x: float, y: float, sheet: Sheet) -> str:
    return f"({sheet.x + x * sheet.scale:.2f},{sheet.height - sheet.y - y * sheet.scale:.2f})"


def _color(color: str, colors: dict[str, str]) -> str:
    return colors.setdefault(
        color,
        f"tapedeck{chr(ord('A') + len(colors) // 26)}{chr(ord('a') + len(colors) % 26)}",
    )
