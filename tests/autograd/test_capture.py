"""A captured tape says what torch built: names, layers, lines, saved tensors to the byte; and lets everything go."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.errors import ForwardError, NoGraphError
from app.autograd.tape import Label, to_json
from app.autograd.walk import execution_order, walk
from app.source.generated import InputSpec, Source
from app.util.frozen import FrozenMap

TEXT = """import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.act = nn.ReLU()
        self.proj = nn.Linear(16, 16)
        self.fc1 = nn.Linear(8 * 16, 10)

    def forward(self, x):
        h = self.conv1(x)
        skip = self.act(self.bn(h))
        h = h + skip
        h = F.max_pool2d(h, 2)
        h = h.view(h.size(0), 8, -1)
        h = self.proj(h)
        h = F.relu(h)
        h = self.proj(h)
        h = torch.cat([h[:, :4], h[:, 4:]], dim=1)
        h = h.flatten(1)
        h = h[:, :].sigmoid()
        return self.fc1(h)
"""


def line(code: str, nth: int = 0) -> int:
    return [n for n, text in enumerate(TEXT.splitlines(), 1) if code in text][nth]


NODES = {
    "conv1": ("self.conv1(x)", 0),
    "bn": ("self.act(self.bn(h))", 0),
    "act": ("self.act(self.bn(h))", 0),
    "add1": ("h + skip", 0),
    "pool1": ("max_pool2d", 0),
    "view1": ("h.view", 0),
    "proj_a": ("self.proj(h)", 0),
    "relu2": ("F.relu", 0),
    "proj_b": ("self.proj(h)", 1),
    "cat1": ("torch.cat", 0),
    "flat1": ("flatten", 0),
    "sig1": ("sigmoid", 0),
    "fc1": ("self.fc1(h)", 0),
}
MODULES = {
    "conv1": "conv1",
    "bn": "bn",
    "act": "act",
    "proj_a": "proj",
    "proj_b": "proj",
    "fc1": "fc1",
}
SOURCE = Source(
    TEXT,
    (InputSpec("x", (1, 8, 8)),),
    ("y",),
    FrozenMap({node: (line(*where),) for node, where in NODES.items()}),
    FrozenMap(MODULES),
)


def batch(n: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 1, 8, 8, generator=generator), torch.arange(n) % 10


def captured(**more: Any) -> Any:
    state = more.pop("state_dict", None)
    return replace(
        compile_batch(SOURCE, *batch(), nn.CrossEntropyLoss(), 0, state), **more
    ).capture()


# -- where nodes come from ---------------------------------------------------------------------------------------------


def test_every_node_of_the_net_has_its_place_in_the_drawing() -> None:
    tape = captured()
    for node in tape.nodes:
        assert node.in_loss or node.node in NODES, node
        assert node.in_loss or node.line == line(*NODES[node.node])
    by_node: dict[str, set[str]] = {}
    for node in tape.nodes:
        if node.node and not node.is_leaf:
            by_node.setdefault(node.node, set()).add(node.name)
    assert by_node["conv1"] == {"ConvolutionBackward0"}
    assert by_node["add1"] == {"AddBackward0"}
    assert by_node["pool1"] == {"MaxPool2DWithIndicesBackward0"}
    assert by_node["view1"] == {"ViewBackward0"}
    assert by_node["relu2"] == {"ReluBackward0"} == by_node["act"]
    assert "CatBackward0" in by_node["cat1"] and "SliceBackward0" in by_node["cat1"]
    assert by_node["sig1"] >= {"SigmoidBackward0"}
    assert {"bn", "fc1"} <= set(by_node)


def test_a_module_called_twice_is_two_nodes_of_the_drawing_with_one_parameter() -> None:
    tape = captured()
    calls = {
        node.node: node.call
        for node in tape.nodes
        if node.layer == "proj" and node.name == "AddmmBackward0"
    }
    assert calls == {"proj_a": 1, "proj_b": 2}
    weights = [node for node in tape.nodes if node.parameters == ("proj.weight",)]
    assert len(weights) == 1 and len(tape.incoming[weights[0].id]) == 2


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.out = nn.Linear(5, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(x))


def test_tied_weights_have_all_their_names() -> None:
    tape = TrainingBatch(Shared(), torch.tensor([1, 2, 3])).capture()
    leaves = [node for node in tape.nodes if node.is_leaf]
    assert [leaf.parameters for leaf in leaves] == [("embed.weight", "out.weight")]


def test_sequences_and_attention_know_their_layers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 8, batch_first=True)
            self.cell = nn.GRUCell(8, 8)
            self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            h, _ = self.lstm(x)
            state = h[:, 0]
            for step in range(3):
                state = self.cell(h[:, step], state)
            h, weights = self.attn(h, h, h)
            return self.head(h[:, -1] + state), weights

    tape = TrainingBatch(
        Net(), torch.randn(2, 5, 4), F.cross_entropy, torch.tensor([0, 1])
    ).capture()
    layers = {node.layer for node in tape.nodes if not node.in_loss}
    assert layers - {"attn.out_proj"} == {
        "lstm",
        "cell",
        "attn",
        "head",
        "",
    }  # "": what forward itself computes
    assert {
        node.call for node in tape.nodes if node.layer == "cell" and not node.is_leaf
    } == {1, 2, 3}
    loss = [node.name for node in tape.nodes if node.in_loss]
    assert loss == ["NllLossBackward0", "LogSoftmaxBackward0"]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.mask = torch.ones(9)
        ctx.power = 2
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def test_a_custom_function_shows_what_it_saved_and_hung_on_its_context() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Square.apply(self.fc(x))

    node = TrainingBatch(Net(), torch.randn(2, 3)).capture().nodes[0]
    assert node.name == "SquareBackward"
    assert {s.name: (s.shape, s.bytes) for s in node.saved} == {
        "saved_tensors[0]": ((2, 3), 24),
        "ctx.mask": ((9,), 36),
    }
    assert node.values["power"] == 2


def test_a_custom_function_in_the_text_has_its_line() -> None:
    text = (
        "import torch\nfrom torch import nn\n\n\nclass Double(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x):\n        return x * 2\n\n    @staticmethod\n    def backward(ctx, g):\n"
        "        return g * 2\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(2, 2)\n\n    def forward(self, x):\n        x = self.fc(x)\n"
        "        x = Double.apply(x)\n        return x + 1\n"
    )
    source = Source(
        text, lines=FrozenMap(a=(21,), b=(22,), c=(23,)), modules=FrozenMap(a="fc")
    )
    tape = compile_batch(source, torch.randn(2, 2), None, None, 0).capture()
    assert {node.name: node.node for node in tape.nodes if not node.is_leaf} == {
        "AddBackward0": "c",
        "DoubleBackward": "b",
        "AddmmBackward0": "a",
        "TBackward0": "a",
    }


# -- what is kept ------------------------------------------------------------------------------------------------------


class _Born(TorchDispatchMode):
    """Weak references to every memory block that an operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.blocks[storage._cdata] = (
                    StorageWeakRef(storage),
                    storage.nbytes(),
                )
        return out


def alive_for_backward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> int:
    """Bytes that stay alive when of a forward pass only the loss is kept, less the loss itself."""
    with _Born() as born:
        loss = F.cross_entropy(model(x), y)
    gc.collect()
    known = {
        t.untyped_storage()._cdata
        for t in (*model.parameters(), *model.buffers(), x, y, loss)
    }
    return sum(
        size
        for key, (ref, size) in born.blocks.items()
        if key not in known and not ref.expired()
    )


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1).view(-1, 8, 8)
        x, _ = self.attn(x, x, x)
        x, _ = self.lstm(x)
        return self.out(x[:, -1])


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x.flatten(1)).sigmoid()
        x = checkpoint(lambda t: self.b(t).relu().sigmoid(), x, use_reentrant=False)
        return self.c(x)


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(72, 16),
        nn.LayerNorm(16),
        nn.GELU(),
        nn.Linear(16, 10),
    )


@pytest.mark.parametrize("make", [conv_net, Attention, Checkpointed])
def test_held_bytes_are_those_that_stay_alive(make: Any) -> None:
    x, y = batch()
    model = make()
    tape = TrainingBatch(model, x, F.cross_entropy, y).capture()
    # A Python number that torch wraps into a tensor (attention's scale) is made below the dispatcher, out of our sight.
    numbers = {
        s.storage: s.bytes
        for node in tape.nodes
        for s in node.saved
        if (s.shape, s.dtype) == ((), "float64")
    }
    assert (
        tape.held_bytes - sum(numbers.values()) == alive_for_backward(model, x, y) > 0
    )


def test_saved_tensors_are_told_with_kind_shape_and_bytes() -> None:
    tape = captured()
    conv = next(node for node in tape.nodes if node.name == "ConvolutionBackward0")
    assert [(s.name, s.shape, s.dtype, s.bytes, s.kind) for s in conv.saved] == [
        ("input", (4, 1, 8, 8), "float32", 1024, "input"),
        ("weight", (8, 1, 3, 3), "float32", 288, "parameter"),
    ]
    assert (
        conv.values["stride"] == (1, 1)
        and conv.values["padding"] == (1, 1)
        and conv.values["groups"] == 1
    )
    norm = next(node for node in tape.nodes if "BatchNorm" in node.name)
    assert {s.name: s.kind for s in norm.saved}["running_mean"] == "buffer"
    softmax = next(node for node in tape.nodes if node.name == "LogSoftmaxBackward0")
    assert softmax.values["dim"] == 1


def test_negative_dimensions_are_read_as_such() -> None:
    tape = TrainingBatch(
        nn.Sequential(nn.Linear(3, 3), nn.Softmax(dim=-1)), torch.randn(2, 3)
    ).capture()
    assert tape.nodes[0].values["dim"] == -1


def test_a_change_in_place_shows_in_the_versions() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.fc(x).sigmoid()
            out = h.exp()
            h.add_(1)
            return out

    tape = TrainingBatch(Net(), torch.randn(2, 3)).capture()
    sigmoid = next(node for node in tape.nodes if node.name == "SigmoidBackward0")
    assert (sigmoid.saved[0].version, sigmoid.saved[0].version_now) == (0, 1)


def test_the_order_is_that_of_the_engine_and_the_last_holder_frees() -> None:
    x, y = batch()
    for model in (conv_net(), Attention()):
        loss = F.cross_entropy(model(x), y)
        nodes, edges, roots = walk([loss])
        ran: list[int] = []
        for place, node in enumerate(nodes):
            node.register_hook(lambda *_, ran=ran, place=place: ran.append(place))
        ours = execution_order([node._sequence_nr() for node in nodes], edges, roots)
        loss.backward()
        inner = {
            i
            for i, node in enumerate(nodes)
            if not node.name().endswith("AccumulateGrad")
        }
        assert [i for i in ours if i in inner] == [i for i in ran if i in inner]
        assert len(ours) == len(nodes)
    tape = captured()
    for storage in tape.storages:
        assert tape.steps[storage.freed_by] == max(
            tape.steps[holder] for holder in storage.holders
        )


# -- what is let go ----------------------------------------------------------------------------------------------------


def test_nothing_stays_alive() -> None:
    seen: list[weakref.ref[Any]] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 32), nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.a(x.flatten(1)).relu()
            out = self.b(h)
            seen.extend(weakref.ref(t) for t in (h, out))
            return out

    model = Net()
    tape = TrainingBatch(model, *batch()[:1], F.cross_entropy, batch()[1]).capture()
    assert tape.held_bytes > 0
    assert [ref() for ref in seen] == [None, None]
    assert all(
        not module._forward_hooks and not module._forward_pre_hooks
        for module in model.modules()
    )


def test_the_model_is_left_as_it_was() -> None:
    model = conv_net().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    TrainingBatch(
        model, *batch()[:1], F.cross_entropy, batch()[1], train=True
    ).capture()
    assert not model.training and not model[1].training
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()
    )
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_run_beside_it_does_not_notice() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second = captured(), captured()
    assert torch.equal(torch.get_rng_state(), state)
    assert first == second


def test_given_weights_are_used() -> None:
    from app.source.compiled import make_module

    model = make_module(SOURCE)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    tape = captured(state_dict=model.state_dict())
    assert tape.loss == pytest.approx(2.302585, abs=1e-5)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_frozen_net_says_that_it_built_no_graph() -> None:
    model = nn.Linear(3, 3).requires_grad_(False)
    with pytest.raises(NoGraphError, match="requires_grad=False"):
        TrainingBatch(model, torch.randn(2, 3)).capture()
    with pytest.raises(NoGraphError, match="no parameters"):
        TrainingBatch(nn.ReLU(), torch.randn(2, 3)).capture()

    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x).detach()

    with pytest.raises(NoGraphError, match="detach"):
        TrainingBatch(Cut(), torch.randn(2, 3)).capture()


def test_an_error_in_the_net_names_the_node_and_keeps_no_tensor() -> None:
    with pytest.raises(ForwardError) as caught:
        compile_batch(
            SOURCE,
            torch.randn(2, 3, 8, 8),
            torch.tensor([1, 2]),
            nn.CrossEntropyLoss(),
            0,
        ).capture()
    error = caught.value
    assert error.node == "conv1" and error.line == line("self.conv1(x)")
    assert "Traceback" in error.traceback_text and "expected input" in str(error)
    assert error.__cause__ is None and error.__context__ is None


def test_a_loss_that_does_not_fit_is_said() -> None:
    x, _ = batch()
    with pytest.raises(ForwardError, match="outside the net"):
        compile_batch(
            SOURCE, x, torch.tensor([1, 2]), nn.CrossEntropyLoss(), 0
        ).capture()


# -- as data -----------------------------------------------------------------------------------------------------------


def test_the_json_has_what_is_promised() -> None:
    data = json.loads(
        json.dumps(
            to_json(
                captured(
                    labels={"add1": Label("add1", "merge"), "conv1": Label("first")}
                )
            )
        )
    )
    assert set(data["nodes"][0]) >= {"id", "name", "layer", "parameter", "saved"}
    assert all(
        set(s) >= {"name", "shape", "dtype", "bytes"}
        for node in data["nodes"]
        for s in node["saved"]
    )
    layers = {node["layer"] for node in data["nodes"]}
    assert {"loss", "first", "add1", "bn"} <= layers
    assert {node["parameter"] for node in data["nodes"]} >= {"conv1.weight", "fc1.bias"}
    assert all({"source", "target"} <= set(edge) for edge in data["edges"])
    held = sum(s["bytes"] for s in data["storages"] if s["kind"] == "activation")
    assert data["held_bytes"] == held


def test_a_very_deep_graph_is_walked() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(6000):
                x = x + self.weight
            return x

    tape = TrainingBatch(Deep(), torch.zeros(1)).capture()
    assert len(tape.nodes) == 6001 and len(tape.order) == 6001
