"""A model imported in the window: from the click to the painted canvas (resnet152 within 2 s, maxvit_t within 4 s).

Each round is a window of its own. The dialog lists torchvision's models, so torch and torchvision are there when Import
is clicked; what a window without them waits for the list stands beside it, and so does a second import in the same
window, five seconds later. The code is to be written within 0.2 s. How long the event loop is away depends on what else
the machine does; what the window's own thread computes between two turns of it is to fit into a frame.
The drawing is compared with the model meanwhile; of the second import the end of that is waited for.

Beside each window a process makes the same model and writes its weights, which is the least that an import that keeps
them can do; on a machine that does something else too, the ratio says more than the seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import _importing
from _report import Figure, publish

ROUNDS = 3
ROOT = Path(__file__).resolve().parent.parent
LEAST = """
import sys, tempfile, time
from app.util.torchvision_import import import_torchvision
from safetensors.torch import save_file
models = import_torchvision("models")
began = time.perf_counter()
model = models.get_model(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    save_file(model.state_dict(), f"{folder}/weights.safetensors")
    print(time.perf_counter() - began)
"""
MODELS = {"resnet152": 2.0, "maxvit_t": 4.0}  # seconds from the click


def least(model: str) -> float:
    """Seconds that a bare process takes to make a model and to write its weights."""
    done = subprocess.run(
        [sys.executable, "-c", LEAST, model],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return float(done.stdout)


def main() -> None:
    figures = []
    for model, aim in MODELS.items():
        runs, bare = [], []
        for _ in range(ROUNDS):
            bare.append(least(model))
            runs.append(_importing.measure(model))
        ratios = tuple(run.drawn / alone for run, alone in zip(runs, bare, strict=True))
        figures += [
            Figure(
                f"{model}, from the click to the painted canvas",
                "s",
                tuple(run.drawn for run in runs),
                aim=aim,
            ),
            Figure(
                f"{model}, that against a bare process that makes it and writes its weights",
                "x",
                ratios,
            ),
            Figure(
                f"{model}, once more in the same window, 5 s later",
                "s",
                tuple(run.again for run in runs),
            ),
            Figure(
                f"{model}, until it is compared with the model",
                "s",
                tuple(run.compared for run in runs),
            ),
            Figure(
                f"{model}, its code the first time",
                "s",
                tuple(run.code[0] for run in runs),
                aim=0.2,
            ),
            Figure(
                f"{model}, longest gap of the event loop",
                "ms",
                tuple(max(run.gaps) for run in runs),
            ),
            Figure(
                f"{model}, most that the window's thread did between two turns",
                "ms",
                tuple(max(run.steps) for run in runs),
                aim=16.0,
            ),
            Figure(
                "torch, torchvision and the list of models",
                "s",
                tuple(run.listed for run in runs),
            ),
        ]
    publish("import", figures)


if __name__ == "__main__":
    main()
