"""What the clean processes of an export do, without one: importing torch once more takes seconds."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from app.export import format_jobs
from app.export.certify import clean_process, measure


def work_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the jobs be done in this process, where nothing is barred."""
    jobs: dict[str, ModuleType] = {"measure.py": measure, "format_jobs.py": format_jobs}

    def ask(script: Path, question: dict[str, Any], folder: Path, tell: Any, *_: object) -> dict[str, Any]:
        paths = {"answer": str(folder / "answer.json"), "progress": str(folder / "progress")}
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
