"""The graph from afar: batches that look different are made anew, the others are painted as they are."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QGraphicsScene

from app.views.ui.graphview.overview import Batch, Overview, PaintLayer, batched
from app.views.ui.theme import Theme


class Square:
    def __init__(self, x: float, color: int) -> None:
        self.rect, self.color = QRectF(x, 0, 8, 8), color


class Squares(Batch[Square]):
    LAYERS = 2
    made = 0

    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        Squares.made += 1
        area = QRectF()
        for square in self.members:
            layers[0].fills[square.color].append(square.rect)
            layers[1].outlines[0xFFFFFFFF, 1].append(square.rect)
            area = area.united(square.rect)
        return area


class Row(Overview):
    def __init__(self, squares: list[Square]) -> None:
        super().__init__(QRectF(0, 0, 400, 8))
        self.found = batched(squares, (), Squares, 4)

    def batches(self) -> list[Squares]:
        return self.found


def picture(row: Row) -> QImage:
    scene = QGraphicsScene()
    scene.addItem(row)
    image = QImage(400, 8, QImage.Format.Format_RGB32)
    image.fill(0)
    painter = QPainter(image)
    scene.render(painter, QRectF(0, 0, 400, 8), QRectF(0, 0, 400, 8))
    painter.end()
    scene.removeItem(row)
    return image


def test_of_many_things_the_batch_of_the_one_that_changed_is_made_anew(qapp) -> None:
    squares = [Square(10.0 * i, 0xFF000000 + 1000 * i) for i in range(40)]
    row = Row(squares)
    before, made = picture(row), Squares.made
    assert picture(row) == before and Squares.made == made
    squares[17].color = 0xFFFF0000
    row.found[17 // 4].spoil()
    after = picture(row)
    assert Squares.made == made + 1
    assert after == picture(Row(squares)) != before
    assert after.pixel(174, 4) == 0xFFFF0000 and after.pixel(164, 4) == before.pixel(
        164, 4
    )


def test_batches_whose_members_stay_are_kept() -> None:
    squares = [Square(10.0 * i, 0xFF000000) for i in range(12)]
    before = batched(squares, (), Squares, 4)
    after = batched([*squares[:4], squares[7], *squares[8:]], before, Squares, 4)
    assert after[0] is before[0] and after[1] is not before[1]
    assert [one for batch in after for one in batch.members] == [
        *squares[:4],
        *squares[7:],
    ]
