"""The modules of a source tree and what they import, read with `ast`: late imports and those for type checkers too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

IMPORTING = {"import_module", "__import__"}


@dataclass(frozen=True)
class Import:
    """`importer` and `target` are dotted names; `line` is where; `lazy` is inside a function; `typing` for checkers."""

    importer: str
    target: str
    line: int
    lazy: bool
    typing: bool

    def __str__(self) -> str:
        return f"{self.importer} (line {self.line}) imports {self.target}"


class SourceTree:
    """The Python modules of some packages below a folder; each is read and parsed once."""

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self.modules: dict[str, Path] = {}
        for package in packages:
            for file in sorted((root / package).rglob("*.py")):
                parts = file.relative_to(root).with_suffix("").parts
                self.modules[
                    ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                ] = file
        self._texts: dict[str, str] = {}
        self._trees: dict[str, ast.Module] = {}
        self._nodes: dict[str, tuple[ast.AST, ...]] = {}

    def text(self, name: str) -> str:
        """Return the source text of a module."""
        if name not in self._texts:
            self._texts[name] = self.modules[name].read_text("utf-8")
        return self._texts[name]

    def tree(self, name: str) -> ast.Module:
        """Return the syntax tree of a module."""
        if name not in self._trees:
            self._trees[name] = ast.parse(self.text(name))
        return self._trees[name]

    def nodes(self, name: str) -> tuple[ast.AST, ...]:
        """Return all nodes of a module's tree: walking through it takes nearly as long as parsing it."""
        if name not in self._nodes:
            self._nodes[name] = tuple(ast.walk(self.tree(name)))
        return self._nodes[name]

    def forget_trees(self) -> None:
        """Free texts and trees, which are a million objects; imports stay."""
        self._texts.clear()
        self._trees.clear()
        self._nodes.clear()

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports of all modules."""
        return tuple(
            statement for name in self.modules for statement in self._imports_of(name)
        )

    def _imports_of(self, name: str) -> Iterator[Import]:
        calls = any(word in self.text(name) for word in IMPORTING)
        below = (
            ast.iter_child_nodes if calls else _statements
        )  # a tenth of the nodes, where no expression can import
        rest: list[tuple[ast.AST, bool, bool]] = [(self.tree(name), False, False)]
        while rest:  # (a million nodes, each yielded once more for every node above it, would be most of the time)
            node, lazy, typing = rest.pop()
            lazy = lazy or isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            )
            for target in self.targets(node, name):
                yield Import(name, target, node.lineno, lazy, typing)  # type: ignore[attr-defined]
            guarded = (
                node.body
                if isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING"
                else ()
            )
            rest += [(child, lazy, typing or child in guarded) for child in below(node)]

    def targets(self, node: ast.AST, importer: str) -> list[str]:
        """Return the modules that a statement or a call imports.

        `from app.builder import graph` imports `app.builder.graph`.
        """
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = self._base(node, importer)
            inner = [f"{base}.{alias.name}" for alias in node.names]
            return [name if name in self.modules else base for name in inner]
        if isinstance(node, ast.Call) and last_name(node.func) in IMPORTING:
            return [
                arg.value
                for arg in node.args[:1]
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            ]
        return []

    def _base(self, node: ast.ImportFrom, importer: str) -> str:
        if not node.level:
            return node.module or ""
        package = (
            importer
            if self.modules[importer].name == "__init__.py"
            else importer.rpartition(".")[0]
        )
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        return ".".join([*parents, *([node.module] if node.module else [])])


def last_name(node: ast.AST) -> str:
    """Return the last name of a dotted one, "" of anything else; `ast.unparse` of each takes longer than the rest."""
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


def _statements(node: ast.AST) -> list[ast.AST]:
    return [
        child
        for field in ("body", "orelse", "finalbody", "handlers", "cases")
        for child in getattr(node, field, ())
    ]


def arrows(imports: Iterable[Import], modules: Iterable[str]) -> dict[str, set[str]]:
    """Return the modules that each module names in its imports."""
    names = set(modules)
    result: dict[str, set[str]] = {name: set() for name in names}
    for statement in imports:
        if statement.target in names and statement.target != statement.importer:
            result[statement.importer].add(statement.target)
    return result


def circles(below: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that lead to one another: the strongly connected components of two and more.

    >>> circles({"a": {"b"}, "b": {"a", "c"}, "c": set()})
    [['a', 'b']]
    """
    order: list[str] = []
    seen: set[str] = set()
    for root in sorted(below):
        _finish(root, below, seen, order)
    above: dict[str, set[str]] = {name: set() for name in below}
    for name, targets in below.items():
        for target in targets:
            above[target].add(name)
    grouped: set[str] = set()
    groups: list[list[str]] = []
    for root in reversed(order):
        group: list[str] = []
        _finish(root, above, grouped, group)
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups)


def _finish(
    root: str, below: Mapping[str, set[str]], seen: set[str], order: list[str]
) -> None:
    """Append what can be reached from `root` and was not `seen`, each after all that it leads to."""
    if root in seen:
        return
    seen.add(root)
    stack = [(root, iter(sorted(below[root])))]
    while stack:
        name, targets = stack[-1]
        target = next((target for target in targets if target not in seen), None)
        if target is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(sorted(below[target]))))
