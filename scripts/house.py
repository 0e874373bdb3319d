"""Print how large the program is and how its parts hang together, of this tree or of a commit.

    python -m scripts.house                     the working tree, beside the aims
    python -m scripts.house --at COMMIT         that commit
    python -m scripts.house --beside COMMIT     that commit, then the working tree
    python -m scripts.house --list circles      what a figure counts, by name
    python -m scripts.house --json              for a program

Everything is read with `ast` and `tokenize`; nothing of the program is imported. How each figure is counted stands in
the docstring of the function that counts it. Not counted: the modules between an edit and the shapes that are painted,
since signals and timers join them, which no import shows.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import token
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scripts.import_graph import SourceTree, arrows, circles, last_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "tapedeck")
INSIGNIFICANT = {
    token.COMMENT,
    token.NL,
    token.NEWLINE,
    token.INDENT,
    token.DEDENT,
    token.ENDMARKER,
}
HANDLERS, REQUESTS = "app.engine.tasks.", "app.engine.requests."
# Names of values that say nothing of the value: pronouns, and participles without what they are said of.
WEAK_NAMES = frozenset(
    """
    one found told words place places part known given kept held asked made wanted taken said seen whole own what each
    """.split()
)
NORMS = {"norm", "vector_norm", "_foreach_norm", "get_total_norm", "clip_grad_norm_"}
MODES = {
    "no_grad",
    "enable_grad",
    "set_grad_enabled",
}  # of autograd, which name no gradient
OTHER_NORMS = (
    "app.builder",
    "app.engine",
    "app.views",
    "app.features.compare",
    "app.features.gradcheck",
    "app.features.interpret",
)
SMALL = 80  # lines of a file that may be a part of its one importer
REGISTRY = 8  # names in a table that has to be kept in step with the files or commands that it names


@dataclass(frozen=True)
class Figure:
    """One row: what is counted, how much, how much it may be at most, and what was counted by name."""

    title: str
    value: float
    aim: float | None = None
    items: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return (
            f"{self.value:,.0f}"
            if self.value == int(self.value)
            else f"{self.value:,.1f}"
        )


class House:
    """The figures of one source tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = SourceTree(root, PACKAGES)

    def figures(self) -> dict[str, Figure]:
        """Return all figures by the name under which `--list` shows what they count."""
        lines, tokens, code_lines = self.sizes()
        rooms = self.rooms_of_features()
        spread = [len(names) for names in rooms.values()] or [0]
        rows = tuple(
            f"{feature}: {len(names)}: {' '.join(sorted(names))}"
            for feature, names in rooms.items()
        )
        weak, bound = self.weak_names()
        share = 100 * weak.total() / max(1, bound)
        weak_items = tuple(f"{count} {name}" for name, count in weak.most_common())
        return {
            "lines": Figure("lines", lines),
            "tokens": Figure("significant tokens", tokens, 1_000_000),
            "density": Figure(
                "tokens a code line", round(tokens / max(1, code_lines), 1), 8.5
            ),
            "modules": Figure("modules", len(self.tree.modules), 800),
            "folders": _counted("folders", self.folders(), 85),
            "skips": _counted("`# fmt: skip`", self.format_skips(), 0),
            "rooms": Figure(
                "rooms that a feature lies in, median", median(spread), 1, rows
            ),
            "widest": Figure(
                "rooms that a feature lies in, at most", max(spread), None, rows
            ),
            "lone": _counted(
                "kernel modules that one feature alone reads",
                sorted(f"{name} -> {feature}" for name, feature in self.lone().items()),
                0,
            ),
            "late": _counted("imports inside functions", self.late_imports(), 150),
            "weak": Figure(
                "names of values that say nothing, %", round(share, 1), 3, weak_items
            ),
            "circles": _counted(
                "circles of modules, late imports counted", self.circles(False), 0
            ),
            "typing_circles": _counted(
                "circles of modules, type-only imports counted too",
                self.circles(True),
                5,
            ),
            "registries": _counted("registries of strings", self.registries(), 1),
            "norms": _counted(
                "modules that compute a gradient's norm", self.gradient_norms(), 2
            ),
            "small": _counted(
                f"modules under {SMALL} lines with one importer",
                self.small_parts(),
                None,
            ),
            "empty": _counted(
                "`__init__` without a statement", self.empty_inits(), None
            ),
            "readme": Figure("words of README.md", self.readme_words(), 900),
        }

    def sizes(self) -> tuple[int, int, int]:
        """Return lines, significant tokens, and code lines.

        Significant are all tokens of `tokenize` but comments, line ends, indentation and docstrings; a code line is one
        that a significant token lies on.
        """
        lines = tokens = code_lines = 0
        for name in self.tree.modules:
            significant = list(self.significant(name))
            lines += len(self.tree.text(name).splitlines())
            tokens += len(significant)
            code_lines += len(
                {
                    line
                    for each in significant
                    for line in range(each.start[0], each.end[0] + 1)
                }
            )
        return lines, tokens, code_lines

    def significant(self, name: str) -> Iterator[tokenize.TokenInfo]:
        """Yield the tokens of a module that are counted."""
        docstrings = {
            (node.lineno, node.col_offset)
            for node in map(_docstring, self.tree.nodes(name))
            if node
        }
        for each in tokenize.generate_tokens(
            io.StringIO(self.tree.text(name)).readline
        ):
            if each.type not in INSIGNIFICANT and not (
                each.type == token.STRING and each.start in docstrings
            ):
                yield each

    def folders(self) -> list[str]:
        """Return the folders that hold a module."""
        return sorted(
            {
                str(file.parent.relative_to(self.root))
                for file in self.tree.modules.values()
            }
        )

    def format_skips(self) -> list[str]:
        """Return the lines that ruff does not format."""
        return [
            f"{name}:{number}"
            for name in self.tree.modules
            for number, line in enumerate(self.tree.text(name).splitlines(), 1)
            if "# fmt: skip" in line
        ]

    def rooms_of_features(self) -> dict[str, set[str]]:
        """Return the rooms of each folder of `app.features`: its own, and those with modules that it alone reads.

        Kernel modules that several read are nobody's, whatever their names.
        """
        rooms = {
            feature: {f"features.{feature}"}
            for feature in filter(None, map(_feature_of, self.tree.modules))
        }
        for module, feature in self.lone().items():
            rooms[feature].add(_room(module))
        return rooms

    def lone(self) -> dict[str, str]:
        """Return the modules outside `app.features` that only one of its folders imports, directly or through another,
        and that folder.

        Handlers and commands are left out, since they are found by their names (a request is its asker's), and what
        scripts import of `tapedeck`. A module that another names as a file beside it, to be run by a process of its
        own, is imported by that one.
        """
        importers: dict[str, set[str]] = {}
        for each in self.tree.imports:
            importers.setdefault(each.target, set()).add(each.importer)
        for name in self.tree.modules:
            for node in self.tree.nodes(name):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    beside = f"{name.rpartition('.')[0]}.{node.value}"
                    if beside.endswith(".py"):
                        importers.setdefault(beside[:-3], set()).add(name)
        kernel = [
            name
            for name in self.tree.modules
            if not name.startswith(("app.features.", HANDLERS, "tapedeck"))
            and not name.endswith("command")
            and name in importers
        ]
        reader: dict[str, str] = {}
        before = -1
        while len(reader) > before:
            before = len(reader)
            for name in kernel:
                readers = {
                    reader.get(importer) or _feature_of(importer)
                    for importer in importers[name] - {name}
                    if not (name.startswith(REQUESTS) and importer.startswith(HANDLERS))
                }
                if len(readers) == 1 and "" not in readers:
                    reader[name] = readers.pop()
        return reader

    def late_imports(self) -> list[str]:
        """Return the import statements, and calls that import, inside functions."""
        return sorted(
            {f"{each.importer}:{each.line}" for each in self.tree.imports if each.lazy}
        )

    def weak_names(self) -> tuple[Counter[str], int]:
        """Return how often each of WEAK_NAMES is bound, and how often any name is.

        Bound is a parameter but `self` and `cls`, and a name that is assigned, looped over, caught by `as` or `:=`.
        """
        bound = Counter(
            name
            for module in self.tree.modules
            for name in map(_bound, self.tree.nodes(module))
            if name
        )
        weak = Counter(
            {name: count for name, count in bound.items() if name in WEAK_NAMES}
        )
        return weak, bound.total()

    def circles(self, typing: bool) -> list[str]:
        """Return the groups of modules that lead to one another by imports, late ones counted."""
        imports = [each for each in self.tree.imports if typing or not each.typing]
        return [
            " ".join(group) for group in circles(arrows(imports, self.tree.modules))
        ]

    def registries(self) -> list[str]:
        """Return the tables at the top of a module, here and in `tests`, that name files or commands of the program.

        One names at least REGISTRY modules (as dotted names below `app` or below its own package), or as many keys of
        the `Action`s that features declare. All calls of `trigger("key")` are one registry more.
        """
        keys = {
            key
            for name in self.tree.modules
            for key in _action_keys(self.tree.nodes(name))
        }
        parsed = {name: self.tree.tree(name) for name in self.tree.modules}
        parsed |= {
            f"tests.{file.stem}": ast.parse(file.read_text("utf-8"))
            for file in self.root.glob("tests/*.py")
        }
        tables = [
            f"{name}:{line.lineno}"
            for name, module in parsed.items()
            for line in module.body
            if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None
            if self._names_many(name, line.value, keys)
        ]
        triggers = [
            name
            for name in self.tree.modules
            if any(map(_triggers, self.tree.nodes(name)))
        ]
        return tables + (
            [f'trigger("...") in {len(triggers)} modules'] if triggers else []
        )

    def _names_many(self, module: str, value: ast.expr, keys: set[str]) -> bool:
        texts = [
            node.value
            for node in ast.walk(value)
            if isinstance(node, ast.Constant) and type(node.value) is str
        ]
        entries = {entry for text in texts for entry in text.split()}
        package = module if self._is_package(module) else module.rpartition(".")[0]
        prefixes = ("", "app.", f"{package}.")
        modules = {
            entry
            for entry in entries
            if any(f"{prefix}{entry}" in self.tree.modules for prefix in prefixes)
        }
        return len(modules) >= REGISTRY or len(entries & keys) >= REGISTRY

    def _is_package(self, module: str) -> bool:
        return (
            module in self.tree.modules
            and self.tree.modules[module].name == "__init__.py"
        )

    def gradient_norms(self) -> list[str]:
        """Return the modules with a function that calls a norm of torch, and where it or its module names a gradient.

        Those of OTHER_NORMS take norms of values and of differences.
        """
        names = [name for name in self.tree.modules if not name.startswith(OTHER_NORMS)]
        return [
            name
            for name in names
            if "norm" in self.tree.text(name) and self._takes_gradient_norm(name)
        ]

    def _takes_gradient_norm(self, module: str) -> bool:
        for function in self.tree.nodes(module):
            if isinstance(function, ast.FunctionDef):
                nodes = list(ast.walk(function))
                calls = [
                    node
                    for node in nodes
                    if isinstance(node, ast.Call) and last_name(node.func) in NORMS
                ]
                names = [
                    module,
                    function.name,
                    *(
                        last_name(node) or getattr(node, "arg", None) or ""
                        for node in nodes
                    ),
                ]
                if calls and any("grad" in name for name in {*names} - MODES):
                    return True
        return False

    def small_parts(self) -> list[str]:
        """Return the modules of fewer than SMALL lines, `__init__` apart, that exactly one other imports."""
        importers: dict[str, set[str]] = {}
        for each in self.tree.imports:
            if each.target in self.tree.modules and each.target != each.importer:
                importers.setdefault(each.target, set()).add(each.importer)
        return [
            f"{name} -> {next(iter(importers[name]))} ({len(self.tree.text(name).splitlines())} lines)"
            for name in sorted(importers)
            if len(importers[name]) == 1 and not self._is_package(name)
            if len(self.tree.text(name).splitlines()) < SMALL
        ]

    def empty_inits(self) -> list[str]:
        """Return the packages whose `__init__` holds no statement but a docstring."""
        return [
            name
            for name in self.tree.modules
            if self._is_package(name)
            if not [
                line
                for line in self.tree.tree(name).body
                if _docstring_line(line) is None
            ]
        ]

    def readme_words(self) -> int:
        """Return how many words, separated by blanks, README.md has."""
        file = self.root / "README.md"
        return len(file.read_text("utf-8").split()) if file.exists() else 0


def _counted(title: str, items: list[str], aim: float | None) -> Figure:
    return Figure(title, len(items), aim, tuple(items))


def _docstring_line(line: ast.stmt) -> ast.Constant | None:
    if (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    ):
        return line.value
    return None


def _docstring(node: ast.AST) -> ast.Constant | None:
    if (
        isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        and node.body
    ):
        return _docstring_line(node.body[0])
    return None


def _room(name: str) -> str:
    """Return the folder of `app` in which a module lies, or its package."""
    parts = name.split(".")
    return parts[1] if parts[0] == "app" and len(parts) > 1 else parts[0]


def _feature_of(name: str) -> str:
    """Return the folder of the shelf in which a module lies, "" for the kernel."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["app", "features"] and len(parts) > 2 else ""


def _bound(node: ast.AST) -> str:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id.strip("_")
    if isinstance(node, ast.arg) and node.arg not in {"self", "cls"}:
        return node.arg.strip("_")
    if isinstance(node, ast.ExceptHandler) and node.name:
        return node.name
    return ""


def _action_keys(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and last_name(node.func) in {"Action", "Adopted"}
            and node.args
        ):
            key = node.args[0]
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value


def _triggers(node: ast.AST) -> bool:
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "trigger"
    ):
        return False
    return any(
        isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        for arg in node.args
    )


def _at(commit: str, folder: Path) -> Path:
    """Unpack what is counted of a commit. Raises CalledProcessError if there is no such commit."""
    command = ["git", "archive", commit, "--", "app", "tapedeck", "tests", "README.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def table(columns: dict[str, dict[str, Figure]]) -> str:
    """Return the figures as a Markdown table, a column for each state and one for the aims."""
    rows = [["", *columns, "aim"], ["---", *("---:" for _ in columns), "---:"]]
    last = list(columns.values())[-1]
    for key, figure in last.items():
        aim = "" if figure.aim is None else f"<= {figure.aim:,.10g}"
        rows.append(
            [figure.title, *(figures[key].text for figures in columns.values()), aim]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Size and structure of the program.")
    parser.add_argument(
        "--at", metavar="COMMIT", help="count this commit in place of the working tree"
    )
    parser.add_argument(
        "--beside", metavar="COMMIT", help="show the figures of this commit first"
    )
    parser.add_argument(
        "--list", metavar="NAME", help="show what a figure counts, such as circles"
    )
    parser.add_argument(
        "--json", action="store_true", help="write figures, or what one counts, as JSON"
    )
    options = parser.parse_args(arguments)
    columns: dict[str, dict[str, Figure]] = {}
    try:
        for commit in filter(None, (options.beside, options.at)):
            with tempfile.TemporaryDirectory() as folder:
                columns[commit] = House(_at(commit, Path(folder))).figures()
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode().strip(), file=sys.stderr)
        return 2
    if not options.at:
        columns["now"] = House(ROOT).figures()
    return _show(columns, options.list, print_json=options.json)


def _show(
    columns: dict[str, dict[str, Figure]], listed: str | None, print_json: bool
) -> int:
    names = list(columns.values())[-1]
    if listed is not None and listed not in names:
        print(
            f"no figure is called {listed}; there are {', '.join(names)}",
            file=sys.stderr,
        )
        return 2
    value: Callable[[Figure], object] = (
        (lambda figure: figure.value) if listed is None else lambda figure: figure.items
    )
    shown = {
        state: {
            name: value(figure)
            for name, figure in figures.items()
            if listed in (None, name)
        }
        for state, figures in columns.items()
    }
    if print_json:
        print(json.dumps(shown, indent=2))
    elif listed is None:
        print(table(columns))
    else:
        for state, figures in columns.items():
            print(
                f"--- {state}: {figures[listed].title}",
                *figures[listed].items,
                sep="\n",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
