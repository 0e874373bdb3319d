"""The modules of two models as one tree, and as a picture of it: what matches is folded, what differs is marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from app.diagram.diagram import Box, Drawing, Group, Mark
from app.features.compare.layer_rows import adds
from app.features.compare.values import Difference, Layer, Setting
from app.util.formatting import counted

ROW = 4  # equal modules in a row that are drawn as one box
MOST_AT_FIRST = 400  # boxes that are opened to
LONGEST = 60  # letters of a line in a box
LINES = 4  # lines of what has changed in a box
ONLY_A, ONLY_B = "only in A", "only in B"


class Module(Struct, eq=False):
    """A module of A, of B, or of both. `key` is unique; `notes` say how it differs. `adds` says that it adds more than
    rounding explains."""

    key: str
    name: str
    a: str | None
    b: str | None
    kind: str = ""
    mark: Mark = ""
    notes: tuple[str, ...] = ()
    adds: bool = False
    children: list[Module] = []
    count: int = 1  # of modules in it, with itself
    differing: int = 0  # of those in it that differ, with itself

    @property
    def differs(self) -> bool:
        return bool(self.mark) or self.adds


class Change(Struct, frozen=True):
    """One difference of the structure as text; `key` is that of its box."""

    key: str
    mark: Mark
    a: str
    b: str
    what: str


class MergedTree:
    """Both hierarchies in one: matched modules once, in the order of A; those of B alone after what precedes them
    there, as far as their numbers tell."""

    def __init__(self, found: Difference) -> None:
        structure = found.structure
        self.by_a: dict[str, Module] = {}
        self.by_b: dict[str, Module] = {}
        self.by_key: dict[str, Module] = {}
        root_b = next((b for a, b in structure.pairs if not a), "")
        self.root = self._add(Module("a:", "", "", root_b))
        for a, b in structure.pairs:
            if a:
                self._of_a(a).b = b
                self.by_b[b] = self.by_a[a]
        for alone in structure.removed:
            module = self._of_a(alone.path)
            module.mark, module.kind, module.notes = "removed", alone.kind, (ONLY_A,)
        for alone in structure.added:
            self._of_b(alone.path, alone.kind)
        for pair in structure.moved:
            module = self._of_a(pair.a)
            module.mark, module.kind, module.notes = (
                "moved",
                pair.kind,
                (f"{pair.b or 'the model'} in B",),
            )
        for change in structure.changed:
            module, settings = (
                self._of_a(change.a),
                [
                    setting
                    for setting in change.settings
                    if not _only_elsewhere(setting)
                ],
            )
            if settings:
                module.mark = "changed"
                module.notes += tuple(setting.text for setting in settings)
        for layer in found.layers:
            self._called(layer)
        self.root.name = self.root.kind or "Model"
        for module in reversed(
            list(self._walk(self.root))
        ):  # children before what they are in
            module.count += sum(child.count for child in module.children)
            module.differing = module.differs + sum(
                child.differing for child in module.children
            )
        self._changes = self._listed()

    def _add(self, module: Module) -> Module:
        self.by_key[module.key] = module
        if module.a is not None:
            self.by_a[module.a] = module
        if module.b is not None:
            self.by_b.setdefault(module.b, module)
        return module

    def _of_a(self, path: str) -> Module:
        """Return the module of A at a path, made with those around it if it is not there yet."""
        if path not in self.by_a:
            above, _, name = path.rpartition(".")
            parent = self._of_a(above)
            module = self.by_a[path] = self.by_key[f"a:{path}"] = Module(
                f"a:{path}", name, path, None
            )
            _insert(parent.children, module)
        return self.by_a[path]

    def _of_b(self, path: str, kind: str) -> None:
        above, _, name = path.rpartition(".")
        parent = self.by_b.get(above, self.root)
        module = self._add(
            Module(
                f"b:{path}",
                name if parent.b == above else path,
                None,
                path,
                kind,
                "added",
                (ONLY_B,),
            )
        )
        _insert(parent.children, module)

    def _called(self, layer: Layer) -> None:
        module = self.by_a.get(layer.a)
        if module is not None:
            module.kind = module.kind or layer.kind
            module.adds = module.adds or adds(layer)

    def _walk(self, module: Module) -> Iterator[Module]:
        todo = [module]
        while todo:
            now = todo.pop()
            yield now
            todo.extend(reversed(now.children))

    # -- what is shown

    def opened(self) -> frozenset[str]:
        """Return the keys of the parts that are open at first: those in which something differs, up to a size."""
        open_keys: set[str] = {self.root.key}
        level, shown = [self.root], len(self.root.children)
        while level:
            level = [
                child
                for module in level
                for child in module.children
                if child.children and child.differing > child.differs
            ]
            shown += sum(len(module.children) for module in level)
            if shown > MOST_AT_FIRST:
                break
            open_keys.update(module.key for module in level)
        return frozenset(open_keys)

    def leveled(self, opened: frozenset[str], by: int) -> frozenset[str]:
        """Open a level more everywhere, or close the innermost one."""
        inner = {
            child.key
            for key in opened
            for child in self.by_key[key].children
            if child.children
        }
        if by > 0:
            return opened | inner
        outer = {
            key
            for key in opened
            if any(child.key in opened for child in self.by_key[key].children)
        }
        return frozenset(outer | {self.root.key})

    def around(self, key: str) -> frozenset[str]:
        """Return the keys of the modules that a module is in."""
        module = self.by_key[key]
        of_a = module.a is not None
        path = (module.a if of_a else module.b) or ""
        outer_keys = {self.root.key}
        while path:
            path = path.rpartition(".")[0]
            outer = (self.by_a if of_a else self.by_b).get(path)
            if outer is not None:
                outer_keys.add(outer.key)
        return frozenset(outer_keys)

    def changes(self) -> list[Change]:
        """Return every difference of the structure in the order of the picture."""
        return self._changes

    def _listed(self) -> list[Change]:
        return [
            Change(
                module.key,
                module.mark,
                module.a or ("" if module.a is None else "the model"),
                "" if module.b is None else module.b or "the model",
                "  ".join(_what(module)),
            )
            for module in self._walk(self.root)
            if module.mark
        ]

    def drawing(self, opened: frozenset[str]) -> Drawing:
        """Draw with these parts open. There are no arrows: modules are in their order, not in that of the data."""
        boxes: list[Box] = []
        groups: list[Group] = []

        def put(module: Module, group: str | None) -> None:
            if not module.children or (module.key not in opened):
                boxes.append(_box(module, group))
                return
            caption = (
                f"{module.differing} differ"
                if module.differing > module.differs
                else ""
            )
            notes = f"  {'  '.join(module.notes)}" if module.notes else ""
            title = f"{module.name}{notes}"
            groups.append(
                Group(
                    module.key, _cut(title), "block", group, caption, mark=module.mark
                )
            )
            for row in _rows(module.children):
                if len(row) < ROW or module.key + "*" in opened:
                    for member in row:
                        put(member, module.key)
                else:
                    boxes.append(_row_box(row, module.key))

        put(self.root, None)
        return Drawing(tuple(boxes), (), tuple(groups), "LR", self.root.name)


def _only_elsewhere(setting: Setting) -> bool:
    """Return whether two classes have one name in two files: their code is compared by what it computes."""
    return (
        setting.name == "class"
        and setting.a.rpartition(".")[2] == setting.b.rpartition(".")[2]
    )


def _insert(among: list[Module], module: Module) -> None:
    """Put a numbered module before the first with a larger number, any other one at the end."""
    if module.name.isdecimal():
        for index in range(len(among), 0, -1):
            before = among[index - 1].name
            if not before.isdecimal() or int(before) <= int(module.name):
                among.insert(index, module)
                return
        among.insert(0, module)
        return
    among.append(module)


def _rows(modules: Sequence[Module]) -> Iterator[list[Module]]:
    """Yield what is drawn as one: equal modules side by side, and each that differs alone."""
    for equal, row in groupby(modules, key=lambda module: not module.differing):
        if equal:
            yield list(row)
        else:
            yield from ([module] for module in row)


def _what(module: Module) -> Iterable[str]:
    return (module.kind, *module.notes) if module.kind else module.notes


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _box(module: Module, group: str | None) -> Box:
    notes = [
        *module.notes[:LINES],
        *(
            [f"and {len(module.notes) - LINES} more"]
            if len(module.notes) > LINES
            else []
        ),
    ]
    if module.adds:
        notes.append("adds more than rounding")
    inner = module.differing - module.differs
    if inner:
        notes.append(f"{inner} in it differ")
    if module.children:
        subtitle = module.kind or counted(module.count - 1, "module")
        return Box(
            module.key,
            module.name,
            subtitle,
            ("", *map(_cut, notes)),
            "block",
            "folded",
            group,
            mark=module.mark,
        )
    return Box(
        module.key,
        module.name,
        module.kind,
        tuple(map(_cut, notes)),
        "io",
        "call",
        group,
        mark=module.mark,
    )


def _row_box(row: Sequence[Module], group: str) -> Box:
    """Draw several equal modules as one box."""
    count = sum(module.count for module in row)
    return Box(
        f"{row[0].key}*{len(row)}",
        f"{row[0].name} … {row[-1].name}",
        f"{count:,} modules match",
        (),
        "io",
        "folded",
        group,
    )
