"""The detectives on every kind of net, and on the bundled examples with their own data: no false alarm, none missed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.autograd.gradcheck import check_net
from app.autograd.gradient_paths import find_paths
from app.autograd.mutation import find_broken
from app.autograd.subject import Subject
from app.builder.analysis import analyse
from app.inspection import batch_subject
from app.own_layers import ops_of
from app.preflight import job
from app.project_file import read
from app.resources import path as resource_path
from tests.playback_nets import NETS, batch, loss


def one(name: str) -> Subject:
    torch.manual_seed(0)
    x, y = batch()
    return Subject(NETS[name](), (x,), loss, y)


def torchs_gradients(subject: Subject) -> dict[str, torch.Tensor | None]:
    with subject.hold() as graph:
        torch.autograd.backward(graph.ends)
    found = {name: parameter.grad for name, parameter in subject.model.named_parameters()}
    for parameter in subject.model.parameters():
        parameter.grad = None
    return found


@pytest.mark.parametrize("name", NETS)
def test_the_answers_are_torchs_own(name: str) -> None:
    subject = one(name)
    found, real = find_paths(subject), torchs_gradients(subject)
    for parameter, gradient in real.items():
        answer = found.why_no_grad(parameter)
        if gradient is None:
            assert answer.state == "none" and answer.kind and answer.sentence, answer
        else:
            assert answer.norm == pytest.approx(float(gradient.to_dense().norm()), rel=1e-4, abs=1e-7), answer
            assert (answer.state == "zero") == (float(gradient.to_dense().norm()) == 0)
    assert not find_broken(subject).broken and not find_broken(subject).error


@pytest.mark.parametrize("name", [name for name in NETS if name not in ("recurrent", "convolutions")])
def test_their_gradients_check(name: str) -> None:
    report = check_net(one(name), budget=50)
    assert report.passed, (report.worst, report.sentences)


@pytest.mark.parametrize("name", ["Residual net on digits", "Transformer on digits"])
def test_the_examples_are_asked_with_their_own_batch(name: str) -> None:
    project = read(resource_path("examples") / f"{name}.tape")
    analysis = analyse(project.graph, ops_of(project))
    subject = batch_subject(job(project, analysis), {}, batch=4)
    found = find_paths(subject)
    assert set(found.answers) == {key for key, _ in subject.model.named_parameters()}
    assert not {answer.kind for answer in found.without} - {"cancelled", "zero"}
    for answer in found.without:
        assert answer.place is not None and answer.place.node in project.graph.nodes and answer.place.line
    without = {project.graph.nodes[node].name for node, requires in found.requires.items() if not requires}
    assert without <= {"rows"}  # of the input alone
    assert not find_broken(subject).broken
    assert isinstance(subject.loss, nn.Module) or callable(subject.loss)
