"""Imports torchvision's models and says of each whether the drawing's code is the same net.

`python scripts/import_table.py` writes docs/measured/import_table.md, a row after every model; stopped, it goes on
where it was. Names on the command line are made anew. Each model is imported with the defaults of `tapedeck import`,
saved and opened, and its export compared with it as `scripts/import_check.py` says. What does not pass stands in the
table too.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from app.features.importing import task
from app.features.importing.values import ImportModel
from app.project import file
from app.sources.spec import SourceSpec, parse_input
from app.util.torchvision_import import import_torchvision
from scripts.import_check import PREPARED, ROOT, Clean, Table, drawn_row

FILE = ROOT / "docs" / "measured" / "import_table.md"
GROUPS = ("classification", "segmentation", "video")
HEAD = """# torchvision's models, imported

Made by `python scripts/import_table.py`: {passed} of {whole} models pass. Each is imported with the defaults of
`tapedeck import`, saved and opened; its class and its weights are exported and run in a process without Tapedeck: the
weights load strictly, are those of the source model bit for bit, and the net is compared with the source model.
`float32` (eval), `float64` and `gradients` (eval and training, the same seed) are the largest differences relative to
the largest value, `buffers` the largest one after a run in training. A model passes with at most 1e-5, 1e-10, 1e-10 and
1e-10. Inputs are small where the model allows, so that gradients in double precision fit. `nodes` counts those of every
sheet once.

To make some rows anew, name the models: `python -m scripts.import_table swin_t vit_b_16`. To make all of them anew,
give another file: `python -m scripts.import_table --table FILE`. A run that was stopped goes on where it was."""

# Inputs and arguments that make a model as small as it can be while every way of its code is taken.
PICTURE, SEGMENTED, CLIP = "2x3x64x64", "2x3x64x64", "2x3x8x56x56"
INPUTS = (
    ("inception_v3", "2x3x299x299"),
    ("maxvit", "1x3x224x224"),
    ("swin_v2", "1x3x128x128"),
    ("swin3d", "1x3x8x64x64"),
    ("swin", "1x3x112x112"),
    ("mvit", "1x3x16x224x224"),
    ("s3d", "1x3x16x224x224"),
    ("vit_h_14", "1x3x56x56"),
)
ARGUMENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vit_h_14", {"image_size": 56}),
    ("vit", {"image_size": 64}),
)
LAST = (
    "regnet_y_128gf",
    "vit_h_14",
    "mvit_v1_b",
    "mvit_v2_s",
)  # what takes much time or memory comes last

MAKER = """
import torch
from torchvision import models

def make():
    torch.manual_seed(0)
    return models.get_model({name!r}, weights=None, **{arguments!r})

def inputs():
    return (torch.randn({shape}, generator=torch.Generator().manual_seed(1)),)
"""


def models_of(group: str) -> list[str]:
    models = import_torchvision("models")
    return models.list_models(
        module={"classification": models}.get(group) or getattr(models, group)
    )


def checked(name: str, group: str, clean: Clean) -> dict[str, Any]:
    """One row of the table."""
    usual = {"classification": PICTURE, "segmentation": SEGMENTED, "video": CLIP}[group]
    shape = next((shape for start, shape in INPUTS if name.startswith(start)), usual)
    arguments = next(
        (given for start, given in ARGUMENTS if name.startswith(start)), {}
    )
    if group == "segmentation":
        arguments = {
            "weights_backbone": None,
            **({"aux_loss": True} if "lraspp" not in name else {}),
        }
    row: dict[str, Any] = {
        "model": name,
        "input": shape.replace("x", "×"),
        "verdict": "fails",
        "why": "",
    }
    try:
        given = parse_input(shape)
        torch.manual_seed(0)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            question = ImportModel(
                SourceSpec("torchvision", "", name), arguments, (given,)
            )
            project = task.answer(question, Path(folder))
            file.write(project, Path(folder) / "p.tape")
            row["import s"] = f"{time.perf_counter() - began:.2f}"
            gc.collect()
            maker = MAKER.format(name=name, arguments=arguments, shape=given.shape)
            drawn_row(row, Path(folder) / "p.tape", maker, clean)
    except Exception as error:  # the reason is a cell of the table
        row["why"] = f"{type(error).__name__}: {error}"[:300]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="these alone, and anew")
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--table", type=Path, default=FILE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table, clean = Table(options.table, HEAD), Clean(PREPARED.format(root=str(ROOT)))
    rows = [(group, name) for group in GROUPS for name in models_of(group)]
    order = [name for _, name in rows]
    for group, name in sorted(rows, key=lambda row: row[1] in LAST):
        wanted = name in options.models if options.models else name not in table.rows
        if not wanted or (options.group and group not in options.group):
            continue
        table.put(checked(name, group, clean), order)
        print(table.told(name), flush=True)
    failed = [
        name
        for name in order
        if name in table.rows and table.rows[name]["verdict"] != "passes"
    ]
    print(
        f"{len(table.rows) - len(failed)} of {len(table.rows)} pass"
        + "".join(f", not {name}" for name in failed)
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
