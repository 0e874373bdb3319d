"""The bar under the charts by itself."""

from itertools import pairwise

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication

from app.features.revisit.timeline_bar import TimelineBar
from app.training.history import History
from app.training.loop import train
from tests.support.training_jobs import CONV_NET, job


def test_a_run_that_goes_on_lays_nothing_out_again(qtbot, qapp):
    """Each time would be a layout of the whole window, once a second, on a core that the run uses."""

    class LayoutRequests(QObject):
        count = 0

        def eventFilter(self, _watched, event):
            self.count += event.type() == QEvent.Type.LayoutRequest
            return False

    events = list(train(job(CONV_NET, epochs=3)))
    history, bar, half = History(), TimelineBar(), len(events) // 2
    qtbot.addWidget(bar)
    bar.resize(976, 40)
    history.extend(events[:half])
    bar.show_run(history, True)
    with qtbot.waitExposed(bar):
        bar.show()
    QApplication.processEvents()
    requests, shown = LayoutRequests(), set()
    qapp.installEventFilter(requests)
    for event in events[half:]:
        history.extend([event])
        bar.refresh()
        QApplication.processEvents()
        shown.add((bar.field.text(), bar._of.text()))
    qapp.removeEventFilter(requests)
    assert len(shown) > 5, "the figures changed"
    assert requests.count == 0


def test_what_finds_no_room_is_left_out_and_nothing_overlaps(qtbot):
    bar = TimelineBar()
    qtbot.addWidget(bar)
    with qtbot.waitExposed(bar):
        bar.show()
    parts = bar.field, bar.slider, bar.newest, bar.recompute, bar.more
    for width in (976, 480, 300):
        bar.resize(width, 40)
        QApplication.processEvents()
        shown = [part.geometry() for part in parts if part.isVisible()]
        assert all(a.right() < b.left() for a, b in pairwise(shown)), width
        assert shown[-1].right() <= width and len(shown) >= 3
