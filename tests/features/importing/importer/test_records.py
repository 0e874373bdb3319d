"""Classes that return a record, and the habits of installed packages around them: one node with an output a field."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.builder.analysis import analyse
from app.builder.catalog.catalog import OpSpec
from app.features.importing import task
from app.features.importing.values import ImportModel
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from tests.support import own_code

PACKAGE = '''
import functools
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, fields

import torch
from torch import nn
from torch.nn import functional as F

class Cache:
    """What is no tensor, and has some."""

    def __init__(self, keys):
        self.keys = keys

@dataclass
class Output(OrderedDict):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
    states: tuple = None
    cache: Cache = None

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

Pair = namedtuple("Pair", "low high none")

class Halves(nn.Module):
    """One node: it branches on a value."""

    def forward(self, x):
        low, high = x.chunk(2, -1)
        return Pair(low, high * 2 if float(x.abs().sum()) >= 0 else high, None)

def configured(forward):
    @functools.wraps(forward)
    def called(self, *args, use_cache=None, **kwargs):
        return forward(self, *args, use_cache=self.use_cache if use_cache is None else use_cache, **kwargs)

    return called

def noted(made):
    """Note which arguments were left at their defaults, which those of a node never are."""

    @functools.wraps(made)
    def called(self, config, *args, **kwargs):
        made(self, config, *args, **kwargs)
        self.given = {"_left": [] if args or kwargs else ["width"]}

    return called

class Model(nn.Module):
    """One node: it branches on a value. Its buffer holds indices, which are no numbers to make up."""

    @noted
    def __init__(self, config, width=4):
        super().__init__()
        self.config, self.use_cache = config, True
        self.embed = nn.Embedding(config["size"], width)
        self.register_buffer("places", torch.arange(8)[None], persistent=False)
        self.head = nn.Sequential(nn.Linear(width, 3))

    def extra_repr(self):
        return f"left {self.given}"

    @configured
    def forward(self, ids, labels=None, use_cache: bool | None = None, **kwargs):
        places = self.places[:, : ids.shape[1]]
        x = self.embed(ids) + self.embed(places.expand(len(ids), -1) % self.config["size"])
        x = x.tanh() if float(x.abs().sum()) >= 0 else x
        logits = self.head(x)
        loss = None if labels is None else F.cross_entropy(logits.mean(1), labels)
        return Output(loss, logits, (x, x * 2), Cache(x) if use_cache else None)

class Guarded(nn.Module):
    """Drawn: what it asks about gradients changes nothing, nor where a tensor lies, and its dtype is the input's."""

    def __init__(self):
        super().__init__()
        self.fc, self.saving = nn.Linear(4, 4), False

    def forward(self, x, device):
        scale = torch.arange(2, device=device).repeat_interleave(2, output_size=4).to(next(self.parameters()).dtype)
        if torch.is_grad_enabled() and self.saving:
            return torch.utils.checkpoint.checkpoint(self.fc, x)
        if self.training:
            x = x.contiguous()
        best = x.max(-1, keepdim=True)
        return self.fc(x) * scale + best.indices * best.values
'''


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None
) -> Iterator[Path]:
    """A folder beside one in which the package is installed."""
    package = tmp_path / "installed" / "recorded"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "mine").mkdir()
    yield tmp_path / "mine"
    for name in ("recorded", "records_net"):
        sys.modules.pop(name, None)


def redrawn(folder: Path, text: str, *inputs: InputSpec) -> tuple[Project, str]:
    """Import `Net` of a file, held against the live model; the project and its source. The order of the parameters is
    the model's, so that the state_dict of an optimizer fits."""
    file = folder / "records_net.py"
    file.write_text(
        f"import torch\nfrom torch import nn\nfrom recorded import *\n\n{text}"
    )
    own_code.trust(f"{file}:Net")
    project = task.answer(
        ImportModel(SourceSpec("file", str(file), "Net"), {}, inputs), folder
    )
    assert project.origin is not None
    assert (
        "outputs, gradients and buffers equal in eval and train mode"
        in project.origin.checked
    )
    found = analyse(project.graph, custom_layers.ops_of(project))
    assert not found.errors
    project_file.write(project, folder / "net.tape")
    assert project_file.read(folder / "net.tape").graph == project.graph
    theirs, ours = sys.modules["records_net"].Net(), make_module(found.source)
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]
    return project, found.source.text


def spec_of(project: Project, key: str) -> OpSpec:
    return custom_layers.ops_of(project)[key]


def test_a_class_that_returns_a_record_is_one_node_with_an_output_for_each_tensor_in_it(
    folder: Path,
) -> None:
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lm, self.halves = Model({"size": 5}), Halves()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(2, 2)

    def forward(self, ids, labels):
        out = self.lm(ids, labels=labels, use_cache=True, return_dict=True)
        pair = self.halves(self.first(out.states[1]))
        return self.last(pair.low + pair.high).sum() + out["loss"], out.logits
"""
    project, source = redrawn(
        folder, text, InputSpec((3, 6), "int64"), InputSpec((3,), "int64")
    )
    outputs = [
        port.name for port in spec_of(project, "custom.recorded_Model:Model").outputs
    ]
    assert outputs == ["loss", "logits", "states0", "states1"]
    assert [
        port.name for port in spec_of(project, "custom.recorded_Halves:Halves").outputs
    ] == ["low", "high"]
    assert (
        "loss, logits, _, states1 = self.lm(ids, labels=labels, use_cache=True)"
        in source
    )
    assert "low, high = self.halves(" in source
    assert any(node.op == "nn.Linear" for node in project.graph.nodes.values())


def test_a_net_whose_outermost_class_returns_a_record_has_its_fields_as_outputs(
    folder: Path,
) -> None:
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Model({"size": 5})

    def forward(self, ids):
        return self.model(ids)
"""
    project, source = redrawn(folder, text, InputSpec((3, 6), "int64"))
    names = [node.name for node in project.graph.nodes.values() if node.op == "output"]
    assert (
        names == ["logits", "states.0", "states.1"]
        and 'return {"logits": logits, ' in source
    )


def test_parameters_keep_their_order_among_nodes_of_classes_and_functions(
    folder: Path,
) -> None:
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.lm = nn.Linear(3, 2), Model({"size": 5})
        self.cross_entropy, self.scale = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
        nn.init.normal_(self.lm.head[0].weight, std=0.5)

    def forward(self, ids, labels):
        out = self.lm(ids)
        logits = self.cross_entropy(self.last(out.logits.mean(1)) * self.scale)
        return F.cross_entropy(logits, labels)
"""
    project, source = redrawn(
        folder, text, InputSpec((3, 6), "int64"), InputSpec((3,), "int64")
    )
    assert "self.last = nn.Linear(3, 2)" in source and "self.cross_entropy2(" in source
    assert "lm.head.0.weight, which no setting of a node can express" in project.notes


def test_what_a_forward_asks_about_gradients_and_devices_does_not_keep_it_from_being_drawn(
    folder: Path,
) -> None:
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.guarded = Guarded()

    def forward(self, x):
        return self.guarded(x, x.device)
"""
    project, _ = redrawn(folder, text, InputSpec((3, 4)))
    graphs = [project.graph, *(block.graph for block in project.blocks.values())]
    ops = {node.op for graph in graphs for node in graph.nodes.values()}
    assert (
        "nn.Linear" in ops
        and "torch.repeat_interleave" in ops
        and not any(op.startswith("custom.") for op in ops)
    )
