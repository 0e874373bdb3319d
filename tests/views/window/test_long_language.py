"""Findings are shown whole in a language of long words, and what is read first is said in it."""

from __future__ import annotations

import re

from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from app.autograd.diagnostics.results import Finding
from app.util.language import tr
from app.views.ui.tables import FiguresTable
from tests.support.long_language import elisions as elisions
from tests.support.long_language import faults, in_sight, longest
from tests.support.long_language import long_words as long_words
from tests.support.long_language import spoken as spoken
from tests.support.whole_window import WholeWindow
from tests.views.window.test_cut_texts import Elisions

ACCENTED = re.compile("[áéíóúñçšž]")


def test_no_finding_is_cut(
    qtbot: QtBot, long_words: WholeWindow, elisions: Elisions
) -> None:
    long_words.pages.show("findings")
    page = long_words.findings_control.page
    page.stack.setCurrentWidget(page.list)
    cures = longest("diagnostics/nonfinite_reasons")
    rows = [
        Finding("none", "warning", tr("The network"), sentence, cure, line=12)
        for sentence, cure in zip(longest("diagnostics"), cures, strict=True)
    ]
    page.list.show_findings(rows, tr("Nothing found."), fine=False)
    found = faults(qtbot, long_words, page.list, elisions)
    assert len(page.list.findChildren(QLabel)) > len(rows)
    assert not found, "\n".join(sorted(found))


def test_what_a_newcomer_reads_first_is_said_in_the_language(
    qtbot: QtBot, long_words: WholeWindow
) -> None:
    long_words.start()
    canvas = long_words.canvas
    start = tr("Start with a net for these data")
    qtbot.waitUntil(lambda: canvas.empty.first.text() == start)
    long_words.pages.show("findings")
    texts = []
    for empty in (canvas.empty, long_words.findings_control.page.empty):
        qtbot.waitUntil(empty.isVisible)
        texts += [widget.text() for widget in in_sight(empty)]
    assert len(texts) >= 7
    english = [text for text in texts if not ACCENTED.search(text)]
    assert not english


def test_tabs_and_heads_of_findings_are_said_in_the_language(
    long_words: WholeWindow,
) -> None:
    page = long_words.findings_control.page
    texts = [button.text() for button in page.tabs.findChildren(QAbstractButton)]
    tables = page.findChildren(FiguresTable)
    texts += [column.title for table in tables for column in table.cells.columns]
    assert len(texts) > 20 and len(tables) == 3
    assert all(map(ACCENTED.search, texts))
