"""Write the hashes of every file of every release in `constraints.txt` and `constraints-docs.txt`, in their order.

    python scripts/hashes.py

They are those that the package index states, as uv reads them; it needs `uv` on the path.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINNED = re.compile(r"[A-Za-z0-9._-]+==\S+")


def plain(text: str) -> list[str]:
    """Return the lines without hashes.

    >>> plain("# Run\\nnumpy==2.4.6 \\\\\\n    --hash=sha256:0a\\n")
    ['# Run', 'numpy==2.4.6']
    """
    return [
        line.removesuffix("\\").rstrip()
        for line in text.splitlines()
        if not line.lstrip().startswith("--hash=")
    ]


def normalized(pin: str) -> str:
    """Return a pin with the name as an index spells it.

    >>> normalized("ml_dtypes==0.6.0")
    'ml-dtypes==0.6.0'
    """
    name, _, version = pin.partition("==")
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"


def hashes_of(pins: list[str]) -> dict[str, list[str]]:
    """Return the hashes of each pin, by its normalized form."""
    command = [
        "uv",
        "pip",
        "compile",
        "--universal",
        "--no-deps",
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "-",
    ]
    stated = subprocess.run(
        command, input="\n".join(pins), stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    hashes: dict[str, list[str]] = {}
    for line in stated.splitlines():
        if match := PINNED.match(line):
            rows = hashes.setdefault(normalized(match[0]), [])
        elif "--hash=" in line:
            rows.append(line.strip().removesuffix("\\").rstrip())
    return hashes


def write(constraints: Path) -> None:
    """Write the hashes into a file."""
    lines = plain(constraints.read_text("utf-8"))
    hashes = hashes_of([line for line in lines if PINNED.match(line)])
    written = []
    for line in lines:
        rows = hashes[normalized(line)] if PINNED.match(line) else []
        written.append(" \\\n    ".join([line, *rows]))
    constraints.write_text("\n".join(written) + "\n", "utf-8")


def main() -> None:
    for name in ("constraints.txt", "constraints-docs.txt"):
        write(ROOT / name)


if __name__ == "__main__":
    sys.exit(main())
