"""What of an observation is shown: modules folded to one box or open, and equal layers in a row as one, `×12`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

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
            tuple(call_id for piece in self.parts for call_id in piece.every)
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
        return {piece.key: piece for piece in _walk(self.parts)}

    @cached_property
    def _signatures(self) -> list[int]:
        """A number for each call, equal for calls that do the same with tensors of the same shapes."""
        numbers: dict[object, int] = {}
        signatures = [0] * len(self.observation.calls)
        for call in reversed(self.observation.calls):  # children have larger ids
            inside = tuple(
                signatures[child]
                for child in self.observation.children.get(call.id, ())
            )
            sizes = tuple(
                (tensor.shape, tensor.dtype) for tensor in (*call.inputs, *call.outputs)
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
            signatures[call.id] = numbers.setdefault(key, len(numbers) + 1)
        return signatures

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
            calls[calls[ids[0]].parent or 0], (calls[call_id] for call_id in ids)
        ):
            return ()
        signs, modules = (
            [signatures[call_id] for call_id in ids],
            [calls[call_id].kind == "module" for call_id in ids],
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
        inside = tuple(self._part(call_id) for copy in copies for call_id in copy)
        named = [
            next(
                call_id
                for call_id in copy
                if self.observation.calls[call_id].kind == "module"
            )
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
        open_keys = frozenset(self._above_failed())
        for opened, shown in self.levels():
            if shown > most or len(opened) > MOST_AROUND * most:
                break
            open_keys = opened
        return open_keys

    def around(self, pattern: str) -> frozenset[str]:
        """Return the keys of the parts to open so that what is in a module is shown: those of the modules whose paths
        match `pattern`, such as `blocks.*`, and of what is around them; none where no module was called so."""
        calls = self.observation.calls
        named = [
            piece.key
            for piece in self.by_key.values()
            if piece.parts
            and any(
                calls[call_id].kind == "module"
                and fnmatchcase(calls[call_id].path, pattern)
                for call_id in piece.calls
            )
        ]
        open_keys = set(named)
        for key in named:
            while (above := self.parents.get(key)) is not None:
                key = above
                open_keys.add(key)
        return frozenset(open_keys)

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
        open_keys = set(self._above_failed())
        level = list(self.parts)
        shown = len(level) + sum(len(self.by_key[key].parts) - 1 for key in open_keys)
        while level := [
            piece for piece in level if piece.parts and piece.repeated == 1
        ]:
            shown += sum(
                len(piece.parts) - 1 for piece in level if piece.key not in open_keys
            )
            open_keys |= {piece.key for piece in level}
            yield frozenset(open_keys), shown
            level = [inner for piece in level for inner in piece.parts]

    @cached_property
    def parents(self) -> dict[str, str]:
        """The part around each part that is in one, by their keys."""
        return {
            inner.key: piece.key
            for piece in self.by_key.values()
            for inner in piece.parts
        }

    def shown_for(self, key: str, opened: frozenset[str]) -> str:
        """Return the part that shows `key` while these are open: itself, or the outermost closed one around it."""
        visible_key = at = key
        while (above := self.parents.get(at)) is not None:
            at = above
            visible_key = at if at not in opened else visible_key
        return visible_key

    def leveled(self, opened: frozenset[str], by: int) -> frozenset[str]:
        """Return what is open with one level more everywhere, or one less; of what is nested, the innermost closes."""
        open_keys: set[str] = set()
        for piece in self.parts:
            self._level(piece, opened, by, open_keys)
        return frozenset(open_keys)

    def _level(
        self, piece: Part, opened: frozenset[str], by: int, open_keys: set[str]
    ) -> None:
        if not piece.parts or piece.key not in opened:
            if piece.parts and by > 0:
                open_keys.add(piece.key)
            return
        if by > 0 or any(child.parts and child.key in opened for child in piece.parts):
            open_keys.add(piece.key)
            for inner in piece.parts:
                self._level(inner, opened, by, open_keys)

    def _above_failed(self) -> Iterator[str]:
        failed = self.observation.failed
        if failed is None:
            return
        inside = set(above(self.observation, failed))
        for piece in _walk(self.parts):
            if piece.parts and (
                inside & set(piece.calls)
                or any(inside & set(inner.calls) for inner in piece.parts)
            ):
                yield piece.key


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
        piece = todo.pop()
        yield piece
        todo += reversed(piece.parts)


# --- As data


def to_plain(observation: Observation) -> dict[str, Any]:
    """Return `{"nodes", "edges", "failed"}`: every call but those inside torch's own layers, which take their edges.

    A node has "id", "path", "name", "op", "inputs" and "outputs" as shapes, "line" of the file that called it, and
    "error", the text of the exception at the call that raised it, else null. An edge is [from, to]; "failed" is the id
    of the node that raised, or null.
    """
    shown = shown_calls(observation)
    failed = shown[observation.failed] if observation.failed is not None else None
    nodes = [
        {
            "id": call.id,
            "path": call.path,
            "name": call.name,
            "op": call.op,
            "inputs": [list(tensor.shape) for tensor in call.inputs],
            "outputs": [list(tensor.shape) for tensor in call.outputs],
            "line": call.line or None,
            "error": observation.error if call.id == failed else None,
        }
        for call in observation.calls
        if shown[call.id] == call.id
    ]
    edges = dict.fromkeys(
        (shown[flow.source], shown[flow.target]) for flow in observation.flows
    )
    return {
        "nodes": nodes,
        "edges": [[source, other] for source, other in edges if source != other],
        "failed": failed,
    }


def shown_calls(observation: Observation) -> list[int]:
    """Return for each call the one that stands for it: itself, or the outermost layer of torch's that hides it."""
    calls, children = observation.calls, observation.children
    hiding = {
        call.id
        for call in calls
        if call.is_layer
        and hides_inside(call, (calls[child] for child in children.get(call.id, ())))
    }
    shown: list[int] = []
    for call in calls:
        if call.parent is not None and shown[call.parent] != call.parent:
            shown.append(shown[call.parent])
        elif call.parent in hiding:
            shown.append(call.parent)
        else:
            shown.append(call.id)
    return shown
