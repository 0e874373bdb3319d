"""A random walk of edits through the document: undone, it ends in the first project exactly; redone, in the last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app import project_file
from app.builder import edits, rules, tidy
from app.builder.arrange import DEFAULT, arrange, complete
from app.builder.catalog import catalog
from app.builder.graph import Edge
from app.builder.params import ParamError, check_param
from app.builder.problems import Cure, InsertBefore, RemoveNode, SetParam, apply_cure
from app.document import Document
from app.frozen import FrozenMap
from app.project import Project
from app.training.config import Choice

OPS = catalog()
KEYS = ("input", "nn.Conv2d", "nn.ReLU", "nn.Linear", "nn.Flatten", "operator.add", "torch.cat", "nn.LSTM", "output")
points = st.tuples(st.integers(-500, 500).map(float), st.integers(-500, 500).map(float))
ops = st.sampled_from(KEYS)
picks = st.integers(0, 10_000)


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

    def node(self, pick: int) -> str:
        return list(self.project.graph.nodes)[pick % len(self.project.graph.nodes)]

    def some(self, pick: int) -> list[str]:
        return [node for i, node in enumerate(self.project.graph.nodes) if (pick >> (i % 12)) & 1]

    def wire(self, pick: int) -> Edge:
        return self.project.graph.edges[pick % len(self.project.graph.edges)]

    def apply(self, text: str, make: Any, merge: str | None = None) -> None:
        """Refusals are fine: they leave the project alone."""
        try:
            made = make()
        except (rules.ConnectError, ParamError):
            return
        self.document.apply(text, made[0] if isinstance(made, tuple) else made, merge)

    def has_nodes(self) -> bool:
        return bool(self.project.graph.nodes)

    def has_wires(self) -> bool:
        return bool(self.project.graph.edges)

    # -- edits --------------------------------------------------------------------------------------------------------

    @rule(op=ops, at=points)
    def add(self, op: str, at: tuple[float, float]) -> None:
        self.apply("add", lambda: edits.add(self.project, OPS, op, at))

    @precondition(has_nodes)
    @rule(op=ops, pick=picks, at=points)
    def add_behind(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply("add behind", lambda: edits.add_behind(self.project, OPS, op, self.node(pick), at))

    @precondition(has_nodes)
    @rule(op=ops, pick=picks, at=points)
    def add_after(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply("add after", lambda: edits.add_after(self.project, OPS, op, self.node(pick), 0, at))

    @precondition(has_nodes)
    @rule(op=ops, pick=picks, at=points)
    def add_before(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply("add before", lambda: edits.add_before(self.project, OPS, op, self.node(pick), "input", at))

    @precondition(has_wires)
    @rule(op=ops, pick=picks, at=points)
    def insert(self, op: str, pick: int, at: tuple[float, float]) -> None:
        self.apply("insert", lambda: edits.insert(self.project, OPS, op, self.wire(pick), at))

    @precondition(has_nodes)
    @rule(a=picks, b=picks, port=st.sampled_from(["input", "other", "tensors", "hx"]))
    def connect(self, a: int, b: int, port: str) -> None:
        self.apply("connect", lambda: edits.connect(self.project, OPS, self.node(a), 0, self.node(b), port))

    @precondition(has_wires)
    @rule(pick=picks, b=picks)
    def move_end(self, pick: int, b: int) -> None:
        self.apply("move end", lambda: edits.move_end(self.project, OPS, self.wire(pick), self.node(b), "input"))

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
        self.apply("reconnect", lambda: edits.delete_and_reconnect(self.project, OPS, self.some(pick)[:2]))

    @precondition(has_nodes)
    @rule(pick=picks, by=points)
    def move(self, pick: int, by: tuple[float, float]) -> None:
        self.apply("move", lambda: edits.move(self.project, self.some(pick), *by))

    @precondition(has_nodes)
    @rule(pick=picks, by=points)
    def nudge(self, pick: int, by: tuple[float, float]) -> None:
        self.apply("nudge", lambda: edits.move(self.project, [self.node(pick)], *by), merge="nudge")

    @precondition(has_nodes)
    @rule(pick=picks, at=points)
    def place(self, pick: int, at: tuple[float, float]) -> None:
        self.apply("place", lambda: edits.place(self.project, {self.node(pick): at}))

    @precondition(has_nodes)
    @rule(pick=picks)
    def paste(self, pick: int) -> None:
        if len(self.project.graph.nodes) < 40:
            self.apply("paste", lambda: edits.paste(self.project, edits.copy(self.project, self.some(pick)), 32, 32))

    @precondition(has_nodes)
    @rule(pick=picks, op=ops)
    def replace_op(self, pick: int, op: str) -> None:
        self.apply("replace", lambda: edits.replace_op(self.project, OPS, self.node(pick), op))

    @precondition(has_nodes)
    @rule(pick=picks, flag=st.sampled_from(["muted", "frozen"]), on=st.booleans())
    def flag(self, pick: int, flag: str, on: bool) -> None:
        nodes = edits.flaggable(self.project, OPS, self.some(pick), flag)
        self.apply(flag, lambda: edits.flagged(self.project, nodes, flag, on))

    @precondition(has_nodes)
    @rule(pick=picks, name=st.text(max_size=8))
    def rename(self, pick: int, name: str) -> None:
        graph = self.project.graph.with_name(self.node(pick), name)
        self.apply("rename", lambda: replace(self.project, graph=graph))

    @precondition(has_nodes)
    @rule(pick=picks, value=st.one_of(st.integers(1, 99), st.booleans(), st.just((3, 3))), burst=st.booleans())
    def set_param(self, pick: int, value: Any, burst: bool) -> None:
        node = self.project.graph.nodes[self.node(pick)]
        params = OPS[node.op].params
        if params:
            param = params[pick % len(params)]

            def make() -> Project:
                check_param(param, value)
                return replace(self.project, graph=self.project.graph.with_param(node.id, param.name, value))

            self.apply("set", make, f"{node.id}.{param.name}" if burst else None)

    @precondition(has_nodes)
    @rule(pick=picks)
    def reset_param(self, pick: int) -> None:
        node = self.project.graph.nodes[self.node(pick)]
        if node.params:
            name = sorted(node.params)[pick % len(node.params)]
            graph = self.project.graph.without_param(node.id, name)
            self.apply("reset", lambda: replace(self.project, graph=graph))

    @precondition(has_nodes)
    @rule(pick=picks, edge=st.sampled_from(tidy.EDGES))
    def align(self, pick: int, edge: str) -> None:
        sizes = dict.fromkeys(self.project.graph.nodes, DEFAULT)
        self.apply("align", lambda: tidy.align(self.project, self.some(pick), sizes, edge))

    @precondition(has_nodes)
    @rule(pick=picks, axis=st.sampled_from(tidy.AXES))
    def distribute(self, pick: int, axis: str) -> None:
        sizes = dict.fromkeys(self.project.graph.nodes, DEFAULT)
        self.apply("distribute", lambda: tidy.distribute(self.project, self.some(pick), sizes, axis))

    @precondition(has_nodes)
    @rule()
    def lay_out(self) -> None:
        places = arrange(self.project.graph, dict.fromkeys(self.project.graph.nodes, DEFAULT))
        self.apply("lay out", lambda: replace(self.project, positions=places))

    @precondition(has_nodes)
    @rule(pick=picks, kind=st.sampled_from(["insert", "set", "remove"]))
    def cure(self, pick: int, kind: str) -> None:
        node = self.node(pick)
        if kind == "set" and self.project.graph.nodes[node].op != "nn.Linear":
            return
        edit = {
            "insert": InsertBefore(node, "input", "nn.Flatten"),
            "set": SetParam(node, "out_features", 3),
            "remove": RemoveNode(node),
        }[kind]
        graph = apply_cure(self.project.graph, OPS, Cure("mend", (edit,)))
        places = complete(graph, self.project.positions, dict.fromkeys(graph.nodes, DEFAULT))
        self.apply("cure", lambda: replace(self.project, graph=graph, positions=places))

    @rule(text=st.text(max_size=20))
    def notes(self, text: str) -> None:
        self.apply("notes", lambda: replace(self.project, notes=text), merge="notes")

    @rule(epochs=st.integers(1, 50), lr=st.floats(1e-5, 1.0))
    def training(self, epochs: int, lr: float) -> None:
        chosen = replace(self.project.training, epochs=epochs, optimizer=Choice("SGD", FrozenMap(lr=lr)))
        self.apply("training", lambda: replace(self.project, training=chosen))

    @rule(seed=st.integers(0, 99))
    def data(self, seed: int) -> None:
        self.apply("data", lambda: replace(self.project, data=replace(self.project.data, split_seed=seed)))

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def every_wire_is_between_nodes_that_are_there(self) -> None:
        if hasattr(self, "document"):
            nodes = self.project.graph.nodes
            assert all(edge.source in nodes and edge.target in nodes for edge in self.project.graph.edges)

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
        assert project_file.loads(project_file.dumps(last)).graph == last.graph


EditWalk.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_there_are_twenty_kinds_of_edit() -> None:
    assert len(rules_of_the_walk()) >= 20


def rules_of_the_walk() -> set[str]:
    """The kinds of edit, by the names of their rules."""
    marked = (name for name, value in vars(EditWalk).items() if hasattr(value, "hypothesis_stateful_rule"))
    return set(marked)


@pytest.mark.usefixtures("qapp")
class TestEditWalk(EditWalk.TestCase):
    """Run by pytest with an application, which the undo stack wants."""
