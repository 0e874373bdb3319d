"""Tensor aliasing: after an in-place change, views that share the memory are recomputed.

Drawings are functional: `x.view(2, 3).add_(1)` is a new value of the view, and from there on a new value of `x`, and of
every other view of it that is used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from msgspec import Struct
from torch import fx

from app.builder.importer.tracing.proxies import set_item
from app.util.errors import CodedError

Made = Callable[[str, Any, tuple[Any, ...]], fx.Node]  # kind, target, arguments

# Views by name: how a changed view is written back to its base.
_SAME_NUMBERS = frozenset(
    "view reshape flatten unflatten squeeze unsqueeze view_as reshape_as ravel Flatten Unflatten".split()
)
_SWAPPED = frozenset("transpose swapaxes swapdims".split())
_ITSELF = frozenset(
    "contiguous to float type_as alias Identity Dropout Dropout1d Dropout2d Dropout3d dropout StochasticDepth".split()
)
_PARTED = frozenset("chunk split tensor_split split_with_sizes".split())
_PARTS = frozenset({*_PARTED, "unbind"})


class AliasingError(CodedError, ValueError):
    """Raised for an in-place change of a view whose effect on its aliases is unknown. `path` is that of the submodule
    between the two, if there is one."""

    def __init__(self, words: str, path: str = "") -> None:
        super().__init__(words)
        self.path = path


class ViewLink(Struct, frozen=True):
    """A value that is a view: it shares the storage of `base`, as that was when both were equal; `chain` are the view
    calls from there, the first of which took `taken`. None if those calls are in the submodule at `path`."""

    base: fx.Node
    taken: fx.Node
    chain: tuple[fx.Node, ...] | None
    path: str = ""


class Views:
    """Current versions of the values of one trace. `values` has an example of each; `made` appends a call to the graph
    being traced, and `kind_of` returns the class of the module at a path."""

    def __init__(
        self, values: dict[fx.Node, Any], made: Made, kind_of: Callable[[str], str]
    ) -> None:
        self._values, self._made, self._kind_of = values, made, kind_of
        self.became: dict[fx.Node, fx.Node] = {}
        self.links: dict[fx.Node, ViewLink] = {}
        self.in_place: dict[
            fx.Node, fx.Node
        ] = {}  # in-place calls, and the value that they modify
        self._parts: dict[
            fx.Node, fx.Node
        ] = {}  # calls that return several views, and their base

    # --- Which are views

    def note(self, node: fx.Node) -> None:
        """Record the base of a view, if a call returned one."""
        if node.target is operator.getitem and node.args[0] in self._parts:
            call_node = node.args[0]
            assert isinstance(call_node, fx.Node)
            self.links[node] = ViewLink(
                self._parts[call_node], self._parts[call_node], (call_node, node)
            )
            return
        value = self._values[node]
        for source in node.all_input_nodes:
            if _share(value, self._values[source]):
                if isinstance(value, torch.Tensor):
                    self.links[node] = ViewLink(source, source, (node,))
                else:
                    self._parts[node] = source
                return

    def note_item(
        self, item: fx.Node, leaf: fx.Node, outer: dict[fx.Node, fx.Node]
    ) -> None:
        """Do the same for the result of a submodule; `outer` maps its inputs to values outside."""
        chain: tuple[fx.Node, ...] | None = ()
        while leaf in self.links:
            leaf, chain = self.links[leaf].base, None
        source = outer.get(leaf)
        if source is not None:
            call = item.args[0]
            assert isinstance(call, fx.Node)
            self.links[item] = ViewLink(source, source, chain, str(call.target))

    # --- Current versions

    def latest(self, node: fx.Node) -> fx.Node:
        """Return the node with the current version of a value. Raises AliasingError."""
        node = self._newest(node)
        if not self.became:
            return node
        way = [node]
        while (link := self.links.get(way[-1])) is not None:
            way.append(self._newest(link.base))
        for index in reversed(range(len(way) - 1)):
            link, base = self.links[way[index]], way[index + 1]
            if base is not link.base:
                again = self._again(link, base)
                if again is not base:
                    self.links[again] = ViewLink(
                        base, link.taken, link.chain, link.path
                    )
                self.became[way[index]] = way[index] = again
        return way[0]

    def _newest(self, node: fx.Node) -> fx.Node:
        while node in self.became:
            node = self.became[node]
        return node

    def _again(self, link: ViewLink, base: fx.Node) -> fx.Node:
        """Recompute a view on the new version of its base."""
        if link.chain is None:
            raise AliasingError(
                "a submodule returns a view of its input, which is later changed in place",
                link.path,
            )
        new = {link.taken: base}
        recomputed = base
        for node in link.chain:
            args, named = fx.map_arg(
                (node.args, node.kwargs), lambda argument: new.get(argument, argument)
            )
            recomputed = node.graph.create_node(node.op, node.target, args, named)
            self._values[recomputed] = self._values[node]
            new[node] = recomputed
        return recomputed

    # --- Changes

    def change(self, old: fx.Node, new_node: fx.Node) -> None:
        """Record an in-place change of a value to `new_node`, and of its base. Raises AliasingError."""
        self.links.pop(new_node, None)
        todo: list[tuple[fx.Node, fx.Node]] = [(old, new_node)]
        while todo:
            old, new_node = todo.pop()
            link = self.links.get(old)
            if new_node.target == "requires_grad_":
                pass  # of this tensor alone
            elif link is not None and self._is_same(link):
                todo.append((link.base, new_node))
            elif link is not None:
                new_base = self._written_back(link, new_node)
                self.links.pop(
                    new_base, None
                )  # shares the memory of the part, but is read as the base
                self.links[new_node] = ViewLink(
                    new_base, link.taken, link.chain, link.path
                )
                todo.append((link.base, new_base))
            self.became[old] = new_node

    def _is_same(self, link: ViewLink) -> bool:
        """Return whether a view covers all of its base, in the same layout."""
        if not link.chain:
            return link.chain is not None
        view, base = self._values[link.chain[-1]], self._values[link.base]
        same = (
            isinstance(view, torch.Tensor)
            and view.shape == base.shape
            and view.dtype == base.dtype
        )
        return same and self._name(link.chain[0]) in _ITSELF

    def _written_back(self, link: ViewLink, new_view: fx.Node) -> fx.Node:
        """Return the new base after its view became `new_view`."""
        if not link.chain:
            raise AliasingError(
                "a submodule returns a view of its input, and it is changed in place",
                link.path,
            )
        node, base = link.chain[-1], link.base
        name, shape = self._name(link.chain[0]), tuple(self._values[base].shape)
        if name in _SAME_NUMBERS:
            return self._made(
                "call_method", "reshape", (new_view, (-1, *shape[1:]) if shape else ())
            )
        if name == "t":
            return self._made("call_method", "transpose", (new_view, 0, 1))
        if name in _SWAPPED:
            return self._made(
                "call_method",
                "transpose",
                (new_view, *_arguments(node, "dim0", "dim1", "axis0", "axis1")),
            )
        if name == "permute":
            return self._made("call_method", "permute", (new_view, _inverse(node)))
        index = self._index(name, link.chain)
        if index is None:
            raise AliasingError(
                f"the output of {name} aliases its input, and is changed in place"
            )
        return self._made("call_function", set_item, (base, index, new_view))

    def _name(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return self._kind_of(str(node.target))
        return (
            node.target
            if isinstance(node.target, str)
            else getattr(node.target, "__name__", "")
        )

    def _index(self, name: str, chain: tuple[fx.Node, ...]) -> Any:
        """Return the index of a view in its base, None if no index expresses it."""
        node = chain[-1]
        if name in _PARTS:
            return self._part_index(name, *chain)
        if node.target is operator.getitem:
            return node.args[1]
        if name in ("select", "narrow"):
            dim, start, *length = _arguments(
                node, "dim", *(("index",) if name == "select" else ("start", "length"))
            )
            dim %= self._values[node.all_input_nodes[0]].dim()
            return (
                *(slice(None),) * dim,
                slice(start, start + length[0]) if length else start,
            )
        return None

    def _part_index(self, name: str, call: fx.Node, item: fx.Node) -> Any:
        """Return the index of one of several parts in their base."""
        parts, number = self._values[call], item.args[1]
        assert isinstance(number, int)
        number %= len(parts)
        dims = (
            *call.args[1 if name == "unbind" else 2 :],
            *(call.kwargs.get(key) for key in ("dim", "axis")),
        )
        rank = self._values[call.all_input_nodes[0]].dim()
        dim = (
            next((argument for argument in dims if isinstance(argument, int)), 0) % rank
        )
        before = (slice(None),) * dim
        if name == "unbind":
            return (*before, number)
        sizes = [chunk.shape[dim] for chunk in parts]
        start, stop = sum(sizes[:number]), sum(sizes[: number + 1])
        return (
            *before,
            slice(start or None, stop if number < len(sizes) - 1 else None),
        )


def _share(value: Any, other: Any) -> bool:
    """Return whether a value, or the first of several, shares the memory of another."""
    if isinstance(value, tuple | list):
        value = value[0] if value else None
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return value.untyped_storage()._cdata == other.untyped_storage()._cdata


def _arguments(node: fx.Node, *names: str) -> list[Any]:
    return [
        *node.args[1:],
        *(node.kwargs[name] for name in names if name in node.kwargs),
    ]


def _inverse(node: fx.Node) -> tuple[int, ...]:
    """Return the dimensions that invert a permutation."""
    dims = _arguments(node, "dims")
    dims = list(dims[0]) if isinstance(dims[0], tuple | list) else dims
    order = [dim % len(dims) for dim in dims]
    return tuple(order.index(number) for number in range(len(order)))
