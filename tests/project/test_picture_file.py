"""A picture carries its project there and back, and a hostile picture is refused with a sentence."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import pytest

from app.cli import run
from app.project import file, picture_file
from app.project.file import ProjectFileError
from app.util.resources import path as resource_path
from tests.support.needs import needs

EXAMPLE = resource_path("examples", "Residual net on digits.tape")
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><metadata>{}</metadata></svg>'


def chunk(kind: bytes, body: bytes, crc: int | None = None) -> bytes:
    return (
        struct.pack(">I", len(body))
        + kind
        + body
        + struct.pack(">I", zlib.crc32(kind + body) if crc is None else crc)
    )


def png(*chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return (
        picture_file.PNG
        + header
        + b"".join(chunks)
        + chunk(b"IDAT", zlib.compress(b"\0\0"))
        + chunk(b"IEND", b"")
    )


def carried(text: bytes) -> bytes:
    return chunk(b"zTXt", b"tapedeck\0\0" + zlib.compress(text))


@pytest.mark.parametrize("ending", ["png", "svg"])
@needs("export")
def test_a_picture_opens_as_the_project_that_it_shows(
    tmp_path: Path, ending: str, capsys
) -> None:
    project, bare, full = (
        file.read(EXAMPLE),
        tmp_path / f"bare.{ending}",
        tmp_path / f"net.{ending}",
    )
    assert run(["export", str(EXAMPLE), "--drawing", str(full), "--for", "column"]) == 0
    assert "8.5 × " in capsys.readouterr().out
    assert file.read(full) == project
    assert run(["check", str(full)]) == 0
    assert "0 errors" in capsys.readouterr().out
    assert run(["export", str(EXAMPLE), "--drawing", str(bare), "--no-project"]) == 0
    assert run(["check", str(bare)]) == 2
    assert f"bare.{ending}: the picture carries no project" in capsys.readouterr().err
    before = full.read_bytes()
    with pytest.raises(ProjectFileError, match="is a picture"):
        file.write(project, full)
    assert full.read_bytes() == before


BOMB = zlib.compress(bytes(46 << 20), 1)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.png", b"GIF89a", "not a PNG file"),
        ("a.png", png()[:40], "cut off"),
        ("a.png", picture_file.PNG + struct.pack(">I", 2**32 - 1) + b"zTXt", "cut off"),
        ("a.png", png(chunk(b"zTXt", b"tapedeck\0\0" + BOMB)), "larger than 32 MiB"),
        (
            "a.png",
            png(chunk(b"zTXt", b"tapedeck\0\0" + zlib.compress(b"x")[:-3])),
            "cut off|damaged",
        ),
        ("a.png", png(chunk(b"zTXt", b"tapedeck\0\1x")), "unknown way"),
        ("a.png", png(chunk(b"zTXt", b"tapedeck\0\0x", crc=1)), "checksum"),
        ("a.png", png(carried(b"?!")), "base64"),
        ("a.png", png(carried(base64.b64encode(b'{"tapedeck": 2}'))), "graph|name"),
        (
            "a.png",
            png(carried(base64.b64encode(b"import os"))),
            "not a Tapedeck project",
        ),
        ("a.png", png(), "carries no project"),
        ("a.svg", b"<svg", "cannot be read"),
        ("a.svg", b"<html/>", "not an SVG file"),
        ("a.svg", SVG.format("").encode(), "carries no project"),
        (
            "a.svg",
            b'<!DOCTYPE svg [<!ENTITY a "&b;&b;">]>' + SVG.format("&a;").encode(),
            "document type",
        ),
        (
            "a.svg",
            b'<!DOCTYPE svg SYSTEM "file:///etc/passwd">' + SVG.format("").encode(),
            "document type",
        ),
        ("a.svg", SVG.format("<a>" * 2000).encode(), "nested too deep"),
        ("a.svg", b"\x00\xff" * 50, "cannot be read"),
        (
            "a.svg",
            b'<?xml version="1.0" encoding="no-such"?>' + SVG.format("").encode(),
            "cannot be read",
        ),
        (
            "a.svg",
            SVG.format(
                f'<project xmlns="urn:tapedeck:project">{base64.b64encode(BOMB).decode()}</project>'
            ).encode(),
            "larger than 32 MiB",
        ),
        (
            "a.svg",
            SVG.format('<project xmlns="urn:tapedeck:project">AAAA</project>').encode(),
            "damaged",
        ),
    ],
)
def test_a_hostile_picture_is_refused_with_a_sentence(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ProjectFileError, match=words) as refused:
        file.read(tmp_path / name)
    assert str(refused.value).startswith(f"{name}: ") and "\n" not in str(refused.value)
