"""Match the modules of two models: by path, then by kind, shape and neighbourhood. Near linear in their number.

Modules are matched from the top. Children of two matched modules that have the same names and kinds match one by one;
else named ones match by name, and numbered ones, whose numbers shift where one is inserted, as a sequence: the longest
common one by what they hold, then by kind. What is left anywhere is matched by equal subtrees, which has moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import msgspec
from msgspec import Struct

from app.features.compare.values import Alone, Changed, Moved, Setting, Structure

MOST_EDITS = 1000  # of two sequences; with more of them they are matched in order


class ModuleFacts(Struct, frozen=True, array_like=True):
    """A module: its path, class, the position of the module that it is in (-1 for the model), its settings, and its own
    parameters and buffers, both as names and texts."""

    path: str
    kind: str
    parent: int
    settings: tuple[tuple[str, str], ...] = ()
    tensors: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


class Tree(Struct, frozen=True, eq=False, dict=True):
    """The modules of one model, parents first, and a number for each subtree, equal for those of the same class,
    settings and shapes; `known` is shared by the trees that are compared."""

    modules: Sequence[ModuleFacts]
    known: dict[object, int]

    @cached_property
    def children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in self.modules]
        for at, module in enumerate(self.modules):
            if module.parent >= 0:
                children[module.parent].append(at)
        return children

    @cached_property
    def whole(self) -> list[int]:
        """A number for each subtree with everything in it."""
        return self._numbers(
            lambda module: (module.kind, module.settings, _untied(module.tensors))
        )

    @cached_property
    def kinds(self) -> list[int]:
        """A number for each subtree by the classes in it and the shapes of their parameters."""
        return self._numbers(
            lambda module: (
                module.kind,
                tuple(text.partition(" ")[0] for _, text in module.tensors),
            )
        )

    @cached_property
    def sizes(self) -> list[int]:
        """How many modules are in each subtree."""
        counts = [1] * len(self.modules)
        for at in range(len(self.modules) - 1, 0, -1):
            counts[self.modules[at].parent] += counts[at]
        return counts

    def _numbers(self, fact: Callable[[ModuleFacts], object]) -> list[int]:
        numbers = [0] * len(self.modules)
        for at in range(len(self.modules) - 1, -1, -1):
            inside = tuple([numbers[child] for child in self.children[at]])
            key = (fact(self.modules[at]), inside)
            numbers[at] = self.known.setdefault(key, len(self.known) + 1)
        return numbers


def _untied(tensors: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple([(name, text.partition(",")[0]) for name, text in tensors])


def compare(a: Sequence[ModuleFacts], b: Sequence[ModuleFacts]) -> Structure:
    """Match the modules of two models, each listed after the one it is in.

    >>> net = [ModuleFacts("", "Net", -1), ModuleFacts("norm", "LayerNorm", 0, (("eps", "1e-05"),))]
    >>> other = [ModuleFacts("", "Net", -1), ModuleFacts("norm", "LayerNorm", 0, (("eps", "1e-06"),)),
    ...          ModuleFacts("act", "ReLU", 0)]
    >>> found = compare(net, other)
    >>> found.changed[0].settings[0].text, found.added
    ('eps 1e-05 → 1e-06', (Alone(path='act', kind='ReLU'),))
    """
    numbers: dict[object, int] = {}
    return _Matching(Tree(a, numbers), Tree(_as_in_files_of(a, b), numbers)).result()


def _as_in_files_of(
    a: Sequence[ModuleFacts], b: Sequence[ModuleFacts]
) -> Sequence[ModuleFacts]:
    """Return the modules of B with its own classes named as if they were in the files of A: classes of one name in two
    versions of a file, or of a package, are no change by themselves.

    >>> one, other = [ModuleFacts("", "old.net.Net", -1)], [ModuleFacts("", "new.net.Net", -1)]
    >>> _as_in_files_of(one, [*other, ModuleFacts("b", "new.blocks.Block", 0)])[1].kind
    'old.blocks.Block'
    """
    if not a or not b:
        return b
    ours, theirs = (modules[0].kind.split(".")[:-1] for modules in (a, b))
    while ours and theirs and ours[-1] == theirs[-1]:
        ours, theirs = ours[:-1], theirs[:-1]
    prefix, other = ".".join([*ours, ""]), ".".join([*theirs, ""])
    if (
        not ours or not theirs or any(module.kind.startswith(other) for module in a)
    ):  # A uses these very classes
        return b
    return [
        msgspec.structs.replace(module, kind=prefix + module.kind.removeprefix(other))
        if module.kind.startswith(other)
        else module
        for module in b
    ]


class _Matching:
    def __init__(self, a: Tree, b: Tree) -> None:
        self.a, self.b = a, b
        self.of_a: dict[int, int] = {}
        self.of_b: dict[int, int] = {}

    def result(self) -> Structure:
        if self.a.modules and self.b.modules:
            self._match_below(*self._roots())
            self._match_rest(lambda tree: tree.whole)
            self._match_rest(lambda tree: tree.kinds)
        modules_a, other = self.a.modules, self.b.modules
        return Structure(
            tuple(
                [
                    (modules_a[at].path, other[self.of_a[at]].path)
                    for at in sorted(self.of_a)
                ]
            ),
            tuple(
                Alone(other[at].path, _short(other[at].kind))
                for at in _tops(self.b, self.of_b)
            ),
            tuple(
                Alone(modules_a[at].path, _short(modules_a[at].kind))
                for at in _tops(self.a, self.of_a)
            ),
            tuple(self._moved()),
            tuple(self._changed()),
        )

    def _roots(self) -> tuple[int, int]:
        """Return the root modules to match: the models, or the module that one of them wraps, as DataParallel does."""
        for tree, other in ((self.a, self.b), (self.b, self.a)):
            root = tree.modules[0].kind
            inside = other.children[0]
            if (
                root == other.modules[0].kind
                or len(inside) != 1
                or other.modules[inside[0]].kind != root
            ):
                continue
            return (0, inside[0]) if tree is self.a else (inside[0], 0)
        return 0, 0

    def _pair(self, a: int, b: int) -> None:
        self.of_a[a], self.of_b[b] = b, a

    def _match_below(self, a: int, b: int) -> None:
        """Match two modules and their submodules."""
        waiting = [(a, b)]
        while waiting:
            a, b = waiting.pop()
            self._pair(a, b)
            ours = [child for child in self.a.children[a] if child not in self.of_a]
            theirs = [child for child in self.b.children[b] if child not in self.of_b]
            if ours and theirs:
                waiting.extend(self._children(ours, theirs))

    def _children(
        self, ours: list[int], theirs: list[int]
    ) -> Iterator[tuple[int, int]]:
        modules_a, other = self.a.modules, self.b.modules
        if len(ours) == len(theirs) and all(
            modules_a[a].kind == other[b].kind and modules_a[a].name == other[b].name
            for a, b in zip(ours, theirs, strict=True)
        ):
            yield from zip(ours, theirs, strict=True)
            return
        names = {other[b].name: b for b in theirs if not other[b].name.isdecimal()}
        matched: list[tuple[int, int]] = []
        for a in ours:
            b = names.get(modules_a[a].name)
            if b is not None and _similar(modules_a[a], other[b]):
                matched.append((a, b))
        left, right = (
            _without(ours, (a for a, _ in matched)),
            _without(theirs, (b for _, b in matched)),
        )
        for keys in (
            lambda tree, at: tree.whole[at],
            lambda tree, at: tree.kinds[at],
            lambda tree, at: tree.modules[at].kind,
        ):
            more = common(
                [keys(self.a, at) for at in left], [keys(self.b, at) for at in right]
            )
            pairs = [(left[at], right[to]) for at, to in more]
            matched += pairs
            left, right = (
                _without(left, (a for a, _ in pairs)),
                _without(right, (b for _, b in pairs)),
            )
        apart = {modules_a[a].name for a in left} & {
            other[b].name for b in right
        }  # they are at the same place
        matched = _slid(
            matched,
            ours,
            [a for a in left if modules_a[a].name not in apart],
            self.a.whole,
        )
        turned = [(b, a) for a, b in matched]
        turned = _slid(
            turned,
            theirs,
            [b for b in right if other[b].name not in apart],
            self.b.whole,
        )
        matched = [(a, b) for b, a in turned]
        left, right = (
            _without(ours, (a for a, _ in matched)),
            _without(theirs, (b for _, b in matched)),
        )
        others = {other[b].name: b for b in right}  # another class at the same place
        matched += [
            self._unwrapped(a, others[modules_a[a].name])
            for a in left
            if modules_a[a].name in others
        ]
        yield from matched

    def _unwrapped(self, a: int, b: int) -> tuple[int, int]:
        """Return two modules of one place, or what one of them wraps if that is like the other."""
        kinds_a, kinds_b = self.a.kinds, self.b.kinds
        if (
            inside := next(
                (child for child in self.b.children[b] if kinds_b[child] == kinds_a[a]),
                None,
            )
        ) is not None:
            return a, inside
        inside = next(
            (child for child in self.a.children[a] if kinds_a[child] == kinds_b[b]),
            None,
        )
        return (a, b) if inside is None else (inside, b)

    def _match_rest(self, numbers: Callable[[Tree], list[int]]) -> None:
        """Match equal subtrees of the remaining modules, larger ones first."""
        there: dict[int, list[int]] = defaultdict(list)
        of_b = numbers(self.b)
        for b in range(len(self.b.modules) - 1, -1, -1):
            if b not in self.of_b:
                there[of_b[b]].append(b)
        if not there:
            return
        of_a = numbers(self.a)
        for a in range(
            len(self.a.modules)
        ):  # parents come first, so that whole subtrees move
            if a in self.of_a or not _tells(self.a, a):
                continue
            candidates = there.get(of_a[a], [])
            while candidates:
                b = candidates.pop()
                if b not in self.of_b:
                    self._match_below(a, b)
                    break

    def _moved(self) -> Iterator[Moved]:
        for a, b in sorted(self.of_a.items()):
            module, other = self.a.modules[a], self.b.modules[b]
            if module.path == other.path or module.parent < 0 or other.parent < 0:
                continue
            if (
                module.name == other.name
                and self.of_a.get(module.parent) == other.parent
            ):
                continue  # moved along
            yield Moved(module.path, other.path, _short(module.kind))

    def _changed(self) -> Iterator[Changed]:
        paths: dict[str, str] = {}
        for a, b in self.of_a.items():
            paths[self.a.modules[a].path] = self.b.modules[b].path
        for a, b in sorted(self.of_a.items()):
            module, other = self.a.modules[a], self.b.modules[b]
            if (
                module.kind == other.kind
                and module.settings == other.settings
                and module.tensors == other.tensors
            ):
                continue
            if settings := tuple(_settings(module, other, paths)):
                yield Changed(module.path, other.path, settings)


def _settings(
    a: ModuleFacts, b: ModuleFacts, paths: dict[str, str]
) -> Iterator[Setting]:
    if a.kind != b.kind:
        short = (_short(a.kind), _short(b.kind))
        yield Setting("class", *(short if short[0] != short[1] else (a.kind, b.kind)))
    same = _short(a.kind) == _short(b.kind)
    for ours, theirs in ((a.settings, b.settings), (a.tensors, b.tensors)):
        values_a, other = dict(ours), dict(theirs)
        for name in dict.fromkeys((*values_a, *other)):
            left, right = values_a.get(name, ""), other.get(name, "")
            if (
                _renamed(left, paths) == right
                or left == right
                or (not same and not (name in values_a and name in other))
            ):
                continue
            yield Setting(name, left, right)


def _renamed(text: str, paths: dict[str, str]) -> str:
    """Return a text that names a tied parameter of A as B would name it."""
    before, tied, rest = text.partition("tied to ")
    if not tied:
        return text
    name, comma, after = rest.partition(",")
    module, dot, last = name.rpartition(".")
    return f"{before}{tied}{paths.get(module, module)}{dot}{last}{comma}{after}"


def _slid(
    pairs: list[tuple[int, int]], row: list[int], alone: list[int], subtrees: list[int]
) -> list[tuple[int, int]]:
    """Return pairs where each module of a row without a match follows those that equal it: which of equal ones is
    missing is undecidable, and then the fewest numbers shift.

    >>> _slid([(1, 10), (2, 11)], [0, 1, 2], [0], [7, 7, 7])
    [(0, 10), (1, 11)]
    """
    if not alone or not pairs:
        return pairs
    match = dict(pairs)
    positions = {member: index for index, member in enumerate(row)}
    for module in reversed(alone):
        for after in row[positions[module] + 1 :]:
            if after not in match or subtrees[after] != subtrees[module]:
                break
            match[module] = match.pop(after)
            module = after
    return list(match.items())


def _similar(a: ModuleFacts, b: ModuleFacts) -> bool:
    """Return whether two modules of one name correspond, judged by their classes."""
    return a.kind == b.kind or _short(a.kind) == _short(b.kind)


def _tells(tree: Tree, at: int) -> bool:
    """Return whether a subtree is matched at any position: one with parameters, or of several modules."""
    return bool(tree.modules[at].tensors) or tree.sizes[at] > 2


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]


def _without(indices: list[int], removed: Iterable[int]) -> list[int]:
    gone = set(removed)
    return [index for index in indices if index not in gone] if gone else indices


def _tops(tree: Tree, matched: dict[int, int]) -> Iterator[int]:
    """Yield the modules without a match; of those within one another, the outermost."""
    for at, module in enumerate(tree.modules):
        if at not in matched and (module.parent < 0 or module.parent in matched):
            yield at


def common(a: Sequence[object], b: Sequence[object]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, by Myers' O((n+m)d) algorithm (An O(ND) Difference
    Algorithm, 1986); of sequences with more than `MOST_EDITS` edits, of a common one that is found in one pass.

    >>> common("abcd", "axbd")
    [(0, 0), (1, 2), (3, 3)]
    """
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    positions = [(at, at) for at in range(start)]
    inner = _myers(a[start : len(a) - end], b[start : len(b) - end])
    positions += [(at + start, to + start) for at, to in inner]
    positions += [(len(a) - end + at, len(b) - end + at) for at in range(end)]
    return positions


def _myers(a: Sequence[object], b: Sequence[object]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    rows: list[dict[int, int]] = []
    far = {1: 0}
    for edits in range(min(len(a) + len(b), MOST_EDITS) + 1):
        rows.append(dict(far))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and far[k - 1] < far[k + 1])
            x = far[k + 1] if down else far[k - 1] + 1
            y = x - k
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            far[k] = x
            if x >= len(a) and y >= len(b):
                return _traced(rows, len(a), len(b))
    return _in_order(a, b)


def _traced(rows: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(rows) - 1, -1, -1):
        far, k = rows[edits], x - y
        down = k == -edits or (k != edits and far[k - 1] < far[k + 1])
        before = k + 1 if down else k - 1
        from_x = far[before] if edits else 0
        from_y = from_x - before if edits else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


def _in_order(a: Sequence[object], b: Sequence[object]) -> list[tuple[int, int]]:
    positions: dict[object, list[int]] = defaultdict(list)
    for at in range(len(b) - 1, -1, -1):
        positions[b[at]].append(at)
    pairs: list[tuple[int, int]] = []
    last = -1
    for at, element in enumerate(a):
        there = positions.get(element, [])
        while there and there[-1] <= last:
            there.pop()
        if there:
            last = there.pop()
            pairs.append((at, last))
    return pairs
