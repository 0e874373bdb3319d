"""Each language says all that the program says, with the same values, code and names of menus."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest

from app.util import formatting, language
from app.util.language import Entry, tr, trn
from scripts import languages
from scripts.languages import Sentence
from tests.support.every import every

FIELD = re.compile(r"\{[^{}]*\}")
CODE = re.compile(r"`[^`]+`")
NAMED = re.compile(r"\{(\w+)([^{}]*)\}")
GROUPED = re.compile(r"\d,\d{3}")
MANY = 1_234_567
MENU = re.compile(r"(?<!\*)\*[^*]+ > [^*]+\*(?!\*)")
FILES = {file.stem: file for file in language.files()}


def test_there_are_sentences_of_every_kind() -> None:
    files = Counter(
        sentence.file.partition("/")[0] for sentence in languages.sentences()
    )
    assert "de" in FILES and files["app"] > 250
    assert sum(bool(sentence.many) for sentence in languages.sentences()) > 10
    kinds = ("autograd/diagnostics", "builder/diagnostics", "preflight")
    assert all(
        any(kind in each.file for each in languages.sentences()) for kind in kinds
    )


@every(FILES)
def test_nothing_lacks_a_translation_or_has_an_outdated_one(file) -> None:
    _header, *entries = language.read(file.read_text("utf-8"))
    after = languages.updated(entries, languages.sentences())
    lacking = [entry.one for entry in after if not entry.is_usable]
    assert not lacking, "run python -m scripts.languages"


@every(FILES)
def test_values_code_and_names_of_menus_are_those_of_the_english_sentence(file) -> None:
    _header, *entries = language.read(file.read_text("utf-8"))
    assert len(entries) > 600
    for entry in entries:
        for kind in (FIELD, CODE, MENU):
            wanted = Counter(kind.findall(entry.many or entry.one))
            assert Counter(kind.findall(entry.forms[-1])) == wanted, entry.one


@every(FILES)
def test_no_comma_groups_thousands_in_another_language(file) -> None:
    """German reads 1,559 as a number below 2."""
    _header, *entries = language.read(file.read_text("utf-8"))
    numbers = 0
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(language.VARIABLE, file.stem)
        for entry in entries:
            values: dict[str, object] = {}
            for name, form in NAMED.findall(f"{entry.one} {entry.many}"):
                text = formatting.figure(MANY)
                of_value = Mock(**dict.fromkeys(re.findall(r"\.(\w+)", form), text))
                values[name] = {"": text, ":": MANY, ".": of_value}.get(form[:1], "")
            if entry.many:
                values.pop("count", None)
            numbers += len(values)
            said = (
                trn(entry.one, entry.many, MANY, **values)
                if entry.many
                else tr(entry.one, **values)
            )
            assert not GROUPED.search(said), said
    assert numbers > 500


def test_where_sentences_are_said_numbers_are_those_of_the_language() -> None:
    places = []
    for file, tree in languages._trees(languages.ROOT / "app"):
        of_language = {
            id(node.args[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "grouped"
        }
        for text in ast.walk(tree):
            if isinstance(text, ast.JoinedStr) and id(text) not in of_language:
                forms = [getattr(part, "format_spec", None) for part in text.values]
                if any(form is not None and "," in ast.unparse(form) for form in forms):
                    places.append(f"{file.name}:{text.lineno}")
    assert not places, "write grouped_digits or figure of the number"


def test_every_sentence_that_is_said_can_be_in_a_catalogue() -> None:
    assert languages.unmarked() == [], "write tr of a literal, or mark the texts"


@pytest.mark.parametrize(
    ("said", "is_fine"),
    [
        ("tr(TEXTS['one'])", True),
        ("tr('A text.' if value else 'Another text.')", True),
        ("tr(f'A text of {value}.')", False),
        ("tr('A text ' + 'of two.')", False),
        ("tr(BARE['one'])", False),
        ("tr(text)", False),
        ("tr(fine)", True),
        ("tr(value.text)", True),
    ],
)
def test_a_sentence_that_no_catalogue_can_have_is_refused(
    tmp_path: Path, said: str, is_fine: bool
) -> None:
    code = f"""from app.util.language import marked, tr
TEXTS = {{"one": marked("A text of one.")}}
BARE = {{"one": "A text of one."}}
def say(value):
    text = "A text that is not marked."
    fine = marked("A text that is.") if value else TEXTS["one"]
    return {said}
"""
    (tmp_path / "said.py").write_text(code)
    assert (languages.unmarked(tmp_path) == []) == is_fine


def test_a_sentence_is_not_both_counted_and_not() -> None:
    counted = {each.one for each in languages.sentences() if each.many}
    plain = [each.one for each in languages.sentences() if not each.many]
    assert len(plain) == len(set(plain)) and not counted & set(plain)


def test_a_sentence_that_changed_keeps_its_translation_as_outdated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = [
        Entry("The loss grew from {a}.", "", ("Der Loss stieg von {a}.",)),
        Entry("Gone for good", "", ("Weg",)),
    ]
    wanted = [
        Sentence("The loss grew from {a} on.", "", "a.py"),
        Sentence("New", "News", "b.py"),
    ]
    first, second = languages.updated(before, wanted)
    assert first.forms == ("Der Loss stieg von {a}.",) and first.outdated
    assert not first.is_usable and not second.forms
    header = Entry("", "", ("Language: xx\n",))
    text = languages.text_of(header, [first, second], wanted)
    assert list(language.read(text)) == [
        header,
        first,
        Entry("New", "News", ("", "")),
    ]
