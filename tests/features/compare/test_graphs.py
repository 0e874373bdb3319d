"""`tapedeck diff` of two ONNX files or two exported programs: nothing of them is run."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from app.cli import run
from app.features.compare.compute.stored_tensors import of_pt2
from app.sources.spec import SourceError
from tests.support.needs import needs


class Net(nn.Module):
    def __init__(self, width: int = 4, eps: float = 1e-5, twice: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)
        self.norm = nn.BatchNorm2d(width, eps=eps)
        self.fc = nn.Linear(width, 3)
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc((torch.sigmoid(x) if self.twice else x).mean((2, 3)))


def saved(path: Path, seed: int = 0, **settings: object) -> Path:
    torch.manual_seed(seed)
    net = Net(**settings).eval()
    x = (torch.zeros(2, 1, 8, 8),)
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(net, x), path)
    else:
        pytest.importorskip("onnx", reason="ONNX files are written with onnx")
        pytest.importorskip("onnxscript", reason="torch writes ONNX with onnxscript")
        torch.onnx.export(net, x, str(path), dynamo=True, verbose=False)
    return path


def difference(
    capsys: pytest.CaptureFixture[str], a: Path, b: Path
) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    code = run(["diff", str(a), str(b), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(params=(".pt2", ".onnx"))
def first(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return saved(tmp_path / f"a{request.param}")


pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of torch's exporters
    pytest.mark.usefixtures("nothing_trusted"),
    needs("opened"),
]


def test_equal_files_are_equal_with_their_weights(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = difference(capsys, first, saved(first.with_stem("b")))
    assert (code, told["differs"]) == (0, False)
    weights = told["weights"]
    assert weights and not any(layer["distance"] for layer in weights)
    assert run(["diff", str(first), str(first.with_stem("b"))]) == 0
    assert "Nothing differs; nothing was run." in capsys.readouterr().out


def test_other_weights_alone_are_a_difference(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = difference(capsys, first, saved(first.with_stem("b"), seed=1))
    structure = told["structure"]
    assert code == 1 and not (structure["added"] or structure["changed"])
    moved = {layer["a"]: layer for layer in told["weights"] if layer["distance"]}
    linear = next(layer for path, layer in moved.items() if path.startswith("fc."))
    assert (linear["differing"], linear["count"]) == (15, 15)
    a, b = (_weight(seed) for seed in (0, 1))
    assert linear["distance"] == pytest.approx(float((b - a).norm()))


def _weight(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    net = Net()
    return torch.cat((net.fc.weight.flatten(), net.fc.bias)).detach().double()


def test_a_wider_layer_and_an_operation_more_are_told(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = saved(first.with_stem("b"), width=5, twice=True)
    code, told = difference(capsys, first, other)
    (added,) = told["structure"]["added"]
    assert code == 1 and added["class"].lower() == "sigmoid"
    sizes = [
        tuple(sizes)
        for changed in told["structure"]["changed"]
        for name, sizes in changed["settings"].items()
        if name == "output"
    ]
    assert ("2×4×6×6 float32", "2×5×6×6 float32") in sizes
    assert None in [layer["distance"] for layer in told["weights"]]  # other shapes


def test_an_attribute_is_told_by_its_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = saved(tmp_path / "a.pt2"), saved(tmp_path / "b.pt2", eps=1e-3)
    assert difference(capsys, a, b)[0] == 1
    assert run(["diff", str(a), str(b)]) == 1
    out = capsys.readouterr().out
    assert "norm.batch_norm_0" in out and "1e-05 → 0.001" in out


def test_weights_that_are_not_beside_their_file_are_asked_for_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = 64  # torch keeps small tensors in the file itself
    a, b = (saved(tmp_path / f"{name}.onnx", width=wide) for name in "ab")
    data = b.with_name("b.onnx.data")
    assert data.stat().st_size
    data.unlink()
    assert run(["diff", str(a), str(b)]) == 2
    refusal = capsys.readouterr().err
    assert "b.onnx.data" in refusal and "--structure" in refusal
    assert run(["diff", str(a), str(b), "--structure"]) == 0


def test_a_large_constant_of_a_node_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx", reason="ONNX files are written with onnx")
    helper = onnx.helper
    for name, last in (("a", 1.0), ("b", 2.0)):
        values = [1.0] * 31 + [last]
        node = helper.make_node(
            "Constant",
            [],
            ["y"],
            value=helper.make_tensor("c", onnx.TensorProto.FLOAT, [32], values),
        )
        y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [32])
        graph = helper.make_graph([node], "g", [], [y])
        onnx.save(helper.make_model(graph), str(tmp_path / f"{name}.onnx"))
    code, told = difference(capsys, tmp_path / "a.onnx", tmp_path / "b.onnx")
    (changed,) = told["structure"]["changed"]
    assert code == 1 and "checksum" in changed["settings"]["value"][0]


def test_nothing_that_a_file_has_pickled_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "ran"

    class Wicked:
        def __reduce__(self) -> object:
            return Path.touch, (marker,)

    a = saved(tmp_path / "a.pt2")
    content = io.BytesIO()
    torch.save(Wicked(), content)
    bad = tmp_path / "b.pt2"
    with zipfile.ZipFile(a) as source, zipfile.ZipFile(bad, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("model_weights_config.json"):
                data = data.replace(b'"use_pickle": false', b'"use_pickle": true')
            elif "/weights/weight_" in name:
                data = content.getvalue()
            target.writestr(name, data)
    assert run(["diff", str(a), str(bad)]) == 2
    assert not marker.exists()
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(("content", "why"), [(8, "more values than"), (0, "invalid")])
def test_values_that_a_file_does_not_hold_are_refused(
    content: int, why: str, tmp_path: Path
) -> None:
    meta = {
        "dtype": 7,
        "sizes": [{"as_int": 1 << 40}],
        "strides": [{"as_int": 0}],
        "storage_offset": {"as_int": 0},
    }
    entry = {"path_name": "w", "use_pickle": False, "tensor_meta": meta}
    file = tmp_path / "many.pt2"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/weights_config.json", json.dumps({"config": {"w": entry}}))
        archive.writestr("a/w", bytes(content))
    with pytest.raises(SourceError, match=why):
        of_pt2(file)["w"]()
