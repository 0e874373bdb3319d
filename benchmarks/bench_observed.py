"""Very large models: what observing a configuration of 70 billion parameters takes, and panning a picture of 100,000
calls that is unfolded.

The configuration is Llama's with 80 layers of 8,192, made on the meta device and observed with `tapedeck draw` in a
process of its own: seconds by the clock, imports included, and the most memory that it held. It needs the package
transformers; without it that part is left out, and said.

The picture is of a real model, observed on the meta device: layers of operations in modules. Every part is open. A
frame is a scroll and a repaint of the page's view in a window of 1280 x 800, near, as opened, and from afar.

    python benchmarks/bench_observed.py [short | picture]
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LLAMA = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
}
LAYERS, SHORT = 2600, 60  # of 39 calls each
PANS = 60
FRAME = 1000 / 60  # ms


def llama() -> tuple[float, float, float, str] | None:
    """Seconds by the clock and of a processor, and GB, that `tapedeck draw` takes for the configuration, and what it
    says of it; None without transformers."""
    if importlib.util.find_spec("transformers") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "app.main",
            "draw",
            "hf:llama",
            "--args",
            json.dumps(LLAMA),
            "--out",
            str(Path(folder) / "llama.json"),
        ]
        began = time.perf_counter()
        told = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        taken = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        taken,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1e6,
        told.strip().splitlines()[-1],
    )


def deep(layers: int) -> Any:
    """A model of layers of operations in modules, on the meta device, and what it is called with."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner(x)
            for _ in range(12):
                y = torch.relu(y) * 0.5 + x
            return x + y

    with torch.device("meta"):
        return nn.Sequential(*(Layer() for _ in range(layers))), (torch.empty(2, 4),)


def panned(layers: int) -> dict[str, Any]:
    """Observe, draw and pan the picture of a deep model in this process: seconds, and ms of a frame."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from app.features.opened.page import ObservedPage
    from app.observe.observe import observe
    from app.util import gc_pause
    from app.views.app import make_application

    application = make_application()
    model, given = deep(layers)
    began = time.perf_counter()
    found = observe(model, given)
    told: dict[str, Any] = {
        "calls": len(found.calls),
        "observed s": time.perf_counter() - began,
    }
    gc_pause.begin()  # as the window does
    page = ObservedPage()
    page.resize(1280, 800)
    page.show()
    page.set_observation(found, "deep")
    while page.busy:
        application.processEvents()
    began, computed = time.perf_counter(), time.process_time()
    page.unfold_all()
    while page.busy:
        application.processEvents()
    told |= {
        "laid out s": time.perf_counter() - began,
        "computed s": time.process_time() - computed,
        "boxes": len(page.scene.boxes),
    }
    for name, zoom in (
        ("near", 1.0),
        ("as opened", None),
        ("from afar", page.view.LEAST),
    ):
        if zoom is None:
            page.view.frame_all()
        else:
            page.view.zoom_to(zoom)
        application.processEvents()
        frames, computed = [], []
        for number in range(PANS):
            began, busy = time.perf_counter(), time.process_time()
            page.view.pan(-23 if number % 20 < 10 else 23, -11)
            page.view.viewport().repaint()
            frames.append(1000 * (time.perf_counter() - began))
            computed.append(1000 * (time.process_time() - busy))
        told[name] = (
            statistics.median(frames),
            sorted(frames)[int(0.95 * PANS)],
            max(frames),
            sorted(computed)[int(0.95 * PANS)],
        )
    return told


def main() -> int:
    short = "short" in sys.argv[1:]
    if not short and "picture" not in sys.argv[1:]:
        found = llama()
        if found is None:
            print("transformers is not installed: no model of 70 billion")
        else:
            taken, computed, held, words = found
            print(
                f"a llama of 70 billion: {taken:.1f} s (at most 10; {computed:.1f} s of a processor), {held:.2f} GB "
                f"(at most 3): {words}"
            )
    told = panned(SHORT if short else LAYERS)
    print(
        f"{told['calls']:,} calls observed in {told['observed s']:.1f} s; {told['boxes']:,} boxes laid out in "
        f"{told['laid out s']:.1f} s ({told['computed s']:.1f} s of a processor)"
    )
    worst = 0.0
    for name in ("near", "as opened", "from afar"):
        middle, most, longest, computed = told[name]
        worst = max(worst, most)
        print(
            f"a frame {name}: {middle:.1f} ms, 95 % below {most:.1f} ms ({computed:.1f} ms of a processor), longest "
            f"{longest:.1f} ms"
        )
    print(
        f"panning is within a frame of {FRAME:.1f} ms: {'yes' if worst <= FRAME else 'no'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
