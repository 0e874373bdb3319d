"""The strip, the list of steps and the looks of what is played, without a window and with very many steps."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_values
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.autograd.playback.memory_timeline import (
    categories,
    held_by_step,
    largest,
    released_by_step,
    stretches,
)
from app.autograd.tape import SavedTensor, Storage, Tape, TapeEdge, TapeNode
from app.views.autograd.graph.playback_paint import EdgeFlow, Played, width_of
from app.views.autograd.tape.player import Player
from app.views.autograd.tape.step_list import StepList
from app.views.autograd.tape.tape_page import TapePage, stopped_by
from app.views.autograd.tape.tape_strip import TapeStrip
from app.views.ui import theme

STEPS = 20_000


@pytest.fixture(autouse=True)
def styled(qapp) -> None:
    theme.apply(qapp, "dark")


def chain(steps: int = STEPS, layers: int = 40) -> Tape:
    """A chain of operations in layers of one length, each of which keeps 8 bytes."""
    nodes, storages = [], []
    for number in range(steps):
        saved = (SavedTensor("result", (2,), "float32", 8, "activation", number),)
        layer = f"layer{number * layers // steps}"
        nodes.append(
            TapeNode(
                number, "SinBackward0", layer, 1, sequence=steps - number, saved=saved
            )
        )
        storages.append(Storage(number, 8, "activation", (number,), number))
    edges = tuple(
        TapeEdge(number, 0, number + 1, 0, (2,)) for number in range(steps - 1)
    )
    return Tape(
        tuple(nodes), edges, (0,), tuple(range(steps)), tuple(storages), 1.0, True
    )


def test_stretches_cover_the_order_and_let_go_of_everything() -> None:
    tape = chain(400, 8)
    pieces = stretches(tape)
    assert [piece.title for piece in pieces] == [
        f"layer{number}" for number in range(8)
    ]
    assert [(piece.first, piece.end) for piece in pieces] == [
        (50 * n, 50 * n + 50) for n in range(8)
    ]
    assert (
        sum(piece.released for piece in pieces)
        == tape.held_bytes
        == held_by_step(tape)[0]
    )
    assert held_by_step(tape)[-1] == 0 and released_by_step(tape) == [8] * 400
    assert len(largest(pieces)) == 3 and largest(pieces, share=0.5) == ()
    assert categories(tape) == [piece.category for piece in pieces for _ in range(50)]


def test_a_strip_of_very_many_steps_is_one_picture_that_is_made_once(qtbot) -> None:
    strip = TapeStrip()
    qtbot.addWidget(strip)
    strip.resize(900, 200)
    strip.show()
    strip.set_tape(chain())
    strip.grab()
    coming = strip._pictures[False]
    assert True not in strip._pictures, "what has been is painted once something has"
    strip.set_position(1)
    strip.grab()
    been = strip._pictures[True]
    for position in (7_000, STEPS):
        strip.set_position(position)
        strip.grab()
    kept = strip._pictures[False] is coming and strip._pictures[True] is been
    assert kept, "moving the head copies two parts of it"
    with qtbot.waitSignal(strip.sought) as sought:
        QTest.mouseClick(
            strip,
            Qt.MouseButton.LeftButton,
            pos=QPoint(round(strip.place_of(5_000).x()), 30),
        )
    assert abs(sought.args[0] - 5_000) <= STEPS / 800, "as near as a pixel is"
    strip.set_position(1_200)
    for key, position in (
        (Qt.Key.Key_Right, 1_201),
        (Qt.Key.Key_PageDown, 1_500),
        (Qt.Key.Key_PageUp, 1_000),
    ):
        with qtbot.waitSignal(strip.sought) as sought:
            QTest.keyClick(strip, key)
        assert sought.args == [position]
    strip.set_tape(None)
    strip.grab()


def test_no_line_of_the_grid_runs_through_words_and_they_are_as_high_as_the_text(
    qtbot, qapp
) -> None:
    strip = TapeStrip()
    qtbot.addWidget(strip)
    strip.resize(960, 200)
    strip.set_tape(chain(40, 4))
    picture = strip.grab().toImage()
    face = strip._face
    grid = {round(face.y(each)) for each in range(0, 400, 50)}
    crossed = [
        (words, y)
        for words in face.labels
        for y in grid
        if words.top() + 2 < y < words.bottom() - 2
    ]
    assert crossed, "some words lie where a line of the grid is"
    for words, y in crossed:
        assert picture.pixelColor(round(words.left()) - 2, y) == theme.current().plot
    high = face.labels[0].height()
    theme.apply(qapp, "dark", 1.5)
    strip.grab()
    grown = face.labels[0].height()
    theme.apply(qapp, "dark", 1.0)
    assert grown > 1.4 * high


def test_what_is_held_is_said_over_no_other_words(qtbot) -> None:
    strip, tape = TapeStrip(), chain(40, 4)
    qtbot.addWidget(strip)
    strip.resize(960, 150)
    strip.set_tape(tape)
    strip.grab()
    assert strip._face.labels
    nodes = tuple(
        with_values(node, layer="last") if node.id >= 38 else node
        for node in tape.nodes
    )
    storages = tuple(
        with_values(one, bytes=4000) if one.id >= 38 else one for one in tape.storages
    )
    strip.set_tape(
        replace(tape, nodes=nodes, storages=storages)
    )  # the last layer has less room than its words
    strip.grab()
    assert all(
        strip._face.plot.right() >= words.right() for words in strip._face.labels
    )
    strip.set_tape(tape)
    strip.grab()
    for position in range(41):
        area = strip.held_area(position, 90)
        assert strip.rect().contains(area.toRect()), position
        assert not any(area.intersects(words) for words in strip._face.labels), position


def test_a_list_of_very_many_steps_shows_where_it_is(qtbot) -> None:
    player = Player()
    steps = StepList(player)
    qtbot.addWidget(steps)
    steps.resize(220, 400)
    steps.show()
    player.set_tape(chain())
    model, view = steps.model, steps.view
    assert (
        model.rowCount() == STEPS + 40
        and steps.field.placeholderText() == "Filter 20,000 steps"
    )
    assert model.data(model.index(0)) == "layer0, frees 3.91 KiB" and model.data(
        model.index(1)
    ).startswith("1 Sin")
    steps._moved(0, 12_345)
    row = model.row_of(12_345)
    assert model.step_of(model.index(row)) == 12_345
    assert view.viewport().rect().contains(view.visualRect(model.index(row)).center())
    steps.field.setText("layer7")
    assert model.rowCount() == STEPS // 40 + 1
    steps.field.setText("nothing like that")
    assert model.rowCount() == 0 and steps._empty.isVisible()


def test_the_page_says_what_there_is_to_do_and_fits_a_narrow_window(qtbot) -> None:
    player = Player()
    page = TapePage(player)
    qtbot.addWidget(page)
    page.resize(760, 240)
    page.show()
    with qtbot.waitSignal(page.captureRequested):
        page.offer.button.click()
    player.set_tape(chain(30, 3))
    assert (
        page.count.text() == "1/30"
        and page.deck.state() == "at_start"
        and not page.let_go.isVisible()
    )
    assert page.minimumSizeHint().width() <= 760
    page.above.click()
    page.bound.set_value(2.5)
    page._bounded(2.5)
    assert player.norm_above == 2.5 and player.non_finite
    page.non_finite.click()
    assert not player.non_finite and stopped_by(None) == ""
    player.play()
    assert not player.keeps, "there is nothing to play it with"


@pytest.mark.parametrize(
    ("norm", "width"),
    [
        (0.001, 1.6),
        (1.0, 6.6),
        (1e9, 8.0),
        (1e-5, 1.0),
        (math.nan, 3.0),
        (math.inf, 3.0),
    ],
)
def test_arrows_are_as_wide_as_their_norms_logarithm(norm: float, width: float) -> None:
    assert width_of(norm) == pytest.approx(width)
    now = theme.current()
    flow = EdgeFlow(norm, True)
    assert flow.color(now) == (now.back if math.isfinite(norm) else now.error)
    assert flow.dashed == (norm == 1e-5)
    assert Played(2, 4).text == "2 of 4 run" and not Played(2, 4).finished
