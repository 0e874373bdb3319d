"""The coach is shown whole in a language of long words."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog
from pytestqt.qtbot import QtBot

from app.features.coach.feature import CoachFeature, CoachLine
from app.features.coach.values import Evidence, Remark, SamplePair
from app.util.language import tr
from tests.support.long_language import elisions as elisions
from tests.support.long_language import faults, longest
from tests.support.long_language import long_words as long_words
from tests.support.long_language import spoken as spoken
from tests.support.whole_window import WholeWindow
from tests.views.window.test_cut_texts import Elisions


def test_nothing_that_the_coach_says_is_cut(
    qtbot: QtBot, long_words: WholeWindow, elisions: Elisions
) -> None:
    (coach,) = (f for f in long_words.features if isinstance(f, CoachFeature))
    line = CoachLine(long_words)  # as wide as the curves, which show it with a run
    line.setGeometry(0, 0, long_words.centre.width(), line.height())
    line.show()
    evidence = Evidence(tr("Loss"), tr("step"), (1, 2), ((tr("loss"), (1, 2)),))
    pairs = (SamplePair(1, 2, (3, 4)),)
    numbers = ((tr("Best validation accuracy"), tr("unknown")),)
    found = set()
    for sentence in longest("features/coach/judgement"):
        remark = Remark("leak", sentence, numbers, evidence, pairs=pairs)
        line.show_remark(remark, tr("Stop and find a rate…"))
        found |= faults(qtbot, long_words, line, elisions)
        assert sentence in line.sentence.toolTip()
    for dialog in (coach.explain(remark), coach.show_place(remark)):
        found |= faults(qtbot, long_words, dialog, elisions)
    for dialog in long_words.findChildren(QDialog):
        dialog.close()
    assert not found, "\n".join(sorted(found))
