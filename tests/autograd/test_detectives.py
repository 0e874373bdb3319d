"""The detectives on every kind of net, and on the bundled examples with their own data: no false alarm, none missed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.gradient_paths import find_paths
from app.autograd.diagnostics.inplace_changes import find_broken
from app.builder.analysis import analyse
from app.engine.requests.capture import CaptureRequest
from app.engine.tasks.capture import batch_of
from app.preflight.preflight import job
from app.project.custom_layers import ops_of
from app.project.file import read
from app.util.resources import path as resource_path
from tests.support.playback_nets import NETS, DoesMuch, batch, loss


def subject_of(name: str) -> TrainingBatch:
    torch.manual_seed(0)
    x, y = batch()
    return TrainingBatch(NETS[name](), (x,), loss, y)


def torchs_gradients(subject: TrainingBatch) -> dict[str, torch.Tensor | None]:
    with subject.hold() as graph:
        torch.autograd.backward(graph.ends)
    found = {
        name: parameter.grad for name, parameter in subject.model.named_parameters()
    }
    for parameter in subject.model.parameters():
        parameter.grad = None
    return found


@pytest.mark.parametrize("name", NETS)
def test_the_answers_are_torchs_own(name: str) -> None:
    subject = subject_of(name)
    found, real = find_paths(subject), torchs_gradients(subject)
    for parameter, gradient in real.items():
        answer = found.answers[parameter]
        if gradient is None:
            assert answer.state == "none" and answer.kind and answer.sentence, answer
        else:
            assert answer.norm == pytest.approx(
                float(gradient.to_dense().norm()), rel=1e-4, abs=1e-7
            ), answer
            assert (answer.state == "zero") == (float(gradient.to_dense().norm()) == 0)
    assert not find_broken(subject).broken and not find_broken(subject).error


def test_forward_passes_that_do_much_are_watched_too() -> None:
    x, y = (
        torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 1, 1]),
    )
    subject = TrainingBatch(DoesMuch(), (x,), loss, y)
    found, real = find_paths(subject), torchs_gradients(subject)
    for name, gradient in real.items():
        assert (found.answers[name].state == "flows") == (gradient is not None)
    assert not find_broken(subject).broken
    assert float(subject.model.calls) == 0


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_torchscript_is_captured() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 2))
    subject = TrainingBatch(model, (torch.randn(3, 4),), loss, torch.tensor([0, 1, 1]))
    assert not find_paths(subject).without


@pytest.mark.parametrize("name", ["Residual net on digits", "Transformer on digits"])
def test_the_examples_are_asked_with_their_own_batch(name: str) -> None:
    project = read(resource_path("examples") / f"{name}.tape")
    analysis = analyse(project.graph, ops_of(project))
    subject = batch_of(CaptureRequest(job(project, analysis)).of_samples(4))
    found = find_paths(subject)
    assert set(found.answers) == {key for key, _ in subject.model.named_parameters()}
    assert not found.without
    without = {
        project.graph.nodes[node].name
        for node, requires in found.requires.items()
        if not requires
    }
    assert without <= {"rows"}  # of the input alone
    assert not find_broken(subject).broken
    assert isinstance(subject.loss, nn.Module) or callable(subject.loss)
