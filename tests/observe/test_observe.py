"""Any model that runs is observed: its calls, the tensors between them, and where it raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils.checkpoint import checkpoint

from app.observe.folding import Tree, shown_calls, to_plain
from app.observe.observation import Call, Observation
from app.observe.observe import observe
from app.observe.picture import to_drawing
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


# --- Against torch.fx, which follows the same calls symbolically


@pytest.mark.parametrize(
    "name",
    ["resnet18", "squeezenet1_1", "mobilenet_v3_small", "mnasnet0_5", "regnet_y_400mf"],
)
def test_calls_and_edges_are_those_that_torch_fx_traces(name: str) -> None:
    model = import_torchvision("models").get_model(name, weights=None).eval()
    with torch.device("meta"):
        image = torch.empty(2, 3, 64, 64)
    found = observe(model.to("meta"), (image,))
    plain, shown = to_plain(found), shown_calls(found)
    containers = {call.parent for call in found.calls if shown[call.id] == call.id}
    leaves = [
        node
        for node in plain["nodes"]
        if node["id"] not in containers
        and found.calls[node["id"]].kind in ("module", "operation")
    ]
    traced = [
        node
        for node in fx.symbolic_trace(model).graph.nodes
        if node.op not in ("placeholder", "output", "get_attr")
    ]
    names = [str(node.target) if node.op == "call_module" else None for node in traced]
    assert [
        node["path"] if found.calls[node["id"]].kind == "module" else None
        for node in leaves
    ] == names
    numbers = {node["id"]: number for number, node in enumerate(leaves)}
    edges = {
        (numbers[a], numbers[b])
        for a, b in plain["edges"]
        if a in numbers and b in numbers
    }
    known = {node: number for number, node in enumerate(traced)}
    wanted = {
        (known[given], known[node])
        for node in traced
        for given in node.all_input_nodes
        if given in known
    }
    assert edges == wanted


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
    assert "2 values read" in to_drawing(found).title


def test_sparse_and_complex_tensors_are_described() -> None:
    def forward(_self: Any, x: Tensor) -> Tensor:
        return torch.sparse.mm(x.to_sparse(), torch.fft.fft(x).real)

    found = observe(Of(forward), (torch.eye(3),))
    assert called(found, "to_sparse").outputs[0].layout == "sparse_coo"
    assert "complex64" in {one.dtype for call in found.calls for one in call.outputs}
    assert found.error == "" and found.remarks == ()


# --- Models that raise


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x @ torch.ones(3, 3)


class Held(nn.Module):
    """Its property computes with what its forward keeps."""

    @property
    def scaled(self) -> Tensor:
        return self.kept + torch.ones(7)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x.sin()
        return self.scaled


def thrice(self: Any, x: Tensor) -> Tensor:
    for size in (4, 4, 3):
        x = torch.matmul(x, torch.ones(4, size).narrow(0, 0, size))
    return x


def wrapped(x: Tensor) -> Tensor:
    try:
        return x @ torch.ones(3, 3)
    except RuntimeError as error:
        raise ValueError("the sizes do not fit") from error


def one(forward: Any, **parts: nn.Module) -> nn.Module:
    """A model in which another module raises."""
    return Of(lambda self, x: self.inner(x), inner=Of(forward, **parts))


# The name or path of the call that has to be red, and the shapes that met there.
RAISING: dict[str, tuple[Any, str, list[list[int]]]] = {
    "a layer": (
        Of(lambda self, x: self.b(self.a(x)), a=nn.Linear(4, 5), b=nn.Linear(6, 2)),
        "b",
        [[2, 5]],
    ),
    "in a block": (
        nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Conv2d(3, 3, 1))),
        "1.1",
        [[2, 4]],
    ),
    "channels": (
        Of(lambda self, x: self.c(x.view(1, 2, 2, 2)), c=nn.Conv2d(3, 3, 1)),
        "c",
        [[1, 2, 2, 2]],
    ),
    "an operator": (Of(lambda _self, x: x.sin() + torch.ones(3)), "add", [[2, 4], [3]]),
    "a function": (
        Of(lambda _self, x: F.conv2d(x, torch.ones(1, 1, 3, 3))),
        "conv2d",
        [[2, 4], [1, 1, 3, 3]],
    ),
    "a view": (Of(lambda _self, x: x.view(3, 3)), "view", [[2, 4]]),
    "cat": (
        Of(lambda _self, x: torch.cat([x, torch.ones(2, 2, 2)])),
        "cat",
        [[2, 4], [2, 2, 2]],
    ),
    "einsum": (
        Of(lambda _self, x: torch.einsum("ij,kj->ik", x, torch.ones(2, 3))),
        "einsum",
        [[2, 4], [2, 3]],
    ),
    "an index": (Of(lambda _self, x: x[7]), "__getitem__", [[2, 4]]),
    "an embedding": (
        Of(lambda self, x: self.e(x.long() + 9), e=nn.Embedding(4, 2)),
        "e",
        [[2, 4]],
    ),
    "a dtype": (
        one(lambda self, x: self.a(x.double()), a=nn.Linear(4, 4)),
        "inner.a",
        [[2, 4]],
    ),
    "a device": (
        Of(lambda _self, x: torch.cat([x, torch.ones(1, 4, device="meta")])),
        "cat",
        [[2, 4], [1, 4]],
    ),
    "a keyword": (
        one(lambda self, x: self.b(x, scale=2), b=nn.Linear(4, 4)),
        "inner.b",
        [[2, 4]],
    ),
    "an argument": (
        one(lambda self, x: self.b(x), b=nn.Bilinear(4, 4, 2)),
        "inner.b",
        [[2, 4]],
    ),
    "None": (one(lambda self, x: x + self.missing.weight), "inner", [[2, 4]]),
    "a custom function": (
        Of(lambda _self, x: Doubling.apply(x)),
        "matmul",
        [[2, 4], [3, 3]],
    ),
    "a property": (Of(lambda self, x: self.held(x), held=Held()), "add", [[2, 4], [7]]),
    "a loop's third pass": (Of(thrice), "matmul", [[2, 4], [3, 3]]),
    "its own check": (one(lambda _self, x: {}["missing"]), "inner", [[2, 4]]),
    "from another": (one(lambda _self, x: wrapped(x)), "matmul", [[2, 4], [3, 3]]),
    "its arguments": (nn.Bilinear(4, 4, 2), "", [[2, 4]]),
    "in place": (
        Of(lambda _self, x: x.sin().add_(torch.ones(5, 4, 4))),
        "add_",
        [[2, 4], [5, 4, 4]],
    ),
}


@pytest.mark.parametrize("case", RAISING)
def test_the_call_that_raised_is_the_red_node(case: str) -> None:
    model, name, shapes = RAISING[case]
    x = torch.linspace(-1, 1, 8).view(2, 4)
    with pytest.raises(Exception) as raised:  # whatever plain torch raises
        model.eval()(x)
    found = observe(model, (x,))
    assert (
        found.failed is not None
        and found.error == f"{raised.type.__name__}: {raised.value}"
    )
    plain = to_plain(found)
    assert plain.keys() == {"nodes", "edges", "failed"}
    assert {frozenset(node) for node in plain["nodes"]} == {
        frozenset(("id", "path", "name", "op", "inputs", "outputs", "line", "error"))
    }
    red = [node for node in plain["nodes"] if node["error"]]
    assert [node["id"] for node in red] == [plain["failed"]] and red[0][
        "error"
    ] == found.error
    assert name in (red[0]["path"], red[0]["name"]) and red[0]["inputs"] == shapes
    boxes = [box for box in to_drawing(found).boxes if box.category == "error"]
    assert len(boxes) == 1 and found.error.partition("\n")[0][:40] in " ".join(
        boxes[0].lines
    )
    if case not in ("its arguments", "in a block"):
        call = found.calls[plain["failed"]]
        assert call.file == __file__ and red[0]["line"] == call.line > 0


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


# --- Folding


def test_equal_layers_are_folded_to_one_box_with_their_number() -> None:
    layers = nn.Sequential(
        *(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(12))
    )
    model = nn.Sequential(nn.Linear(4, 8), layers, nn.Linear(8, 2))
    found = observe(model, (torch.ones(1, 3, 4),), train=True)
    tree = Tree(found)
    row = next(part for part in tree.by_key.values() if part.repeated > 1)
    assert (row.title, row.kind, row.repeated) == (
        "1.0–11",
        "TransformerEncoderLayer ×12",
        12,
    )
    boxes = {box.title: box for box in to_drawing(found).boxes}
    assert boxes["1.0–11"].shape == "folded" and len(boxes) < 10
    opened = to_drawing(found, frozenset(tree.by_key))
    assert len(opened.boxes) > 100 and "1.7" in {group.title for group in opened.groups}


def test_layers_of_other_sizes_are_not_folded() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 7))
    assert all(
        part.repeated == 1
        for part in Tree(observe(model, (torch.ones(1, 4),))).by_key.values()
    )


def test_a_layer_and_the_addition_behind_it_repeat_together() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        for part in self.parts:
            x = x + part(x)
        return x

    parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))
    found = observe(Of(forward, parts=parts), (torch.ones(1, 4),))
    drawing = to_drawing(found)
    assert [box.title for box in drawing.boxes] == ["input0", "parts.0–5", "output"]
    assert {(arrow.source, arrow.target) for arrow in drawing.arrows} == {
        (drawing.boxes[0].id, drawing.boxes[1].id),
        (drawing.boxes[1].id, drawing.boxes[2].id),
    }


class Unturned(nn.Module):
    """A sequence is given to a GRU without being transposed, which no function of torch sees."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gru = nn.Conv1d(1, 8, 5), nn.GRU(4, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(torch.relu(self.conv(x)))[0]


def test_a_module_that_raises_before_any_operation_is_wired_to_what_fed_it() -> None:
    found = observe(Unturned(), (torch.randn(2, 1, 20),))
    failed = found.calls[found.failed]
    (source,) = [
        found.calls[flow.source] for flow in found.flows if flow.target == found.failed
    ]
    assert failed.path == "gru" and source.op.endswith("relu")
    drawing = to_drawing(found)
    (red,) = [box.id for box in drawing.boxes if box.category == "error"]
    assert [arrow.label for arrow in drawing.arrows if arrow.target == red] == [
        "2×8×16"
    ]


def test_an_index_is_written_as_python_writes_it_and_outputs_of_a_tuple_have_names() -> (
    None
):
    def sliced(_self: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, [-1]], x[..., None, 1:3]

    boxes = to_drawing(observe(Of(sliced), (torch.ones(2, 4),))).boxes
    assert [box.lines for box in boxes if box.title == "getitem"] == [
        ("[:, [-1]]",),
        ("[..., None, 1:3]",),
    ]
    assert [box.title for box in boxes if box.category == "io"][1:] == [
        "output0",
        "output1",
    ]
