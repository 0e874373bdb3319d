"""Blocks that a person keeps: saved with what they contain, offered, and taken into another project."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.builder.blocks import BlockError
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits, make_block
from app.builder.graph import Node
from app.project import library
from app.project.project import Project
from tests.builder.test_block_edits import made, ops


def nested() -> Project:
    """A project whose block Unit contains the block Half."""
    project, _ = made()
    project, _ = make_block.make_block(
        project, "Unit", ops(project), ("conv1", "relu"), "Half"
    )
    return project


def test_a_block_is_saved_with_what_it_contains(tmp_path: Path) -> None:
    path = library.save(nested(), "Unit", tmp_path / "blocks")
    found = library.read(tmp_path / "blocks")
    assert [entry.name for entry in found.entries] == ["Unit"]
    assert found.entries[0].path == path and set(found.entries[0].blocks) == {
        "Half",
        "Unit",
    }
    assert not found.unread


def test_no_folder_is_an_empty_library(tmp_path: Path) -> None:
    assert library.read(tmp_path / "nothing") == library.Library()


def test_files_that_are_no_blocks_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "bad.tape").write_text("{}")
    (tmp_path / "empty.tape").write_bytes(library.project_file.dumps(Project()))
    found = library.read(tmp_path)
    assert not found.entries
    assert sorted(path.name for path, _ in found.unread) == ["bad.tape", "empty.tape"]


def test_a_block_of_an_older_format_is_backed_up_and_the_backup_is_no_block(
    tmp_path: Path,
) -> None:
    path = library.save(nested(), "Unit", tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"tapedeck": 2', b'"tapedeck": 1'))
    library.save(nested(), "Unit", tmp_path)
    assert (tmp_path / "Unit.v1.tape").exists()
    found = library.read(tmp_path)
    assert [entry.path for entry in found.entries] == [path] and not found.unread


def test_a_taken_block_brings_what_it_contains(tmp_path: Path) -> None:
    library.save(nested(), "Unit", tmp_path)
    entry = library.read(tmp_path).entries[0]
    project, name = library.take(Project(), entry)
    assert name == "Unit" and project.blocks == nested().blocks
    assert library.take(project, entry) == (project, "Unit"), (
        "what is there already is not taken twice"
    )


def test_another_block_of_the_name_stays_and_the_new_one_gets_a_fresh_name(
    tmp_path: Path,
) -> None:
    library.save(nested(), "Unit", tmp_path)
    entry = library.read(tmp_path).entries[0]
    project, _ = make_block.make_block(nested(), "", ops(nested()), ("stem",), "Other")
    half = project.blocks["Half"]
    other = replace(half, graph=half.graph.with_param("conv1", "out_channels", 99))
    project = replace(project, blocks=project.blocks.set("Half", other))
    after, name = library.take(project, entry)
    assert name == "Unit2"
    assert after.blocks["Half"] == other and after.blocks["Half2"].graph == half.graph
    assert "block.Half2" in {
        node.op for node in after.blocks["Unit2"].graph.nodes.values()
    }
    again, same = library.take(after, entry)
    assert again == after and same == "Unit2"


def test_a_node_of_the_library_becomes_an_instance(tmp_path: Path) -> None:
    library.save(nested(), "Unit", tmp_path)
    found = library.read(tmp_path)
    offers = catalog().plus(library.offered(found, Project().blocks))
    assert [port.name for port in offers["library.Unit"].inputs] == ["input"]
    sheet, new = edits.add(Project(), offers, "library.Unit", (0.0, 0.0))
    project, sheet = library.with_library_blocks(Project(), sheet, found)
    assert sheet.graph.nodes[new] == Node(new, "block.Unit", "unit1")
    assert set(project.blocks) == {"Half", "Unit"}
    assert not list(library.offered(found, project.blocks)), (
        "what the project has is not offered twice"
    )
    with pytest.raises(BlockError, match="no longer in the library"):
        library.with_library_blocks(
            Project(),
            edits.add(Project(), offers, "library.Unit", (0.0, 0.0))[0],
            library.Library(),
        )


def test_a_block_that_is_not_there_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(BlockError):
        library.save(Project(), "Unit", tmp_path)
