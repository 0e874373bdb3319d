"""What is drawn of a model that was observed: its calls as boxes, the one that raised in red, equal layers as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from app.features.opened.folding import MOST, MOST_AROUND, Tree, shown_calls, to_plain
from app.features.opened.picture import to_drawing
from app.observe.observe import observe
from app.sources import onnx_file, pt2_file
from app.util.torchvision_import import import_torchvision
from tests.observe.test_observe import Of
from tests.slow.deep_graphs import write_deep
from tests.sources.test_files import Net
from tests.sources.test_files import files as files


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


# --- Files


@pytest.mark.parametrize("name", ["net.pt2", "net.onnx"])
def test_a_file_is_drawn_as_the_model_that_was_exported(files: Path, name: str) -> None:
    read = (pt2_file if name.endswith("pt2") else onnx_file).read
    live = observe(Net().eval(), (torch.ones(3, 4),), {"scale": torch.ones(4)})
    drawings = [
        to_drawing(each, frozenset(Tree(each).by_key))
        for each in (read(files / name), live)
    ]
    ends = []
    for drawing in drawings:
        titles = {
            box.id: box.title.lower() for box in drawing.boxes if box.category != "io"
        }
        ends.append(
            sorted(
                (titles[arrow.source], titles[arrow.target])
                for arrow in drawing.arrows
                if arrow.source in titles and arrow.target in titles
            )
        )
    assert ends[0] == ends[1] and len(ends[0]) > 8


def test_modules_without_end_around_few_operations_are_opened_to_a_bound(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deep.pt2"
    write_deep(path, nodes=10, levels=120)
    tree = Tree(pt2_file.read(path))
    assert 10 < len(tree.opened()) <= MOST_AROUND * MOST


def test_a_name_of_very_many_modules_is_opened(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    node = onnx.helper.make_node("Relu", ["x"], ["y"], name="/m" * 5000 + "/Relu")
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
        for name in "xy"
    ]
    graph = onnx.helper.make_graph([node], "net", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "net.onnx"))
    assert Tree(onnx_file.read(tmp_path / "net.onnx")).opened()


def test_how_many_values_are_read_is_said_in_the_heading() -> None:
    found = observe(Of(lambda _self, x: x[: int(x.max().item())]), (torch.ones(4),))
    assert "1 value read" in to_drawing(found).title
