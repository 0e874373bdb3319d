"""Write `resources/fonts` from the released files of Inter and JetBrains Mono; needs `pip install fonttools brotli`.

    python scripts/make_fonts.py DOWNLOADS

DOWNLOADS holds Inter-{Regular,Medium,SemiBold} of Inter 4.1 (npm: `inter-ui`, folder `web`) and
JetBrainsMono-{Regular,Medium,SemiBold} of JetBrains Mono 2.242 (Debian: `fonts-jetbrains-mono`). Both are under the SIL
Open Font License without a reserved name. What is written has a family name of its own: Qt would mix files of one
family, ours and those that a machine has. Alternates, ligatures (`!=` is two characters) and hints are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

WEIGHTS = ("Regular", "Medium", "SemiBold")
FAMILIES = {"Inter": "Tapedeck Inter", "JetBrainsMono": "Tapedeck JetBrains Mono"}
FEATURES = ["ccmp", "kern", "locl", "mark", "mkmk", "tnum"]
TARGET = Path(__file__).resolve().parent.parent / "resources" / "fonts"


def rename(font: Any, family: str, weight: str) -> None:
    """Set the names by which a program finds a font."""
    names = font["name"]
    plain = weight == "Regular"
    texts = {
        1: family if plain else f"{family} {weight}",
        2: "Regular",
        3: f"{names.getDebugName(5)};{family} {weight}",
        4: f"{family} {weight}",
        6: f"{family.replace(' ', '')}-{weight}",
        16: None if plain else family,
        17: None if plain else weight,
        21: None,
        22: None,
        25: None,
    }
    for number, text in texts.items():
        names.removeNames(nameID=number)
        if text is not None:
            names.setName(text, number, 3, 1, 0x409)


def write(source: Path, target: Path, family: str, weight: str) -> None:
    """Write a font with all its characters, and without what the window never shows of it."""
    from fontTools import subset, ttLib

    options = subset.Options(
        layout_features=FEATURES, hinting=False, notdef_outline=True, name_IDs=["*"]
    )
    font = ttLib.TTFont(source)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=font.getBestCmap())
    subsetter.subset(font)
    rename(font, family, weight)
    font.flavor = None
    font.save(target)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("downloads", type=Path, metavar="DOWNLOADS")
    downloads = parser.parse_args().downloads
    TARGET.mkdir(exist_ok=True)
    for name, family in FAMILIES.items():
        for weight in WEIGHTS:
            source = next(
                path
                for path in downloads.rglob(f"{name}-{weight}.*")
                if path.suffix in (".woff2", ".ttf")
            )
            target = TARGET / f"{name}-{weight}.ttf"
            write(source, target, family, weight)
            print(f"{target.name}  {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
