"""A live module becomes a drawing whose code is the same net: keys, outputs and gradients, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from app.builder.analysis import analyse
from app.cli import run
from app.features.importing.compute.pipeline import project_of
from app.features.importing.process import import_file
from app.features.importing.values import ImportModel, ModelImportError, parse_inputs
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceNameError, parse_source
from app.util.torchvision_import import import_torchvision
from tests.support import own_code


def drawn(
    model: nn.Module, *shapes: tuple[int, ...], dtype: str = "float32"
) -> Project:
    project = project_of(
        model, tuple(InputSpec(shape, dtype) for shape in shapes), type(model).__name__
    )
    again = project_file.loads(project_file.dumps(project))
    assert again == project
    return again


def code_of(project: Project):
    answer = analyse(project.graph, custom_layers.ops_of(project))
    assert not answer.errors, [
        (problem.message, problem.reason) for problem in answer.errors
    ]
    return answer.source


def leaves(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return [leaf for item in values for leaf in leaves(item)]


def same(model: nn.Module, *inputs: torch.Tensor) -> Project:
    """Draw a model, and hold what comes out of the drawing against it, in double precision and in both modes."""
    project = drawn(
        model,
        *(tuple(x.shape) for x in inputs),
        dtype=str(inputs[0].dtype).removeprefix("torch."),
    )
    ours = make_module(code_of(project))
    ours.load_state_dict(model.state_dict(), strict=True)
    ours.double()
    model = model.double()
    given_ = [x.double() if x.is_floating_point() else x for x in inputs]
    for training in (True, False):
        ours.train(training), model.train(training)
        results = []
        for net in (ours, model):
            torch.manual_seed(3)
            net.zero_grad()
            values = leaves(net(*given_))
            sum(value.square().mean() for value in values).backward()
            results.append(
                (values, {name: p.grad for name, p in net.named_parameters()})
            )
        (mine, my_grads), (theirs, their_grads) = results
        assert [a.shape for a in mine] == [b.shape for b in theirs]
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
        assert my_grads.keys() == their_grads.keys()
        for name, gradient in their_grads.items():
            if gradient is None:
                assert my_grads[name] is None
            else:
                torch.testing.assert_close(
                    my_grads[name], gradient, rtol=1e-9, atol=1e-12
                )
    state = ours.state_dict()
    assert all(
        torch.equal(state[name], value) for name, value in model.state_dict().items()
    )
    return project


class Unit(nn.Module):
    def __init__(self, given_: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(given_, channels, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.skip = nn.Conv2d(given_, channels, 1, stride=stride)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)) + self.skip(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.stage = nn.Sequential(Unit(4, 4), Unit(4, 4), Unit(4, 4))
        self.down = nn.Sequential(Unit(4, 8, 2), Unit(8, 8), Unit(8, 8))
        self.heads = nn.ModuleList([nn.Linear(8, 5), nn.Linear(8, 5)])
        self.gate = nn.ModuleDict({"a": nn.Linear(8, 1), "b": nn.Linear(8, 1)})

    def forward(self, x):
        x = self.down(self.stage(self.stem(x)))
        x = x.mean([2, 3])
        parts = [
            head(x) * torch.sigmoid(gate(x))
            for head, gate in zip(self.heads, self.gate.values(), strict=True)
        ]
        return torch.stack(parts, 1).sum(1)


def test_equal_submodules_are_one_block_and_equal_ones_in_a_row_one_node() -> None:
    project = same(Net(), torch.randn(4, 3, 12, 12))
    assert [name for name in project.blocks if "Unit" in name] == ["Unit"]
    stage = next(node for node in project.graph.nodes.values() if node.name == "stage")
    assert stage.op == "block.Unit" and stage.repeat == 3
    text = code_of(project).text
    assert (
        text.count("class ") == 2
        and "nn.ModuleList(" in text
        and "for _ in range(3)" in text
    )


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = 0.2

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(n, t, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        weights = F.dropout(
            F.softmax(q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5, dim=-1),
            self.drop,
            self.training,
        )
        return self.out((weights @ v).transpose(1, 2).reshape(n, t, c))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))
        self.layers = nn.ModuleList([Attention(8, 2) for _ in range(2)])
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        x = torch.cat([self.first.expand(x.size(0), -1, -1), self.embed(x)], dim=1)
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return x[:, 0] * self.scale[0] - self.scale[1:], x[:, 1:].amax(1)


def test_sizes_are_computed_and_parameters_free_as_they_were() -> None:
    project = same(Tokens(), torch.randint(0, 11, (3, 5)))
    text = code_of(project).text
    assert (
        "self.training" in text
        and ".size(" in text
        and text.count("class Attention") == 1
    )
    ours = make_module(code_of(project))
    ours(torch.zeros(7, 4, dtype=torch.int64))  # another batch, another length


class Reused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh())

    def forward(self, x):
        return self.inner(self.fc(self.inner(self.fc(x))))


def test_a_module_called_twice_has_its_weights_once() -> None:
    project = same(Reused(), torch.randn(2, 6))
    assert sum(bool(node.shares) for node in project.graph.nodes.values()) == 2


class Modes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.aux = (
            nn.Linear(4, 4),
            nn.Linear(4, 3),
            nn.Linear(4, 2),
        )

    def forward(self, x):
        x = self.body(x)
        if self.training:
            return self.head(x), self.aux(x)
        return self.head(x)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return {"out": self.a(x), "aux": self.b(x)}


class Filled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        mask = x.new_zeros((x.size(1), x.size(1)))
        for row in range(2):
            mask[row, row:] = row + 1.0
        y = self.fc(x)
        y[:, 1:] += x[:, 1:]
        y.mul_(2.0)
        return y @ mask


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 5, num_layers=2, batch_first=True)
        self.cell = nn.GRUCell(5, 5)

    def forward(self, x):
        x, (h, c) = self.rnn(x)
        return self.cell(x[:, -1], h[0]) + c[1]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(
            8, 2, 16, batch_first=True, activation="gelu"
        )

    def forward(self, x):
        y, weights = self.attn(x, x, x)
        return self.layer(x + y), weights


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module("block-1", nn.Linear(4, 4))
        self.add_module("0", nn.Linear(4, 4))
        self.add_module("class", nn.Linear(4, 4))
        self.register_parameter("größe", nn.Parameter(torch.ones(4)))

    def forward(self, x):
        for name in ("block-1", "0", "class"):
            x = getattr(self, name)(x)
        return x * self.größe


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (Modes, (3, 4)),
        (Named, (3, 4)),
        (Filled, (3, 4)),
        (Recurrent, (3, 6, 4)),
        (Encoder, (3, 5, 8)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_is_the_same_net(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    same(make(), torch.randn(shape))


def test_keys_that_are_no_identifiers_are_kept() -> None:
    project = drawn(Odd(), (2, 4))
    ours = make_module(code_of(project))
    assert {"block-1.weight", "0.bias"} <= set(ours.state_dict())


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Unwritten(nn.Module):
    def forward(self, x):
        raise NotImplementedError("my own words")


class Depends(nn.Module):
    def forward(self, x):
        return x[x > 0].sum()


@pytest.mark.parametrize(
    ("model", "shape", "words"),
    [
        (Depends(), (2, 3), "depends on the values"),
        (Branches(), (2, 3), "Branches .*depends on the values"),
        (Unwritten(), (2, 3), "NotImplementedError: my own words"),
        (
            nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 6)),
            (2, 3),
            r"1, Linear.* does not accept its input \(2×4\)",
        ),
        (
            nn.Sequential(nn.Linear(3, 4)),
            (2, 7),
            r"0, Linear.in_features=3, .* does not accept its input \(2×7\)",
        ),
    ],
)
def test_what_cannot_be_drawn_says_where_and_why(
    model: nn.Module, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ModelImportError, match=words):
        drawn(model, shape)


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "shufflenet_v2_x0_5"])
def test_models_of_torchvision_are_shorter_and_the_same(name: str) -> None:
    torch.manual_seed(0)
    model = import_torchvision("models").get_model(name, weights=None, num_classes=7)
    same(model, torch.randn(2, 3, 64, 64))


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from(["linear", "relu", "norm", "twice", "skip", "cat"]),
        min_size=1,
        max_size=8,
    ),
    st.randoms(),
)
def test_any_row_of_layers_comes_back(kinds: list[str], chance) -> None:
    class Row(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.BatchNorm1d(4)
                if kind == "norm"
                else nn.Linear(8 if kind == "cat" else 4, 4)
                for kind in kinds
            )

        def forward(self, x):
            for kind, layer in zip(kinds, self.layers, strict=True):
                if kind == "cat":
                    x = layer(torch.cat((x, x.flip(1)), 1))
                elif kind == "skip":
                    x = x + layer(x)
                elif kind == "twice":
                    x = layer(layer(x))
                else:
                    x = layer(x).relu() if kind == "relu" else layer(x)
            return x

    same(Row(), torch.randn(3, 4))


# --- Sources and the command


@pytest.mark.parametrize(
    "text",
    ["resnet18", "torchvision:", ":", "x.py:f(1)"],
)
def test_a_source_that_is_none_says_how_one_is_written(text: str) -> None:
    with pytest.raises(SourceNameError, match="does not name a model; write"):
        parse_source(text)


@pytest.mark.parametrize(
    "text", ["", "3x", "0x3", "1x3:float", "axb", "1x3:int64:int64", "9" * 20]
)
def test_an_input_that_is_none_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ModelImportError):
        parse_inputs([text])


FILE = """
import pathlib
pathlib.Path({mark!r}).write_text("ran")
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = nn.Linear(3, width)

    def forward(self, x):
        return self.fc(x).relu()

def make():
    return Mine(7)

def hang():
    while True:
        pass

def wrong():
    return "no module"
"""


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    file = tmp_path / "nets.py"
    file.write_text(FILE.format(mark=str(tmp_path / "mark")))
    return file


def test_a_file_runs_only_with_trust_and_in_a_process_of_its_own(
    own_file: Path, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "p.tape"
    assert run(["import", f"{own_file}:Mine", "--input", "1x3", "-o", str(out)]) == 1
    assert (
        "pass --trust" in capsys.readouterr().err
        and not (tmp_path / "mark").exists()
        and not out.exists()
    )
    arguments = [
        "import",
        f"{own_file}:Mine",
        "--input",
        "1x3",
        "--args",
        '{"width": 9}',
        "--trust",
        "--keep-weights",
    ]
    assert run([*arguments, "-o", str(out)]) == 0
    assert (tmp_path / "mark").exists() and "36 parameters" in capsys.readouterr().out
    from safetensors.torch import load_file

    ours = make_module(code_of(project_file.read(out)))
    ours.load_state_dict(load_file(tmp_path / "p.safetensors"), strict=True)
    assert ours(torch.zeros(2, 3)).shape == (2, 9)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong()", "not an nn.Module"),
        ("missing", "it has Mine, make(), hang(), wrong()"),
    ],
)
def test_a_file_without_such_a_model_says_what_it_has(
    own_file: Path, name: str, words: str
) -> None:
    source = parse_source(f"{own_file}:{name}")
    inputs = (InputSpec((1, 3)),)
    own_code.trust(f"{own_file}:{name}")
    with pytest.raises(ModelImportError) as told:
        import_file(ImportModel(source, {}, inputs), own_file.parent)
    assert words in str(told.value)


def test_a_file_that_never_ends_is_stopped(own_file: Path) -> None:
    source = parse_source(f"{own_file}:hang()")
    own_code.trust(f"{own_file}:hang")
    with pytest.raises(ModelImportError, match="was stopped"):
        import_file(
            ImportModel(source, {}, (InputSpec((1, 3)),)), own_file.parent, patience=2
        )


def test_torchvision_by_its_name(tmp_path: Path, capsys) -> None:
    out = tmp_path / "net.tape"
    assert (
        run(
            [
                "import",
                "torchvision:squeezenet1_1",
                "-o",
                str(out),
                "--args",
                '{"num_classes": 3}',
            ]
        )
        == 0
    )
    project = project_file.read(out)
    assert "blocks" in capsys.readouterr().out and "Fire" in project.blocks
    assert run(["import", "torchvision:resnet19", "-o", str(out)]) == 1
    assert "resnet18" in capsys.readouterr().err
