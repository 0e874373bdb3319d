"""One gradient has one norm: findings, gradcheck, capture and playback of a batch draw the same random numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from app.autograd.batch import TrainingBatch, preserve_gradients, run_backward
from app.autograd.diagnostics.gradient_paths import find_paths
from app.autograd.playback.playback import play_through
from app.autograd.playback.recording import record
from app.builder.analysis import analyse
from app.data.config import Transform
from app.engine.requests.capture import CaptureRequest
from app.engine.tasks.capture import batch_of
from app.features.gradcheck.compute.finite_differences import Copy, Function
from app.features.gradcheck.compute.gradcheck import call_of_layer
from app.preflight.preflight import job
from app.project.custom_layers import ops_of
from app.project.file import read
from app.training.job import Job
from app.util.resources import path as resource_path


def digits(**data: Any) -> Job:
    project = read(resource_path("examples") / "digits.tape")
    project = replace(project, data=replace(project.data, **data))
    return job(project, analyse(project.graph, ops_of(project)))


@pytest.mark.parametrize(
    "data",
    [{}, {"train_transforms": (Transform("GaussianNoise"),)}],
    ids=["plain", "augmented"],
)
def test_findings_capture_and_playback_have_the_same_norms_to_the_bit(
    data: dict[str, Any],
) -> None:
    one = digits(**data)
    assert "Dropout" in one.source.text
    with batch_of(CaptureRequest(one)).hold() as graph:
        assert graph.model is not None
        leaves = {
            node.parameters[0]: node.id for node in graph.tape.nodes if node.parameters
        }
        with preserve_gradients(graph.model), record(graph.ends) as recorder:
            assert not run_backward(graph)
            plain = {
                name: float(torch.linalg.vector_norm(p.grad))
                for name, p in graph.model.named_parameters()
            }
        recorded = recorder.finish()
    played, _ = play_through(batch_of(CaptureRequest(one)).hold())
    subject = batch_of(CaptureRequest(one))
    found = find_paths(subject)
    checked = Copy(
        Function(
            (subject.model, subject.loss),
            lambda own, x: own[1](own[0](x), subject.target),
            subject.inputs[0],
        ),
        torch.float32,
        subject.seed,
        lambda: False,
    ).analytic()
    for name, leaf in leaves.items():
        norms = {
            plain[name],
            recorded.node_norms[leaf],
            played.node_norms[leaf],
            found.answers[name].norm,
        }
        assert len(norms) == 1, name
        assert float(torch.linalg.vector_norm(checked[name])) == pytest.approx(
            plain[name], rel=1e-6
        )


class Drawing(nn.Module):
    """Draws three times, in ways that depend on the precision where nobody minds it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(x).uniform_()
        return nn.functional.dropout(x, 0.5) * torch.rand_like(x) + noise * x


def test_a_layer_is_checked_with_what_it_drew_in_the_net_also_in_double() -> None:
    torch.manual_seed(0)
    subject = TrainingBatch(
        nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), Drawing()),
        (torch.randn(5, 4),),
        seed=3,
    )
    outputs: list[torch.Tensor] = []
    hook = subject.model[2].register_forward_hook(
        lambda _module, _args, output: outputs.append(output.detach())
    )
    subject.hold().release()
    call = call_of_layer(subject, "2")
    hook.remove()
    assert torch.equal(*outputs), "each run of the batch draws the same"
    for dtype in (torch.float32, torch.float64):
        function = Function(
            (subject.model[2],),
            lambda own, given: own[0](*given),
            call.args,
            state=call.state,
        )
        (again,) = Copy(function, dtype, 3, lambda: False).outputs()
        assert torch.allclose(again, outputs[0].to(dtype), rtol=1e-6)
