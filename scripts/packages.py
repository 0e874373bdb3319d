"""What a wheel pulls: every package with its version and licence, as a table and as a CycloneDX list of parts.

    python -m scripts.packages dist/sbom.cdx.json

They are those of this environment that are pinned; other builds of torch bring others, such as those of CUDA, under the
licences of their makers.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from app import __version__
from scripts.hashes import normalized

ROOT = Path(__file__).resolve().parents[1]
NAME = "tapedeck-torch"
# Licences under which a wheel may pull a package: a person may use it and pass it on with work of their own.
FREE = set(
    """MIT MIT-CMU BSD BSD-2-Clause BSD-3-Clause 0BSD Apache-2.0 PSF-2.0 Zlib CC0-1.0 BSL-1.0
    LGPL-3.0-only LLVM-exception""".split()
)
CLASSIFIED = {
    "BSD License": "BSD",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
}


class Package(NamedTuple):
    """An installed package; its licence is an SPDX expression, or "BSD" where it does not say which."""

    name: str
    version: str
    licence: str

    @property
    def is_free(self) -> bool:
        """Whether its licence is among FREE: all that it joins by AND, one of those that it joins by OR."""
        return any(
            {*re.split(r" AND | WITH ", choice.strip(" ()"))} <= FREE
            for choice in self.licence.split(" OR ")
        )


def licence_of(about: metadata.PackageMetadata) -> str:
    """Return the licence that a package states, "" if it does not in a way that is known here."""
    classified = [
        CLASSIFIED.get(classifier.rpartition(" :: ")[2], "")
        for classifier in about.get_all("Classifier") or ()
        if classifier.startswith("License ::")
    ]
    stated = about.get("License-Expression") or about.get("License") or ""
    return stated if 0 < len(stated) < 200 else next(filter(None, classified), "")


@cache
def pulled() -> tuple[Package, ...]:
    """Return the packages that a wheel needs on this system, and what these need, by name."""
    pinned = {pin.partition("==")[0] for pin in hashes()} | {"torch", "torchvision"}
    waiting = [*(metadata.requires(NAME) or ())]
    packages: dict[str, Package] = {}
    while waiting:
        need = Requirement(waiting.pop())
        name = re.sub(r"[-_.]+", "-", need.name).lower()
        fits = need.marker is None or need.marker.evaluate({"extra": ""})
        if fits and name in pinned and name not in packages:
            about = metadata.metadata(need.name)
            packages[name] = Package(name, about["Version"], licence_of(about))
            waiting += metadata.requires(need.name) or ()
    return tuple(sorted(packages.values()))


def hashes() -> dict[str, list[str]]:
    """Return the SHA-256 of the files of each pinned package, by its normalized name and version."""
    pins: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if match := re.match(r"([\w.-]+==[^\s;]+)", line):
            files = pins.setdefault(normalized(match[1]), [])
        elif match := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            files.append(match[1])
    return pins


def bill_of_materials() -> dict[str, Any]:
    """Return the packages as CycloneDX 1.6 has them, with the hashes of the files that they may come as."""
    pins = hashes()
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{package.name}@{package.version}",
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:pypi/{package.name}@{package.version}",
            "licenses": [{"license": {"name": package.licence}}],
            "properties": [
                {"name": "tapedeck:sha256", "value": value}
                for value in pins.get(f"{package.name}=={package.version}", ())
            ],
        }
        for package in pulled()
    ]
    program = {
        "type": "application",
        "bom-ref": f"pkg:pypi/{NAME}@{__version__}",
        "name": NAME,
        "version": __version__,
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": program},
        "components": components,
    }


def main() -> int:
    for package in pulled():
        print(f"{package.name:24}{package.version:16}{package.licence}")
    (target,) = sys.argv[1:]
    Path(target).write_text(json.dumps(bill_of_materials(), indent=1) + "\n", "utf-8")
    return int(any(not package.is_free for package in pulled()))


if __name__ == "__main__":
    sys.exit(main())
