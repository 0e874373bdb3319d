"""Any model that runs is observed: its calls, the tensors between them, and where it raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from app.observe.observation import Call, Observation
from app.observe.observe import observe
from app.util.torchvision_import import import_torchvision


def called(observation: Observation, name: str) -> Call:
    return next(call for call in observation.calls if call.name == name)


def sources(observation: Observation, name: str) -> set[str]:
    """Names of the calls whose results a call took."""
    target = called(observation, name).id
    return {
        observation.calls[flow.source].name or observation.calls[flow.source].path
        for flow in observation.flows
        if flow.target == target
    }


class Of(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, forward: Any, **parts: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(self, *args, **kwargs)


# --- What a pass leaves as it was


def test_observing_changes_neither_values_nor_state() -> None:
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)
    ).train()
    x = torch.randn(16, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, call = torch.get_rng_state(), nn.Module.__call__
    found = observe(model, (x,), train=True)
    assert torch.equal(torch.get_rng_state(), state) and nn.Module.__call__ is call
    assert all(
        torch.equal(value, before[name]) for name, value in model.state_dict().items()
    )
    assert (
        found.failed is None
        and model.training
        and all(p.grad is None for p in model.parameters())
    )


# --- How tensors are followed


def test_a_write_through_a_view_is_taken_from_by_who_reads_the_whole() -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        whole = torch.zeros(3, 4)
        whole[1].add_(x)
        return whole.sum()

    found = observe(Of(forward), (torch.ones(4),))
    assert called(found, "add_").written and sources(found, "sum") == {"add_"}


def test_a_view_takes_the_value_that_was_written_to_its_base() -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        y = x * 1
        view = y.view(2, 2)
        y.mul_(2)
        return view.relu()

    found = observe(Of(forward), (torch.ones(4),))
    assert called(found, "view").view and sources(found, "relu") == {"mul_"}


@pytest.mark.parametrize("inference", [False, True])
def test_a_view_or_a_detached_alias_does_not_stand_for_its_base(
    inference: bool,
) -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        y = x * 1
        y.detach()
        y.view(2, 2)
        return y.relu()

    with torch.inference_mode(inference):
        found = observe(Of(forward), (torch.ones(4),))
    assert called(found, "view").view and sources(found, "relu") == {"mul"}


def test_item_assignment_and_out_are_writes() -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        y = torch.zeros(4)
        y[:2] = x[:2]
        torch.add(y, 1, out=y)
        return y.tanh()

    found = observe(Of(forward), (torch.ones(4),))
    assert (
        called(found, "__setitem__").written
        and called(found, "add").written
        and sources(found, "tanh") == {"add"}
    )


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


double = Double.apply


def test_a_custom_function_that_was_bound_before_is_followed() -> None:
    found = observe(
        Of(lambda _self, x: double(x.sin()).cos()), (torch.ones(4, requires_grad=True),)
    )
    assert sources(found, "cos") == {"mul"} and sources(found, "mul") == {"sin"}


def test_scripted_code_is_seen_by_its_kernels() -> None:
    @torch.jit.script
    def scripted(x: Tensor) -> Tensor:
        return torch.relu(x) + 1

    found = observe(Of(lambda _self, x: scripted(x.sin()).cos()), (torch.ones(4),))
    kernels = [call.op for call in found.calls if call.op.startswith("aten")]
    assert kernels == ["aten.relu.default", "aten.add.Scalar"], "each of them once"
    assert sources(found, "cos") == {"add"} and called(found, "cos").inputs[
        0
    ].shape == (4,)


def test_a_checkpointed_part_is_observed_once() -> None:
    model = Of(
        lambda self, x: checkpoint(self.part, x, use_reentrant=False).sum(),
        part=nn.Linear(4, 4),
    )
    found = observe(model, (torch.ones(2, 4),), train=True)
    assert [call.path for call in found.calls if call.kind == "module"] == ["", "part"]
    assert sources(found, "sum") == {"linear"}


def test_a_module_made_in_passing_is_a_call() -> None:
    found = observe(Of(lambda _self, x: nn.GELU()(x)), (torch.ones(4),))
    assert [call.path for call in found.calls if call.kind == "module"] == [
        "",
        "GELU()",
    ]


def test_every_call_of_a_shared_module_is_one() -> None:
    found = observe(
        Of(lambda self, x: self.a(self.a(x)), a=nn.Linear(4, 4)), (torch.ones(1, 4),)
    )
    assert [
        call.call for call in found.calls if call.path == "a" and call.kind == "module"
    ] == [1, 2]


# --- What goes in and out


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...]
    nothing: Tensor | None = None


class Cache:
    def __init__(self) -> None:
        self.layers: list[Tensor] = []


def test_keywords_dicts_dataclasses_and_caches_are_taken_and_given() -> None:
    def forward(
        _self: Any, *, ids: Tensor, batch: dict[str, Tensor], cache: Cache
    ) -> Output:
        state = ids * batch["mask"]
        cache.layers.append(state)
        return Output(cache.layers[0].exp(), (state, state + 1))

    batch = {"mask": torch.ones(2), "unused": torch.ones(1)}
    found = observe(
        Of(forward), kwargs={"ids": torch.ones(2), "batch": batch, "cache": Cache()}
    )
    assert [call.path for call in found.calls if call.kind == "input"] == [
        "ids",
        "batch.mask",
        "batch.unused",
    ]
    assert [call.path for call in found.calls if call.kind == "output"] == [
        "logits",
        "hidden.0",
        "hidden.1",
    ]
    assert sources(found, "mul") == {"input"} and sources(found, "exp") == {"mul"}


def test_a_value_that_is_read_is_said() -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        if x.sum() > 3:
            return x[: int(x.max().item())]
        return x

    found = observe(Of(forward), (torch.ones(4),))
    assert [(call.name, call.value) for call in found.reads] == [
        ("__bool__", "True"),
        ("item", "1.0"),
    ]


def test_sparse_and_complex_tensors_are_described() -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        return torch.sparse.mm(x.to_sparse(), torch.fft.fft(x).real)

    found = observe(Of(forward), (torch.eye(3),))
    assert called(found, "to_sparse").outputs[0].layout == "sparse_coo"
    assert "complex64" in {one.dtype for call in found.calls for one in call.outputs}
    assert found.error == "" and found.remarks == ()


# --- Models that raise


def test_an_operator_that_this_torchvision_lacks_is_the_red_call_and_says_what_to_install() -> (
    None
):
    torchvision = import_torchvision()
    if torchvision.extension._has_ops():
        pytest.skip("this torchvision has its compiled operators")
    model = Of(lambda _self, x: torchvision.ops.nms(x, x[:, 0], 0.5))
    found = observe(model, (torch.rand(3, 4),))
    call = found.calls[found.failed or 0]
    assert call.name == "nms" and [one.shape for one in call.inputs] == [(3, 4), (3,)]
    assert (
        "Install a torchvision wheel that matches your torch" in found.error
        and len(found.error) < 200
    )


def test_an_exception_that_the_model_catches_is_none_of_its_failures() -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        try:
            return x.view(3, 3)
        except RuntimeError:
            return x.cos()

    found = observe(Of(forward), (torch.ones(2, 2),))
    assert (
        found.failed is None and not found.error and sources(found, "output") == {"cos"}
    )
