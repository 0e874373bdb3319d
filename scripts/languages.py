"""Brings the catalogues of `resources/languages` up to date with the sentences of the program and of its lessons.

    python -m scripts.languages            write them, and say what has no translation, or an outdated one
    python -m scripts.languages --check    write nothing
    python -m scripts.languages --new fr "Français"    begin a language

Sentences are the arguments of `tr`, `trn` and `marked` in `app`, the goals of lessons, and the texts of
`resources/lessons`. A sentence that is put together, or is in a variable whose texts are not `marked`, is refused. A
sentence that has changed keeps the translation of the one that it came from as `fuzzy`, which is
not used until that mark is taken away. Ends with 1 if a sentence has no translation.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
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
    for file, tree in _trees(folder):
        name = file.relative_to(ROOT).as_posix()
        for arguments in _arguments(tree):
            strings = [
                [
                    str(branch.value)
                    for branch in branches
                    if isinstance(branch, ast.Constant)
                ]
                for branches in arguments
            ]
            if len(strings) == 2 and all(strings):
                yield Sentence(strings[0][0], strings[1][0], name)
            elif len(strings) == 1:
                yield from (Sentence(one, "", name) for one in strings[0])


def _trees(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the modules that say sentences."""
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text("utf-8")
        if "util.language" in text:
            yield file, ast.parse(text)


def _arguments(tree: ast.AST) -> Iterator[list[list[ast.expr]]]:
    """Yield the sentences of each call of `CALLS`; of a conditional expression both."""
    for node in ast.walk(tree):
        if _is_said(node):
            number = CALLS[node.func.id]  # type: ignore[attr-defined]
            yield [list(_branches(each)) for each in node.args[:number]]  # type: ignore[attr-defined]


def _is_said(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return called and node.func.id in CALLS  # type: ignore[attr-defined]


def _branches(argument: ast.expr) -> Iterator[ast.expr]:
    if isinstance(argument, ast.IfExp):
        yield from _branches(argument.body)
        yield from _branches(argument.orelse)
    else:
        yield argument


def unmarked(folder: Path = ROOT / "app") -> list[str]:
    """Return where a sentence is said that no catalogue can have: one that is put together, or a constant or a
    variable whose texts are not `marked`. What comes from elsewhere, an attribute or an argument, is not followed."""
    trees = dict(_trees(folder))
    constants = {
        name: value for tree in trees.values() for name, value in _assigned(tree.body)
    }
    places = []
    for file, tree in trees.items():
        own = constants | _grouped(_assigned(tree.body))
        for scope in (tree, *filter(_is_function, ast.walk(tree))):
            values = own | _grouped(_assigned(ast.walk(scope)))
            for branch in _said_in(scope):
                if not _is_marked(branch, values):
                    name = file.relative_to(folder).as_posix()
                    places.append(f"{name}:{branch.lineno}: {ast.unparse(branch)}")
    return sorted(set(places))


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _said_in(scope: ast.AST) -> Iterator[ast.expr]:
    """Yield the sentences said in a function, or outside of all of a module."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if _is_said(node):
            number = CALLS[node.func.id]  # type: ignore[attr-defined]
            for argument in node.args[:number]:  # type: ignore[attr-defined]
                yield from _branches(argument)
        if not _is_function(node):
            waiting += ast.iter_child_nodes(node)


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that are given a value by these statements, and the values."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        else:
            continue
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    yield name.id, value


def _grouped(pairs: Iterable[tuple[str, ast.expr]]) -> dict[str, ast.expr]:
    """Return all values of a name as one."""
    values: dict[str, list[ast.expr]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: ast.Tuple(several) for name, several in values.items()}


def _is_marked(argument: ast.expr, values: Mapping[str, ast.expr]) -> bool:
    """Return whether what is said is a literal, or made of texts that are all `marked`."""
    if isinstance(argument, ast.JoinedStr | ast.BinOp):
        return False
    if isinstance(argument, ast.Constant):
        return True
    root: ast.expr = argument
    while isinstance(root, ast.Subscript | ast.Attribute | ast.Call):
        is_constant = isinstance(root, ast.Attribute) and root.attr.isupper()
        if is_constant and root.attr in values:  # type: ignore[union-attr]
            return _texts_marked(values[root.attr])  # type: ignore[union-attr]
        root = root.func if isinstance(root, ast.Call) else root.value
    if isinstance(root, ast.Name) and root.id in values:
        if isinstance(argument, ast.Attribute) and not root.id.isupper():
            return True  # of an object, not of the texts that it was made with
        return _texts_marked(values[root.id])
    return True


def _texts_marked(value: ast.AST) -> bool:
    """Return whether each text of several words in a value is `marked` or said."""
    if isinstance(value, ast.Constant):
        return not isinstance(value.value, str) or " " not in value.value.strip()
    if isinstance(value, ast.JoinedStr):
        return False
    if isinstance(value, ast.Dict):
        return all(map(_texts_marked, value.values))
    return _is_said(value) or all(map(_texts_marked, ast.iter_child_nodes(value)))


def _of_lessons() -> Iterator[Sentence]:
    try:
        from app.features.lessons import lesson as lessons
        from app.features.lessons.facts import FACTS
    except ModuleNotFoundError:  # the shelf is without this feature
        return
    for fact in FACTS.values():
        yield Sentence(fact.goal, "", "app/features/lessons/facts.py")
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
    for place in unmarked():
        print(f"not marked: {place}")
        missing += 1
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
