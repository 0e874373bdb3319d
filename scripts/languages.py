"""Brings the catalogues of `resources/languages` up to date with the sentences of the program and of its lessons.

    python -m scripts.languages            write them, and say what has no translation, or an outdated one
    python -m scripts.languages --check    write nothing
    python -m scripts.languages --new fr "Français"    begin a language

Sentences are the arguments of `tr`, `trn` and `marked` in `app`, the goals of lessons, and the texts of
`resources/lessons`. A sentence that has changed keeps the translation of the one that it came from as `fuzzy`, which is
not used until that mark is taken away. Ends with 1 if a sentence has no translation.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from app.util import atomic, resources
from app.util.language import Entry, files, read

ROOT = Path(__file__).resolve().parent.parent
CALLS = {"tr": 1, "trn": 2, "marked": 1}  # arguments that are sentences
NEAR = 0.75  # as alike as sentences are of which one came from the other
WIDTH = 110
HEADER = """\
Language: {code}
X-Language-Name: {name}
MIME-Version: 1.0
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit
Plural-Forms: nplurals=2; plural=(n != 1);
"""


class Sentence(NamedTuple):
    """An English sentence, with the form for many things if it counts, and the file that it is from."""

    one: str
    many: str
    file: str


@cache
def sentences() -> tuple[Sentence, ...]:
    """Return all sentences once, by file."""
    every = (*_of_code(ROOT / "app"), *_of_lessons())
    once = {sentence.one: sentence for sentence in reversed(every)}
    return (*reversed(once.values()),)


def _of_code(folder: Path) -> Iterator[Sentence]:
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text("utf-8")
        if "util.language" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                strings = [
                    argument.value
                    for argument in node.args[: CALLS.get(node.func.id, 0)]
                    if isinstance(argument, ast.Constant)
                ]
                if strings:
                    yield Sentence(
                        *[*strings, ""][:2], file.relative_to(ROOT).as_posix()
                    )


def _of_lessons() -> Iterator[Sentence]:
    try:
        from app.features.lessons import lesson as lessons
        from app.features.lessons.facts import FACTS, FINDINGS
    except ModuleNotFoundError:  # the shelf is without this feature
        return
    for text in (*(fact.goal for fact in FACTS.values()), *FINDINGS.values()):
        yield Sentence(text, "", "app/features/lessons/facts.py")
    for lesson in lessons.bundled():
        file = f"resources/lessons/{lesson.name}/{lessons.FILE}"
        for text in lessons.sentences(lesson):
            yield Sentence(text, "", file)


def updated(entries: Iterable[Entry], wanted: Iterable[Sentence]) -> list[Entry]:
    """Return the entries of the sentences: as they were, outdated from a near one that is gone, or without forms."""
    before = {entry.one: entry for entry in entries}
    wanted = list(wanted)
    gone = [one for one in before if one not in {each.one for each in wanted}]
    after = []
    for sentence in wanted:
        entry = before.get(sentence.one)
        if entry is None or bool(entry.many) != bool(sentence.many):
            near = difflib.get_close_matches(sentence.one, gone, 1, NEAR)
            forms = before[near[0]].forms if near else ()
            entry = Entry(sentence.one, sentence.many, forms, bool(near))
        after.append(entry._replace(many=sentence.many))
    return after


def text_of(header: Entry, entries: Iterable[Entry], wanted: Iterable[Sentence]) -> str:
    """Return a .po file."""
    of_file = {sentence.one: sentence.file for sentence in wanted}
    blocks = [_block(header, "")]
    blocks += [_block(entry, of_file[entry.one]) for entry in entries]
    return "\n\n".join(blocks) + "\n"


def _block(entry: Entry, file: str) -> str:
    lines = [f"#: {file}"] if file else []
    if entry.outdated:
        lines.append("#, fuzzy")
    lines += _written("msgid", entry.one)
    if entry.many:
        lines += _written("msgid_plural", entry.many)
        for number, form in enumerate(entry.forms or ("", "")):
            lines += _written(f"msgstr[{number}]", form)
    else:
        lines += _written("msgstr", "".join(entry.forms[:1]))
    return "\n".join(lines)


def _written(key: str, text: str) -> list[str]:
    """Return the lines of a text: one, or its pieces below an empty one."""
    pieces = [
        piece
        for line in text.splitlines(keepends=True)
        for piece in re.findall(rf".{{1,{WIDTH}}}(?:\s+|$)|\S+\s*", line, re.DOTALL)
    ]
    quoted = [json.dumps(piece, ensure_ascii=False) for piece in pieces]
    return [f"{key} {quoted[0]}"] if len(quoted) == 1 else [f'{key} ""', *quoted]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--new", nargs=2, metavar=("CODE", "NAME"))
    options = parser.parse_args(arguments)
    if options.new:
        code, name = options.new
        header = Entry("", "", (HEADER.format(code=code, name=name),))
        path = resources.path("languages") / f"{code}.po"
        atomic.write_bytes(path, text_of(header, [], []).encode())
    wanted, missing = sentences(), 0
    for file in files():
        header, *before = read(file.read_text("utf-8"))
        after = updated(before, wanted)
        open_ones = [entry for entry in after if not entry.is_usable]
        gone = len({entry.one for entry in before} - {entry.one for entry in after})
        for entry in open_ones:
            print(f"{'outdated' if entry.outdated else 'missing'}: {entry.one}")
        print(
            f"{file.stem}: {len(after)} sentences, {len(open_ones)} open, {gone} gone"
        )
        missing += len(open_ones)
        if not options.check:
            atomic.write_bytes(file, text_of(header, after, wanted).encode())
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
