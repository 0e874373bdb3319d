"""Pictures of very many things in one place: what lies over the others is there first, and all of it in the end."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QColor, QImage, QPainter

from app.views.ui.graphview import sprites
from app.views.ui.graphview.sprites import SpriteRequest, Sprites

SCALE = (1.0, 1.0)


def things(count: int, step: int, made: list[int]) -> list[SpriteRequest]:
    """Squares of their own colours, each a step further to the right than the one under it."""

    def square(number: int) -> SpriteRequest:
        def paint(painter: QPainter) -> None:
            made.append(number)
            painter.fillRect(
                QRectF(0, 0, 40, 40), QColor(number % 256, number // 256, 99)
            )

        return SpriteRequest(
            QPointF(step * number, 0), number, 0, QRectF(0, 0, 40, 40), paint
        )

    return [square(number) for number in range(count)]


def drawn(
    pictures: Sprites, wanted: list[SpriteRequest], most: int | None
) -> tuple[QImage, bool]:
    image = QImage(1000, 40, QImage.Format.Format_RGB32)
    image.fill(0)
    painter = QPainter(image)
    complete = pictures.draw(painter, wanted, SCALE, False, most)
    painter.end()
    return image, complete


def test_of_a_thousand_things_in_one_place_those_that_are_seen_are_painted(
    qapp,
) -> None:
    made: list[int] = []
    wanted = things(1_000, 0, made)
    whole, _ = drawn(Sprites(), wanted, None)
    made.clear()
    some, complete = drawn(Sprites(), wanted, 200)
    assert complete and some == whole
    assert made == [999 - i for i in range(sprites.DEEP)]


def test_more_pictures_than_one_painting_makes_come_from_the_top_down_in_further_ones(
    qapp,
) -> None:
    made: list[int] = []
    wanted = things(500, 1, made)
    whole, _ = drawn(Sprites(), wanted, None)
    made.clear()
    pictures, rounds, complete = Sprites(), [], False
    while not complete:
        some, complete = drawn(pictures, wanted, 200)
        rounds.append(len(made))
    assert rounds == [200, 400, 500] and made[0] == 499
    assert some == whole


def test_where_the_room_for_pictures_is_full_no_painting_waits_for_another(
    qapp, monkeypatch
) -> None:
    monkeypatch.setattr(sprites, "KEPT", 300 * 40 * 40 * 4)
    made: list[int] = []
    wanted, pictures = things(500, 1, made), Sprites()
    assert not drawn(pictures, wanted, 200)[1]
    assert drawn(pictures, wanted, 200)[1] and len(made) <= 301
    drawn(pictures, wanted, 200)
    assert len(made) <= 302, "what lies on top keeps its pictures"
