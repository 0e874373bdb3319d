"""Graph breaks and recompiles planted into models: `tapedeck compile` names each with its line, and nothing else.

    python -m tests.slow.planted_breaks [NAME ...]

20 breaks and 10 recompiles in fifteen models, and fifteen clean ones. Prints a table; exits with 1 on a fault.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from app.cli import run

MODELS = Path(__file__).with_name("material") / "planted_breaks.py"
CALL = ["--input", "4x8", "--train", "--json", "--trust", "--timeout", "900"]
_USED = re.compile(r"\b([A-Z]\w+|positive|left_alone)\(")
_PLANTED = re.compile(r"# (break|recompile): (.+)$")
Planted = set[tuple[str, str, int]]  # break or recompile, path, line


def names(table: str) -> list[str]:
    """Return the models of PLANTED or of CLEAN."""
    text = MODELS.read_text("utf-8")
    return re.findall(rf"{table} = \(\n([^)]*)\)", text)[0].replace('"', "").split()


def planted(name: str) -> Planted:
    """Return what is planted in a model, and in the classes and functions that it uses."""
    blocks: dict[str, list[tuple[int, str]]] = {}
    block = ""
    for number, line in enumerate(MODELS.read_text("utf-8").splitlines(), 1):
        if match := re.match(r"(?:class|def) (\w+)", line):
            block = match[1]
        blocks.setdefault(block, []).append((number, line))
    found: Planted = set()
    waiting, met = [name], set()
    while waiting:
        block = waiting.pop()
        if block in met or block not in blocks:
            continue
        met.add(block)
        for number, line in blocks[block]:
            if mark := _PLANTED.search(line):
                paths = mark[2].split()
                found |= {(mark[1], path.strip("."), number) for path in paths}
            waiting += _USED.findall(line)
    return found


def named(name: str) -> tuple[Planted, dict[str, object]]:
    """Return what the command names in a model of this folder, and all that it says."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = run(["compile", f"models.py:{name}", *CALL])
    record = json.loads(output.getvalue())
    breaks, recompiles = record["breaks"], record["recompiles"]
    assert status == bool(breaks or recompiles)
    assert all(entry["reason"] and entry["cure"].endswith(".") for entry in breaks)
    assert all(entry["was"] and entry["is"] for entry in recompiles)
    found = {
        ("break", entry["path"], int(entry["line"].removeprefix("models.py:")))
        for entry in breaks
    }
    for entry in recompiles:
        line = re.search(r"\(models\.py:(\d+)\)$", entry["guard"])
        found.add(("recompile", entry["path"], int(line[1]) if line else 0))
    return found, record


def main(chosen: list[str]) -> int:
    """Print a table of all models; return 1 if something is not named, or named without being there."""
    faults = counts = 0
    clean = names("CLEAN")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        own = ("CONFIG", "DATA", "CACHE", "STATE")
        os.environ.update({f"XDG_{name}_HOME": folder for name in own})
        shutil.copy(MODELS, "models.py")
        print("| model | planted | named | more | graphs | eager ms | compiled ms |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name in chosen or [*names("PLANTED"), *clean]:
            expected = planted(name)
            found, record = named(name)
            faults += found != expected
            counts += len(expected)
            times = [record["eager_seconds"], record["compiled_seconds"]]
            shown = (
                "-" if time is None else f"{1000 * float(str(time)):.2f}"
                for time in times
            )
            row = [
                name,
                len(expected),
                len(expected & found),
                len(found - expected),
                record["graphs"],
                *shown,
            ]
            print(f"| {' | '.join(map(str, row))} |", flush=True)
    print(f"{counts} planted; {faults} models with a fault")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
