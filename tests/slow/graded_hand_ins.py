"""Two hundred hand-ins, right, wrong, renamed, zipped, empty, endless and hostile, graded twice.

    python -m tests.slow.graded_hand_ins [--count N]

Each must get the verdict that it should have, twice the same. Prints a table by kind; ends with 1 on a fault.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from app.builder.catalog.catalog import catalog
from app.builder.graph import Graph
from app.builder.typed_code import nodes_of
from app.data.config import DataConfig
from app.engine import pool
from app.features.lessons import cli as grade
from app.features.lessons.lesson import Lesson
from app.project import file
from app.project.project import LessonWork, Project
from app.training.config import Choice, TrainingConfig
from app.util.frozen import FrozenMap

LESSON = "05-a-first-net"
QUESTION = "How many parameters has linear 10 behind 32 inputs?"
GOALS = 8
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.first = nn.Linear({inputs}, 32)
        self.relu = nn.ReLU()
        self.last = nn.Linear(32, {outputs})

    def forward(self, input):
        return self.last(self.relu(self.first(self.flatten(input))))
"""
HOSTILE_PATH = "../../../../etc/passwd"
SECONDS, MEMORY = 60, 4096
FEW_SECONDS = 12  # for what does not end


class Expected(NamedTuple):
    """A file to hand in, and what must come of it: goals that are reached, whether there is an error, or no reading."""

    kind: str
    name: str
    data: bytes
    reached: int
    error: bool = False
    unread: bool = False


def net(inputs: int = 64, outputs: int = 10) -> Graph:
    graph = nodes_of(NET.format(inputs=inputs, outputs=outputs), catalog()).graph
    (start,) = (node.id for node in graph.nodes.values() if node.op == "input")
    return graph.with_param(start, "shape", (1, 8, 8))


def right() -> Project:
    work = LessonWork(LESSON, FrozenMap({QUESTION: "330"}))
    training = TrainingConfig(epochs=30, optimizer=Choice("Adam", FrozenMap(lr=0.005)))
    return Project("net", net(), training=training, lesson=work)


def cases(count: int) -> list[Expected]:
    """Return the hand-ins, of each kind as many."""
    good = right()
    slow = replace(good.training, optimizer=Choice("SGD", FrozenMap(lr=1e-12)))
    endless = replace(slow, epochs=9_000_000)
    kinds = {
        "right": (good, GOALS, False),
        "no answer": (replace(good, lesson=None), GOALS - 1, False),
        "wrong answer": (
            replace(good, lesson=LessonWork(LESSON, FrozenMap({QUESTION: "320"}))),
            GOALS - 1,
            False,
        ),
        "no training": (
            replace(good, training=replace(slow, epochs=1)),
            GOALS - 2,
            False,
        ),
        "wrong size": (replace(good, graph=net(inputs=60)), 5, True),
        "blank": (Project(), 1, False),
        "names a file": (
            replace(good, data=DataConfig(source="file.csv", path=HOSTILE_PATH)),
            5,
            True,
        ),
        "own files": (replace(good, layer_files=(HOSTILE_PATH,)), GOALS, False),
    }
    bytes_of = {kind: file.dumps(project) for kind, (project, *_) in kinds.items()}
    found: list[Expected] = []
    for number in range(count):
        for kind, (_, reached, error) in kinds.items():
            name = f"{kind}-{number}.tape"
            found.append(Expected(kind, name, bytes_of[kind], reached, error))
        found += [
            Expected(
                "renamed", f"Kopie ({number}) von Müller.TAPE", bytes_of["right"], GOALS
            ),
            Expected("zipped", f"zip-{number}.zip", zipped(bytes_of["right"]), GOALS),
            Expected("empty", f"empty-{number}.tape", b"", 0, True, True),
            Expected(
                "no JSON",
                f"text-{number}.tape",
                random.Random(number).randbytes(999),
                0,
                True,
                True,
            ),
            Expected(
                "broken zip", f"broken-{number}.zip", b"PK\x03\x04 no", 0, True, True
            ),
            Expected("deep JSON", f"deep-{number}.tape", b"[" * 100_000, 0, True, True),
        ]
    found.append(
        Expected(
            "endless",
            "endless.tape",
            file.dumps(replace(good, training=endless)),
            0,
            True,
        )
    )
    first = next(node.id for node in good.graph.nodes.values() if node.name == "first")
    for width in (500_000_000, 1_000_000_000, 2_000_000_000):
        huge = replace(good, graph=good.graph.with_param(first, "out_features", width))
        name = f"huge-{width}.tape"
        found.append(Expected("huge", name, file.dumps(huge), 5, True))
    return found


def zipped(data: bytes) -> bytes:
    """Return a zip whose entry wants to leave the folder."""
    with tempfile.TemporaryFile() as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("../../leaves/net.tape", data)
            archive.writestr("__MACOSX/._net.tape", b"no")
        stream.seek(0)
        return stream.read()


def verdicts(folder: Path, lesson: Lesson, text: str) -> dict[str, grade.Submission]:
    """Return the submissions by the name of the file that was handed in."""
    graded = {}
    for hand_in in grade.hand_ins(folder):
        name = hand_in.name.partition(".zip/")[0]
        seconds = FEW_SECONDS if name.startswith(("endless", "huge")) else SECONDS
        key = f"{name}.zip" if ".zip/" in hand_in.name else name
        graded[key] = grade.graded(hand_in, lesson, text, seconds, MEMORY)
    return graded


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=14, help="of each kind (14)")
    options = parser.parse_args(arguments)
    lesson, text = grade.lesson_named(LESSON)
    pool.prepare(later=True)
    expected = cases(options.count)
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in expected:
            (folder / each.name).write_bytes(each.data)
        first, second = (verdicts(folder, lesson, text) for _ in range(2))
    right_by_kind: Counter[str] = Counter()
    for each in expected:
        submission = first[each.name]
        reached = sum(goal.passed for goal in submission.graded.goals)
        seen = (reached, bool(submission.graded.error), submission.unread)
        if seen != (each.reached, each.error, each.unread):
            faults.append(
                f"{each.name}: {seen}, expected {each[3:]}; {submission.graded.error}"
            )
        elif submission != second[each.name]:
            faults.append(f"{each.name}: another verdict the second time")
        else:
            right_by_kind[each.kind] += 1
    of_kind = Counter(each.kind for each in expected)
    print("| kind | hand-ins | verdict as expected, twice |\n| --- | ---: | ---: |")
    for kind, count in of_kind.items():
        print(f"| {kind} | {count} | {right_by_kind[kind]} |")
    print(f"| all | {len(expected)} | {sum(right_by_kind.values())} |")
    print(*faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
