"""What is looked at, on the accelerator: graphs, playback, checked gradients, evaluation, attention, layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from app.autograd.batch import TrainingBatch, preserve_gradients, run_backward
from app.autograd.diagnostics.gradient_paths import find_paths
from app.autograd.playback.playback import play_through
from app.autograd.playback.recording import record
from app.main import main
from app.training.evaluation.evaluator import Evaluator
from app.training.monitoring import activations, snapshots
from tests.devices.test_on_training import answers
from tests.support.needs import needs
from tests.support.playback_nets import NETS, batch
from tests.support.training_jobs import CONV_NET, job

Same = Callable[[object, object], bool]


def subject(name: str, device: str) -> TrainingBatch:
    torch.manual_seed(4)
    x, y = batch()
    model = NETS[name]().to(device)
    return TrainingBatch(model, (x.to(device),), F.cross_entropy, y.to(device))


# No cell of an LSTM runs on `sim`, nor do sparse tensors; conjugates are written out there, and round.
PLAYED = [name for name in NETS if name not in ("recurrent", "sparse", "complex")]
RANDOM = ("checkpoint", "reentrant")  # they drop units, and devices draw others
# The others of `OWN` make their masks on the CPU.
UNMASKED = ["fused", "is_causal", "enable_gqa", "written out", "einsum", "values first"]


@pytest.mark.parametrize("name", PLAYED)
def test_a_backward_is_captured_and_played(
    name: str, device: str, exact: bool, same: Same
) -> None:
    norms: list[dict[str, float]] = []
    for where in ("cpu", device):
        torch.manual_seed(4)
        with subject(name, where).hold() as graph:
            assert graph.model is not None
            leaves = {
                node.parameters[0]: node.id
                for node in graph.tape.nodes
                if node.parameters
            }
            with preserve_gradients(graph.model), record(graph.ends) as recorder:
                assert not run_backward(graph)
            recorded = recorder.finish()
        torch.manual_seed(4)
        played, _ = play_through(subject(name, where).hold())
        ours = {key: recorded.node_norms[node] for key, node in leaves.items()}
        assert same(
            {key: played.node_norms[node] for key, node in leaves.items()}, ours
        )
        norms.append(ours)
    if exact or name not in RANDOM:
        assert same(norms[1], norms[0])


def test_findings_are_those_of_the_cpu(device: str, same: Same) -> None:
    found = [find_paths(subject("residual", where)) for where in ("cpu", device)]
    theirs, ours = (
        {name: answer.norm for name, answer in one.answers.items()} for one in found
    )
    assert same(ours, theirs)


@needs("gradcheck")
def test_gradients_are_checked(device: str) -> None:
    from app.features.gradcheck.compute.gradcheck import check_net

    report = check_net(subject("residual", device), budget=60)
    assert report.passed and report.worst is not None


@needs("interpret")
@pytest.mark.parametrize("kind", UNMASKED)
def test_attention_is_found(kind: str, device: str) -> None:
    from app.features.interpret.compute.attention_maps import attentions
    from tests.features.interpret.models import OWN

    torch.manual_seed(0)
    model, x = OWN[kind](), torch.randn(3, 7, 24)
    expected = copy.deepcopy(model).eval().expected(x)[0]
    model = model.to(device).eval()
    found, remarks = attentions(model, lambda: model(x.to(device)), 3)
    assert not remarks and found[0].checked and not found[0].remark
    torch.testing.assert_close(
        torch.tensor(found[0].maps[0]), expected, atol=1e-4, rtol=0
    )


def test_an_evaluation_is_that_of_the_cpu(device: str, same: Same) -> None:
    theirs, ours = (Evaluator(job(CONV_NET, device=where)) for where in ("cpu", device))
    assert str(ours.device) == device
    wanted, found = theirs.evaluate(), ours.evaluate()
    assert same(found.loss, wanted.loss)
    np.testing.assert_array_equal(found.confusion, wanted.confusion)


def test_a_layer_is_looked_into_amid_a_run(device: str) -> None:
    (theirs, _), (ours, batch) = (
        answers(
            job(CONV_NET, epochs=2, device=where),
            lambda live: activations.of_run(live, "conv1", 5),
            snapshots.caught_batch,
        )
        for where in ("cpu", device)
    )
    assert batch is None or batch.inputs.shape[0]
    assert ours.channels.pictures.shape == theirs.channels.pictures.shape
    assert ours.filters.count == theirs.filters.count == 16


NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class There(Net):
    def __init__(self):
        super().__init__()
        self.to(torch.accelerator.current_accelerator())
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NET)
    return tmp_path


@needs("compare")
def test_a_model_is_compared_on_the_cpu_and_on_the_device(
    nets: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "diff",
        "nets.py:Net",
        "--input",
        "2x6",
        "--modes",
        "cpu",
        device,
        "--trust",
    ]
    assert main(words) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    "command", [("autograd", "--findings"), ("autograd", "--gradcheck"), ("draw",)]
)
def test_a_model_that_puts_itself_on_the_device_is_looked_at(
    nets: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *options = command
    words = [verb, "nets.py:There", *options, "--input", "2x6", "--trust"]
    out = ["--out", "there.svg"] if verb == "draw" else []
    assert main([*words, *out]) == 0, capsys.readouterr()
