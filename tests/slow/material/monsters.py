"""Project files that are far larger than any net: each has to open and work, or to be refused in a sentence.

python -m tests.slow.material.monsters FOLDER     # write them all
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Raw = dict[str, Any]
MONSTERS: dict[str, Callable[[], bytes]] = {}


def _monster(
    name: str,
) -> Callable[[Callable[[], bytes | Raw]], Callable[[], bytes | Raw]]:
    def keep(make: Callable[[], bytes | Raw]) -> Callable[[], bytes | Raw]:
        def written() -> bytes:
            made = make()
            return made if isinstance(made, bytes) else json.dumps(made).encode()

        MONSTERS[name] = written
        return make

    return keep


def node(key: str, op: str, /, **more: Any) -> Raw:
    """A node; `params` and the other fields of its record as keywords."""
    return {"id": key, "op": op, "name": key, "params": {}, **more}


def chain_of(nodes: list[Raw], ports: str = "input") -> Raw:
    """A graph in which each node feeds the next."""
    pairs = zip(nodes, nodes[1:], strict=False)
    edges = [
        {"source": a["id"], "target": b["id"], "port": ports, "output": 0}
        for a, b in pairs
    ]
    return {"nodes": nodes, "edges": edges}


def project(graph: Raw, **more: Any) -> Raw:
    """A project with a graph, everything else as plain as it can be."""
    choice = {
        "optimizer": {"name": "SGD", "params": {}},
        "loss": {"name": "CrossEntropyLoss", "params": {}},
    }
    return {
        "tapedeck": 2,
        "name": "monster",
        "graph": graph,
        "training": choice,
        "data": {},
        **more,
    }


def ends(*inner: Raw) -> Raw:
    """A chain between an input and an output."""
    shape = {"$tuple": [8]}
    graph = chain_of(
        [node("in", "input", params={"shape": shape}), *inner, node("out", "output")]
    )
    for edge in graph["edges"]:
        if edge["target"].startswith("use"):
            edge["port"] = "x"
    return graph


def block(name: str, *inner: Raw) -> Raw:
    """A block with one input `x` and one output `y` around a chain."""
    graph = chain_of([node("x", "input"), *inner, node("y", "output")])
    for edge in graph["edges"]:
        if edge["target"].startswith("use"):
            edge["port"] = "x"
    return {"name": name, "graph": graph}


def use(name: str, number: int = 0, /, **more: Any) -> Raw:
    """An instance of a block."""
    return node(f"use{number}", f"block.{name}", **more)


def nested(depth: int, times: int = 1, **more: Any) -> Raw:
    """Blocks in blocks, each holding the next so many times."""
    blocks = [block("B0", node("relu", "nn.ReLU"))]
    for level in range(1, depth):
        blocks.append(
            block(f"B{level}", *(use(f"B{level - 1}", i, **more) for i in range(times)))
        )
    return project(ends(use(f"B{depth - 1}")), blocks=blocks)


def layers(count: int, op: str = "nn.ReLU") -> list[Raw]:
    return [node(f"n{i}", op) for i in range(count)]


for _depth in (10, 40, 200, 2_000):
    _monster(f"blocks nested {_depth} deep")(lambda depth=_depth: nested(depth))
for _levels in (12, 16, 30):
    _monster(f"{_levels} blocks, each holding the next twice")(
        lambda levels=_levels: nested(levels, 2)
    )
for _count in (1_000, 5_000, 20_000, 100_000):
    _monster(f"{_count} loose nodes")(
        lambda count=_count: project({"nodes": layers(count), "edges": []})
    )
for _count in (1_000, 5_000, 20_000):
    _monster(f"a chain of {_count} nodes")(
        lambda count=_count: project(ends(*layers(count)))
    )


@_monster("a chain of 2,000 convolutions")
def _() -> Raw:
    params = {"out_channels": 8, "kernel_size": 3, "padding": 1}
    made = [node(f"n{i}", "nn.Conv2d", params=params) for i in range(2_000)]
    graph = ends(*made)
    graph["nodes"][0]["params"]["shape"] = {"$tuple": [8, 16, 16]}
    return project(graph)


@_monster("loose nodes in 200 blocks of 1,000 each")
def _() -> Raw:
    return project(
        ends(),
        blocks=[
            {"name": f"B{i}", "graph": {"nodes": layers(1_000)}} for i in range(200)
        ],
    )


@_monster("10,000 blocks")
def _() -> Raw:
    return project(
        ends(), blocks=[block(f"B{i}", node("relu", "nn.ReLU")) for i in range(10_000)]
    )


@_monster("a layer repeated 1,000 times")
def _() -> Raw:
    return project(
        ends(node("fc", "nn.Linear", params={"out_features": 8}, repeat=1_000))
    )


@_monster("a repeat of 10^12")
def _() -> Raw:
    return project(
        ends(node("fc", "nn.Linear", params={"out_features": 8}, repeat=10**12))
    )


@_monster("repeats in repeats, 1,000 x 1,000 x 1,000")
def _() -> Raw:
    inner = block(
        "B0", node("fc", "nn.Linear", params={"out_features": 8}, repeat=1_000)
    )
    outer = block("B1", use("B0", repeat=1_000))
    return project(ends(use("B1", repeat=1_000)), blocks=[inner, outer])


@_monster("a block of 100 layers repeated 500 times")
def _() -> Raw:
    return project(ends(use("B0", repeat=500)), blocks=[block("B0", *layers(100))])


@_monster("20 blocks, each holding the next twice, all unfolded")
def _() -> Raw:
    raw = nested(20, 2)
    for each in raw["blocks"][1:]:
        each["unfolded"] = ["use0", "use1"]
    return {**raw, "unfolded": ["use0"]}


@_monster("10 blocks, each holding the next twice, all unfolded")
def _() -> Raw:
    raw = nested(10, 2)
    for each in raw["blocks"][1:]:
        each["unfolded"] = ["use0", "use1"]
    return {**raw, "unfolded": ["use0"]}


@_monster("one value used 5,000 times")
def _() -> Raw:
    raw = project(ends(*layers(5_000)))
    for edge in raw["graph"]["edges"][:-1]:
        edge["source"] = "in"
    return raw


@_monster("5,000 wires into one cat")
def _() -> Raw:
    nodes = [
        node("in", "input", params={"shape": {"$tuple": [8]}}),
        node("cat", "torch.cat"),
        node("out", "output"),
    ]
    edges = [
        {"source": "in", "target": "cat", "port": "tensors", "output": 0, "index": i}
        for i in range(5_000)
    ]
    edges.append({"source": "cat", "target": "out", "port": "input", "output": 0})
    return project({"nodes": nodes, "edges": edges})


@_monster("400 nodes, each wired to all before it")
def _() -> Raw:
    nodes = [node("in", "input", params={"shape": {"$tuple": [8]}})]
    nodes += [node(f"n{i}", "torch.cat") for i in range(400)]
    edges = [
        {
            "source": nodes[j]["id"],
            "target": f"n{i}",
            "port": "tensors",
            "output": 0,
            "index": j,
        }
        for i in range(400)
        for j in range(i + 1)
    ]
    return project({"nodes": nodes, "edges": edges})


@_monster("a Linear of 10^15 features")
def _() -> Raw:
    return project(ends(node("fc", "nn.Linear", params={"out_features": 10**15})))


@_monster("two Linear of 10^6 features")
def _() -> Raw:
    params = {"out_features": 10**6}
    return project(
        ends(
            node("a", "nn.Linear", params=params), node("b", "nn.Linear", params=params)
        )
    )


@_monster("an input of 10,000 dimensions")
def _() -> Raw:
    raw = project(ends(node("relu", "nn.ReLU")))
    raw["graph"]["nodes"][0]["params"]["shape"] = {"$tuple": [1] * 10_000}
    return raw


@_monster("an input of 10^18 numbers")
def _() -> Raw:
    raw = project(ends(node("relu", "nn.ReLU")))
    raw["graph"]["nodes"][0]["params"]["shape"] = {"$tuple": [10**9, 10**9]}
    return raw


@_monster("a parameter with 200,000 numbers")
def _() -> Raw:
    return project(
        ends(node("flat", "torch.reshape", params={"shape": {"$tuple": [1] * 200_000}}))
    )


@_monster("a parameter of 5,000,000 letters")
def _() -> Raw:
    return project(
        ends(node("mix", "torch.einsum", params={"equation": "a" * 5_000_000}))
    )


@_monster("names of 10,000 letters")
def _() -> Raw:
    return project(
        ends(
            *(
                node(f"n{i}", "nn.ReLU", name="x" * 9_999 + str(i % 10))
                for i in range(50)
            )
        )
    )


@_monster("a name of 10,000,000 letters")
def _() -> Raw:
    return project(ends(node("n", "nn.ReLU", name="x" * 10_000_000)))


@_monster("notes of 30,000,000 letters")
def _() -> Raw:
    return project(ends(node("n", "nn.ReLU")), notes="lorem ipsum " * 2_500_000)


@_monster("notes of 500,000 letters in one line")
def _() -> Raw:
    return project(ends(node("n", "nn.ReLU")), notes="lorem" * 100_000)


@_monster("20,000 comments")
def _() -> Raw:
    made = {
        f"c{i}": {"text": "x", "x": i, "y": i, "width": 50, "height": 50}
        for i in range(20_000)
    }
    return project(ends(node("n", "nn.ReLU")), comments=made)


@_monster("a comment of 10,000 letters")
def _() -> Raw:
    made = {"c": {"text": "word " * 2_000, "x": 0, "y": 0, "width": 50, "height": 50}}
    return project(ends(node("n", "nn.ReLU")), comments=made)


@_monster("a wire with 100,000 bends")
def _() -> Raw:
    raw = project(ends(node("n", "nn.ReLU")))
    raw["bends"] = [
        {
            **raw["graph"]["edges"][0],
            "points": [[i % 1_000, i // 1_000] for i in range(100_000)],
        }
    ]
    return raw


@_monster("nodes at the ends of the world")
def _() -> Raw:
    raw = project(ends(*layers(8)))
    places = ([1e9 * (-1) ** i, -1e9 * (-1) ** (i // 2)] for i in range(10))
    raw["positions"] = dict(
        zip((each["id"] for each in raw["graph"]["nodes"]), places, strict=True)
    )
    return raw


@_monster("all nodes in one place")
def _() -> Raw:
    raw = project(ends(*layers(1_000)))
    raw["positions"] = {each["id"]: [0, 0] for each in raw["graph"]["nodes"]}
    return raw


@_monster("2,000 nodes in a ring")
def _() -> Raw:
    graph = chain_of(layers(2_000))
    graph["edges"].append(
        {"source": "n1999", "target": "n0", "port": "input", "output": 0}
    )
    return project(graph)


@_monster("2,000 nodes that are broken")
def _() -> Raw:
    params = {"out_channels": 8, "kernel_size": 99}
    return project(
        ends(*(node(f"n{i}", "nn.Conv2d", params=params) for i in range(2_000)))
    )


@_monster("2,000 nodes of unknown kinds")
def _() -> Raw:
    return project(
        {"nodes": [node(f"n{i}", f"nn.Strange{i}") for i in range(2_000)], "edges": []}
    )


@_monster("1,000 outputs")
def _() -> Raw:
    nodes = [
        node("in", "input", params={"shape": {"$tuple": [8]}}),
        *layers(1_000, "output"),
    ]
    edges = [
        {"source": "in", "target": f"n{i}", "port": "input", "output": 0}
        for i in range(1_000)
    ]
    return project({"nodes": nodes, "edges": edges})


@_monster("a chunk into 1,000 pieces")
def _() -> Raw:
    return project(ends(node("cut", "torch.chunk", params={"chunks": 1_000})))


@_monster("a block with 2,000 parameters")
def _() -> Raw:
    made = block("B0", node("relu", "nn.ReLU"))
    made["params"] = [
        {"name": f"p{i}", "kind": "int", "default": i} for i in range(2_000)
    ]
    return project(ends(use("B0")), blocks=[made])


@_monster("20,000 groups of parameters")
def _() -> Raw:
    raw = project(ends(node("n", "nn.ReLU")))
    raw["training"]["groups"] = [
        {"path": f"p{i}", "options": {"lr": 0.1}} for i in range(20_000)
    ]
    return raw


@_monster("20,000 transforms")
def _() -> Raw:
    raw = project(ends(node("n", "nn.ReLU")))
    raw["data"] = {"train_transforms": [{"name": "Resize", "params": {}}] * 20_000}
    return raw


@_monster("100,000 files of layers")
def _() -> Raw:
    return project(
        ends(node("n", "nn.ReLU")),
        layer_files=[f"layers{i}.py" for i in range(100_000)],
    )


@_monster("100,000 brackets")
def _() -> bytes:
    return b"[" * 100_000


@_monster("65 MiB of spaces")
def _() -> bytes:
    return b" " * (65 * 2**20)


@_monster("60 MiB that are a project")
def _() -> bytes:
    return json.dumps(project(ends(*layers(500_000)))).encode()


def write_all(folder: Path, chosen: str = "") -> Iterator[tuple[str, Path]]:
    """Write those whose name has `chosen` in it; yields name and file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, make) in enumerate(MONSTERS.items()):
        if chosen in name:
            path = folder / f"{number:02} {name.replace(',', '')}.tape"
            path.write_bytes(make())
            yield name, path


if __name__ == "__main__":
    for _name, _path in write_all(Path(sys.argv[1])):
        print(f"{_path.stat().st_size:>12,}  {_path}")
