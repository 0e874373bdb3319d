"""The encoding of a text file: by its mark, as UTF-8 if it is that, else guessed by charset-normalizer.

Nothing is ever replaced: a file is decoded whole or refused.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from app.data.spec import DataError

AUTO = "auto"
# Python's names of the encodings to choose from, and what they are called.
ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16, little endian",
    "utf-16-be": "UTF-16, big endian",
    "cp1252": "Windows-1252, Western Europe",
    "cp1250": "Windows-1250, Central Europe",
    "cp1251": "Windows-1251, Cyrillic",
    "cp1253": "Windows-1253, Greek",
    "cp1254": "Windows-1254, Turkish",
    "koi8-r": "KOI8-R, Cyrillic",
    "cp1255": "Windows-1255, Hebrew",
    "cp1256": "Windows-1256, Arabic",
    "iso8859-15": "ISO 8859-15, Western Europe",
    "mac-roman": "Mac Roman",
    "cp437": "DOS 437",
    "cp850": "DOS 850",
    "gb18030": "GB 18030, Chinese",
    "cp932": "Shift JIS, Japanese",
    "big5": "Big5, Chinese",
    "cp949": "EUC-KR, Korean",
}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# How other kinds of files begin, and what to do with them.
_OTHER_KINDS = (
    (b"PK\x03\x04", "is a zip archive or an Excel workbook. Export its sheet as CSV"),
    (
        b"\xd0\xcf\x11\xe0",
        "is an Excel workbook of the old format. Export its sheet as CSV",
    ),
    (b"\x1f\x8b", "is compressed with gzip. Unpack it"),
    (b"PAR1", "is a Parquet file. Export it as CSV"),
    (b"SQLite format 3", "is a SQLite database. Export a table as CSV"),
    (b"%PDF", "is a PDF. Export the table as CSV"),
)
_OF_PAIRS = ("cp932", "gb18030", "big5", "cp949")  # whose letters are pairs of bytes
SAMPLE = 1 << 16  # bytes of words that the encoding is guessed by
PIECE = 1 << 20


def encoding_of(path: Path, chosen: str = AUTO) -> tuple[str, str]:
    """Return Python's name of a text file's encoding, and a sentence if it was guessed. Raises DataError, OSError."""
    with path.open("rb") as file:
        head = file.read(4096)
    for mark, explanation in _OTHER_KINDS:
        if head.startswith(mark):
            raise DataError(f"{path.name} {explanation}.")
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), "")
    if chosen != AUTO:
        named = (
            marked
            if marked.startswith(chosen.replace("-le", "").replace("-be", ""))
            else chosen
        )
        if problem := _problem(path, named):
            raise DataError(
                f"{path.name} is not {ENCODINGS[chosen]}: {problem}. Choose another encoding."
            )
        return named, ""
    wide = "" if marked or b"\0" not in head else _wide(head)
    for name in filter(None, (marked, wide, "utf-8")):
        problem = _problem(path, name)
        if not problem:
            kind = name.upper() if name.startswith(("utf-16", "utf-32")) else ""
            return (
                name,
                kind
                and f"Read as {kind}, by {'its mark' if marked else 'its zero bytes'}.",
            )
        if name == marked:
            raise DataError(
                f"{path.name} is marked as {name.removesuffix('-sig').upper()}, but {problem}."
            )
    guess = _guess(path)
    if not guess:
        raise DataError(
            f"{path.name} is not a text in any known encoding: {problem} in UTF-8."
        )
    return (
        guess,
        f"Read as {ENCODINGS[guess]}, which is a guess: if letters are wrong, choose the encoding.",
    )


def _problem(path: Path, encoding: str) -> str:
    """Return where a file cannot be decoded, "" if it can."""
    decoder, lines = codecs.getincrementaldecoder(encoding)(), 1
    with path.open("rb") as file:
        try:
            while data := file.read(PIECE):
                lines += decoder.decode(data).count("\n")
            decoder.decode(b"", True)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].count(b"\n")
            return f"line {lines + before} has bytes that are none of its letters"
    return ""


def _wide(head: bytes) -> str:
    """Return the UTF-16 without a mark whose zero bytes a file's beginning has, "" if none."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if min(even, odd) * 10 > max(even, odd):
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _guess(path: Path) -> str:
    """Return the likeliest encoding that can decode the whole file; Western European ones where several agree."""
    from charset_normalizer import from_bytes

    terms = _foreign_words(path)
    paired = 2 * sum(
        2 * len(re.findall(rb"[\x80-\xff]", word)) >= len(word) > 1 for word in terms
    ) > len(terms)
    names = [
        name
        for name in ENCODINGS
        if not name.startswith("utf") and (paired or name not in _OF_PAIRS)
    ]
    matches = from_bytes(
        b"\n".join(terms), cp_isolation=[_lookup(name) for name in names]
    )
    likeliest = list[str]()
    if matches:
        best = matches[0]
        equal = [
            match
            for match in matches
            if (match.chaos, match.coherence) == (best.chaos, best.coherence)
        ]
        charsets = {name for match in equal for name in match.could_be_from_charset}
        likeliest = [name for name in names if _lookup(name) in charsets]
    return next((name for name in (*likeliest, *names) if not _problem(path, name)), "")


def _lookup(name: str) -> str:
    """Return the name of an encoding that charset-normalizer uses."""
    return codecs.lookup(name).name.replace("-", "_")


def _foreign_words(path: Path) -> list[bytes]:
    """Return the first different words of a file that have other letters than ASCII's."""
    terms, size = dict[bytes, None](), 0
    with path.open("rb") as file:
        for line in file:
            fresh = [
                word
                for word in re.split(rb"[\s,;\"'.\d]+", line)
                if not word.isascii() and word not in terms
            ]
            terms |= dict.fromkeys(fresh)
            size += sum(map(len, fresh))
            if size > SAMPLE:
                break
    return list(terms)
