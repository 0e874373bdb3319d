"""What a drawing cannot follow is still imported, as one node of the file's own class."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from app.builder.analysis import analyse
from app.cli import run
from app.features.importing import task
from app.features.importing.compute.fallbacks import FallbackChooser
from app.features.importing.compute.pipeline import Wish, imported
from app.features.importing.compute.tracing.frames import TraceError
from app.features.importing.values import ModelImportError
from app.features.importing.values import remarks as remarks_of
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from tests.support import own_code

HEAD = """
import collections
import dataclasses
import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

class Gate(nn.Module):
    def __init__(self, width: int, power: float = 1.0):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.power = power

    def forward(self, x):
        y = self.fc(x)
        if y.sum() > 0:
            return y * self.power
        return -y
"""


@pytest.fixture
def own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None
) -> Iterator[Path]:
    """A file of one's own that is trusted for the time of a test."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path / "nets.py"
    sys.modules.pop("nets", None)


def made(file: Path, text: str, name: str, arguments: dict | None = None) -> nn.Module:
    """What the process that runs a file does first."""
    file.write_text(HEAD + text)
    torch.default_generator.manual_seed(0)
    call = name.endswith("()")
    own_code.trust(f"{file}:made")
    return task.make_from_file(
        SourceSpec("file", str(file), name.removesuffix("()"), call), arguments or {}
    )


def drawn(file: Path, model: nn.Module, *inputs: torch.Tensor) -> Project:
    """And what it does then."""
    sizes = tuple(
        InputSpec(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in inputs
    )
    name = type(model).__name__
    wish = Wish(name, name, sizes)
    project = imported(model, wish, file.parent, dict, task._own_classes(file))
    return project_file.loads(project_file.dumps(project))


def code_of(project: Project):
    answer = analyse(project.graph, custom_layers.ops_of(project))
    assert not answer.errors, [
        (problem.message, problem.reason) for problem in answer.errors
    ]
    return answer.source


def leaves(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [
        leaf
        for item in (value.values() if isinstance(value, dict) else value)
        for leaf in leaves(item)
    ]


def same(
    file: Path,
    text: str,
    name: str,
    *inputs: torch.Tensor,
    arguments: dict | None = None,
) -> Project:
    """Import, and hold the code against the model in double precision and in both modes: outputs, gradients, keys."""
    model = made(file, text, name, arguments)
    project = drawn(file, model, *inputs)
    ours = make_module(code_of(project))
    assert list(ours.state_dict()) == list(model.state_dict()) or set(
        ours.state_dict()
    ) == set(model.state_dict())
    ours.load_state_dict(model.state_dict(), strict=True)
    ours.double(), model.double()
    given = [x.double() if x.is_floating_point() else x for x in inputs]
    for training in (True, False):
        found = []
        for net in (ours.train(training), model.train(training)):
            torch.manual_seed(3)
            net.zero_grad()
            values = leaves(net(*given))
            sum(value.square().mean() for value in values).backward()
            found.append((values, {key: p.grad for key, p in net.named_parameters()}))
        (mine, my_grads), (theirs, their_grads) = found
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
        assert my_grads.keys() == their_grads.keys()
        for key, gradient in their_grads.items():
            assert (gradient is None) == (my_grads[key] is None)
            if gradient is not None:
                torch.testing.assert_close(
                    my_grads[key], gradient, rtol=1e-9, atol=1e-12
                )
    state = ours.state_dict()
    assert all(
        torch.equal(state[key], value) for key, value in model.state_dict().items()
    )
    return project


def ops(project: Project) -> list[str]:
    return [
        node.op
        for node in project.graph.nodes.values()
        if node.op not in ("input", "output")
    ]


IN = torch.linspace(-1, 1, 12).reshape(3, 4) + 0.1


def test_the_smallest_submodule_is_one_node_and_the_rest_is_drawn(own: Path) -> None:
    text = """
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.gates = nn.ModuleList([Gate(width), Gate(width, power=2.0)])

    def forward(self, x):
        x = self.stem(x).relu()
        for gate in self.gates:
            x = gate(x)
        return x
"""
    project = same(own, text, "Net", IN, arguments={"width": 5})
    assert ops(project) == [
        "nn.Linear",
        "F.relu",
        "custom.nets:Gate",
        "custom.nets:Gate",
    ]
    assert project.layer_files == (str(own),)
    remarks = remarks_of(project)
    assert len(remarks) == 2 and remarks[0].startswith(
        "gates.0 (Gate) is one node, run by its own code: "
    )
    assert "depends on the values of the data" in remarks[1]
    text = code_of(project).text
    assert "from nets import Gate" in text and "Gate(5, power=2.0)" in text
    assert code_of(project).files[0].text == own.read_text()


def test_a_model_that_cannot_be_followed_from_the_top_is_one_node_with_the_keys_of_its_class(
    own: Path,
) -> None:
    text = """
class Loop(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = nn.Linear(4, width)

    def forward(self, x):
        while x.sum() > 0:
            x = x - 1
        return self.fc(x), x
"""
    project = same(own, text, "Loop", IN, arguments={"width": 2})
    assert ops(project) == ["custom.nets:Loop"]
    assert (
        "class Net(Loop):" in code_of(project).text
        and "super().__init__(width=2)" in code_of(project).text
    )
    renamed = project.graph.nodes["n1"]
    graph = project.graph.with_node(
        type(renamed)(renamed.id, renamed.op, "loop", renamed.params)
    )
    keys = make_module(
        analyse(graph, custom_layers.ops_of(project)).source
    ).state_dict()
    assert set(keys) == {
        "loop.fc.weight",
        "loop.fc.bias",
    }  # any other name is an attribute like others


def test_what_was_made_with_no_literals_takes_the_module_around_it(own: Path) -> None:
    text = """
class Choice(nn.Module):
    def __init__(self, inner, act=torch.relu):
        super().__init__()
        self.inner, self.act = inner, act

    def forward(self, x):
        return self.act(self.inner(x)) if x.mean() > 0 else x

class Stage(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.choice = Choice(nn.Linear(width, width), torch.tanh)

    def forward(self, x):
        return self.choice(x) + 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(Stage(4), Stage(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.stages(x))
"""
    project = same(own, text, "Net", IN)
    told = remarks_of(project)
    assert len(told) == 2 and told[0].startswith("stages.0 (Stage) is one node")


NETS = {
    "item": ("self.fc = nn.Linear(4, 4)", "return self.fc(x) * x.max().item()"),
    "numpy": (
        "self.fc = nn.Linear(4, 4)",
        "return self.fc(x) + torch.from_numpy(numpy.sign(x.detach().numpy()))",
    ),
    "counter": (
        "self.fc = nn.Linear(4, 4); self.calls = 0",
        "self.calls += 1; return self.fc(x)",
    ),
    "buffer": (
        "self.fc = nn.Linear(4, 4); self.register_buffer('seen', torch.zeros(()))",
        "self.seen += 1; return self.fc(x)",
    ),
    "in place": (
        "self.fc = nn.Linear(4, 4); self.register_buffer('seen', torch.zeros(4))",
        "self.seen.add_(x.detach().mean(0)); return self.fc(x)",
    ),
    "gradient hook": (
        "self.fc = nn.Linear(4, 4); self.fc.weight.register_hook(lambda g: g * 2)",
        "return self.fc(x)",
    ),
    "backward hook": (
        "self.fc = nn.Linear(4, 4); self.scale = nn.Parameter(torch.ones(4)); "
        "self.fc.register_full_backward_hook(lambda m, i, o: (i[0] * 2,))",
        "return self.fc(x * self.scale)",
    ),
    "forward hook": (
        "self.fc = nn.Linear(4, 4); self.fc.register_forward_hook(lambda m, i, o: o * 2)",
        "return self.fc(x)",
    ),
    "pre-hook": (
        "self.fc = nn.Sequential(nn.Linear(4, 4)); "
        "self.fc.register_forward_pre_hook(lambda m, i: (i[0] + 1,))",
        "return self.fc(x)",
    ),
    "old weight norm": (
        "self.fc = nn.utils.weight_norm(nn.Linear(4, 4))",
        "return self.fc(x)",
    ),
    "spectral norm": (
        "self.fc = parametrizations.spectral_norm(nn.Linear(4, 4))",
        "return self.fc(x)",
    ),
    "scripted": (
        "self.a = nn.Linear(4, 4); self.b = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))",
        "return self.b(self.a(x))",
    ),
    "function": ("self.fc = nn.Linear(4, 4)", "return Twice.apply(self.fc(x))"),
    "recursion": (
        "self.fc = nn.Linear(4, 4)",
        "return self(self.fc(x), depth - 1) if depth else x",
    ),
    "two names": (
        "self.a = nn.Linear(4, 4); self.b = self.a",
        "return self.b(self.a(x))",
    ),
    "tied": (
        "self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4); self.b.weight = self.a.weight",
        "return self.b(self.a(x))",
    ),
    "weight of another": (
        "self.a = nn.Linear(4, 4)",
        "return F.linear(self.a(x), self.a.weight)",
    ),
    "packed": (
        "self.rnn = nn.LSTM(2, 4, batch_first=True)",
        "from torch.nn.utils.rnn import pack_padded_sequence as pack, pad_packed_sequence as pad\n"
        "        x, sizes = x.reshape(-1, 2, 2), torch.tensor([2] * (len(x) - 1) + [1])\n"
        "        return pad(self.rnn(pack(x, sizes, True))[0], True)[0]",
    ),
    "large constant": (
        "self.fc = nn.Linear(4, 5000); self.scale = torch.arange(5000.0)",
        "return self.fc(x) * self.scale",
    ),
    "keeps what it saw": (
        "self.fc = nn.Linear(4, 4)",
        "self.last = self.fc(x); return self.last.relu()",
    ),
    "stars": (
        "self.add = Add(); self.fc = nn.Linear(4, 4)",
        "return self.add(x, self.fc(x), x * 2)",
    ),
    "named tuple": ("self.pair = Pairs()", "p = self.pair(x); return p.left + p.right"),
    "dataclass": (
        "self.both = Boths()",
        "b = self.both(x, power=3); return b.one * b.two",
    ),
    "list": ("self.parts = Parts(4)", "return torch.cat(self.parts([x, x + 1]), 1)"),
    "own sequential": (
        "self.body = Row(nn.Linear(4, 4), nn.Tanh())",
        "return self.body(x)",
    ),
    "mask": ("self.fc = nn.Linear(4, 4)", "y = self.fc(x); return y[x > 0].sum() + y"),
}
MORE = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return g * 2

class Add(nn.Module):
    def forward(self, *xs, scale=1.0):
        return sum(xs) * scale

Pair = collections.namedtuple("Pair", "left right")

class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return Pair(left=self.fc(x), right=x)

@dataclasses.dataclass
class Both:
    one: torch.Tensor
    two: torch.Tensor
    three: torch.Tensor = None

class Boths(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, power=2):
        return Both(self.fc(x), x ** power)

class Parts(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, xs):
        return [self.fc(x) for x in xs]

class Row(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = x + layer(x)
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x{rest}):
        {forward}
"""


@pytest.mark.parametrize("kind", NETS)
def test_hostile_code_is_the_same_net_all_the_same(kind: str, own: Path) -> None:
    init, forward = NETS[kind]
    rest = ", depth: int = 2" if kind == "recursion" else ""
    same(own, MORE.format(init=init, forward=forward, rest=rest), "Net", IN)


@pytest.mark.parametrize(
    ("init", "forward", "words"),
    [
        (
            "self.rows = [nn.Linear(4, 4)]",
            "return self.rows[0](x)",
            r"rows\[0\].weight is in no state_dict",
        ),
        (
            "self.noise = torch.randn(90000)",
            "return x.sum() + self.noise",
            "noise is in no state_dict",
        ),
        (
            "self.fc = nn.Linear(4, 4)",
            "return {'a': self.fc(x) if x.sum() > 0 else x}",
            "returns a dict",
        ),
        (
            "self.fc = nn.Linear(5, 4)",
            "return self.fc(x) if x.sum() > 0 else x",
            "Net does not accept its input: ",
        ),
        ("raise OSError('no such data')", "return x", "no such data"),
    ],
)
def test_what_cannot_be_helped_is_said_with_the_place_and_the_reason(
    init: str, forward: str, words: str, own: Path
) -> None:
    with pytest.raises(ModelImportError, match=words):
        drawn(
            own, made(own, MORE.format(init=init, forward=forward, rest=""), "Net"), IN
        )


@pytest.mark.usefixtures("forked_trials")
def test_the_command_says_which_part_became_what_and_the_project_opens_with_its_file(
    tmp_path: Path, capsys
) -> None:
    text = """
class Loop(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.gate = Gate(width)

    def forward(self, x):
        return self.gate(x) + 1
"""
    (tmp_path / "nets.py").write_text(HEAD + text)
    out = tmp_path / "p.tape"
    asked = [
        "import",
        f"{tmp_path / 'nets.py'}:Loop",
        "--input",
        "1x4",
        "--trust",
        "--keep-weights",
        "-o",
        str(out),
    ]
    assert run(asked) == 0
    told = capsys.readouterr().out
    assert "gate (Gate) is one node, run by its own code" in told
    project = project_file.read(out)
    assert project.layer_files == (
        str(tmp_path / "nets.py"),
    ) and "custom.nets:Gate" in ops(project)


def test_calls_that_vary_where_no_node_can_be_made_are_said_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    chooser = FallbackChooser(model, None, ((torch.ones(1, 2),), {}))
    error = TraceError("Sequential cannot be followed: it varies", "", inline=True)
    with pytest.raises(TraceError, match="^Sequential cannot be followed: it varies$"):
        chooser.add_fallback(error)


def test_a_part_of_a_block_that_is_called_again_from_outside_is_the_same_layer(
    own: Path,
) -> None:
    text = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        return x + self.inner(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.blocks[0].inner(x)
"""
    project = same(own, text, "Net", IN)
    assert "nets" not in "".join(
        project.layer_files
    )  # drawn, not kept as a node of its class
