"""The language of a process: who chooses it, and what is said where a translation is missing or cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.util import language, resources
from app.util.language import Entry, tr, trn

CATALOGUE = """msgid ""
msgstr ""
"X-Language-Name: Tlhingan\\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);\\n"

#: app/coach.py
msgid "The rate of {rate} is too large."
msgstr "{rate}: "
"zu groß."

msgid "{count} row"
msgid_plural "{count} rows"
msgstr[0] "eins"
msgstr[1] "{count} wenige"
msgstr[2] "{count} viele"

msgid "Names {name}."
msgstr "{name.__class__}"

#, fuzzy
msgid "Changed."
msgstr "Wie früher."

msgid "Open."
msgstr ""
"""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A language of a file of the test, which the process speaks."""
    (tmp_path / "languages").mkdir()
    (tmp_path / "languages" / "tlh.po").write_text(CATALOGUE, "utf-8")
    monkeypatch.setattr(resources, "_root", lambda: tmp_path)
    for cached in (language.names, language._read, language._chosen):
        cached.cache_clear()
    monkeypatch.setenv(language.VARIABLE, "tlh")
    yield
    for cached in (language.names, language._read, language._chosen):
        cached.cache_clear()


def test_a_language_is_one_file(own: None) -> None:
    assert language.names() == {"en": "English", "tlh": "Tlhingan"}
    assert tr("The rate of {rate} is too large.", rate="0.1") == "0.1: zu groß."
    said = [trn("{count} row", "{count} rows", number) for number in (1, 3, 1200)]
    assert said == ["eins", "3 wenige", "1\N{NO-BREAK SPACE}200 viele"]


@pytest.mark.parametrize("sentence", ["Changed.", "Open.", "Never heard of."])
def test_what_has_no_translation_that_can_be_used_is_english(
    own: None, sentence: str
) -> None:
    assert tr(sentence) == sentence


def test_a_translation_names_the_values_of_its_sentence_and_nothing_of_them(
    own: None,
) -> None:
    assert tr("Names {name}.", name="w") == "Names w."
    assert not Entry("A {b}", "", ("{b} {c}",)).is_usable
    assert not Entry("A {b}", "", ("{b:>99}",)).is_usable
    assert Entry("One row", "{count} rows", ("Eine Zeile", "{count}")).is_usable


def test_values_are_never_translated_and_may_have_braces(own: None) -> None:
    name = "{count} row {0}"
    assert tr("The rate of {rate} is too large.", rate=name) == f"{name}: zu groß."


def test_a_rule_for_plurals_is_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError):
        language.c2py("__import__('os').system('true')")


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"LANG": "de_DE.UTF-8"}, "de"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "fr_FR", "LC_MESSAGES": "de_CH"}, "de"),
        ({"LANG": "C", "LANGUAGE": "xx:de:en"}, "de"),
        ({"LANG": "xx_YY.UTF-8"}, "en"),
        ({"LANG": "de_DE", "TAPEDECK_LANGUAGE": "en"}, "en"),
        ({}, "en"),
    ],
)
def test_the_environment_chooses_as_it_does_for_gettext(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], code: str
) -> None:
    for name in language.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language.language() == code


def test_tests_speak_english_in_every_locale() -> None:
    assert language.language() == "en"
