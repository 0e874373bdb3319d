"""The benchmark of training measures what it says: its nets can be trained, and its second script writes events."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import _jobs

    return _jobs


def test_the_script_with_a_writer_is_the_exported_one_and_a_few_lines(jobs) -> None:
    import bench_training

    from app.export.train_script import training_script
    from tests.support.training_jobs import job

    plain = training_script(job())
    text = bench_training.with_writer(plain)
    compile(text, "train.py", "exec")
    added = [line for line in text.splitlines() if line not in plain.splitlines()]
    assert len(added) == 6 and any("add_scalar" in line for line in added)
    with pytest.raises(RuntimeError, match="has changed"):
        bench_training.with_writer("step = 0")


@pytest.mark.parametrize("name", ["mnist", "mlp"])
def test_a_net_of_the_benchmark_can_be_trained_without_a_download(
    jobs, name: str
) -> None:
    from app.builder.analysis import analyse
    from app.preflight import preflight
    from app.training.events import Finished
    from app.training.loop import train

    project = getattr(jobs, name)()
    analysis = analyse(project.graph)
    assert not [
        found
        for found in preflight.problems(project, analysis)
        if found.severity == "error"
    ]
    short = replace(
        project, training=replace(project.training, max_steps=2, device="cpu")
    )
    assert isinstance(list(train(preflight.job(short, analysis)))[-1], Finished)
