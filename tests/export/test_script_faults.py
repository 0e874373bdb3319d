"""What an exported script says of a file that it cannot take: one sentence that names it, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from app.data.config import DataConfig
from app.export.train_script import training_script
from app.export.weights import save_safetensors
from app.project.weights import files
from app.source.compiled import make_module
from app.training.job import Job
from app.util.frozen import FrozenMap
from tests.support.script_here import run_script
from tests.support.training_jobs import SMALL_NET, job

Ended = Callable[..., str]


@pytest.fixture
def ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Run the script that was written in this process; what it ends with."""

    def run(*arguments: str) -> str:
        stopped = run_script(tmp_path, *arguments)
        assert capsys.readouterr().out == "" and stopped is not None
        words = stopped.code
        assert isinstance(words, str) and "\n" not in words and words.endswith(".")
        assert "weights_only" not in words and "pickle" not in words, (
            "no advice to read it unsafely"
        )
        return words

    return run


def write(folder: Path, a_job: Job) -> None:
    (folder / "model.py").write_text(a_job.source.text)
    (folder / "train.py").write_text(training_script(a_job))


def damage(file: Path, kind: str) -> None:
    whole = file.read_bytes()
    file.write_bytes(
        {"empty": b"", "cut": whole[: len(whole) // 2], "text": b"not a tensor\n"}.get(
            kind, whole
        )
    )
    if kind == "missing":
        file.unlink()


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "cut", "text", "another net", "a list"]
)
def test_start_weights_that_cannot_be_taken(
    kind: str, ended: Ended, tmp_path: Path
) -> None:
    weights, file = make_module(SMALL_NET).state_dict(), tmp_path / "start.pt"
    start = files.keep(lambda path: save_safetensors(weights, path), "start")
    other: dict[str, object] = {
        "another net": {"linear1.weight": torch.zeros(3)},
        "a list": [1, 2],
    }
    torch.save(other.get(kind, weights), file)
    damage(file, kind)
    write(tmp_path, job(SMALL_NET, start=start))
    words = ended("--start", str(file))
    expected = (
        "has weights of another net: " if kind == "another net" else "cannot be read: "
    )
    assert words.startswith(f"{file} {expected}")
    if kind == "another net":
        assert "size mismatch for linear1.weight" in words


@pytest.mark.parametrize("kind", ["empty", "cut", "text", "no labels", "uneven"])
@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_data_that_cannot_be_read(
    kind: str, suffix: str, ended: Ended, tmp_path: Path
) -> None:
    file, count = tmp_path / f"data{suffix}", 20
    held = {
        "inputs": np.zeros((count, 1, 8, 8), "float32"),
        "labels": np.arange(count) % 10,
    }
    options = FrozenMap(inputs="inputs", labels="labels")

    def save() -> None:
        if suffix == ".npz":
            np.savez(file, **held)
        else:
            torch.save(
                {name: torch.from_numpy(values) for name, values in held.items()}, file
            )

    save()
    write(
        tmp_path,
        job(
            SMALL_NET, data=DataConfig("file.tensors", path=str(file), options=options)
        ),
    )
    if kind == "no labels":
        del held["labels"]
        save()
    elif kind == "uneven":
        held["labels"] = held["labels"][:7]
        save()
    damage(file, kind)
    words = ended()
    assert words.startswith(f"{file} cannot be read: ")
    if kind == "uneven":
        assert "do not match" in words
