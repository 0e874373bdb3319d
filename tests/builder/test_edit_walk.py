"""A random walk of edits through the document: undone, it ends in the first project exactly; redone, in the last."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec.structs import replace

from app.builder import layout, rules
from app.builder.arrange import DEFAULT, Size, complete
from app.builder.blocks import PREFIX, BlockError, block_of, used, with_blocks
from app.builder.catalog.catalog import Catalog, UnknownOpError, catalog
from app.builder.diagnostics.problems import (
    Cure,
    InsertBefore,
    RemoveNode,
    SetParam,
    apply_cure,
)
from app.builder.edits import (
    alignment,
    bends,
    block_params,
    blocks,
    comments,
    edits,
    expand_block,
    unfolding,
)
from app.builder.edits import (
    make_block as block_making,
)
from app.builder.edits.comments import Area
from app.builder.graph import Edge, GraphError, Init
from app.builder.params import ParamError, check_param
from app.builder.sheet import COMMENT, Comment
from app.project import file
from app.project.document import Document
from app.project.project import Project
from app.training.config import Choice
from app.util.frozen import FrozenMap

BASE = catalog()
KEYS = (
    "input",
    "nn.Conv2d",
    "nn.ReLU",
    "nn.Linear",
    "nn.Flatten",
    "operator.add",
    "torch.cat",
    "nn.LSTM",
    "output",
    "Tensor.size",
    "Tensor.view",
    "number",
)
ROOM = Size(1200, 700, 0)
REFUSALS = (rules.ConnectError, ParamError, BlockError, GraphError, UnknownOpError)
points = st.tuples(st.integers(-500, 500).map(float), st.integers(-500, 500).map(float))
keys = st.sampled_from(KEYS)
picks = st.integers(0, 10_000)


def unfolded_sizes(project: Project, name: str) -> list[dict[str, Size]]:
    """An unfolded block is larger, and larger still with more unfolded in it."""

    def size(node: str) -> Size:
        inside = project.blocks.get(block_of(sheet.graph.nodes[node].op))
        if node not in sheet.unfolded or inside is None:
            return DEFAULT
        return Size(
            400.0 + 160 * len(inside.unfolded), 200.0 + 64 * len(inside.unfolded), 56.0
        )

    sheet = blocks.sheet_named(project, name)
    return [{node: size(node) for node in sheet.graph.nodes}]


class EditWalk(RuleBasedStateMachine):
    """Each rule is one kind of edit, made as the views make it: `document.apply(text, project)`."""

    @initialize()
    def begin(self) -> None:
        self.first = Project("walk")
        self.document = Document(self.first)

    # -- hands --------------------------------------------------------------------------------------------------------

    @property
    def project(self) -> Project:
        return self.document.project

    @property
    def ops(self) -> Catalog:
        return with_blocks(BASE, self.project.blocks)

    @property
    def sizes(self) -> Any:
        return dict.fromkeys(self.project.graph.nodes, DEFAULT)

    def note(self, pick: int) -> str:
        return list(self.project.comments)[pick % len(self.project.comments)]

    def block(self, pick: int) -> str:
        return list(self.project.blocks)[pick % len(self.project.blocks)]

    def instance(self, pick: int) -> str:
        """A node that is an instance of a block, or any if none is."""
        graph = self.project.graph
        found = [node.id for node in graph.nodes.values() if block_of(node.op)]
        return found[pick % len(found)] if found else self.node(pick)

    def node(self, pick: int) -> str:
        return list(self.project.graph.nodes)[pick % len(self.project.graph.nodes)]

    def some(self, pick: int) -> list[str]:
        return [
            node
            for i, node in enumerate(self.project.graph.nodes)
            if (pick >> (i % 12)) & 1
        ]

    def wire(self, pick: int) -> Edge:
        return self.project.graph.edges[pick % len(self.project.graph.edges)]

    def apply(self, text: str, make: Any, merge: str | None = None) -> None:
        """Refusals are fine: they leave the project alone."""
        try:
            made = make()
        except REFUSALS:
            return
        self.document.apply(text, made[0] if isinstance(made, tuple) else made, merge)

    def has_nodes(self) -> bool:
        return bool(self.project.graph.nodes)

    def has_wires(self) -> bool:
        return bool(self.project.graph.edges)

    def has_notes(self) -> bool:
        return bool(self.project.comments)

    def has_bends(self) -> bool:
        return bool(self.project.bends)

    def has_blocks(self) -> bool:
        return bool(self.project.blocks)

    def has_nodes_and_blocks(self) -> bool:
        return self.has_nodes() and self.has_blocks()

    # -- edits --------------------------------------------------------------------------------------------------------

    @rule(op=keys, at=points)
    def add(self, op: str, at: tuple[float, float]) -> None:
        self.apply("add", lambda: edits.add(self.project, self.ops, op, at))

    @precondition(has_nodes)
    @rule(op=keys, pick=picks, at=points)
    def add_behind(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply(
            "add behind",
            lambda: edits.add_behind(self.project, self.ops, op, self.node(pick), at),
        )

    @precondition(has_nodes)
    @rule(op=keys, pick=picks, at=points)
    def add_after(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply(
            "add after",
            lambda: edits.add_after(self.project, self.ops, op, self.node(pick), 0, at),
        )

    @precondition(has_nodes)
    @rule(op=keys, pick=picks, at=points)
    def add_before(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply(
            "add before",
            lambda: edits.add_before(
                self.project, self.ops, op, self.node(pick), "input", at
            ),
        )

    @precondition(has_wires)
    @rule(op=keys, pick=picks, at=points)
    def insert(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply(
            "insert",
            lambda: edits.insert(self.project, self.ops, op, self.wire(pick), at),
        )

    @precondition(has_nodes)
    @rule(
        a=picks,
        b=picks,
        port=st.sampled_from(
            ["input", "other", "tensors", "hx", "size[0]", "size", "dim"]
        ),
    )
    def connect(self, a: int, b: int, port: str) -> None:
        self.apply(
            "connect",
            lambda: edits.connect(
                self.project, self.ops, self.node(a), 0, self.node(b), port
            ),
        )

    @precondition(has_wires)
    @rule(pick=picks, b=picks)
    def move_end(self, pick: int, b: int) -> None:
        self.apply(
            "move end",
            lambda: edits.move_end(
                self.project, self.ops, self.wire(pick), self.node(b), "input"
            ),
        )

    @precondition(has_wires)
    @rule(pick=picks)
    def cut(self, pick: int) -> None:
        self.apply("cut", lambda: edits.cut(self.project, [self.wire(pick)]))

    @precondition(has_nodes)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        self.apply("delete", lambda: edits.delete(self.project, self.some(pick)[:2]))

    @precondition(has_nodes)
    @rule(pick=picks)
    def delete_and_reconnect(self, pick: int) -> None:
        self.apply(
            "reconnect",
            lambda: edits.delete_and_reconnect(
                self.project, self.ops, self.some(pick)[:2]
            ),
        )

    @precondition(has_nodes)
    @rule(pick=picks, by=points)
    def move(self, pick: int, by: tuple[float, float]) -> None:
        self.apply("move", lambda: edits.move(self.project, self.some(pick), *by))

    @precondition(has_nodes)
    @rule(pick=picks, by=points)
    def nudge(self, pick: int, by: tuple[float, float]) -> None:
        self.apply(
            "nudge",
            lambda: edits.move(self.project, [self.node(pick)], *by),
            merge="nudge",
        )

    @precondition(has_nodes)
    @rule(pick=picks, at=points)
    def place(self, pick: int, at: tuple[float, float]) -> None:
        self.apply(
            "place", lambda: edits.move_nodes(self.project, {self.node(pick): at})
        )

    @precondition(has_nodes)
    @rule(pick=picks)
    def paste(self, pick: int) -> None:
        if len(self.project.graph.nodes) < 40:
            piece = edits.copy(
                self.project, self.some(pick), list(self.project.comments)[: pick % 3]
            )
            self.apply("paste", lambda: edits.paste(self.project, piece, 32, 32))

    @precondition(has_nodes)
    @rule(pick=picks, op=keys)
    def replace_op(self, pick: int, op: str) -> None:
        self.apply(
            "replace",
            lambda: edits.replace_op(self.project, self.ops, self.node(pick), op),
        )

    @precondition(has_nodes)
    @rule(pick=picks, flag=st.sampled_from(["muted", "frozen"]), on=st.booleans())
    def flag(self, pick: int, flag: str, on: bool) -> None:
        nodes = edits.flaggable(self.project, self.ops, self.some(pick), flag)
        self.apply(flag, lambda: edits.flagged(self.project, nodes, flag, on))

    @precondition(has_nodes)
    @rule(pick=picks, name=st.text(max_size=8))
    def rename(self, pick: int, name: str) -> None:
        graph = self.project.graph.with_name(self.node(pick), name)
        self.apply("rename", lambda: edits.changed(self.project, graph))

    @precondition(has_nodes)
    @rule(
        pick=picks,
        value=st.one_of(st.integers(1, 99), st.booleans(), st.just((3, 3))),
        burst=st.booleans(),
    )
    def set_param(self, pick: int, value: Any, burst: bool) -> None:
        node = self.project.graph.nodes[self.node(pick)]
        params = self.ops[node.op].params
        if params:
            param = params[pick % len(params)]

            def make() -> Project:
                check_param(param, value)
                return edits.changed(
                    self.project,
                    self.project.graph.with_param(node.id, param.name, value),
                )

            self.apply("set", make, f"{node.id}.{param.name}" if burst else None)

    @precondition(has_nodes)
    @rule(pick=picks)
    def reset_param(self, pick: int) -> None:
        node = self.project.graph.nodes[self.node(pick)]
        if node.params:
            name = sorted(node.params)[pick % len(node.params)]
            graph = self.project.graph.without_param(node.id, name)
            self.apply("reset", lambda: edits.changed(self.project, graph))

    @precondition(has_nodes)
    @rule(pick=picks, edge=st.sampled_from(alignment.EDGES))
    def align(self, pick: int, edge: str) -> None:
        sizes = dict.fromkeys(self.project.graph.nodes, DEFAULT)
        self.apply(
            "align", lambda: alignment.align(self.project, self.some(pick), sizes, edge)
        )

    @precondition(has_nodes)
    @rule(pick=picks, axis=st.sampled_from(alignment.AXES))
    def distribute(self, pick: int, axis: str) -> None:
        sizes = dict.fromkeys(self.project.graph.nodes, DEFAULT)
        self.apply(
            "distribute",
            lambda: alignment.distribute(self.project, self.some(pick), sizes, axis),
        )

    @precondition(has_nodes)
    @rule()
    def lay_out(self) -> None:
        self.apply(
            "lay out",
            lambda: layout.laid_out(self.project, self.project.graph.nodes, self.sizes),
        )

    @precondition(has_nodes)
    @rule(pick=picks)
    def lay_out_some(self, pick: int) -> None:
        self.apply(
            "lay out some",
            lambda: layout.laid_out(self.project, self.some(pick), self.sizes),
        )

    @precondition(has_nodes)
    @rule(pick=picks, kind=st.sampled_from(["insert", "set", "remove"]))
    def cure(self, pick: int, kind: str) -> None:
        node = self.node(pick)
        if kind == "set" and self.project.graph.owner(node).op != "nn.Linear":
            return
        edit = {
            "insert": InsertBefore(node, "input", "nn.Flatten"),
            "set": SetParam(node, "out_features", 3),
            "remove": RemoveNode(node),
        }[kind]
        graph = apply_cure(self.project.graph, self.ops, Cure("mend", (edit,)))
        places = complete(
            graph, self.project.positions, dict.fromkeys(graph.nodes, DEFAULT)
        )
        self.apply("cure", lambda: edits.changed(self.project, graph, places))

    # -- comments, frames, bends --------------------------------------------------------------------------------------

    @rule(text=st.text(max_size=12), at=points)
    def comment(self, text: str, at: tuple[float, float]) -> None:
        note = Comment(text, *at, 208.0, 64.0, COMMENT)
        self.apply("comment", lambda: comments.add(self.project, note))

    @precondition(has_nodes)
    @rule(pick=picks)
    def frame(self, pick: int) -> None:
        inside = self.some(pick) or [self.node(pick)]
        self.apply(
            "frame", lambda: comments.frame(self.project, inside, self.sizes, "frame")
        )

    @precondition(has_notes)
    @rule(pick=picks, text=st.text(max_size=12))
    def write(self, pick: int, text: str) -> None:
        self.apply("write", lambda: comments.write(self.project, self.note(pick), text))

    @precondition(has_notes)
    @rule(pick=picks, color=st.sampled_from(["", "conv", "loss"]))
    def tint(self, pick: int, color: str) -> None:
        self.apply(
            "tint", lambda: comments.tint(self.project, [self.note(pick)], color)
        )

    @precondition(has_notes)
    @rule(pick=picks, a=points, b=points)
    def resize(self, pick: int, a: tuple[float, float], b: tuple[float, float]) -> None:
        self.apply(
            "resize",
            lambda: comments.resize(self.project, self.note(pick), Area(*a, *b)),
        )

    @precondition(has_notes)
    @rule(pick=picks, by=points)
    def drag_note(self, pick: int, by: tuple[float, float]) -> None:
        held = comments.taken_along(self.project, [self.note(pick)], self.sizes)
        self.apply("drag", lambda: comments.shift(self.project, *held, *by))

    @precondition(has_notes)
    @rule()
    def fit_frames(self) -> None:
        self.apply(
            "fit", lambda: comments.fit(self.project, self.project.comments, self.sizes)
        )

    @precondition(has_notes)
    @rule(pick=picks)
    def remove_note(self, pick: int) -> None:
        self.apply(
            "remove note", lambda: comments.remove(self.project, [self.note(pick)])
        )

    @precondition(has_wires)
    @rule(pick=picks, at=points)
    def bend(self, pick: int, at: tuple[float, float]) -> None:
        self.apply(
            "bend",
            lambda: bends.add(
                self.project, self.wire(pick), at, (0.0, 0.0), (400.0, 0.0)
            ),
        )

    @precondition(has_bends)
    @rule(pick=picks, to=points)
    def move_bend(self, pick: int, to: tuple[float, float]) -> None:
        wire = list(self.project.bends)[pick % len(self.project.bends)]
        self.apply(
            "move bend", lambda: bends.move(self.project, wire, 0, to), merge="bend"
        )

    @precondition(has_bends)
    @rule(pick=picks, whole=st.booleans())
    def unbend(self, pick: int, whole: bool) -> None:
        wire = list(self.project.bends)[pick % len(self.project.bends)]
        if whole:
            self.apply("straighten", lambda: bends.with_points(self.project, wire, ()))
        else:
            self.apply("unbend", lambda: bends.remove(self.project, wire, 0))

    # -- modules ------------------------------------------------------------------------------------------------------

    @precondition(has_nodes)
    @rule(a=picks, b=picks)
    def share(self, a: int, b: int) -> None:
        graph = self.project.graph
        self.apply(
            "share",
            lambda: edits.changed(
                self.project, graph.with_shared(self.node(a), self.node(b))
            ),
        )

    @precondition(has_nodes)
    @rule(pick=picks)
    def unshare(self, pick: int) -> None:
        self.apply(
            "unshare",
            lambda: edits.changed(
                self.project, self.project.graph.unshared(self.node(pick))
            ),
        )

    @precondition(has_nodes)
    @rule(pick=picks, count=st.integers(1, 4))
    def repeat(self, pick: int, count: int) -> None:
        self.apply(
            "repeat",
            lambda: blocks.set_repeat(self.project, self.ops, self.node(pick), count),
        )

    @precondition(has_nodes)
    @rule(pick=picks, name=st.sampled_from(["kaiming_normal_", "zeros_"]))
    def initialise(self, pick: int, name: str) -> None:
        owner = self.project.graph.owner(self.node(pick))
        graph = self.project.graph.with_node(
            replace(owner, inits=owner.inits.set("weight", Init(name)))
        )
        self.apply("initialise", lambda: edits.changed(self.project, graph))

    # -- blocks -------------------------------------------------------------------------------------------------------

    @precondition(has_nodes)
    @rule(pick=picks)
    def make_block(self, pick: int) -> None:
        nodes = [
            node
            for node in self.some(pick)
            if self.project.graph.nodes[node].op not in ("input", "output")
        ]
        if nodes and len(self.project.blocks) < 4:
            name = f"Block{pick % 100}"
            self.apply(
                "make block",
                lambda: block_making.make_block(
                    self.project, "", self.ops, nodes, name
                ),
            )

    @precondition(has_blocks)
    @rule(pick=picks, at=points)
    def add_instance(self, pick: int, at: tuple[float, float]) -> None:
        self.apply(
            "instance",
            lambda: edits.add(self.project, self.ops, PREFIX + self.block(pick), at),
        )

    @precondition(has_nodes_and_blocks)
    @rule(pick=picks)
    def expand(self, pick: int) -> None:
        if len(self.project.graph.nodes) < 40:
            self.apply(
                "expand",
                lambda: expand_block.expand(
                    self.project, "", self.ops, self.instance(pick)
                ),
            )

    @precondition(has_nodes_and_blocks)
    @rule(pick=picks)
    def unfold(self, pick: int) -> None:
        wanted = {"": self.project.unfolded ^ {self.instance(pick)}}
        self.apply(
            "unfold",
            lambda: unfolding.with_unfolded(self.project, wanted, unfolded_sizes, ROOM),
        )

    @precondition(has_blocks)
    @rule(fold=st.booleans())
    def unfold_a_level(self, fold: bool) -> None:
        wanted = unfolding.one_level(self.project, "")
        if fold:
            wanted = dict.fromkeys(
                unfolding.shown_within(self.project, ""), frozenset()
            )
        self.apply(
            "level",
            lambda: unfolding.with_unfolded(self.project, wanted, unfolded_sizes),
        )

    @precondition(has_nodes_and_blocks)
    @rule(pick=picks)
    def make_unique(self, pick: int) -> None:
        self.apply(
            "make unique",
            lambda: blocks.make_unique(self.project, "", self.instance(pick)),
        )

    @precondition(has_blocks)
    @rule(pick=picks, name=st.sampled_from(["Stage", "Cell", "class"]))
    def rename_block(self, pick: int, name: str) -> None:
        self.apply(
            "rename block",
            lambda: blocks.rename_block(self.project, self.block(pick), name),
        )

    @precondition(has_blocks)
    @rule(pick=picks)
    def delete_block(self, pick: int) -> None:
        self.apply(
            "delete block", lambda: blocks.delete_block(self.project, self.block(pick))
        )

    @precondition(has_blocks)
    @rule(pick=picks, op=keys, at=points)
    def edit_inside(self, pick: int, op: str, at: tuple[float, float]) -> None:
        """All instances follow; an input more is a port more of each."""
        name = self.block(pick)

        def make() -> Project:
            inside, _ = edits.add(self.project.blocks[name], self.ops, op, at)
            return blocks.put_block(self.project, name, inside)

        self.apply("inside", make)

    @precondition(has_blocks)
    @rule(pick=picks)
    def delete_inside(self, pick: int) -> None:
        name = self.block(pick)
        nodes = list(self.project.blocks[name].graph.nodes)
        if nodes:
            inside = edits.delete(self.project.blocks[name], [nodes[pick % len(nodes)]])
            self.apply(
                "delete inside", lambda: blocks.put_block(self.project, name, inside)
            )

    @precondition(has_blocks)
    @rule(pick=picks, name=st.sampled_from(["channels", "width"]))
    def expose(self, pick: int, name: str) -> None:
        block = self.block(pick)
        nodes = list(self.project.blocks[block].graph.nodes.values())
        if nodes:
            node = nodes[pick % len(nodes)]
            params = self.ops.spec_of(self.project.blocks[block].graph, node).params
            if params:
                param = params[pick % len(params)].name
                self.apply(
                    "expose",
                    lambda: block_params.expose_param(
                        self.project, block, self.ops, node.id, param, name
                    ),
                )

    @rule(text=st.text(max_size=20))
    def notes(self, text: str) -> None:
        self.apply("notes", lambda: replace(self.project, notes=text), merge="notes")

    @rule(epochs=st.integers(1, 50), lr=st.floats(1e-5, 1.0))
    def training(self, epochs: int, lr: float) -> None:
        chosen = replace(
            self.project.training,
            epochs=epochs,
            optimizer=Choice("SGD", FrozenMap(lr=lr)),
        )
        self.apply("training", lambda: replace(self.project, training=chosen))

    @rule(seed=st.integers(0, 99))
    def data(self, seed: int) -> None:
        self.apply(
            "data",
            lambda: replace(
                self.project, data=replace(self.project.data, split_seed=seed)
            ),
        )

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def every_wire_is_between_nodes_that_are_there(self) -> None:
        if hasattr(self, "document"):
            nodes = self.project.graph.nodes
            assert all(
                edge.source in nodes and edge.target in nodes
                for edge in self.project.graph.edges
            )

    @invariant()
    def every_bend_is_of_a_wire_that_is_there(self) -> None:
        if hasattr(self, "document"):
            for sheet in (self.project, *self.project.blocks.values()):
                assert sheet.bends.keys() <= set(sheet.graph.edges) and all(
                    sheet.bends.values()
                )

    @invariant()
    def nothing_is_unfolded_that_is_not_there(self) -> None:
        if hasattr(self, "document"):
            for sheet in (self.project, *self.project.blocks.values()):
                assert sheet.unfolded <= sheet.graph.nodes.keys()

    @invariant()
    def no_edit_leaves_an_instance_of_a_block_that_is_gone(self) -> None:
        if hasattr(self, "document"):
            for sheet in (self.project, *self.project.blocks.values()):
                assert set(used(sheet.graph)) <= self.project.blocks.keys()

    def teardown(self) -> None:
        if not hasattr(self, "document"):
            return
        stack, last = self.document.undo_stack, self.document.project
        while stack.canUndo():
            stack.undo()
        assert self.document.project == self.first
        while stack.canRedo():
            stack.redo()
        assert self.document.project == last
        assert file.loads(file.dumps(last)) == last
        stack.clear()  # its commands know the document: without them it goes now, and not after the application
        del self.document


EditWalk.TestCase.settings = settings(
    stateful_step_count=40, suppress_health_check=list(HealthCheck)
)


def test_there_are_forty_kinds_of_edit() -> None:
    assert len(rules_of_the_walk()) >= 40


def rules_of_the_walk() -> set[str]:
    """The kinds of edit, by the names of their rules."""
    marked = (
        name
        for name, value in vars(EditWalk).items()
        if hasattr(value, "hypothesis_stateful_rule")
    )
    return set(marked)


@pytest.mark.usefixtures("qapp")
class TestEditWalk(EditWalk.TestCase):
    """Run by pytest with an application, which the undo stack wants."""
