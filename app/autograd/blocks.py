"""Group the tape by block: nested groups that mirror the nesting of the modules.

For a drawn net the drawing's nodes are the top level, with a block's modules below its node; any other net has its
modules' paths (`layer1`, `layer1.0`, `layer1.0.conv1`). Operations of a container itself are members beside its
children.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from app.autograd.grouping import HOLDERS, LayerGroup, make_group
from app.autograd.tape import LOSS, Tape, TapeNode


class _Branch(Struct):
    """One group as it grows. `path` is the module's, `run` counts how often the net came back to it."""

    key: str
    path: str
    run: int = 1
    own: list[TapeNode] = []
    children: list[_Branch] = []


# Groups that contain one node, outermost first: (key of the group in its level, module path).
_Way = tuple[tuple[str, str], ...]


def group_by_block(tape: Tape) -> tuple[LayerGroup, ...]:
    """Return nested groups (`LayerGroup.parent`), a parent before its children, else in forward order.

    Every node is in the `own` of exactly one group, and in the `nodes` of that and of all enclosing ones. A module that
    is called again after something else is another group, or the picture would have cycles; a node of the drawing is
    one group wherever its operations ran. A container with a single group is merged with it.
    """
    trunk = _grow(tape)
    groups: list[LayerGroup] = []
    todo: list[tuple[_Branch, _Branch | None]] = [
        (branch, None) for branch in reversed(trunk.children)
    ]
    while todo:
        branch, parent = todo.pop()
        _merge(branch)
        nodes = sorted(_all_nodes(branch), key=lambda node: tape.forward_ranks[node.id])
        groups.append(_group(tape, branch, nodes, parent))
        todo += [(child, branch) for child in reversed(branch.children)]
    return tuple(groups)


def _grow(tape: Tape) -> _Branch:
    """Build the tree of groups below a root for the whole net."""
    trunk = _Branch("", "")
    runs: dict[str, int] = {}
    fixed: dict[str, _Branch] = {}
    ways = _Ways(tape)
    at: dict[int, _Branch] = {}
    open_now: list[tuple[str, _Branch]] = []
    for node in tape.forward:
        if node.is_leaf:
            continue
        way, level, branch = ways.path_of(node), 0, trunk
        while (
            level < min(len(way), len(open_now)) and open_now[level][0] == way[level][0]
        ):
            branch = open_now[level][1]
            level += 1
        del open_now[level:]
        for name, path in way[level:]:
            branch = fixed.get(name) or _branch_off(branch, name, path, runs)
            if name.startswith("node:") or name == LOSS:
                fixed[name] = branch
            open_now.append((name, branch))
        branch.own.append(node)
        at[node.id] = branch
    for node in tape.nodes:
        if node.is_leaf:
            users = [
                (tape.nodes[e.source].sequence or 0, e.source)
                for e in tape.incoming.get(node.id, ())
            ]
            home = (
                at[min(users)[1]]
                if users
                else _branch_off(trunk, f"leaf:{node.id}", "", runs)
            )
            home.own.append(node)
    return trunk


def _branch_off(parent: _Branch, name: str, path: str, runs: dict[str, int]) -> _Branch:
    run = runs[name] = runs.get(name, 0) + 1
    branch = _Branch(name if run == 1 else f"{name}/{run}", path, run)
    parent.children.append(branch)
    return branch


class _Ways:
    """Which groups a node lies in."""

    def __init__(self, tape: Tape) -> None:
        self._roots = _module_roots(tape)
        self._containers = {path.rpartition(".")[0] for path in tape.layers if path}
        self._known: dict[tuple[str | None, str, int], _Way] = {}

    def path_of(self, node: TapeNode) -> _Way:
        if node.in_loss:
            return ((LOSS, ""),)
        # Calls of a container cannot be distinguished by its children, whose calls are counted separately.
        call = 1 if node.layer in self._containers else node.call
        key = (node.node, node.layer, call)
        if key not in self._known:
            self._known[key] = self._path(*key)
        return self._known[key]

    def _path(self, drawn: str | None, layer: str, call: int) -> _Way:
        way: list[tuple[str, str]] = []
        above = ""
        if drawn is not None:
            above = self._roots[drawn]
            way.append((f"node:{drawn}", above))
        elif not layer:
            return (("layer:", ""),)
        parts = layer.split(".") if layer else []
        for count in range(len(above.split(".")) + 1 if above else 1, len(parts) + 1):
            path = ".".join(parts[:count])
            last = count == len(parts) and call > 1
            way.append((f"layer:{path}#{call}" if last else f"layer:{path}", path))
        return tuple(way)


def _module_roots(tape: Tape) -> dict[str, str]:
    """Drawing node -> the path that all its operations' modules begin with: the module of that node."""
    roots: dict[str, list[str]] = {}
    for node in tape.nodes:
        if node.node is None or node.in_loss or node.is_leaf:
            continue
        parts = node.layer.split(".") if node.layer else []
        root = roots.setdefault(node.node, parts)
        if root != parts:
            same = 0
            while same < min(len(root), len(parts)) and root[same] == parts[same]:
                same += 1
            roots[node.node] = root[:same]
    return {node: ".".join(parts) for node, parts in roots.items()}


def _merge(branch: _Branch) -> None:
    """Merge a group with its only child if it contains nothing else."""
    while not branch.own and len(branch.children) == 1:
        (child,) = branch.children
        branch.own, branch.children = child.own, child.children
        branch.path = child.path


def _all_nodes(branch: _Branch) -> Iterator[TapeNode]:
    todo = [branch]
    while todo:
        now = todo.pop()
        yield from now.own
        todo += now.children


def _group(
    tape: Tape, branch: _Branch, nodes: list[TapeNode], parent: _Branch | None
) -> LayerGroup:
    title = (
        ""
        if parent is None and branch.key.startswith("node:")
        else _title(branch, parent, tape.layers)
    )
    member_ids = frozenset(node.id for node in branch.own)
    return make_group(
        tape,
        branch.key,
        nodes,
        title=title,
        module=branch.path,
        parent=None if parent is None else parent.key,
        own=tuple(node.id for node in nodes if node.id in member_ids),
        container=bool(branch.children),
    )


def _title(branch: _Branch, parent: _Branch | None, layers: Mapping[str, str]) -> str:
    """Return the path relative to the parent; a bare index gets the parent's name."""
    path = branch.path
    if parent is not None and parent.path and path.startswith(f"{parent.path}."):
        path = path[len(parent.path) + 1 :]
        if path[:1].isdigit():
            path = f"{parent.path.rpartition('.')[2]}.{path}"
    _, _, call = branch.key.partition("/")[0].partition("#")
    if call and path:
        return f"{path} (call {call})"
    if branch.run == 1 or not path:
        return path
    holds = layers.get(branch.path) in HOLDERS  # which is not called itself
    return f"{path} ({'part' if holds else 'run'} {branch.run})"
