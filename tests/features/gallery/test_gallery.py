"""The gallery: a card for each example, painted in steps, to walk over by keys and to filter by typing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QSize, Qt
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph, Node
from app.features.gallery import values as examples
from app.features.gallery.gallery import PICTURE, GalleryDialog
from app.features.gallery.values import Facts
from app.project import file
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from app.views.engine_service import EngineService
from app.views.ui import theme, thumbnails
from app.views.ui.background import WorkerFailure
from app.views.ui.thumbnails import ThumbnailRequest, Thumbnails
from tests.support.builder_nets import chain


@pytest.fixture
def engine() -> Iterator[EngineService]:
    made = EngineService()
    yield made
    made.close()


@pytest.fixture
def gallery(qtbot: QtBot, engine: EngineService, tmp_path: Path) -> GalleryDialog:
    dialog = GalleryDialog(engine, tmp_path)
    qtbot.addWidget(dialog)
    with qtbot.waitExposed(dialog):
        dialog.show()
    qtbot.waitUntil(lambda: len(dialog.model.cards) == 1 + len(examples.paths()))
    return dialog


def titles(gallery: GalleryDialog) -> list[str]:
    return [gallery.model.index(row).data() for row in range(gallery.model.rowCount())]


def facts(project: Project, data_root: Path | None = None) -> Facts:
    return examples.facts(
        project,
        analyse(project.graph, with_blocks(catalog(), project.blocks)),
        data_root,
    )


# --- What is said


def test_what_is_said_of_an_example_is_read_and_counted() -> None:
    path = resource_path("examples", "digits.tape")
    example = examples.read(path)
    modules = [
        node
        for node in example.project.graph.nodes.values()
        if node.op in ("nn.Conv2d", "nn.Linear")
    ]
    assert example.layers == len(modules) and example.words
    told = facts(example.project)
    assert told.parameters == told.analysis.total_parameters > 0
    assert told.training == examples.OFFLINE and "trains offline" in told.data


def test_data_that_must_be_fetched_and_nets_without_data_are_told_apart(
    tmp_path: Path,
) -> None:
    mnist = examples.read(resource_path("examples", "MNIST net.tape"))
    told = facts(mnist.project, tmp_path)
    assert (
        told.training == examples.OFFLINE
        and "A stand-in for MNIST" in told.data
        and "12 MB" in told.data
    )
    plain = replace(
        mnist.project, data=replace(mnist.project.data, options=FrozenMap())
    )
    told = facts(plain, tmp_path)
    assert told.training == examples.DOWNLOAD and "12 MB" in told.data
    unet = examples.read(resource_path("examples", "U-Net.tape"))
    assert facts(unet.project).training == examples.OFFLINE
    assert facts(Project("none")).training == examples.BROKEN


def test_the_words_are_the_first_sentences_of_the_notes(tmp_path: Path) -> None:
    path = tmp_path / "a.tape"
    notes = "One of 1.5 things. And a\nsecond sentence. A third.\n\nMore."
    file.write(Project("a", chain(2), notes=notes), path)
    assert examples.read(path).words == "One of 1.5 things. And a second sentence."
    file.write(Project("a", chain(2)), path)
    assert examples.read(path).words == "ReLU"


def weighted(graph: Graph) -> Graph:
    for node in tuple(graph.nodes.values()):
        if node.op == "nn.ReLU":
            graph = graph.with_node(replace(node, op="nn.Linear"))
    return graph


def test_layers_with_weights_are_counted_alike_whatever_the_rest_is_written_as() -> (
    None
):
    counts = {
        path.stem: examples.read(path).layers
        for path in examples.paths()
        if path.stem in ("MNIST net", "digits", "MLP on digits", "CIFAR-10 net")
    }  # with F.relu and with nn.ReLU
    assert counts == {
        "MNIST net": 4,
        "digits": 4,
        "MLP on digits": 3,
        "CIFAR-10 net": 5,
    }


def test_layers_within_blocks_and_repetitions_are_counted() -> None:
    block = Block("Twice", weighted(chain(2)))
    graph = weighted(chain(1)).with_node(Node("b", "block.Twice", "b", repeat=3))
    graph = graph.with_node(Node("s", "nn.Linear", "s", shares="n0"))
    graph = graph.with_node(Node("r", "nn.ReLU", "r"))
    blocks = FrozenMap({"Twice": block})
    assert examples.layers(graph, blocks, with_blocks(catalog(), blocks)) == 1 + 3 * 2


# --- Pictures


def test_pictures_are_painted_in_turns_and_kept(qtbot: QtBot) -> None:
    painter = Thumbnails(QSize(120, 60))
    wanted = ThumbnailRequest("picture", Project("a", chain(6)), catalog())
    with qtbot.waitSignal(painter.ready) as made:
        painter.request(wanted)
        assert made.signal_triggered is False
    picture = made.args[1]
    image = picture.toImage()
    assert image.hasAlphaChannel() and any(
        image.pixelColor(x, 60).alpha() for x in range(image.width())
    )
    with qtbot.waitSignal(painter.ready, timeout=0) as again:
        painter.request(wanted)
    assert again.args[1].cacheKey() == picture.cacheKey()


def test_a_picture_of_many_nodes_needs_no_scene(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of 4,000 would take the window's thread for a minute."""
    monkeypatch.delattr(thumbnails, "CanvasScene")
    graph = chain(thumbnails.FEW + 1)
    positions = FrozenMap(
        {
            key: (200.0 * (n % 30), 100.0 * (n // 30))
            for n, key in enumerate(graph.nodes)
        }
    )
    painter = Thumbnails(QSize(120, 60))
    with qtbot.waitSignal(painter.ready) as made:
        painter.request(
            ThumbnailRequest("large", Project("a", graph, positions), catalog())
        )
    image = made.args[1].toImage()
    assert any(image.pixelColor(x, 60).alpha() for x in range(image.width()))


def test_another_theme_has_pictures_of_its_own(
    qtbot: QtBot, qapp, gallery: GalleryDialog
) -> None:
    path = examples.paths()[0]
    qtbot.waitUntil(lambda: path in gallery.model.pictures)
    before = gallery.model.pictures[path].cacheKey()
    other = "light" if theme.current().dark else "dark"
    theme.apply(qapp, other)
    qtbot.waitUntil(lambda: gallery.model.pictures[path].cacheKey() != before)


# --- The dialog


def test_each_example_has_a_card_with_a_picture_and_facts(
    qtbot: QtBot, gallery: GalleryDialog
) -> None:
    assert titles(gallery)[0] == "Blank project"
    assert set(titles(gallery)[1:]) == {path.stem for path in examples.paths()}
    qtbot.waitUntil(lambda: all(card.facts for card in gallery.model.cards[1:]))
    qtbot.waitUntil(lambda: set(examples.paths()) == set(gallery.model.pictures))
    spoken = gallery.model.index(2).data(Qt.ItemDataRole.AccessibleTextRole)
    assert "layers" in spoken and "parameters" in spoken and "offline" in spoken
    assert gallery.grab().width() > PICTURE.width()


def test_typing_filters_and_enter_opens_the_best(
    qtbot: QtBot, gallery: GalleryDialog
) -> None:
    qtbot.keyClicks(gallery.field, "residual")
    assert titles(gallery)[0] == "Residual net on digits"
    with qtbot.waitSignal(gallery.chosen) as chosen:
        qtbot.keyClick(gallery.field, Qt.Key.Key_Return)
    assert chosen.args[0].stem == "Residual net on digits" and not gallery.isVisible()


def test_what_nothing_is_called_says_so(qtbot: QtBot, gallery: GalleryDialog) -> None:
    qtbot.keyClicks(gallery.field, "qqqq")
    assert gallery.none.isVisible() and not gallery.open_button.isEnabled()
    qtbot.keyClick(gallery.field, Qt.Key.Key_Return)
    assert gallery.isVisible()


def test_arrows_walk_over_the_cards_from_the_field_and_letters_find_the_field(
    qtbot: QtBot, gallery: GalleryDialog
) -> None:
    assert gallery.open_button.text() == "New project"
    qtbot.keyClick(gallery.field, Qt.Key.Key_Right)
    assert (
        gallery.view.currentIndex().row() == 1
        and gallery.open_button.text() == "Open a copy"
    )
    qtbot.keyClick(gallery.field, Qt.Key.Key_Down)
    assert gallery.view.currentIndex().row() == 1 + gallery.view.columns
    qtbot.keyClick(gallery.field, Qt.Key.Key_Up)
    qtbot.keyClick(gallery.field, Qt.Key.Key_Left)
    gallery.view.setFocus()
    qtbot.keyClick(gallery.view, "u")
    assert gallery.field.text() == "u"
    with qtbot.waitSignal(gallery.chosen):
        qtbot.keyClick(gallery.view, Qt.Key.Key_Return)


def test_a_double_click_opens_and_the_blank_one_is_none(
    qtbot: QtBot, gallery: GalleryDialog
) -> None:
    area = gallery.view.visualRect(gallery.model.index(0))
    qtbot.mouseClick(
        gallery.view.viewport(), Qt.MouseButton.LeftButton, pos=area.center()
    )
    with qtbot.waitSignal(gallery.chosen) as chosen:
        qtbot.mouseDClick(
            gallery.view.viewport(), Qt.MouseButton.LeftButton, pos=area.center()
        )
    assert chosen.args == [None]


def test_a_closed_gallery_asks_nothing_more(
    qtbot: QtBot, gallery: GalleryDialog, engine: EngineService
) -> None:
    gallery.reject()
    assert not engine.busy


def test_an_example_that_cannot_be_analysed_does_not_stop_the_others(
    qtbot: QtBot, engine: EngineService, tmp_path: Path
) -> None:
    class Failing(EngineService):
        def ask(self, key, request, **then):
            if request.project.name == "digits":
                then["on_error"](WorkerFailure(RuntimeError("no memory"), ""))
                return None
            return super().ask(key, request, **then)

    failing = Failing()
    dialog = GalleryDialog(failing, tmp_path, paths=examples.paths()[:3])
    qtbot.addWidget(dialog)
    with qtbot.waitExposed(dialog):
        dialog.show()
    assert "digits" in {path.stem for path in examples.paths()[:3]}
    qtbot.waitUntil(
        lambda: sum(card.facts is not None for card in dialog.model.cards) == 2,
    )
    failing.close()


def test_the_empty_canvas_leads_here_and_a_copy_is_opened(qtbot: QtBot, qapp) -> None:
    from app.views.settings import Settings
    from tests.support.whole_window import WholeWindow

    window = WholeWindow(Settings("TapedeckTest", "gallery"))
    qtbot.addWidget(window)
    window.show()
    window.canvas.exampleRequested.emit()
    dialog = window.findChild(GalleryDialog)
    assert dialog is not None and dialog.isVisible()
    qtbot.waitUntil(lambda: len(dialog.model.cards) == 1 + len(examples.paths()))
    qtbot.keyClicks(dialog.field, "u-net")
    qtbot.keyClick(dialog.field, Qt.Key.Key_Return)
    assert window.document.project.name == "U-Net" and window.document.path is None
    window.document.apply("Change", replace(window.document.project, notes="mine"))
    window.document.undo_stack.setClean()
    window.close()
