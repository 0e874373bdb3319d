"""Mutate project files thousands of times: each is refused in a sentence, or opens and can be checked and written.

    python -m tests.slow.mutated_projects [--files 5000] [--seed 0] [--keep FOLDER]

Bits are flipped, files are cut and spliced, their JSON is operated on, ops, names, wires and parameters are gently
changed, and the smaller monsters are among them. Each file goes through `tapedeck check` as it is, which generates the
code, and through what the window does with it before it draws. A file that takes longer than the limit is a hang, one
that asks for more memory than the limit fails as a traceback does. `--keep` keeps what went wrong.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import io
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from tests.slow.material import monsters

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 20.0  # seconds for one file
MEMORY = 3 * 2**30  # bytes beyond what the process has when it begins
SMALL = 200_000  # bytes of the monsters that are used
HUGE = (
    "60 MiB that are a project",
    "65 MiB of spaces",
    "loose nodes in 200 blocks of 1,000 each",
)  # not even made
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    1.5,
    -0.0,
    2**31,
    2**63,
    10**30,
    1e308,
    "",
    " ",
    "x",
    "x" * 10_001,
    "\x00",
    "'); import os; ('",
    "../../etc/passwd",
    "\u202e",
    [],
    {},
    [[]],
    {"$float": "nan"},
    {"$tuple": []},
    {"$expr": "width * 2"},
    {"$auto": True},
    {"$dtype": "int64"},
    {"$slice": [1, None, 2]},
    {"$unknown": 1},
)


class Hang(BaseException):
    """A file took longer than the limit; no handler of the program may take it for one of its own errors."""


@dataclass
class Outcome:
    """How many files ended in which way, and what went wrong with which."""

    files: int = 0
    refused: int = 0
    opened: int = 0
    hangs: int = 0
    tracebacks: int = 0
    slowest: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[int, str, str]] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.files} files: refused with a sentence {self.refused}, opened {self.opened}, "
            f"tracebacks {self.tracebacks}, hangs {self.hangs}; slowest {self.slowest:.1f} s"
        )


def seeds() -> list[bytes]:
    """Whole projects to begin with: the examples, and blocks in blocks."""
    found = [
        path.read_bytes()
        for path in sorted((ROOT / "resources" / "examples").glob("*.tape"))
    ]
    return found + [
        json.dumps(monsters.nested(depth, times)).encode()
        for depth, times in ((3, 2), (6, 1), (4, 3))
    ]


def small_monsters() -> list[bytes]:
    """The monsters that are small files."""
    made = [make() for name, make in monsters.MONSTERS.items() if name not in HUGE]
    return [data for data in made if len(data) < SMALL]


# --- Mutations: bytes -> bytes


def _flipped(data: bytes, choose: random.Random, _others: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(choose.choice((1, 1, 2, 8))):
        changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
    return bytes(changed)


def _cut(data: bytes, choose: random.Random, _others: list[bytes]) -> bytes:
    first, last = sorted(choose.randrange(len(data) + 1) for _ in range(2))
    return data[:first] if choose.random() < 0.5 else data[:first] + data[last:]


def _spliced(data: bytes, choose: random.Random, others: list[bytes]) -> bytes:
    other = choose.choice(others)
    start = choose.randrange(len(other))
    piece = other[start : start + choose.choice((1, 16, 200, 5_000))]
    at = choose.randrange(len(data))
    return data[:at] + piece + data[at + choose.choice((0, len(piece))) :]


def _places(raw: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = (
        raw.items()
        if isinstance(raw, dict)
        else enumerate(raw)
        if isinstance(raw, list)
        else ()
    )
    for key, value in items:
        yield (*way, key)
        yield from _places(value, (*way, key))


def _at(raw: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        raw = raw[key]
    return raw


def _operated(data: bytes, choose: random.Random, others: list[bytes]) -> bytes:
    """Values are replaced, removed, doubled and moved, keys renamed, parts of another project put in."""
    raw, ways = json.loads(data), []
    for _ in range(choose.choice((1, 1, 2, 4))):
        ways = list(_places(raw))
        way = choose.choice(ways)
        above, key = _at(raw, way[:-1]), way[-1]
        act = choose.randrange(6)
        if act == 0:
            del above[key]
        elif act == 1 and isinstance(above, list):
            above.insert(choose.randrange(len(above) + 1), copy.deepcopy(above[key]))
        elif act == 2 and isinstance(above, dict):
            above[choose.choice(("name", "id", "op", "x", key + "x"))] = above.pop(key)
        elif act == 3:
            above[key] = (
                copy.deepcopy(_at(raw, choose.choice(ways)[:-1]))
                if len(ways) < 5_000
                else None
            )
        elif act == 4:
            other = json.loads(choose.choice(others))
            above[key] = copy.deepcopy(_at(other, choose.choice(list(_places(other)))))
        else:
            above[key] = choose.choice(ODD)
    return json.dumps(raw).encode()


def _gently(data: bytes, choose: random.Random, _others: list[bytes]) -> bytes:
    """Another op, name, wire, number or repetition, as an edit by hand would be: most of these open."""
    from app.builder.catalog.catalog import catalog

    raw, ops = json.loads(data), catalog()
    sheets = [
        one["graph"]
        for one in (raw, *raw.get("blocks", ()))
        if one.get("graph", {}).get("nodes")
    ]
    for _ in range(choose.choice((1, 2, 3, 6))):
        graph = choose.choice(sheets)
        nodes, edges = graph["nodes"], graph.get("edges", [])
        one = choose.choice(nodes)
        act = choose.randrange(9)
        if act == 0:
            alike = [
                key
                for key, spec in ops.items()
                if [port.name for port in spec.inputs] == ["input"]
            ]
            one["op"] = choose.choice(alike if choose.random() < 0.8 else list(ops))
            if choose.random() < 0.8:
                one["params"] = {}
        elif act == 1:
            another = choose.choice(nodes)["name"]
            one["name"] = choose.choice(
                ("self", "forward", "a.b", "0", "F", "class", "ä", another)
            )
        elif act == 2 and edges:
            choose.choice(edges)[choose.choice(("source", "target"))] = choose.choice(
                nodes
            )["id"]
        elif act == 3 and edges:
            edges.remove(choose.choice(edges))
        elif act == 4:
            one["repeat"] = choose.choice((1, 2, 3, 50, 1_000))
        elif act == 5:
            one[choose.choice(("muted", "frozen", "kept"))] = True
        elif act == 6:
            one["shares"] = choose.choice(nodes)["id"]
        else:
            numbers = [
                way
                for way in _places(one.get("params", {}))
                if type(_at(one["params"], way)) in (int, float)
            ]
            if numbers:
                way = choose.choice(numbers)
                value = choose.choice((0, 1, -1, 3, 64, 10**6, 10**12, 0.5))
                _at(one["params"], way[:-1])[way[-1]] = value
    return json.dumps(raw).encode()


def _plain(data: bytes, _choose: random.Random, _others: list[bytes]) -> bytes:
    return data


Mutation = Callable[[bytes, random.Random, list[bytes]], bytes]
MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (_flipped, 15),
    (_cut, 10),
    (_spliced, 10),
    (_operated, 30),
    (_gently, 34),
    (_plain, 1),
)


def mutated(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """So many files, the same for a seed: the mutation that made each, and its bytes."""
    choose, whole, large = random.Random(seed), seeds(), small_monsters()
    kinds, weights = zip(*MUTATIONS, strict=True)
    for _ in range(count):
        (kind,) = choose.choices(kinds, weights)
        data = choose.choice(
            large if kind is _plain or choose.random() < 0.03 else whole
        )
        try:
            yield kind.__name__.strip("_"), kind(data, choose, whole)
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ):  # nothing to operate on
            yield "flipped", _flipped(data, choose, whole)


# --- Opening


def opened(path: Path) -> bool:
    """Check a file as the command does, and prepare it as the window does; False if it was refused in a sentence.

    Raises whatever the program does not answer with a sentence.
    """
    from app import cli
    from app.builder.analysis import analyse
    from app.builder.blocks import with_blocks
    from app.builder.catalog.catalog import catalog
    from app.builder.layout import with_places
    from app.preflight import preflight
    from app.project import file
    from app.project.module_paths import Layers

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(["check", str(path)])
    told = err.getvalue()
    assert code in (0, 1, 2) and "Traceback" not in told, told
    if code == 2:
        assert (
            told.count("\n") == 1
            and told.startswith("tapedeck: ")
            and len(told) < 2_000
        ), told[:500]
        return False
    project = with_places(file.read(path))
    answer = analyse(project.graph, with_blocks(catalog(), project.blocks))
    ast.parse(answer.source.text)
    preflight.problems(project, answer)
    for _ in islice(Layers(project, answer), 2_000):
        pass
    file.loads(file.dumps(project))
    return True


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def campaign(
    count: int,
    seed: int,
    folder: Path,
    told: Callable[[str], object] = lambda _words: None,
) -> Outcome:
    """Open so many mutated files, one after the other."""
    outcome = Outcome()
    path = folder / "mutated.tape"
    for number, (kind, data) in enumerate(mutated(count, seed)):
        path.write_bytes(data)
        began = time.perf_counter()
        outcome.files += 1
        try:
            with _limited():
                fine = opened(path)
            outcome.opened += fine
            outcome.refused += not fine
            outcome.kinds[f"{kind} {'opened' if fine else 'refused'}"] += 1
        except Hang:
            outcome.hangs += 1
            outcome.wrong.append(
                (
                    number,
                    kind,
                    f"hangs: {''.join(traceback.format_exc().splitlines(True)[-8:])}",
                )
            )
        except Exception:
            outcome.tracebacks += 1
            outcome.wrong.append((number, kind, traceback.format_exc()))
        if len(outcome.wrong) and outcome.wrong[-1][0] == number:
            (folder / f"wrong-{number}.tape").write_bytes(data)
            told(f"file {number} ({kind}): {outcome.wrong[-1][2]}")
        outcome.slowest = max(outcome.slowest, time.perf_counter() - began)
        if number % 500 == 499:
            told(outcome.line())
    return outcome


def _limit_memory() -> None:
    """Let what is asked for beyond a few GiB fail here, not end the machine's other work."""
    import torch  # before the limit: its libraries take addresses

    torch.zeros(1)
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0])
        if Path("/proc/self/statm").exists()
        else 0
    )
    if pages:
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep", type=Path, help="the folder in which files that went wrong are left"
    )
    options = parser.parse_args()
    _limit_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = campaign(
            options.files, options.seed, folder, lambda words: print(words, flush=True)
        )
    for kind, count in sorted(outcome.kinds.items()):
        print(f"  {count:>5} {kind}")
    print(outcome.line())
    return int(bool(outcome.hangs or outcome.tracebacks))


if __name__ == "__main__":
    sys.exit(main())
