"""A net over a person's own layers is exported with their file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from app.export.layers import write_model
from app.features.export.compute.certify import Files, certify
from app.source.compiled import make_module
from tests.features.export.export_here import work_in_forks
from tests.source.test_trust import marker, source_of, tape  # noqa: F401  fixtures


@pytest.mark.usefixtures("nothing_trusted", "forked_trials")
def test_an_exported_net_gives_the_same_numbers_in_a_clean_process(
    tape: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work_in_forks(monkeypatch)
    source = source_of(tape)
    state = make_module(source).state_dict()
    out = tmp_path / "out"
    out.mkdir()
    model, *layers = write_model(source, out / "model.py")
    torch.save(state, out / "weights.pt")
    certificate = certify(
        source, state, Files(model, out / "weights.pt", tuple(layers))
    )
    assert certificate.passed, certificate.message
    assert not certify(source, state, Files(model, out / "weights.pt")).passed
