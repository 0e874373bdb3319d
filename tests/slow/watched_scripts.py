"""Training scripts as people write them, run as `python train.py` and unchanged under `tapedeck run`.

`python -m tests.slow.watched_scripts` writes docs/measured/watched_scripts.md; only scripts that are named are run
anew. Every script of `material/scripts_watched/` prints at each step its loss with all digits and the `.grad.norm()` of
each parameter. What both runs print has to be the same line by line; the frames have to tell each loss, and at some
steps the norms of the layers, as the script printed them.

    python -m tests.slow.watched_scripts [--python FILE] [SCRIPT ...]

Two scripts need packages that are no dependency (lightning; transformers and accelerate): without them in the
environment of `--python` they are said not to be tried.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "slow" / "material" / "scripts_watched"
FILE = ROOT / "docs" / "measured" / "watched_scripts.md"
NEEDS = {
    "lightning_module": ("lightning",),
    "transformers_trainer": ("transformers", "accelerate"),
}
RANKS = {"ddp": 2}
LIMIT = 240.0  # seconds for one run of a script
HEAD = """# Training scripts, watched

Made by `python -m tests.slow.watched_scripts`: {counts} Each script of
`tests/slow/material/scripts_watched` is a common form of training loop, and ran as
`python train.py` and unchanged under `tapedeck run`. *Lines* are those that both runs printed, with every loss to all
its digits; *losses* those that the window received exactly as the script printed them; *norms* those of layers,
at so many steps, equal to the script's `.grad.norm()` to 1e-5 of it.
"""


@dataclass(frozen=True)
class Row:
    """What came of one script; `why` is empty where nothing differs."""

    name: str
    what: str
    lines: int = 0
    losses: int = 0
    norms: int = 0
    looked: int = 0  # steps of which norms were told
    why: str = ""
    tried: bool = True

    def __str__(self) -> str:
        told = f"{self.lines} lines, {self.losses} losses, {self.norms} norms at {self.looked} steps"
        verdict = "equal" if not self.why else "DIFFERS" if self.tried else "not tried"
        return f"{self.name:22} {verdict:9} {told if self.tried else ''} {self.why}".rstrip()


def row_of(name: str, python: str = sys.executable) -> Row:
    """Run a script twice and hold what it printed, and what was told of it, against each other."""
    path = SCRIPTS / f"{name}.py"
    what = path.read_text("utf-8").split('"""')[1].rstrip(".")
    missing = [package for package in NEEDS.get(name, ()) if not _has(python, package)]
    if missing:
        return Row(
            name, what, why=f"{' and '.join(missing)} cannot be imported", tried=False
        )
    ours = [sys.executable, "-m", "tapedeck", "run", "--python", python]
    with tempfile.TemporaryDirectory() as folder:
        if name in RANKS:
            spread = [
                python,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={RANKS[name]}",
            ]
            alone = _printed([*spread, str(path)], folder)
            watched = _printed([*spread, "--no-python", *ours, str(path)], folder)
        else:
            alone, watched = (
                _printed([python, str(path)], folder),
                _printed([*ours, str(path)], folder),
            )
        frames = [
            frame
            for file in Path(folder).rglob("frames.jsonl")
            for frame in _lines(file.read_text("utf-8"))
        ]
    if isinstance(alone, str) or isinstance(watched, str):
        return Row(name, what, why=alone if isinstance(alone, str) else str(watched))
    why = (
        ""
        if alone == watched
        else f"it printed other lines: {_first_difference(alone, watched)}"
    )
    losses, norms, looked, untrue = compared(_lines("\n".join(alone)), frames)
    return Row(name, what, len(alone), losses, norms, looked, why or untrue)


def _has(python: str, package: str) -> bool:
    words = [
        python,
        "-c",
        f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)",
    ]
    return not subprocess.run(words, check=False).returncode


def _printed(words: list[str], folder: str) -> list[str] | str:
    """Return the lines that a command prints, sorted where ranks take turns at random; what went wrong as a text."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ,
        "TAPEDECK_WATCHED": folder,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": path,
    }
    try:
        done = subprocess.run(
            words,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it had not come to its end after {LIMIT:g} s"
    if done.returncode:
        return f"exit status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
    lines = done.stdout.splitlines()
    return sorted(lines) if "torch.distributed.run" in words else lines


def _first_difference(alone: Sequence[str], watched: Sequence[str]) -> str:
    for left, right in zip(alone, watched, strict=False):
        if left != right:
            return f"{right[:60]} for {left[:60]}"
    return f"{len(watched)} for {len(alone)}"


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def compared(
    printed: list[dict[str, Any]], frames: list[dict[str, Any]]
) -> tuple[int, int, int, str]:
    """Return how many losses and norms were told truly, at how many steps, and the first untruth, "" if none."""
    losses = {line["step"]: line["loss"] for line in printed}
    told = {
        frame["step"]: frame["loss"] for frame in frames if frame["event"] == "step"
    }
    for step in sorted(losses.keys() | told.keys()):
        if losses.get(step) != told.get(step):
            return (
                0,
                0,
                0,
                f"the loss of step {step} is told as {told.get(step)}, and is {losses.get(step)}",
            )
    by_layer = {line["step"]: _by_layer(line["norms"]) for line in printed}
    layers: list[str] = []
    count = looked = 0
    for frame in frames:
        if frame["event"] == "layers":
            layers = frame["layers"]
        elif frame["event"] == "norms":
            here = 0
            for layer, norm in zip(layers, frame["norms"], strict=True):
                wanted = by_layer[frame["step"]].get(layer)
                if wanted is None:
                    continue
                if norm is None or not math.isclose(
                    norm, wanted, rel_tol=1e-5, abs_tol=1e-12
                ):
                    what = f"the norm of {layer} at step {frame['step']}"
                    return 0, 0, 0, f"{what} is told as {norm}, and is {wanted}"
                here += 1
            count += here
            looked += here > 0
    return (
        len(told),
        count,
        looked,
        "" if count else "no norm was told of a layer that the script printed",
    )


def _by_layer(norms: dict[str, float]) -> dict[str, float]:
    """The norm of each layer from those of its parameters, with the name of its model before it and without."""
    layers: dict[str, list[float]] = {}
    for name, norm in norms.items():
        whole = name.rpartition(".")[0]
        for layer in {whole, whole.partition(".")[2]} - {""}:
            layers.setdefault(layer, []).append(norm)
    return {name: math.hypot(*each) for name, each in layers.items()}


def counts(rows: Sequence[Row]) -> str:
    """The closing line."""
    tried = [row for row in rows if row.tried]
    equal = sum(not row.why for row in tried)
    told = f"{sum(row.losses for row in tried):,} losses and {sum(row.norms for row in tried):,} norms"
    absent = "".join(
        f" {row.name} was not tried: {row.why}." for row in rows if not row.tried
    )
    return f"{equal} of {len(tried)} scripts equal, {told} reported as printed.{absent}"


def table(rows: Sequence[Row]) -> str:
    """The text of the file."""
    lines = [
        HEAD.format(counts=counts(rows)),
        "| script | what it is | lines | losses | norms | differs |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        norms = f"{row.norms} at {row.looked} steps"
        cells = (
            (row.lines, row.losses, norms, row.why)
            if row.tried
            else ("", "", "", f"not tried: {row.why}")
        )
        lines.append(
            f"| {row.name} | {row.what} | {' | '.join(map(str, cells))} |".replace(
                "  ", " "
            )
        )
    return "\n".join(lines) + "\n"


def kept() -> dict[str, Row]:
    """The rows of the file by name, so that scripts that are named are run anew and the others stay."""
    rows = {}
    for line in FILE.read_text("utf-8").splitlines() if FILE.is_file() else ():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 6 or not (SCRIPTS / f"{cells[0]}.py").is_file():
            continue
        name, what, printed, losses, norms, why = cells
        if why.startswith("not tried: "):
            rows[name] = Row(
                name, what, why=why.removeprefix("not tried: "), tried=False
            )
        else:
            count, _, looked, _ = norms.split()
            rows[name] = Row(
                name, what, int(printed), int(losses), int(count), int(looked), why
            )
    return rows


def main() -> int:
    names = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "show")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(names))
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="the interpreter of the scripts",
    )
    options = parser.parse_args()
    rows = kept() if options.scripts else {}
    with ThreadPoolExecutor(2) as pool:
        for row in pool.map(
            lambda name: row_of(name, options.python), options.scripts or names
        ):
            rows[row.name] = row
            print(row, flush=True)
    made = [rows[name] for name in names if name in rows]
    FILE.write_text(table(made), "utf-8")
    print(counts(made))
    return int(any(row.why and row.tried for row in made))


if __name__ == "__main__":
    sys.exit(main())
