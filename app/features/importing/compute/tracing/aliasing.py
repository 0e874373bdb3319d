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

from app.features.importing.compute.tracing.proxies import set_item
from app.util.errors import CodedError

Made = Callable[[str, Any, tuple[Any, ...]], fx.Node]  # kind, target, arguments

# Views by name: how a changed view is written back to its base.
_SAME_NUMBERS = frozenset(
    "view reshape flatten unflatten squeeze unsqueeze view_as reshape_as ravel Flatten Unflatten".split()
)
_ITSELF = frozenset(
    "contiguous to float type_as alias Identity Dropout Dropout1d Dropout2d Dropout3d dropout StochasticDepth".split()
)


class AliasingError(CodedError, ValueError):
    """Raised for an in-place change of a view whose effect on its aliases is unknown. `path` is that of the submodule
    between the two, if there is one."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
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

    # --- Which are views

    def note(self, node: fx.Node) -> None:
        """Record the base of a view, if a call returned one."""
        value = self._values[node]
        for source in node.all_input_nodes:
            if _share(value, self._values[source]):
                self.links[node] = ViewLink(source, source, (node,))
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
        if node.target is not operator.getitem:
            raise AliasingError(
                f"the output of {name} aliases its input, and is changed in place"
            )
        return self._made("call_function", set_item, (base, node.args[1], new_view))

    def _name(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return self._kind_of(str(node.target))
        return (
            node.target
            if isinstance(node.target, str)
            else getattr(node.target, "__name__", "")
        )


def _share(value: Any, other: Any) -> bool:
    """Return whether two values are tensors in the same memory."""
    return (
        isinstance(value, torch.Tensor)
        and isinstance(other, torch.Tensor)
        and value.untyped_storage()._cdata == other.untyped_storage()._cdata
    )
