"""Containers for modules with dotted names, and the expressions that access their modules.

`layers.0` and `layers.1` make `self.layers = nn.ModuleList([...])`, other keys an `nn.ModuleDict`, free parameters
alone an `nn.ParameterDict`. Anything else, a buffer or a key such as `keys`, goes into a plain `nn.Module`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.codegen.constructor_text import Made, repeated
from app.builder.graph import Edge, Graph, Node

LIST, DICT, PARAMETERS, MODULE = (
    "nn.ModuleList",
    "nn.ModuleDict",
    "nn.ParameterDict",
    "nn.Module",
)
# Length from which equal consecutive modules are collapsed between others.
_RUN = 3


@cache
def _refused() -> dict[str, frozenset[str]]:
    """Return the keys that a dictionary cannot have: names of its methods."""
    from torch import nn

    return {
        DICT: frozenset(dir(nn.ModuleDict())),
        PARAMETERS: frozenset(dir(nn.ParameterDict())),
    }


class Container(Struct):
    """Modules with a common prefix. A child is a container, or id and kind of a step."""

    children: dict[str, Container | tuple[str, str]] = {}

    def add(self, path: list[str], step: str, kind: str) -> None:
        container = self
        for key in path[:-1]:
            inner = container.children.setdefault(key, Container())
            assert isinstance(inner, Container)
            container = inner
        container.children[path[-1]] = step, kind

    @property
    def form(self) -> str:
        """The class that holds the children."""
        kinds = {
            "" if isinstance(child, Container) else child[1]
            for child in self.children.values()
        }
        if not kinds & {"parameter", "buffer"}:
            if sorted(self.children) == sorted(map(str, range(len(self.children)))):
                return LIST
            return MODULE if _refused()[DICT] & self.children.keys() else DICT
        ordered = list(self.children) == sorted(
            self.children
        )  # a ParameterDict sorts its keys, and torch goes by them
        if (
            kinds == {"parameter"}
            and ordered
            and not _refused()[PARAMETERS] & self.children.keys()
        ):
            return PARAMETERS
        return MODULE

    def steps(self) -> Iterator[str]:
        """Yield the steps whose modules it contains."""
        for child in self.children.values():
            if isinstance(child, Container):
                yield from child.steps()
            else:
                yield child[0]

    def reached(self, access: str) -> dict[str, str]:
        """Return the access expression of every step's module in it."""
        form, accesses = self.form, dict[str, str]()
        for key, child in self.children.items():
            child_access = _access(access, form, key)
            if isinstance(child, Container):
                accesses |= child.reached(child_access)
            else:
                accesses[child[0]] = child_access
        return accesses


def _access(access: str, form: str, key: str) -> str:
    if form == LIST:
        return f"{access}[{key}]"
    if form != MODULE:
        return f'{access}["{key}"]'
    return f"{access}.{key}" if key.isidentifier() else f'getattr({access}, "{key}")'


def containers(paths: Mapping[str, tuple[str, str]]) -> dict[str, Container]:
    """Return the containers of a class by attribute; `paths` has path and kind of module by step."""
    containers_by_attribute: dict[str, Container] = {}
    for step, (path, kind) in paths.items():
        first, *others = path.split(".")
        if others:
            containers_by_attribute.setdefault(first, Container()).add(
                others, step, kind
            )
    return containers_by_attribute


def statements(
    container: Container, access: str, construct: Callable[[str], Made]
) -> list[Made]:
    """Return the statements that create a container: its assignment, and later registrations.

    `construct` returns the constructor of a step's module; for a buffer the arguments of `register_buffer`.
    """
    later: list[Made] = []
    return [assigned(access, _literal(container, access, construct, later)), *later]


def attribute(key: str) -> str:
    """Return the expression for an attribute: `self.conv1`, or `getattr` for a key that is no identifier."""
    return _access("self", MODULE, key)


def assigned(access: str, constructor: Made) -> Made:
    """Return the assignment to an attribute; a key that is no identifier uses `setattr`."""
    if access.startswith("getattr("):
        owner, key = access.removeprefix("getattr(").removesuffix(")").rsplit(", ", 1)
        return Made("setattr(", (owner, key, constructor), rows=True)
    return constructor.framed(f"{access} = ", "")


def _literal(
    container: Container,
    access: str,
    construct: Callable[[str], Made],
    later: list[Made],
) -> Made:
    form = container.form
    if form == MODULE:
        for key, child in container.children.items():
            _registered(key, child, access, construct, later)
        return Made("nn.Module(")
    items = {}
    children = container.children
    for key in sorted(children, key=int) if form == LIST else children:
        child = children[key]
        child_access = _access(access, form, key)
        items[key] = (
            _literal(child, child_access, construct, later)
            if isinstance(child, Container)
            else construct(child[0])
        )
    if form == LIST:
        return _list(list(items.values()))
    named = tuple(item.framed(f'"{key}": ', "") for key, item in items.items())
    return Made(f"{form}(", (Made("{", named, "}", rows=True),))


def _registered(
    key: str,
    child: Container | tuple[str, str],
    access: str,
    construct: Callable[[str], Made],
    later: list[Made],
) -> None:
    """Put one child into a plain module."""
    if isinstance(child, Container):
        mine: list[Made] = []
        item = _literal(child, _access(access, MODULE, key), construct, mine)
        later += [item.framed(f'{access}.add_module("{key}", ', ")"), *mine]
        return
    step, kind = child
    if kind == "buffer":
        later.append(construct(step).framed(f'{access}.register_buffer("{key}", ', ""))
    else:
        call = "register_parameter" if kind == "parameter" else "add_module"
        later.append(Made(f"{access}.{call}(", (f'"{key}"', construct(step))))


def _list(items: list[Made]) -> Made:
    if len(items) > 1 and all(
        first.flat == other.flat for first, other in pairwise(items)
    ):
        (once,) = repeated(items)
        return Made(f"{LIST}(", (replace(once, head="["),))
    return Made(
        f"{LIST}(",
        (Made("[", tuple(repeated(items, _RUN, anywhere=True)), "]", rows=True),),
    )


# A chain with chains in it that is larger, or nested deeper, is a class: a text can double with every level.
LARGEST = 2000
DEEPEST = 16


class Chains:
    """Blocks written in place as nn.Sequential. `of` returns the nodes of one in order, None for a class."""

    def __init__(self, catalog: Catalog | None) -> None:
        self._catalog = catalog
        self._known: dict[str, tuple[Node, ...] | None] = {}
        self._sizes: dict[
            str, tuple[int, int]
        ] = {}  # modules that are written, and how deep they are nested

    def chain_of(self, block: Block) -> tuple[Node, ...] | None:
        """Return the nodes between input and output if the block is such a chain."""
        if block.name not in self._known:
            self._known[block.name] = None  # guards against recursion
            self._known[block.name] = self._read(block)
        return self._known[block.name]

    def _read(self, block: Block) -> tuple[Node, ...] | None:
        nodes, ends = block.graph.nodes.values(), ("input", "output")
        if self._catalog is None or not all(
            node.op in ends or node.name.isdecimal() for node in nodes
        ):
            return None
        order = self._in_order(block, self._catalog)
        if order is None or not self._small(block, order):
            return None
        return order

    def _in_order(self, block: Block, catalog: Catalog) -> tuple[Node, ...] | None:
        graph = block.graph
        if (
            len(block.inputs) != 1
            or len(block.outputs) != 1
            or block.inputs[0].muted
            or block.outputs[0].muted
        ):
            return None
        if any(node.shares or node.tied for node in graph.nodes.values()):
            return None
        order: list[Node] = []
        at, key = block.inputs[0].id, 0
        while len(edges := graph.out_of(at)) == 1:
            node = graph.nodes[edges[0].target]
            if node.op == "output":
                complete = len(order) + 2 == len(graph.nodes) and bool(order)
                return (
                    tuple(order) if complete and len(graph.into(node.id)) == 1 else None
                )
            if node.name != str(key) or not _one_in_one_out(
                graph, node, edges[0], catalog.spec_of(graph, node)
            ):
                return None
            order.append(node)
            at, key = node.id, key + node.repeat
        return None

    def _small(self, block: Block, order: tuple[Node, ...]) -> bool:
        size, depth = 1, 1  # a row of modules is as long as it is drawn
        for node in order:
            inner = (
                self._catalog[node.op].definition if self._catalog is not None else None
            )
            chain = self.chain_of(inner) if inner is not None else None
            modules, levels = (
                self._sizes[inner.name] if inner is not None and chain else (1, 0)
            )
            size, depth = size + modules * node.repeat, max(depth, levels + 1)
        self._sizes[block.name] = size, depth
        return depth == 1 or (size <= LARGEST and depth <= DEEPEST)


def _one_in_one_out(graph: Graph, node: Node, wire: Edge, spec: OpSpec) -> bool:
    """Return whether the node is a module whose only argument is the wire's value."""
    if (
        spec.kind not in ("module", "block")
        or wire.output
        or len(graph.into(node.id)) != 1
    ):
        return False
    if (
        not spec.inputs
        or wire.port != spec.inputs[0].name
        or any(port.required for port in spec.inputs[1:])
    ):
        return False
    by = spec.param(spec.outputs_by)
    if spec.outputs_given(node.params) != 1 or (by is not None and by.kind != "bool"):
        return False
    at_call = (param for param in spec.params if param.call and spec.kind == "module")
    return not any(
        p.required or p.auto or node.params.get(p.name, p.default) != p.default
        for p in at_call
    )
