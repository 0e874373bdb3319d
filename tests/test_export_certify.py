"""The proof in a clean process, and that it fails when something was altered."""

import pytest

from app.export.certify import certify, reference
from app.export.weights import save_pt, save_safetensors, write_text
from app.rng import GENERATOR
from app.source import make_module
from tests.training_jobs import CONV_NET, net


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(folder with model.py and both weights, their state_dict)."""
    import torch

    folder = tmp_path_factory.mktemp("export")
    torch.manual_seed(0)
    state = make_module(CONV_NET).state_dict()
    write_text(folder / "model.py", CONV_NET.text)
    save_pt(state, folder / "weights.pt")
    save_safetensors(state, folder / "weights.safetensors")
    return folder, state


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_an_untouched_export_gives_the_same_bits(exported, name):
    folder, state = exported
    certificate = certify(folder / "model.py", folder / name, reference(CONV_NET, state))
    assert certificate.passed, certificate
    assert certificate.max_difference == 0 and "bit for bit" in certificate.message


def test_one_altered_number_is_found(exported, tmp_path):
    folder, state = exported
    altered = {name: value.clone() for name, value in state.items()}
    altered["linear1.bias"][3] += 0.5
    save_pt(altered, tmp_path / "weights.pt")
    certificate = certify(folder / "model.py", tmp_path / "weights.pt", reference(CONV_NET, state))
    assert not certificate.passed and certificate.max_difference == pytest.approx(0.5)
    assert "largest difference is 0.5" in certificate.message


def test_a_missing_key_is_named(exported, tmp_path):
    folder, state = exported
    save_pt({k: v for k, v in state.items() if k != "conv1.bias"}, tmp_path / "weights.pt")
    certificate = certify(folder / "model.py", tmp_path / "weights.pt", reference(CONV_NET, state))
    assert not certificate.passed and certificate.max_difference is None
    assert "conv1.bias" in certificate.message


def test_a_model_that_needs_the_app_does_not_pass(exported, tmp_path):
    folder, state = exported
    write_text(tmp_path / "model.py", "import app.source\n" + CONV_NET.text)
    certificate = certify(tmp_path / "model.py", folder / "weights.pt", reference(CONV_NET, state))
    assert not certificate.passed and "app" in certificate.message


def test_a_net_that_draws_in_eval_mode_and_has_two_outputs():
    import tempfile
    from pathlib import Path

    import torch

    source = net(
        ["self.linear1 = nn.Linear(64, 3)"],
        ["return F.dropout(self.linear1(x.flatten(1)), 0.5, True), x.new_full((), float('nan'))"],
    )
    state = make_module(source).state_dict()
    before = torch.get_rng_state()
    expected = reference(source, state, seed=3)
    assert torch.equal(torch.get_rng_state(), before) and GENERATOR.acquire(blocking=False)
    GENERATOR.release()
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder) / "model.py", source.text)
        save_pt(state, Path(folder) / "w.pt")
        certificate = certify(Path(folder) / "model.py", Path(folder) / "w.pt", expected)
    assert certificate.passed, certificate
