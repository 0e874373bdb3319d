"""A project inside a picture of it: a chunk of a PNG, an element in the metadata of an SVG.

It is data and checked like any project file. Pictures come from anywhere, so whatever is read here is bounded: sizes
before they are allocated, and XML without a DTD, so that nothing expands.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from pathlib import Path
from xml.parsers import expat

from app.project import limits
from app.project.sheet_records import ProjectFileError

SUFFIXES = (".png", ".svg")
PNG = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"tapedeck"
NAMESPACE = "urn:tapedeck:project"
LARGEST_PICTURE = 128 << 20
_MOST_CHUNKS = 100_000


def is_picture(path: Path) -> bool:
    """Return whether a file's name is that of a picture which may carry a project."""
    return path.suffix.lower() in SUFFIXES


def into_png(png: bytes, project: bytes) -> bytes:
    """Return a PNG with the bytes of a project file in a zTXt chunk before its image data."""
    chunk = b"zTXt" + KEYWORD + b"\0\0" + zlib.compress(base64.b64encode(project), 9)
    at = png.index(b"IDAT") - 4
    packed_chunk = (
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
    return png[:at] + packed_chunk + png[at:]


def as_element(project: bytes) -> str:
    """Return the bytes of a project file as an element for the metadata of an SVG."""
    text = base64.b64encode(zlib.compress(project, 9)).decode()
    return f'<project xmlns="{NAMESPACE}">{text}</project>'


def project_in(data: bytes, suffix: str) -> bytes:
    """Return the bytes of the project file that a picture carries. Raises ProjectFileError."""
    if len(data) > LARGEST_PICTURE:
        raise ProjectFileError(
            f"the picture is larger than {LARGEST_PICTURE >> 20} MiB and was not read"
        )
    content = _in_png(data) if suffix.lower() == ".png" else _in_svg(data)
    if content is None:
        raise ProjectFileError(
            "the picture carries no project. Tapedeck puts one into the PNG and SVG files that it exports, unless "
            "that is switched off; a copy made by another program may have lost it"
        )
    return content


def _in_png(data: bytes) -> bytes | None:
    if not data.startswith(PNG):
        raise ProjectFileError("this is not a PNG file, though its name ends in .png")
    at = len(PNG)
    for _ in range(_MOST_CHUNKS):
        if at + 12 > len(data):
            raise ProjectFileError("the PNG file is cut off")
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if len(body) < length or at + 12 + length > len(data):
            raise ProjectFileError("the PNG file is cut off")
        if kind == b"IEND":
            return None
        if kind == b"zTXt" and body.startswith(KEYWORD + b"\0"):
            (crc,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
            if crc != zlib.crc32(kind + body):
                raise ProjectFileError(
                    "the project in the PNG file is damaged: its checksum differs"
                )
            if body[len(KEYWORD) + 1 : len(KEYWORD) + 2] != b"\0":
                raise ProjectFileError(
                    "the project in the PNG file is compressed in an unknown way"
                )
            # Base64 takes four bytes for three.
            text = _inflated(body[len(KEYWORD) + 2 :], limits.LARGEST_FILE // 3 * 4 + 8)
            return _decoded(text)
        at += 12 + length
    raise ProjectFileError(f"the PNG file has more than {_MOST_CHUNKS:,} parts")


class _FoundError(Exception):
    """Ends the reading of an SVG when the project is complete."""


def _in_svg(data: bytes) -> bytes | None:
    text: list[str] = []
    inside = False
    depth = 0

    def refuse(*_: object) -> int:
        raise ProjectFileError(
            "the SVG file has a document type or entities, which Tapedeck never writes; not read"
        )

    def start(name: str, _attributes: object) -> None:
        nonlocal inside, depth
        depth += 1
        if depth > 1000:
            raise ProjectFileError("the SVG file is nested too deep")
        if depth == 1 and name != "http://www.w3.org/2000/svg svg":
            raise ProjectFileError(
                "this is not an SVG file, though its name ends in .svg"
            )
        inside = name == f"{NAMESPACE} project"

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        if name == f"{NAMESPACE} project":
            raise _FoundError

    def letters(characters: str) -> None:
        if inside:
            text.append(characters)

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = (
        parser.ExternalEntityRefHandler
    ) = refuse
    (
        parser.StartElementHandler,
        parser.EndElementHandler,
        parser.CharacterDataHandler,
    ) = start, end, letters
    try:
        parser.Parse(data, True)
    except _FoundError:
        packed = _decoded("".join(text).encode())
        return _inflated(packed, limits.LARGEST_FILE)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise ProjectFileError(f"the SVG file cannot be read: {error}") from error
    return None


def _inflated(data: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise ProjectFileError(
            f"the project in the picture is damaged: {error}"
        ) from error
    if len(content) > most:
        raise ProjectFileError(
            f"the project in the picture is larger than {limits.LARGEST_FILE >> 20} MiB"
        )
    if not unpacker.eof:
        raise ProjectFileError("the project in the picture is cut off")
    return content


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProjectFileError(
            "the project in the picture is damaged: it is not base64"
        ) from error
