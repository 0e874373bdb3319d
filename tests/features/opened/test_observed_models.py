"""The rows of the table of observed models."""

from __future__ import annotations

from pathlib import Path

from tests.slow.material.observed_list import MODELS, Public
from tests.slow.observed_models import counts, observed


def test_a_model_is_drawn_and_played_and_one_that_raises_is_said(
    tmp_path: Path,
) -> None:
    call = "torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(), torch.nn.Linear({}, 2))"
    row = observed(
        Public("fits", "torch", call.format(3), "input=2x4", train=True), tmp_path
    )
    assert (
        row["drawn"].startswith("9 calls, 5 boxes")
        and row["played"].endswith("4 gradients")
        and "why" not in row
    )
    other = observed(Public("does not", "torch", call.format(5), "2x4"), tmp_path)
    assert "mat1 and mat2" in other["why"] and "drawn" not in other
    rows = {
        "a": {"verdict": "redrawn"},
        "b": {"verdict": "played"},
        "c": {"verdict": "fails"},
    }
    assert counts(rows).startswith(
        "2 of 3 drawn, 2 played with equal gradients, 1 redrawn and certified"
    )


def test_the_table_has_sixty_models_and_each_its_own_name() -> None:
    assert len({public.name for public in MODELS}) == len(MODELS) >= 60
    assert {"timm", "transformers", "diffusers", "torchaudio"} <= {
        public.package.split()[0] for public in MODELS
    }
