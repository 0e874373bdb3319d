"""Sentences in the language of this process, from the catalogues of `resources/languages`: one .po file a language.

The language is what gettext reads (LANGUAGE, LC_ALL, LC_MESSAGES, LANG), unless TAPEDECK_LANGUAGE names another, which
the window and `--language` set; processes that they start inherit it. So a sentence is written in its language where it
is made, and travels as text. What has no translation stays English. A catalogue is data: a translation may name the
values that the English sentence names and no others, and its rule for plurals is parsed by the grammar of `gettext`.

A comma groups thousands in English alone, since others read it as a decimal mark; elsewhere a no-break space does. The
decimal point stays in every language, as PyTorch prints it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from gettext import c2py
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from app.util import resources

ENGLISH = "en"
VARIABLE = "TAPEDECK_LANGUAGE"
VARIABLES = (VARIABLE, "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_LINE = re.compile(r'(?:(msgid|msgid_plural|msgstr(?:\[\d\])?)\s+)?(".*")')
_FIELD = re.compile(r"\{[^{}]*\}")
GROUPS = "\N{NO-BREAK SPACE}"  # between thousands, but in English


class Entry(NamedTuple):
    """A sentence of a catalogue: English for one and, if it counts, for many; its forms in the language, () for none.
    `outdated` are the forms of an English sentence that has changed since.

    Made without the packages whose absence is said in that language, as the catalogue is."""

    one: str
    many: str = ""
    forms: tuple[str, ...] = ()
    outdated: bool = False

    @property
    def is_usable(self) -> bool:
        """True if there is a translation, which names no other values than the English sentence."""
        fields = {*_FIELD.findall(self.one), *_FIELD.findall(self.many)}
        named = {field for form in self.forms for field in _FIELD.findall(form)}
        translated = bool(self.forms) and all(self.forms)
        return translated and not self.outdated and named <= fields


class Catalogue(NamedTuple):
    """The forms of each English sentence in a language, and which of them a number takes."""

    forms: Mapping[str, tuple[str, ...]]
    form_of: Callable[[int], int]


def tr(sentence: str, /, **values: object) -> str:
    """Return a sentence in the language of this process, with its `{name}` filled where there are values.

    >>> tr("The {what} is too large.", what="learning rate")
    'The learning rate is too large.'
    """
    forms = catalogue().forms.get(sentence)
    text = forms[0] if forms else sentence
    return _filled(text, values) if values else text


def trn(one: str, many: str, number: int, /, **values: object) -> str:
    """Return a sentence about a number of things, `{count}`, in the language of this process.

    >>> trn("{count} row", "{count} rows", 1), trn("{count} row", "{count} rows", 1200)
    ('1 row', '1,200 rows')
    """
    chosen = catalogue()
    forms = chosen.forms.get(one)
    english = one if number == 1 else many
    text = forms[min(chosen.form_of(number), len(forms) - 1)] if forms else english
    return _filled(text, {"count": grouped(f"{number:,}"), **values})


class _Sentences(Formatter):
    """Fills sentences as `str.format` does, with numbers of this language."""

    def format_field(self, value: Any, form: str) -> str:
        text: str = super().format_field(value, form)
        return grouped(text) if "," in form else text


def _filled(text: str, values: Mapping[str, object]) -> str:
    if language() == ENGLISH:
        return text.format(**values)
    return _Sentences().vformat(text, (), values)


def grouped(number: str) -> str:
    """Return a number whose thousands are grouped by commas as the language of this process groups them."""
    if "," not in number or language() == ENGLISH:
        return number
    return number.replace(",", GROUPS)


def marked(sentence: str) -> str:
    """Return a sentence as it is: it is in the catalogues, and `tr` translates it when it is shown."""
    return sentence


def catalogue() -> Catalogue:
    """Return the catalogue of this process."""
    return _read(language())


def language() -> str:
    """Return the code of the language of this process: that of a catalogue, or "en"."""
    return _chosen(tuple(os.environ.get(name, "") for name in VARIABLES))


def choose(code: str) -> None:
    """Have this process, and those that it starts from now on, speak a language."""
    os.environ[VARIABLE] = code


@lru_cache(maxsize=16)
def _chosen(values: tuple[str, ...]) -> str:
    """Return the first language that the first variable with a value names, and that there is.

    >>> _chosen(("", "", "", "", "de_AT.UTF-8")), _chosen(("", "xx:de", "", "C", "")), _chosen(("en", "de", "", "", ""))
    ('de', 'de', 'en')
    """
    value = next(filter(None, values), ENGLISH)
    codes = (re.split(r"[_.@-]", each)[0].lower() for each in value.split(":"))
    return next((code for code in codes if code in names()), ENGLISH)


@cache
def names() -> dict[str, str]:
    """Return the languages that there are, by code, as they call themselves."""
    named = {ENGLISH: "English"}
    for file in files():
        header = file.read_text("utf-8").partition("\n\n")[0]
        match = re.search(r"X-Language-Name: (.+?)\\n", header)
        named[file.stem] = match[1] if match else file.stem
    return named


def files() -> list[Path]:
    """Return the catalogues, by code."""
    return sorted(resources.path("languages").glob("*.po"))


@cache
def _read(code: str) -> Catalogue:
    file = next((file for file in files() if file.stem == code), None)
    if file is None:
        return Catalogue({}, lambda _number: 0)
    header, *entries = read(file.read_text("utf-8"))
    rule = re.search(r"plural=([^;]+);", "".join(header.forms))
    forms = {entry.one: entry.forms for entry in entries if entry.is_usable}
    return Catalogue(forms, c2py(rule[1] if rule else "n != 1"))


def read(text: str) -> Iterator[Entry]:
    """Yield the entries of a .po file; the first one is its header.

    >>> [*read('msgid ""\\nmsgstr "Plural-Forms: ...;\\\\n"\\n\\n#, fuzzy\\nmsgid "row"\\nmsgstr "Zeile"')][1]
    Entry(one='row', many='', forms=('Zeile',), outdated=True)
    """
    for block in re.split(r"\n\s*\n", text):
        texts: dict[str, str] = {}
        key = ""
        for line in block.splitlines():
            if match := _LINE.fullmatch(line.strip()):
                key = match[1] or key
                texts[key] = texts.get(key, "") + json.loads(match[2])
        if "msgid" in texts:
            one, many = texts.pop("msgid"), texts.pop("msgid_plural", "")
            yield Entry(one, many, tuple(texts.values()), "#, fuzzy" in block)
