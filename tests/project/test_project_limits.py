"""A file far larger than any net is refused with its place and the bound, or opens; the window stays usable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from pytestqt.qtbot import QtBot

from app import cli
from app.builder import limits
from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.graph import Node
from app.builder.layout import with_places
from app.project import file
from app.project.limits import LARGEST_FILE, MOST_VALUES
from app.project.module_paths import Layers
from app.views import files
from tests.slow.material.monsters import MONSTERS, ends, layers, nested, project
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

REFUSED = {
    "blocks nested 200 deep": ("nested more than 64 deep", "$.blocks["),
    "blocks nested 2000 deep": ("2,000 blocks", "1,000", "$.blocks"),
    "30 blocks, each holding the next twice": ("200,000 are allowed", "$.blocks["),
    "100000 loose nodes": ("100,000 nodes", "5,500", "$.graph.nodes"),
    "repeats in repeats, 1,000 x 1,000 x 1,000": ("1,003,002 calls", "$.blocks[1]"),
    "20,000 groups of parameters": ("20,000 entries", "$.training.groups"),
    "a wire with 100,000 bends": ("100,000 bends", "$.bends"),
    "a block with 2,000 parameters": ("2,000 parameters", "$.blocks[0].params"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_monster_is_refused_with_its_place_and_the_bound(name: str) -> None:
    with pytest.raises(file.ProjectFileError) as refused:
        file.loads(MONSTERS[name]())
    assert all(words in str(refused.value) for words in REFUSED[name]), refused.value


@pytest.mark.parametrize(
    "data", [b" " * (LARGEST_FILE + 1), b"[" + b"1," * (MOST_VALUES + 1) + b"1]"]
)
def test_a_file_with_too_much_in_it_is_refused_before_it_is_parsed(data: bytes) -> None:
    with pytest.raises(file.ProjectFileError, match="the limit for a project"):
        file.loads(data)


def test_the_command_says_which_bound_a_file_is_beyond(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep.tape"
    path.write_bytes(MONSTERS["blocks nested 200 deep"]())
    assert cli.run(["check", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "nested more than 64 deep" in told


def test_blocks_as_deep_as_they_may_be_are_checked_and_written() -> None:
    opened = file.loads(json.dumps(nested(limits.DEEPEST)).encode())
    answer = analyse(opened.graph, with_blocks(catalog(), opened.blocks))
    assert not answer.errors and answer.source.text.count("class B") == limits.DEEPEST
    with pytest.raises(file.ProjectFileError, match="nested more than"):
        file.loads(json.dumps(nested(limits.DEEPEST + 1)).encode())


def test_the_layers_of_a_net_of_many_instances_are_found_without_listing_them() -> None:
    opened = file.loads(json.dumps(nested(15, 2)).encode())
    found = Layers(opened, analyse(opened.graph, with_blocks(catalog(), opened.blocks)))
    first = next(iter(found)).path
    assert (
        found.has(first)
        and found.has(f"{first}.anything.in.it")
        and not found.has("nothing")
    )
    assert list(found.frozen()) == []


def test_nesting_counts_every_instance_and_repetition() -> None:
    opened = file.loads(json.dumps(nested(12, 2)).encode())
    limits.check_nesting(opened.graph.nodes.values(), opened.blocks)
    often = [Node("n", "block.B11", "n", repeat=100)]
    with pytest.raises(limits.TooLargeError, match="the network makes 1,433,300 calls"):
        limits.check_nesting(often, opened.blocks)


def test_nodes_without_places_get_some_below_those_that_have_one() -> None:
    raw = project(ends(*layers(400)))
    raw["positions"] = {"n0": [0, 0], "n1": [200, 50]}
    placed = with_places(file.loads(json.dumps(raw).encode()))
    assert placed.positions.keys() == placed.graph.nodes.keys() and placed.positions[
        "n1"
    ] == (200.0, 50.0)
    assert (
        min(y for node, (_, y) in placed.positions.items() if node not in ("n0", "n1"))
        > 50
    )


# --- In the window


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    return window


def test_a_refused_file_leaves_the_project_its_steps_and_the_window(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    window.canvas.add_op("nn.ReLU")
    before = window.document.project
    for name in REFUSED:
        path = tmp_path / "monster.tape"
        path.write_bytes(MONSTERS[name]())
        assert not window.files.open(path)
        assert REFUSED[name][0] in window.banner.reason()
        assert (
            window.document.project is before and window.document.undo_stack.canUndo()
        )
    window.document.undo_stack.undo()
    assert len(window.document.project.graph.nodes) == len(before.graph.nodes) - 1
    window.document.new()
    assert not window.canvas.scene.nodes


def test_an_edit_beyond_the_bounds_is_refused_since_no_file_could_hold_it(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    path = tmp_path / "often.tape"
    path.write_bytes(json.dumps(nested(12, 2)).encode())
    assert window.files.open(path)
    before = window.document.project
    (instance,) = (
        key for key, node in before.graph.nodes.items() if node.op == "block.B11"
    )
    often = before.graph.with_node(replace(before.graph.nodes[instance], repeat=100))
    with qtbot.waitSignal(window.sheet.refused) as refused:
        window.sheet.apply("Repeat", replace(before, graph=often))
    assert (
        window.document.project is before and "200,000 are allowed" in refused.args[0]
    )


def test_a_large_sheet_is_whole(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    path = tmp_path / "chain.tape"
    path.write_bytes(MONSTERS["a chain of 1000 nodes"]())
    assert path.stat().st_size > files.SMALL, "it is read beside the window"
    assert window.files.open(path)
    scene = window.canvas.scene
    added = window.canvas.add_op("nn.ReLU")
    qtbot.waitUntil(lambda: window.live.up_to_date)
    graph = window.document.project.graph
    assert scene.nodes.keys() == graph.nodes.keys() and scene.wires.keys() == set(
        graph.edges
    )
    assert added in scene.nodes and scene.positions == window.document.project.positions
    assert all(
        (item.x(), item.y()) == scene.positions[node]
        for node, item in scene.nodes.items()
    )
    window.document.undo_stack.undo()
    assert added not in scene.nodes
    window.document.new()
    assert (
        not scene.nodes
        and not scene.wires
        and not scene.index.inside(scene.sceneRect())
    )
