"""The exported script of a job and what lies beside it, to be run at a place. Imports torch."""

from __future__ import annotations

import base64
from pathlib import Path

from app.export.layers import write_model
from app.export.train_script import training_script, write_start
from app.features.places.values import SCRIPT
from app.training.job import Job
from app.util.leftovers import TemporaryFolder

SAVES_EVERY = 1000  # steps between checkpoints, of a run that does not say it


def script_files(job: Job) -> dict[str, str]:
    """Return the files in base64 by name. Raises JobError, ChoiceError, OSError."""
    with TemporaryFolder() as name:
        script = Path(name, SCRIPT)
        script.write_text(training_script(job, None, SCRIPT), "utf-8")
        write_start(job, script)
        write_model(job.source, script.with_name("model.py"), [script])
        return {
            file.name: base64.b64encode(file.read_bytes()).decode()
            for file in Path(name).iterdir()
        }
