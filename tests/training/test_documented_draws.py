"""A script that is written from docs/explanation/reproducing_runs.md alone gives the losses of a run."""

import re
from pathlib import Path

from app.data.config import DataConfig
from app.source.compiled import make_module
from app.training.events import StepDone
from tests.support.training_jobs import SMALL_NET, job, run

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reproducing_runs.md"


def test_the_documented_script_gives_the_losses_of_a_run_bit_for_bit():
    (script,) = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    data = DataConfig(validation_fraction=0.15, test_fraction=0.1, split_seed=7)
    ours = run(
        job(
            SMALL_NET,
            data=data,
            epochs=2,
            batch_size=48,
            seed=3,
            accumulate=4,
            threads=1,
        )
    )
    given = {
        "Net": lambda: make_module(SMALL_NET),
        "SEED": 3,
        "SPLIT_SEED": 7,
        "VALIDATION": 0.15,
        "TEST": 0.1,
        "EPOCHS": 2,
        "BATCH_SIZE": 48,
        "ACCUMULATE": 4,
    }
    exec(
        compile(script, str(PAGE), "exec"), given
    )  # dropout draws too, and the last group of an epoch is short
    losses = [event.loss for event in ours if isinstance(event, StepDone)]
    assert len(losses) % 8 and given["losses"] == losses
