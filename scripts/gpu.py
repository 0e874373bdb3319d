"""Run the battery of tests/devices on this machine's accelerator, and write what it found.

    python scripts/gpu.py [FILE [ARGUMENTS OF PYTEST]]

FILE is `docs/measured/gpu.md` unless it is given. Exit 1 if a test fails, 2 without an accelerator.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(target: Path, *chosen: str) -> int:
    """Run the tests, and write the page."""
    sys.path.insert(0, str(ROOT))
    import torch

    from tapedeck import devices

    if not (names := devices.names()):
        print("torch finds no accelerator here: nothing was run")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        figures, report = Path(folder, "figures"), Path(folder, "report")
        began = time.time()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-rA",
                "-p",
                "no:cacheprovider",
                "tests/devices",
                "--ignore",
                "tests/devices/test_simulated.py",
                *chosen,
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "DEVICE_FIGURES": str(figures),
                "QT_QPA_PLATFORM": "offscreen",
            },
            stdout=report.open("w"),
        )
        text = report.read_text()
        noted = (
            [json.loads(line) for line in figures.read_text().splitlines()]
            if figures.exists()
            else []
        )
    rows = {
        "Card": ", ".join(f"{name} {devices.full_name(name)}" for name in names),
        "Driver": driver(names[0]),
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "Date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "Seconds": f"{time.time() - began:.0f}",
        "Tests": text.strip().splitlines()[-1].strip("= "),
        **dict(noted),
    }
    failed = [
        line.removeprefix("FAILED ")
        for line in text.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    target.write_text(page(rows, failed), encoding="utf-8")
    print(target.read_text("utf-8"))
    return int(done.returncode != 0)


def driver(device: str) -> str:
    """Return the version of the driver, as its maker's library tells torch; "not told" without."""
    import torch

    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return f"{version}, CUDA {torch.version.cuda}"
    except Exception:  # another maker's card, or no library
        return str(torch.version.hip or torch.version.xpu or "not told")


def page(rows: dict[str, object], failed: list[str]) -> str:
    """Return the page as Markdown."""
    table = "".join(f"| {name} | {value} |\n" for name, value in rows.items())
    wrong = "".join(f"- {line}\n" for line in failed) or "None.\n"
    return (
        "# On an accelerator\n\nWritten by `make gpu`, which runs `tests/devices` on what torch finds.\n\n"
        f"|  |  |\n|---|---|\n{table}\n## Tests that failed\n\n{wrong}"
    )


if __name__ == "__main__":
    file, *others = sys.argv[1:] or [str(ROOT / "docs" / "measured" / "gpu.md")]
    raise SystemExit(main(Path(file), *others))
