"""A surgery on a run, held against scripts, resumed and recomputed runs; `tests.slow.surgeries` does 25."""

import pytest

from app.training.recomputing import recording
from tests.slow import surgeries


def test_a_run_with_an_inserted_layer_repeats_in_every_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "SHARE", 1e9)  # a hash of every step
    case = surgeries.cases()[0]
    found = surgeries.measured(case)
    assert found.checkpoints == 2 and found.steps == 12
    assert surgeries.is_as_promised(case, found)
