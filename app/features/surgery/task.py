"""Plans a surgery."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from app.builder.analysis import analyse
from app.engine.server import Context, handles
from app.features.surgery.values import PlanSurgery, SurgeryPlan
from app.preflight import random_batch
from app.project.custom_layers import ops_of
from app.project.project import Project
from app.project.surgery import surgery_between
from app.source.compiled import make_module
from app.source.generated import Source
from app.training.surgery.transfer import transfer
from app.training.surgery.values import Fate, Outcome, Surgery
from app.util import rng

# --- Plan a surgery of a run, and try it on nets with new weights and random inputs

SAMPLES = 4  # of a random batch
LARGEST = 100_000_000  # parameters of a net that is tried with values; a larger one is on the meta device


def plan(before: Project, after: Project) -> tuple[Surgery, Outcome, bool]:
    """Return the surgery, its outcome on nets with new weights, and whether both nets are the same.

    Raises SurgeryError.
    """
    run, edited = (
        analyse(project.graph, ops_of(project)) for project in (before, after)
    )
    surgery = surgery_between(before, after, run, edited)
    options = [
        (project.training.groups, project.training.recompute)
        for project in (before, after)
    ]
    same = run.source.same_net(edited.source) and options[0] == options[1]
    large = max(run.total_parameters, edited.total_parameters) > LARGEST
    return surgery, _tried(run.source, surgery, "meta" if large else "cpu"), same


def _tried(source: Source, surgery: Surgery, device: str) -> Outcome:
    """Perform the surgery on nets with new weights; the difference of their outputs is measured on random inputs."""
    with rng.borrowed(0), torch.device(device):
        nets = make_module(source), make_module(surgery.source)
        rows, _ = transfer(
            nets[0], nets[1], surgery.layers, surgery.starts, surgery.segments
        )
    fates = tuple(Fate(*row) for row in rows)
    if device == "meta":
        return Outcome(
            fates,
            None,
            "The net is too large to try in advance; the difference is measured during the run.",
        )
    try:
        inputs = random_batch.inputs(source, SAMPLES, 0)
        old, new = (_output(net, inputs) for net in nets)
    except (Exception, SystemExit) as error:  # code of the user too
        return Outcome(fates, None, f"It was not measured on random inputs: {error}")
    if [tensor.shape for tensor in old] != [tensor.shape for tensor in new]:
        return Outcome(fates, None, "The output has another shape.")
    pairs = list(zip(old, new, strict=True))
    largest = max(
        (tensor.abs().max().item() for tensor in old if tensor.numel()), default=0.0
    )
    apart = max(
        (
            (tensor - other).abs().max().item()
            for tensor, other in pairs
            if tensor.numel()
        ),
        default=0.0,
    )
    return Outcome(fates, apart / (largest or 1.0))


def _output(net: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    with rng.borrowed(0), torch.no_grad():
        return [
            leaf.double()
            for leaf in tree_leaves(net.eval()(*inputs))
            if isinstance(leaf, Tensor)
        ]


@handles(PlanSurgery)
def plan_surgery(request: PlanSurgery, _context: Context) -> SurgeryPlan:
    return SurgeryPlan(*plan(request.before, request.after))
