"""The palette: find, drag, choose."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QModelIndex, QPoint, Qt
from PySide6.QtGui import QDrag
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.builder.catalog.catalog import catalog
from app.views.palette.palette import MIME, OpModel, Palette, fit, hint
from app.views.ui import fuzzy, theme
from app.views.ui.op_rows import node_picture


@pytest.fixture
def palette(qtbot: QtBot) -> Palette:
    view = Palette(catalog())
    qtbot.addWidget(view)
    view.resize(216, 700)
    with qtbot.waitExposed(view):
        view.show()
    return view


def visible_keys(palette: Palette) -> list[str]:
    """Keys of the ops that are shown, top to bottom."""
    model = palette.model
    tops = [model.index(row, 0) for row in range(model.rowCount())]
    ops = (
        model.spec(model.index(row, 0, top))
        for top in tops
        for row in range(model.rowCount(top))
    )
    return [spec.key for spec in ops if spec]


def test_in_high_contrast_a_selected_row_has_a_line_around_it(
    qapp: QApplication, palette: Palette
) -> None:
    index = palette.model.index(0, 0, palette.model.index(0, 0))
    palette.tree.setCurrentIndex(index)
    palette.field.setFocus()

    def colors() -> set[str]:
        area = palette.tree.visualRect(index)
        image = palette.tree.viewport().grab(area).toImage()
        return {
            image.pixelColor(x, image.height() // 2).name()
            for x in range(image.width())
        }

    assert theme.current().accent.name() not in colors()
    theme.apply(qapp, "contrast-dark")
    qapp.processEvents()
    assert theme.current().accent.name() in colors()


def test_every_op_is_there_once(palette: Palette) -> None:
    assert sorted(visible_keys(palette)) == sorted(catalog())
    model = palette.model
    for row in range(model.rowCount()):
        top = model.index(row, 0)
        assert model.rowCount(top) > 0 and not model.parent(top).isValid()
        assert model.parent(model.index(0, 0, top)) == top


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("conv2", "nn.Conv2d"),
        ("lin", "nn.Linear"),
        ("bn", "nn.BatchNorm2d"),
        ("F.relu", "F.relu"),
        ("maxp", "nn.MaxPool2d"),
    ],
)
def test_typing_finds_and_enter_adds(
    qtbot: QtBot, palette: Palette, typed: str, first: str
) -> None:
    palette.field.setFocus()
    qtbot.keyClicks(palette.field, typed)
    assert len(visible_keys(palette)) < len(catalog())
    with qtbot.waitSignal(palette.activated) as chosen:
        qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert chosen.args == [first]
    qtbot.keyClick(palette.field, Qt.Key.Key_Escape)
    assert len(visible_keys(palette)) == len(catalog())


def test_a_category_finds_what_is_in_it(palette: Palette) -> None:
    palette.field.setText("activation")
    assert {catalog()[key].category for key in visible_keys(palette)} == {"act"}


def test_nothing_that_fits_says_so(palette: Palette) -> None:
    palette.field.setText("zzz")
    assert palette.empty.isVisible() and palette.empty.title() == "No match"


def test_arrows_move_past_the_headings(qtbot: QtBot, palette: Palette) -> None:
    palette.field.setFocus()
    seen = []
    for _ in range(5):
        qtbot.keyClick(palette.field, Qt.Key.Key_Down)
        spec = palette.model.spec(palette.tree.currentIndex())
        assert spec is not None
        seen.append(spec.key)
    assert seen == visible_keys(palette)[:5]
    qtbot.keyClick(palette.field, Qt.Key.Key_Up)
    assert palette.model.spec(palette.tree.currentIndex()).key == seen[3]


def test_the_rows_are_for_the_keyboard_too(qtbot: QtBot, palette: Palette) -> None:
    palette.tree.setFocus()
    palette.tree.setCurrentIndex(palette.model.index_of("nn.Linear"))
    with qtbot.waitSignal(palette.activated) as chosen:
        qtbot.keyClick(palette.tree, Qt.Key.Key_Return)
    assert chosen.args == ["nn.Linear"]
    palette.tree.setCurrentIndex(palette.model.index(0, 0))
    qtbot.keyClick(palette.tree, Qt.Key.Key_Up)
    assert palette.field.hasFocus()


def test_a_heading_folds_and_stays_folded_after_a_search(
    qtbot: QtBot, palette: Palette
) -> None:
    top = palette.model.index(0, 0)
    assert palette.tree.isExpanded(top)
    click(qtbot, palette, top)
    assert not palette.tree.isExpanded(top)
    palette.field.setText("conv2d")
    assert palette.tree.isExpanded(palette.model.index(0, 0))
    palette.field.clear()
    assert not palette.tree.isExpanded(palette.model.index(0, 0))
    assert palette.tree.isExpanded(palette.model.index(1, 0))


def click(qtbot: QtBot, palette: Palette, index: QModelIndex) -> QPoint:
    place = palette.tree.visualRect(index).center()
    qtbot.mouseClick(palette.tree.viewport(), Qt.MouseButton.LeftButton, pos=place)
    return place


def test_double_click_adds(qtbot: QtBot, palette: Palette) -> None:
    place = click(qtbot, palette, palette.model.index_of("nn.Conv1d"))
    with qtbot.waitSignal(palette.activated) as chosen:
        qtbot.mouseDClick(palette.tree.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert chosen.args == ["nn.Conv1d"]


def test_dragging_a_row_out_carries_its_key(
    qtbot: QtBot, palette: Palette, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = []

    def run(drag: QDrag, *actions: object) -> Qt.DropAction:
        carried.append(
            (
                bytes(drag.mimeData().data(MIME).data()),
                drag.pixmap().size(),
                drag.mimeData().formats(),
            )
        )
        return Qt.DropAction.CopyAction

    monkeypatch.setattr(QDrag, "exec", run)
    view = palette.tree.viewport()
    start = palette.tree.visualRect(palette.model.index_of("nn.Conv2d")).center()
    qtbot.mousePress(view, Qt.MouseButton.LeftButton, pos=start)
    for step in range(1, 6):
        qtbot.mouseMove(view, start + QPoint(8 * step, 4 * step))
    qtbot.mouseRelease(view, Qt.MouseButton.LeftButton, pos=start + QPoint(40, 20))
    assert len(carried) == 1
    key, size, formats = carried[0]
    assert key == b"nn.Conv2d" and formats == [MIME] and size.height() >= 50


def test_headings_are_not_dragged(palette: Palette) -> None:
    model = palette.model
    assert not model.flags(model.index(0, 0)) & Qt.ItemFlag.ItemIsDragEnabled
    assert not model.mimeData([model.index(0, 0)]).formats()


def test_tool_tips_have_torchs_sentence(palette: Palette) -> None:
    palette.set_summaries({"nn.ReLU": "Applies the rectified linear unit."})
    tip = palette.model.data(
        palette.model.index_of("nn.ReLU"), Qt.ItemDataRole.ToolTipRole
    )
    assert tip == "torch.nn.ReLU\nApplies the rectified linear unit."


def test_hints_tell_ops_of_one_name_apart() -> None:
    assert [
        hint(catalog()[key]) for key in ("nn.Conv2d", "F.relu", "nn.ReLU", "torch.cat")
    ] == ["2d", "F", "", "torch"]


def test_every_op_has_a_picture_to_drag(palette: Palette) -> None:
    for spec in catalog().values():
        assert 76 <= node_picture(spec).width() <= 160


def test_letters_strewn_about_do_not_fit() -> None:
    assert fuzzy.score("gis", ("Regularisation", 1.0)) is None
    assert fit("conv", catalog()["nn.Conv2d"]) > fit(
        "conv", catalog()["nn.ConvTranspose2d"]
    )
    assert fuzzy.ranked("", ["b", "a"], lambda text: [(text, 1.0)]) == ["b", "a"]


def test_the_model_answers_for_no_index(qapp: QApplication) -> None:
    model = OpModel(catalog())
    assert model.data(QModelIndex()) is None
    assert model.rowCount(QModelIndex()) == model.rowCount()
