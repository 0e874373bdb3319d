"""What the clean processes of an export do, without one or in a forked one: importing torch once more takes seconds."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from app.export import measure
from app.features.export.compute import clean_process, format_jobs
from tests.support.forked_python import run_forked


def work_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the jobs be done in this process, where nothing is barred."""
    jobs: dict[str, ModuleType] = {"measure.py": measure, "format_jobs.py": format_jobs}

    def ask(
        script: Path, question: dict[str, Any], folder: Path, tell: Any, *_: object
    ) -> dict[str, Any]:
        paths = {
            "answer": str(folder / "answer.json"),
            "progress": str(folder / "progress"),
        }
        whole = {**question, **paths, "barred": [], "threads": torch.get_num_threads()}
        (folder / "ask.json").write_text(json.dumps(whole))
        stdout = sys.stdout
        try:
            with warnings.catch_warnings():
                jobs[script.name].main(str(folder / "ask.json"))
        except Exception as error:
            raise clean_process.CleanProcessError(measure.error_text(error)) from error
        finally:
            sys.stdout = stdout
        tell((folder / "progress").read_text())
        return json.loads((folder / "answer.json").read_text())

    monkeypatch.setattr(clean_process, "run_script", ask)
    monkeypatch.setitem(sys.modules, "model", sys)


CLEAN = """
import runpy, sys
sys.modules.update({name: None for name in [*sys.modules] if name.partition(".")[0] in ("app", "tests", "torchvision")})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def work_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the jobs be done in forked processes, in which nothing of the program can be imported."""

    def run(command: list[str], folder: Path, tell: Any, *_: object) -> tuple[int, str]:
        (folder / "clean.py").write_text(CLEAN)
        done = run_forked(folder / "clean.py", *command[-2:], cwd=folder)
        if (folder / "progress").is_file():
            tell((folder / "progress").read_text("utf-8"))
        return done.returncode, done.stderr

    monkeypatch.setattr(clean_process, "_run", run)
