"""Limits of a project file's content, checked on plain data before objects are built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.builder import limits

LARGEST_FILE = 32 * 2**20
MOST_VALUES = 1_500_000  # JSON values, counted by the signs before them
MOST_COMMENTS = 2_000  # of a sheet
MOST_BENDS = 20_000  # points of all wires of a sheet
MOST_GOALS = 200  # of a lesson
LARGEST_LESSON = 256 * 2**10  # bytes of its text
MOST_NOTES = 1_000_000  # letters
# Maximum lengths of lists, by path.
SHORT = {
    ("training", "groups"): 1_000,
    ("training", "losses"): 1_000,
    ("training", "recompute"): 10_000,
    ("data", "train_transforms"): 100,
    ("data", "eval_transforms"): 100,
    ("layer_files",): 1_000,
}
MOST_BLOCK_PARAMS = 500


def beyond_text(data: bytes) -> str:
    """Describe the limit that a file's text exceeds, "" if none."""
    if len(data) > LARGEST_FILE:
        return f"it is larger than {LARGEST_FILE >> 20} MiB, the limit for a project"
    values = sum(data.count(sign) for sign in (b",", b"[", b"{"))
    return (
        f"it holds more than {MOST_VALUES:,} values, the limit for a project"
        if values > MOST_VALUES
        else ""
    )


def beyond(raw: dict[str, Any]) -> str:
    """Describe the limit that a project's plain data exceed, with the path, "" if none."""
    return next(_beyond(raw), "")


def _beyond(raw: dict[str, Any]) -> Iterator[str]:
    for way, most in SHORT.items():
        at: Any = raw
        for name in way:
            at = at.get(name) if isinstance(at, dict) else None
        yield from _longer(at, most, "entries", f"$.{'.'.join(way)}")
    yield from _longer(raw.get("notes"), MOST_NOTES, "letters", "$.notes")
    blocks = raw.get("blocks")
    yield from _longer(blocks, limits.MOST_BLOCKS, "blocks", "$.blocks")
    inner = blocks if isinstance(blocks, list) else []
    sheets = [("$", raw), *((f"$.blocks[{i}]", block) for i, block in enumerate(inner))]
    total = 0
    for location, sheet in sheets:
        if not isinstance(sheet, dict):
            continue
        graph = sheet.get("graph")
        nodes, edges = (
            (graph.get("nodes"), graph.get("edges"))
            if isinstance(graph, dict)
            else (None, None)
        )
        total += len(nodes) if isinstance(nodes, list) else 0
        yield from _longer(nodes, limits.MOST_NODES, "nodes", f"{location}.graph.nodes")
        yield from _longer(edges, limits.MOST_EDGES, "wires", f"{location}.graph.edges")
        yield from _longer(
            sheet.get("comments"), MOST_COMMENTS, "comments", f"{location}.comments"
        )
        yield from _bends(sheet.get("bends"), f"{location}.bends")
        if sheet is not raw:
            yield from _longer(
                sheet.get("params"),
                MOST_BLOCK_PARAMS,
                "parameters",
                f"{location}.params",
            )
            yield from _longer(
                sheet.get("note"), MOST_NOTES, "letters", f"{location}.note"
            )
    if total > limits.MOST_NODES_IN_ALL:
        most = limits.MOST_NODES_IN_ALL
        yield f"there are {total:,} nodes on all sheets together, and at most {most:,} - at `$.blocks`"


def _longer(value: Any, most: int, noun: str, location: str) -> Iterator[str]:
    if isinstance(value, list | dict | str) and len(value) > most:
        yield f"there are {len(value):,} {noun}, at most {most:,} - at `{location}`"


def _bends(value: Any, location: str) -> Iterator[str]:
    yield from _longer(value, limits.MOST_EDGES, "wires with bends", location)
    bends = (
        [wire.get("points") for wire in value if isinstance(wire, dict)]
        if isinstance(value, list)
        else []
    )
    points = sum(len(bend) for bend in bends if isinstance(bend, list))
    if points > MOST_BENDS:
        yield f"there are {points:,} bends, at most {MOST_BENDS:,} - at `{location}`"
