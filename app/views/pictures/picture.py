"""Write a drawing to a file: SVG, PDF, PNG and TikZ in the size of a paper, or DOT and JSON as text.

The window and the command line both write pictures here. Needs a QApplication, offscreen or not; works on any thread.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct
from PySide6.QtGui import QImage

from app import graphviz_export
from app.diagram.diagram import Drawing
from app.graphviz_export import ExportError
from app.project import picture_file
from app.util import atomic
from app.views.pictures.printing.painted import png_bytes, to_image, to_pdf
from app.views.pictures.printing.paper import Choice, Sheet
from app.views.pictures.printing.plate import EmptyDrawingError, printed
from app.views.pictures.printing.svg import to_svg
from app.views.pictures.printing.tikz import to_tikz

PICTURES = ("svg", "pdf", "png", "tex")
FORMATS = (*PICTURES, *graphviz_export.TEXTS)
CARRIERS = ("svg", "png")  # formats that can carry the project


class Written(Struct, frozen=True):
    """A written file; `sheet` is how it was laid out, None for DOT, JSON and pictures by Graphviz."""

    path: Path
    sheet: Sheet | None = None

    @property
    def note(self) -> str:
        return self.sheet.note if self.sheet is not None else ""


def write(
    drawing: Drawing, path: Path, choice: Choice | None = None, project: bytes = b""
) -> Written:
    """Write a drawing in the format of the file's suffix, whole or not at all.

    `project` are the bytes of a project file that an SVG or PNG carries. Raises `ExportError` for another suffix and
    for a drawing without boxes, OSError.
    """
    path = Path(path)
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        ending = path.suffix or "nothing"
        raise ExportError(
            f"{path.name} ends in {ending}; a picture can end in .svg, .pdf, .png, .tex, .dot or .json"
        )
    if form in graphviz_export.TEXTS:
        atomic.write_text(path, graphviz_export.text_of(drawing, form))
        return Written(path)
    if choice is not None and choice.arranged == "dot":
        atomic.write_bytes(path, _by_dot(drawing, form, project))
        return Written(path)
    try:
        sheet = printed(drawing, choice or Choice())
    except EmptyDrawingError as error:
        raise ExportError(str(error)) from error
    atomic.write_bytes(path, encoded(sheet, form, project))
    return Written(path, sheet)


def _by_dot(drawing: Drawing, form: str, project: bytes = b"") -> bytes:
    """Return the file that Graphviz makes of a drawing."""
    if form not in graphviz_export.DOT_DRAWS:
        raise ExportError(
            "Graphviz draws .svg, .pdf and .png. Choose another arrangement for .tex."
        )
    rendered = graphviz_export.render(graphviz_export.to_dot(drawing), form)
    if not project or form not in CARRIERS:
        return rendered
    if form == "png":
        return picture_file.into_png(rendered, project)
    # Without the document type: it is not needed, and refused where the project is read.
    text, end, rest = re.sub(
        r"<!DOCTYPE[^>]*>\s*", "", rendered.decode(), count=1
    ).rpartition("</svg>")
    return f"{text}{picture_file.as_element(project)}{end}{rest}".encode()


def preview(drawing: Drawing, choice: Choice, width: int) -> tuple[str, QImage]:
    """Return the size of a picture in words, and its image, about this many pixels wide. Raises `ExportError`."""
    if choice.arranged == "dot":
        image = QImage.fromData(_by_dot(drawing, "png"))
        return (
            f"{image.width():,} × {image.height():,} pixels, laid out by Graphviz",
            image,
        )
    try:
        sheet = printed(drawing, choice)
    except EmptyDrawingError as error:
        raise ExportError(str(error)) from error
    return sheet.note, to_image(
        sheet, max(1, round(72 * width / max(sheet.width, sheet.height)))
    )


def encoded(sheet: Sheet, form: str, project: bytes = b"") -> bytes:
    """Return the file of a sheet: "svg", "pdf", "png" or "tex"."""
    if form == "svg":
        return to_svg(
            sheet, picture_file.as_element(project) if project else ""
        ).encode()
    if form == "pdf":
        return to_pdf(sheet)
    if form == "tex":
        return to_tikz(sheet).encode()
    image = to_image(sheet, sheet.paper.dpi)
    if image.isNull():
        raise ExportError(
            "The picture would be too large. Fold some layers, or save it as SVG."
        )
    data = png_bytes(image)
    return picture_file.into_png(data, project) if project else data
