"""A random walk in and out of blocks: the sheet in front is always what stands there, wires always end at ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from app.builder.blocks import BlockError, block_of, contained
from app.builder.catalog.catalog import catalog
from app.builder.edits import blocks as block_edits
from app.builder.edits import edits, expand_block
from app.builder.edits import make_block as block_making
from app.builder.rules import ConnectError
from app.project import file, library
from app.project.document import Document
from app.project.project import Project
from app.views.navigation import Navigation, SheetDocument, block_at, way_to
from app.views.project_catalog import ProjectCatalog
from app.views.selection import NetworkSelection, Selection

OPS = ("input", "nn.ReLU", "nn.Linear", "operator.add", "output")
picks = st.integers(0, 10_000)


class Walk(RuleBasedStateMachine):
    """Edits of whatever sheet is in front, made as the views make them."""

    @initialize()
    def begin(self) -> None:
        self.document = Document(Project("walk"))
        self.catalog = ProjectCatalog(catalog(), self.document)
        self.place = Navigation(self.document)
        self.sheet = SheetDocument(self.document, self.place, self.catalog)
        self.selection = Selection()
        self.network = NetworkSelection(self.selection, self.place)
        self.told: list[tuple[Any, Any]] = []
        self.sheet.changed.connect(
            lambda before, after: self.told.append((before, after))
        )

    # -- hands --------------------------------------------------------------------------------------------------------

    def node(self, pick: int) -> str | None:
        nodes = list(self.sheet.project.graph.nodes)
        return nodes[pick % len(nodes)] if nodes else None

    def apply(self, make: Any) -> None:
        try:
            made = make()
        except (ConnectError, BlockError):
            return
        self.sheet.apply("edit", made[0] if isinstance(made, tuple) else made)

    def apply_whole(self, make: Any) -> None:
        try:
            made = make()
        except BlockError:
            return
        self.document.apply("edit", made[0] if isinstance(made, tuple) else made)

    # -- edits --------------------------------------------------------------------------------------------------------

    @rule(op=st.sampled_from(OPS), pick=picks)
    def add(self, op: str, pick: int) -> None:
        behind = self.node(pick)
        if behind is None:
            self.apply(
                lambda: edits.add(self.sheet.project, self.catalog, op, (0.0, 0.0))
            )
        else:
            self.apply(
                lambda: edits.add_behind(
                    self.sheet.project, self.catalog, op, behind, (0.0, 0.0)
                )
            )

    @rule(pick=picks)
    def add_instance(self, pick: int) -> None:
        blocks = list(self.document.project.blocks)
        if blocks:
            op = f"block.{blocks[pick % len(blocks)]}"
            self.apply(
                lambda: edits.add(self.sheet.project, self.catalog, op, (0.0, 0.0))
            )

    @rule(a=picks, b=picks)
    def connect(self, a: int, b: int) -> None:
        source, target = self.node(a), self.node(b)
        if source and target:
            ports = self.catalog.spec_of(
                self.sheet.project.graph, self.sheet.project.graph.nodes[target]
            ).inputs
            if ports:
                port = ports[a % len(ports)].name
                self.apply(
                    lambda: edits.connect(
                        self.sheet.project, self.catalog, source, 0, target, port
                    )
                )

    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        node = self.node(pick)
        if node:
            self.apply(lambda: edits.delete(self.sheet.project, [node]))

    @rule(pick=picks, name=st.sampled_from(["a", "b", "x", "input"]))
    def rename(self, pick: int, name: str) -> None:
        node = self.node(pick)
        if node:
            graph = self.sheet.project.graph.with_name(node, name)
            self.apply(lambda: replace(self.sheet.project, graph=graph))

    @rule(first=picks, second=picks)
    def make_block(self, first: int, second: int) -> None:
        nodes = {node for node in (self.node(first), self.node(second)) if node}
        project, sheet = self.document.project, self.place.block
        if len(project.blocks) < 5:
            name = block_making.suggested_name(project, sheet, self.catalog.now, nodes)
            self.apply_whole(
                lambda: block_making.make_block(
                    project, sheet, self.catalog.now, nodes, name
                )
            )

    @rule(pick=picks)
    def expand(self, pick: int) -> None:
        node, project = self.node(pick), self.document.project
        if node and len(self.sheet.project.graph.nodes) < 30:
            self.apply_whole(
                lambda: expand_block.expand(
                    project, self.place.block, self.catalog.now, node
                )
            )

    # -- ways ---------------------------------------------------------------------------------------------------------

    @rule(pick=picks)
    def enter(self, pick: int) -> None:
        node = self.node(pick)
        if node:
            inside = bool(block_of(self.sheet.project.graph.nodes[node].op))
            assert self.place.enter(node) is inside

    @rule()
    def leave(self) -> None:
        self.place.leave()

    @rule(pick=picks)
    def go(self, pick: int) -> None:
        blocks = list(self.document.project.blocks)
        way = (
            way_to(self.document.project, blocks[pick % len(blocks)])
            if blocks
            else None
        )
        if way is not None:
            assert (
                self.place.go_to(way) and self.place.block == blocks[pick % len(blocks)]
            )

    @rule(times=st.integers(1, 4))
    def undo(self, times: int) -> None:
        for _ in range(times):
            self.document.undo_stack.undo()

    @rule(times=st.integers(1, 4))
    def redo(self, times: int) -> None:
        for _ in range(times):
            self.document.undo_stack.redo()

    @rule(pick=picks)
    def select(self, pick: int) -> None:
        node = self.node(pick)
        self.selection.set([node] if node else [])

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def what_is_in_front_stands_there(self) -> None:
        if hasattr(self, "sheet"):
            name = block_at(self.document.project, self.place.path)
            assert self.sheet.project is block_edits.sheet_named(
                self.document.project, name
            )
            if self.told:
                assert self.told[-1][1] is self.sheet.project

    @invariant()
    def the_network_knows_the_instance_that_one_stands_in(self) -> None:
        if hasattr(self, "network") and self.place.path:
            assert self.network.ids == {self.place.path[0][0]}

    @invariant()
    def wires_end_at_ports(self) -> None:
        if not hasattr(self, "sheet"):
            return
        for _, sheet in block_edits.sheets(self.document.project):
            for edge in sheet.graph.edges:
                target, source = (
                    sheet.graph.nodes[edge.target],
                    sheet.graph.nodes[edge.source],
                )
                assert (
                    self.catalog.spec_of(sheet.graph, target).input(edge.port)
                    is not None
                )
                assert edge.output < len(
                    self.catalog.spec_of(sheet.graph, source).outputs
                )

    @invariant()
    def no_block_contains_itself(self) -> None:
        if hasattr(self, "document"):
            blocks = self.document.project.blocks
            assert not any(name in contained(name, blocks) for name in blocks)

    def teardown(self) -> None:
        if not hasattr(self, "document"):
            return
        last = self.document.project
        assert file.loads(file.dumps(last)) == last
        while self.document.undo_stack.canUndo():
            self.document.undo_stack.undo()
        assert self.document.project == Project("walk")
        assert self.place.path == ()


Walk.TestCase.settings = settings(
    stateful_step_count=40, suppress_health_check=list(HealthCheck)
)


@pytest.mark.usefixtures("qapp")
class TestWalk(Walk.TestCase):
    """Run by pytest with an application, which the undo stack wants."""


def test_an_edit_that_cannot_be_is_said_and_not_made(qtbot, tmp_path: Path) -> None:
    document = Document(Project())
    live = ProjectCatalog(catalog(), document)
    sheet = SheetDocument(document, Navigation(document), live)
    project, new = edits.add(Project(), live, "nn.ReLU", (0.0, 0.0))
    project, _ = block_making.make_block(project, "", live.now, [new], "Unit")
    library.save(project, "Unit", tmp_path)
    live.set_library(library.read(tmp_path))
    drawn, _ = edits.add(document.project, live, "library.Unit", (0.0, 0.0))
    live.set_library(library.Library())
    with qtbot.waitSignal(sheet.refused) as refused:
        sheet.apply("Add Unit", drawn)
    assert "no longer in the library" in refused.args[0]
    assert document.project == Project()
