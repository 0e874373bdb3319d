"""Mistakes that a CPU forgives, planted into a copy of the program: a test of the battery must find each, on `sim`.

    python -m tests.slow.planted_device_mistakes [NAME ...]

A tensor that is left on the CPU, a `.to` that is lost, memory that is not counted, an error that is swallowed. Prints
a table; exits with 1 if a mistake is not found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("app", "tapedeck", "tests", "resources", "scripts", "pyproject.toml")


class Mistake(NamedTuple):
    """`text` of `file` becomes `planted`; `tests` is the part of the battery, and in it what is run."""

    name: str
    file: str
    text: str
    planted: str
    tests: tuple[str, str]


TRAINING, LOOKS, PROGRAMS, WINDOW = "training", "looks", "programs", "window"
LOSSES = (TRAINING, "losses_and_weights and SGD")
EVERYTHING = (TRAINING, "everything_of_a_run")
COUNTED = (TRAINING, "its_memory_is_counted")
EVALUATION = (LOOKS, "an_evaluation")
SCRIPT = (PROGRAMS, "exported_script")
ENDS = (TRAINING, "memory_that_ends")
MISTAKES = (
    Mistake(
        "the net stays on the CPU",
        "app/training/setup/prepare.py",
        "model = model.to(device)",
        "model = model",
        LOSSES,
    ),
    Mistake(
        "the data stay on the CPU",
        "app/training/setup/prepare.py",
        "data = data.to(device)",
        "data = data",
        LOSSES,
    ),
    Mistake(
        "weights of classes stay",
        "app/training/setup/class_weights.py",
        "balanced_weights(torch.tensor(counts)).to(device)",
        "balanced_weights(torch.tensor(counts))",
        (TRAINING, "weights_of_classes"),
    ),
    Mistake(
        "weights do not come back",
        "app/training/monitoring/live_model.py",
        'value.detach().to("cpu", copy=True)',
        "value.detach().clone()",
        LOSSES,
    ),
    Mistake(
        "a checkpoint has tensors of the device",
        "app/training/checkpoints/writer.py",
        'state.detach().to("cpu", copy=True)',
        "state.detach().clone()",
        (TRAINING, "checkpoint_holds"),
    ),
    Mistake(
        "another device is not said",
        "app/training/checkpoints/checkpoint.py",
        'if before.get("device", device) != device:',
        "if False:",
        (TRAINING, "resumed_on_another"),
    ),
    Mistake(
        "memory is the process's",
        "app/telemetry/memory.py",
        "if figures.allocated is None:",
        "if True:",
        COUNTED,
    ),
    Mistake(
        "memory is read of the CPU",
        "app/training/monitoring/watcher.py",
        "memory.read(self._live.device)",
        'memory.read("cpu")',
        COUNTED,
    ),
    Mistake(
        "allocated memory is not told",
        "tapedeck/devices.py",
        '"allocated_bytes.all.current"',
        '"allocated_bytes.all.now"',
        COUNTED,
    ),
    Mistake(
        "the peak is not told",
        "tapedeck/devices.py",
        '"allocated_bytes.all.peak"',
        '"allocated_bytes.all.most"',
        COUNTED,
    ),
    Mistake(
        "reserved memory is not told",
        "tapedeck/devices.py",
        '"reserved_bytes.all.current"',
        '"reserved_bytes.all.now"',
        COUNTED,
    ),
    Mistake(
        "the peak is not forgotten",
        "tapedeck/devices.py",
        "torch.accelerator.reset_peak_memory_stats(device)",
        "pass",
        (TRAINING, "peak_is_forgotten"),
    ),
    Mistake(
        "the cache is not emptied",
        "tapedeck/devices.py",
        "torch.accelerator.empty_cache()",
        "pass",
        (TRAINING, "cache_can_be"),
    ),
    Mistake(
        "nobody waits",
        "tapedeck/devices.py",
        "torch.accelerator.synchronize(device)",
        "pass",
        (TRAINING, "late_error"),
    ),
    Mistake(
        "no accelerator is named",
        "tapedeck/devices.py",
        "for index in range(count)]",
        "for index in range(0)]",
        (PROGRAMS, "engine_lists"),
    ),
    Mistake(
        "auto is the CPU",
        "app/training/setup/devices.py",
        'ids[0] if name == "auto"',
        'ids[-1] if name == "auto"',
        (TRAINING, "auto_takes_it"),
    ),
    Mistake(
        "autocast is the CPU's",
        "app/training/stepper.py",
        "torch.autocast(self.kind,",
        'torch.autocast("cpu",',
        (TRAINING, "mixed_precision"),
    ),
    Mistake(
        "cures of memory that ends are not said",
        "app/training/error_messages.py",
        "if batch_size > 1:",
        "if batch_size > 10_000:",
        ENDS,
    ),
    Mistake(
        "what did not fit is not said",
        "app/source/raised.py",
        '"tried to allocate',
        '"wanted to allocate',
        ENDS,
    ),
    Mistake(
        "accumulation is no cure",
        "app/preflight/setting_checks.py",
        "parts = 2 * training.accumulate",
        "parts = training.accumulate",
        ENDS,
    ),
    Mistake(
        "a cure has no button",
        "app/views/run/failures.py",
        'if failed.kind == "memory":',
        'if failed.kind == "":',
        (WINDOW, "mended_by_a_button"),
    ),
    Mistake(
        "a button changes nothing",
        "app/views/run/failures.py",
        "workspace.cures.apply(cure)",
        "pass",
        (WINDOW, "mended_by_a_button"),
    ),
    Mistake(
        "the box has the CPU alone",
        "app/views/toolbar.py",
        "for device in self._present:",
        "for device in self._present[-1:]:",
        (WINDOW, "memory_curve"),
    ),
    Mistake(
        "a device that is gone is not said",
        "app/views/analysis_service.py",
        "*absent_device(project, self.torch.devices)",
        "",
        (WINDOW, "gone"),
    ),
    Mistake(
        "an evaluation's net stays",
        "app/training/evaluation/evaluator.py",
        "model = model.to(self.device)",
        "model = model",
        EVALUATION,
    ),
    Mistake(
        "an evaluation's data stay",
        "app/training/evaluation/evaluator.py",
        "self.data = self.data.to(device)",
        "self.data = self.data",
        EVALUATION,
    ),
    Mistake(
        "hashes are factored on the CPU",
        "app/training/recomputing/hashes.py",
        "self.factors = odd_numbers(len(self.parameters)).to(self.device)",
        "self.factors = odd_numbers(len(self.parameters))",
        LOSSES,
    ),
    Mistake(
        "layers are numbered on the CPU",
        "app/training/recomputing/hashes.py",
        "torch.tensor(self.places, dtype=torch.int64).to(self.device)",
        "torch.tensor(self.places, dtype=torch.int64)",
        LOSSES,
    ),
    Mistake(
        "entropy stays on the device",
        "app/features/interpret/compute/attention_maps.py",
        ".sum((0, 2, 3)).cpu()",
        ".sum((0, 2, 3))",
        (LOOKS, "attention_is_found and fused"),
    ),
    Mistake(
        "inputs stay where a model is not",
        "app/sources/loading.py",
        "return tensor.to(own[0]) if own else tensor",
        "return tensor",
        (LOOKS, "puts_itself"),
    ),
    Mistake(
        "a dry run's batch stays",
        "app/features/trials/compute/trials.py",
        "synthetic_batch(job, info, self.device.id)",
        'synthetic_batch(job, info, "cpu")',
        (TRAINING, "dry_run"),
    ),
    Mistake(
        "a rate test's data stay",
        "app/features/trials/compute/trials.py",
        "data = data.to(device)",
        "data = data",
        (TRAINING, "dry_run"),
    ),
    Mistake(
        "a script's net stays",
        "app/export/train.py.jinja",
        "model = {{ class_name }}().to(device)",
        "model = {{ class_name }}()",
        SCRIPT,
    ),
    Mistake(
        "a script's checkpoint has tensors of it",
        "app/export/checkpoints.py.jinja",
        ", copied(state)",
        ", state",
        SCRIPT,
    ),
    Mistake(
        "a script's auto is the CPU",
        "app/export/train.py.jinja",
        'if found is not None else "cpu"',
        'if found is None else "cpu"',
        SCRIPT,
    ),
    Mistake(
        "the CPU's peak is asked of the accelerator",
        "tapedeck/devices.py",
        "with suppress(*_CANNOT, ValueError):",
        "with suppress(*_CANNOT):",
        (TRAINING, "dry_run"),
    ),
    Mistake(
        "a loss that is read late blames the previous step",
        "app/training/monitoring/nonfinite.py",
        "if spoilt and later is not None:",
        "if False:",
        (TRAINING, "read_late"),
    ),
    Mistake(
        "a watched script tells the process's",
        "tapedeck/watcher.py",
        "kind = devices.accelerator_in_use()",
        'kind = ""',
        (PROGRAMS, "is_watched"),
    ),
)


def misplaced() -> list[str]:
    """Return the mistakes whose text is not, or more than once, in the program."""
    return [
        each.name
        for each in MISTAKES
        if (ROOT / each.file).read_text("utf-8").count(each.text) < 1
    ]


def run(tree: Path, mistake: Mistake | None, tests: tuple[str, str]) -> int:
    """Run tests of the battery in a copy of the program, with a mistake; return pytest's status."""
    plain = {name: text for name, text in os.environ.items() if "XDIST" not in name}
    packages = tree / "tests" / "support" / "packages"
    environment = {
        **plain,
        "PYTHONPATH": os.pathsep.join(map(str, (packages, tree))),
        "QT_QPA_PLATFORM": "offscreen",
    }
    part, chosen = tests
    file = f"tests/devices/test_on_{part}.py"
    command = [sys.executable, "-m", "pytest", "-q", "-x", file, "-k", chosen]
    if mistake is not None:
        whole = (tree / mistake.file).read_text("utf-8")
        planted = whole.replace(mistake.text, mistake.planted)
        (tree / mistake.file).write_text(planted, "utf-8")
    try:
        return subprocess.run(
            command, cwd=tree, env=environment, capture_output=True
        ).returncode
    finally:
        if mistake is not None:
            (tree / mistake.file).write_text(whole, "utf-8")


def main(names: list[str]) -> int:
    """Plant each, or those that are named; return 1 if a test that should find one passes."""
    chosen = [each for each in MISTAKES if not names or each.name in names]
    faults = misplaced()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in PARTS:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, tree / part)
        for tests in dict.fromkeys(each.tests for each in chosen):
            if run(tree, None, tests):
                faults.append(f"{tests[1]} fails without a mistake")
        for mistake in chosen:
            found = run(tree, mistake, mistake.tests) == 1
            print(f"{'found' if found else 'NOT FOUND':<10} {mistake.name}", flush=True)
            faults += [] if found else [mistake.name]
    for fault in faults:
        print(f"fault: {fault}")
    print(f"{len(chosen)} mistakes, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
