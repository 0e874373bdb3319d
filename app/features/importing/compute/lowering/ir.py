"""Drafts: nodes and wires of one sheet to be, with the drafts of submodules in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from app.features.importing.compute.tracing.source_lines import SourceLine
from app.util.errors import CodedError

Source = tuple[str, int]  # a node of the draft and which of its outputs
VALUES = ("parameter", "buffer")  # ops of nodes that are a tensor of the model


class DraftError(CodedError, ValueError):
    """A traced model that cannot be drawn; says where and why. `path` is the submodule, `why` the bare reason."""

    code = "not_drawn"

    def __init__(self, message: str, path: str = "", why: str = "") -> None:
        super().__init__(message)
        self.path, self.why = path, why or message
        self.source_line: SourceLine | None = None


def same_calls(first: Draft | None, other: Draft | None) -> bool:
    """Return whether two drafts of a module make the same calls with the same parameters; input sizes may differ."""
    if first is None or other is None:
        return first is other
    if (first.wires, first.outputs, len(first.nodes)) != (
        other.wires,
        other.outputs,
        len(other.nodes),
    ):
        return False
    pairs = zip(first.nodes.values(), other.nodes.values(), strict=True)
    return all(
        (a.id, a.op, a.shares) == (b.id, b.op, b.shares)
        and same_calls(a.inner, b.inner)
        and (a.op == "input" or _comparable_params(a) == _comparable_params(b))
        for a, b in pairs
    )


def _comparable_params(node: DraftNode) -> dict[str, str]:
    """Return parameters comparable by equality, NaN included; `inplace` is decided by the caller."""
    return {
        name: repr(value) for name, value in node.params.items() if name != "inplace"
    }


class DraftNode(Struct):
    """A node of the IR. `params` are literals; `inner` is the draft of a block; `shares` the node whose module it
    reuses. `tied` maps its parameters to those of another node, by id. `frozen` means requires_grad=False, None without
    parameters; `order` is its position in registration order. `written` is a layer that was generated for a call, and
    is no module of the model."""

    id: str
    op: str
    name: str
    params: dict[str, Any] = {}
    inner: Draft | None = None
    shares: str = ""
    repeat: int = 1
    kept: bool = False
    tied: dict[str, tuple[str, str]] = {}
    frozen: bool | None = None
    order: int = 0
    written: bool = False


class Draft(Struct):
    """One sheet to be. `wires` are (source, output, target, port, index)."""

    path: str
    kind: str
    nodes: dict[str, DraftNode] = {}
    wires: list[tuple[str, int, str, str, int]] = []
    inputs: list[str] = []
    outputs: list[str] = []
    made: int = 0  # nodes so far, for their ids
    numbers: set[str] = set()  # those that give one number

    def add(
        self, op: str, name: str, params: dict[str, Any], inner: Draft | None = None
    ) -> DraftNode:
        """Append a node."""
        self.made += 1
        node = DraftNode(f"n{self.made}", op, name, params, inner)
        self.nodes[node.id] = node
        return node

    def fresh(self, stem: str) -> str:
        """Return `stem`, or the first of `stem2`, `stem3`, ... that is unused."""
        names, number, name = {node.name for node in self.nodes.values()}, 2, stem
        while name in names:
            name, number = f"{stem}{number}", number + 1
        return name


def drafts_in(root: Draft) -> Iterator[Draft]:
    """Yield a draft and, once each, those of the submodules in it; a draft may be changed before the next is taken."""
    todo, visited = [root], set[int]()
    while todo:
        draft = todo.pop()
        if id(draft) not in visited:
            visited.add(id(draft))
            yield draft
            todo.extend(
                node.inner for node in draft.nodes.values() if node.inner is not None
            )
