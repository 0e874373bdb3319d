"""What of an observation is shown: modules folded to one box or open, and equal layers in a row as one, `×12`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property

from msgspec import Struct

from app.observe.observation import Call, Observation

MOST = 60  # boxes that are shown at first
MOST_AROUND = 4  # times as many modules may be open around them
LONGEST_PERIOD = (
    6  # calls that repeat together, such as a layer and the addition behind it
)


class Part(Struct, frozen=True):
    """A module call, an operation, an input or an output, or a row of equal ones.

    `key` names it while the observation lives: the id of its call, `first*count` of a row. `calls` are its calls, one
    for each repetition; `parts` what is in it, of a row that of each repetition. `title` and `kind` are its texts.
    """

    key: str
    calls: tuple[int, ...]
    title: str
    kind: str
    parts: tuple[Part, ...] = ()

    @property
    def repeated(self) -> int:
        return len(self.calls)

    @property
    def first(self) -> int:
        return self.calls[0]

    @property
    def every(self) -> tuple[int, ...]:
        """All calls that it stands for: of a row also the operations between its modules."""
        return (
            tuple(one for part in self.parts for one in part.every)
            if self.repeated > 1
            else self.calls
        )


class Tree(Struct, frozen=True, eq=False, dict=True):
    """The parts of an observation, and which part stands for a call when some are folded."""

    observation: Observation

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts at the top: inputs, the model's own call, outputs."""
        return tuple(
            self._part(call) for call in self.observation.children.get(None, ())
        )

    @cached_property
    def by_key(self) -> dict[str, Part]:
        return {part.key: part for part in _walk(self.parts)}

    @cached_property
    def _signatures(self) -> list[int]:
        """A number for each call, equal for calls that do the same with tensors of the same shapes."""
        known: dict[object, int] = {}
        found = [0] * len(self.observation.calls)
        for call in reversed(self.observation.calls):  # children have larger ids
            inside = tuple(
                found[child] for child in self.observation.children.get(call.id, ())
            )
            sizes = tuple(
                (one.shape, one.dtype) for one in (*call.inputs, *call.outputs)
            )
            key = (
                call.kind,
                call.op,
                sizes,
                call.settings,
                len(call.parameters),
                call.error,
                inside,
            )
            found[call.id] = known.setdefault(key, len(known) + 1)
        return found

    def _part(self, id: int) -> Part:
        call = self.observation.calls[id]
        return Part(
            str(id),
            (id,),
            title_of(call),
            kind_of(call),
            self._row(self.observation.children.get(id, ())),
        )

    def _row(self, ids: tuple[int, ...]) -> tuple[Part, ...]:
        """Return the parts of a call, with consecutive repetitions merged into one."""
        calls, signatures = self.observation.calls, self._signatures
        if not ids or hides_inside(
            calls[calls[ids[0]].parent or 0], (calls[one] for one in ids)
        ):
            return ()
        signs, modules = (
            [signatures[one] for one in ids],
            [calls[one].kind == "module" for one in ids],
        )
        parts: list[Part] = []
        at = 0
        while at < len(ids):
            period, times = _repeats(signs, at, modules)
            if times < 2:
                parts.append(self._part(ids[at]))
                at += 1
                continue
            copies = [
                ids[at + turn * period : at + (turn + 1) * period]
                for turn in range(times)
            ]
            parts.append(self._repeated(copies))
            at += period * times
        return tuple(parts)

    def _repeated(self, copies: list[tuple[int, ...]]) -> Part:
        inside = tuple(self._part(one) for copy in copies for one in copy)
        named = [
            next(one for one in copy if self.observation.calls[one].kind == "module")
            for copy in copies
        ]
        first, last = (
            self.observation.calls[named[0]],
            self.observation.calls[named[-1]],
        )
        title = (
            title_of(first) if first.path == last.path else f"{first.path}–{last.name}"
        )
        return Part(
            f"{named[0]}*{len(copies)}",
            tuple(named),
            title,
            f"{kind_of(first)} ×{len(copies)}",
            inside,
        )

    def opened(self, most: int = MOST) -> frozenset[str]:
        """Return the keys of the parts that are open at first: level by level, as long as no more boxes, and not many
        times as many modules around them, are shown; equal layers stay one.

        What leads to the call that raised is open in any case.
        """
        found = frozenset(self._above_failed())
        for opened, shown in self.levels():
            if shown > most or len(opened) > MOST_AROUND * most:
                break
            found = opened
        return found

    def around(self, pattern: str) -> frozenset[str]:
        """Return the keys of the parts to open so that what is in a module is shown: those of the modules whose paths
        match `pattern`, such as `blocks.*`, and of what is around them; none where no module was called so."""
        calls = self.observation.calls
        named = [
            part.key
            for part in self.by_key.values()
            if part.parts
            and any(
                calls[one].kind == "module" and fnmatchcase(calls[one].path, pattern)
                for one in part.calls
            )
        ]
        found = set(named)
        for key in named:
            while (above := self.parents.get(key)) is not None:
                key = above
                found.add(key)
        return frozenset(found)

    def depth(self, levels: int) -> frozenset[str]:
        """Return what is open where so many levels below the model are shown, 0 for the model as one box."""
        opened = [keys for keys, _ in self.levels()]
        return (
            opened[min(levels, len(opened)) - 1]
            if levels and opened
            else frozenset(self._above_failed())
        )

    def levels(self) -> Iterator[tuple[frozenset[str], int]]:
        """Yield what is open with one level, two and so on, and how many boxes are shown then; equal layers stay one,
        and what leads to the call that raised is always open."""
        found = set(self._above_failed())
        level = list(self.parts)
        shown = len(level) + sum(len(self.by_key[key].parts) - 1 for key in found)
        while level := [part for part in level if part.parts and part.repeated == 1]:
            shown += sum(len(part.parts) - 1 for part in level if part.key not in found)
            found |= {part.key for part in level}
            yield frozenset(found), shown
            level = [inner for part in level for inner in part.parts]

    @cached_property
    def parents(self) -> dict[str, str]:
        """The part around each part that is in one, by their keys."""
        return {
            inner.key: part.key for part in self.by_key.values() for inner in part.parts
        }

    def shown_for(self, key: str, opened: frozenset[str]) -> str:
        """Return the part that shows `key` while these are open: itself, or the outermost closed one around it."""
        found = at = key
        while (above := self.parents.get(at)) is not None:
            at = above
            found = at if at not in opened else found
        return found

    def leveled(self, opened: frozenset[str], by: int) -> frozenset[str]:
        """Return what is open with one level more everywhere, or one less; of what is nested, the innermost closes."""
        found: set[str] = set()
        for part in self.parts:
            self._level(part, opened, by, found)
        return frozenset(found)

    def _level(
        self, part: Part, opened: frozenset[str], by: int, found: set[str]
    ) -> None:
        if not part.parts or part.key not in opened:
            if part.parts and by > 0:
                found.add(part.key)
            return
        if by > 0 or any(one.parts and one.key in opened for one in part.parts):
            found.add(part.key)
            for one in part.parts:
                self._level(one, opened, by, found)

    def _above_failed(self) -> Iterator[str]:
        failed = self.observation.failed
        if failed is None:
            return
        inside = set(above(self.observation, failed))
        for part in _walk(self.parts):
            if part.parts and (
                inside & set(part.calls)
                or any(inside & set(one.calls) for one in part.parts)
            ):
                yield part.key


def above(observation: Observation, id: int) -> Iterator[int]:
    """Yield a call and the calls that it ran in, innermost first."""
    at: int | None = id
    while at is not None:
        yield at
        at = observation.calls[at].parent


def hides_inside(module: Call, inside: Iterable[Call]) -> bool:
    """Return whether a module is shown as one box that does not open: a layer of torch's that calls no other module."""
    return module.is_layer and not any(call.kind == "module" for call in inside)


def title_of(call: Call) -> str:
    if call.kind in ("input", "output"):
        return call.path
    if call.kind == "module":
        return call.path or call.op.rpartition(".")[2]
    return call.name.removeprefix("__").removesuffix("__")


def kind_of(call: Call) -> str:
    if call.kind == "module":
        return call.op.rpartition(".")[2] if call.path else ""
    return call.kind


def _repeats(signs: list[int], at: int, modules: list[bool]) -> tuple[int, int]:
    """Return the period and number of repetitions that begin at a place; modules repeat, not operations alone."""
    best = (1, 1)
    for period in range(1, LONGEST_PERIOD + 1):
        if not any(modules[at : at + period]):
            continue
        pattern = signs[at : at + period]
        times = 1
        while signs[at + times * period : at + (times + 1) * period] == pattern:
            times += 1
        if times > 1 and times * period > best[0] * best[1]:
            best = (period, times)
    return best if best[1] > 1 else (1, 1)


def _walk(parts: tuple[Part, ...]) -> Iterator[Part]:
    todo = [*reversed(parts)]
    while todo:
        part = todo.pop()
        yield part
        todo += reversed(part.parts)
